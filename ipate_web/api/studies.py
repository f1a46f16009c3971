"""Endpoints of studies: public facts, datasets that runs can use, new rehearsals, and the user's tasks."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_view
from rest_framework import exceptions, generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.group_budgets import head_counts
from accounting.models import HeadCount
from accounting.shares import share_free
from consent.committee import conditions_in_force
from consent.models import ConflictOfInterest, Level, Remark, Role, Study
from consent.models.roles import GIVERS
from consent.permissions import studies_with_permission, study_permissions
from consent.selectors import policy_in_force
from consent.services import study_create
from consent.services.accounts import account_of_staff
from ipate_web.api.base import (
    ApiView,
    MinuteField,
    StrictSerializer,
    body_of,
    created,
    operation,
    request_user,
    visible_study,
)
from ipate_web.tokens.models import Scope
from ipate_web.waiting import Kind, waiting_for
from learning.formats import schema_from_json
from training.models import Dataset

MOST_MEMBERS = 100
REHEARSAL_STUDY = OpenApiExample(
    "A rehearsal study",
    request_only=True,
    value={
        "slug": "digits-rehearsal",
        "title": "Digits: rehearsal",
        "purpose": "Compare variants on digits that are published anyway.",
        "controller": "City Hospital",
        "contact": "privacy@hospital.example",
        "rehearsal": True,
        "members": [],
    },
)
#: Shown only on pages, because they depend on how long private work takes and on who decided what.
_PAGES_ALONE = frozenset({Kind.SILENT, Kind.ERASURES, Kind.LETTERS})


class StudySerializer(serializers.ModelSerializer):
    class Meta:
        model = Study
        fields = ["slug", "title", "purpose", "controller", "contact", "contact_telephone", "delta", "rehearsal"]
        extra_kwargs: dict[str, dict[str, Any]] = {"delta": {"label": "δ"}}


class PolicySerializer(serializers.Serializer):
    """The ε policy in force."""

    version = serializers.IntegerField()
    effective_from = serializers.DateTimeField(source="approval.effective_from")


class LevelSerializer(serializers.Serializer):
    """A level of protection and the ε promised to people who choose it now."""

    level = serializers.ChoiceField(Level.choices)
    epsilon = serializers.FloatField(allow_null=True, help_text="Promised ε; null if no ε policy is in force.")


class ConditionSerializer(serializers.Serializer):
    """A conditional approval of the policy or form in force."""

    about = serializers.SerializerMethodField(help_text="Subject of the approval: `policy` or `form`.")
    conditions = serializers.CharField(source="text")
    approved_by = serializers.CharField(source="made_by.username")
    approved_at = serializers.DateTimeField(source="made_at")

    @extend_schema_field({"type": "string", "enum": ["policy", "form"]})
    def get_about(self, remark: Remark) -> str:
        return "policy" if remark.policy_id else "form"


class CommitteeSerializer(serializers.Serializer):
    """Decisions of the study's ethics committee, as shown on the study's page."""

    quorum = serializers.IntegerField(
        help_text="Number of people besides the proposer who have to approve an ε policy or a consent form."
    )
    harm = serializers.CharField(
        help_text="Example of harm that people read when they choose a level; empty until it is written."
    )
    conditions = ConditionSerializer(
        many=True,
        allow_null=True,
        help_text="Conditional approvals of the policy and the form in force; null unless you may see the study's "
        "overview.",
    )
    conflicts = serializers.IntegerField(
        allow_null=True,
        help_text="Number of people who have declared a conflict of interest; null unless you may see the study's "
        "overview.",
    )


class HeadCountSerializer(serializers.ModelSerializer):
    """Number of holders with a promise: a public number, or a noisy one with standard deviation ``sigma``."""

    release = serializers.IntegerField(
        source="release.sequence", help_text="Number of the entry in the release register."
    )

    class Meta:
        model = HeadCount
        fields = ["level", "epsilon", "count", "sigma", "release"]
        extra_kwargs = {"sigma": {"help_text": "Standard deviation of the noise; null if the number was entered."}}


class DatasetSerializer(serializers.ModelSerializer):
    """A dataset and the format of its records. The size of a private dataset is not shown."""

    classes = serializers.ListField(child=serializers.CharField())
    shape = serializers.SerializerMethodField()
    schema = serializers.JSONField(help_text="Schema of a record: columns or image size, and classes.")
    rows = serializers.SerializerMethodField()
    holders = serializers.SerializerMethodField()

    class Meta:
        model = Dataset
        fields = ["id", "name", "kind", "classes", "shape", "schema", "rows", "holders", "most_records"]
        extra_kwargs = {
            "most_records": {
                "help_text": "Largest number of records stored for one holder; null if there was no limit."
            }
        }

    def get_shape(self, dataset: Dataset) -> list[int]:
        return list(schema_from_json(dataset.schema).shape)

    def get_rows(self, dataset: Dataset) -> int | None:
        return self._size(dataset, dataset.rows)

    def get_holders(self, dataset: Dataset) -> int | None:
        return self._size(dataset, dataset.holders)

    def _size(self, dataset: Dataset, size: int) -> int | None:
        return None if dataset.kind == Dataset.Kind.PRIVATE else size


class StudyDetailSerializer(StudySerializer):
    policy = PolicySerializer(allow_null=True)
    levels = LevelSerializer(many=True)
    committee = CommitteeSerializer(
        allow_null=True,
        help_text="The ethics committee's decisions; null for a rehearsal, which asks no one for consent.",
    )
    head_counts = HeadCountSerializer(
        many=True, help_text="Head counts that plans are based on; empty until they are drawn or entered."
    )
    share_free = serializers.FloatField(help_text="Share of every cap that is neither used nor reserved, from 0 to 1.")
    datasets = DatasetSerializer(many=True)

    class Meta(StudySerializer.Meta):
        fields = [
            *StudySerializer.Meta.fields,
            "policy",
            "levels",
            "committee",
            "head_counts",
            "share_free",
            "datasets",
        ]


def _committee(study: Study, user: Any) -> dict[str, Any] | None:
    """Return the committee's decisions; conditions and conflicts only for users who may open its page."""
    if study.rehearsal:
        return None
    sees = "consent.view_dashboard" in study_permissions(user, study)
    return {
        "quorum": study.quorum,
        "harm": study.harm,
        "conditions": conditions_in_force(study) if sees else None,
        "conflicts": ConflictOfInterest.objects.filter(study=study).count() if sees else None,
    }


def study_document(study: Study, user: Any) -> dict[str, Any]:
    """Return the description of a study for the API."""
    policy = policy_in_force(study)
    document = {
        **StudySerializer(study).data,
        "policy": policy,
        "levels": [{"level": level, "epsilon": policy.epsilon(level) if policy else None} for level in Level.values],
        "committee": _committee(study, user),
        "head_counts": head_counts(study),
        "share_free": share_free(study),
        "datasets": study.datasets.filter(removed_at=None),
    }
    return StudyDetailSerializer(document).data


class MemberSerializer(StrictSerializer):
    """A person with an account, and the role they get."""

    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField([(role.value, role.label) for role in Role if GIVERS[role] == GIVERS[Role.OPERATOR]])

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace the name of an account by the account."""
        user = account_of_staff(attrs["username"])
        if user is None:
            raise serializers.ValidationError({"username": "There is no active account with this user name."})
        return attrs | {"user": user}


@extend_schema_field({"type": "boolean", "enum": [True]})
class RehearsalField(serializers.BooleanField):
    """Required statement that the study is a rehearsal."""

    def to_internal_value(self, data: Any) -> bool:
        if data is not True:
            raise serializers.ValidationError(
                "Give true: only rehearsal studies can be set up here. A study that asks people for consent has to be "
                "set up on its page."
            )
        return True


class RehearsalStudySerializer(StrictSerializer, serializers.ModelSerializer):
    """A rehearsal study to set up."""

    rehearsal = RehearsalField(
        help_text="Always true. Studies that ask people for consent can be set up only on the site's pages."
    )
    members = serializers.ListField(
        child=MemberSerializer(),
        default=list,
        max_length=MOST_MEMBERS,
        help_text="Members in addition to you. You become the operator and data steward, so someone else has to "
        "approve your proposals.",
    )

    class Meta:
        model = Study
        fields = [*StudySerializer.Meta.fields, "retain_votes", "members"]
        extra_kwargs = {"delta": {"required": False, "label": "δ"}}


@extend_schema_view(get=operation("Your studies", "studies"))
class StudyList(ApiView, generics.ListAPIView):
    """List the studies whose runs you may see."""

    serializer_class = StudySerializer
    scope = Scope.REHEARSE

    def get_queryset(self) -> Any:
        return studies_with_permission(self.request.user, "training.view_run").order_by("slug")

    @operation(
        "Set up a rehearsal study (administrators)",
        "studies",
        StudyDetailSerializer,
        status=201,
        request=RehearsalStudySerializer,
        examples=[REHEARSAL_STUDY],
    )
    def post(self, request: Request) -> Response:
        """Set up a study of data that is not secret. You become its operator and data steward.

        The study asks no one for consent and makes no promises. Import its data next.
        """
        user = request_user(request)
        if not user.has_perm("consent.add_study"):
            raise exceptions.PermissionDenied(
                "Only administrators of the installation can set up studies. Ask one of them."
            )
        fields = body_of(request, RehearsalStudySerializer)
        members = [(each["user"], each["role"]) for each in fields.pop("members")]
        study = study_create(acting_user=user, members=members, **fields)
        return created(study_document(study, user), "study", study.slug)


class StudyDetail(ApiView):
    """Public facts of a study."""

    @operation("A study", "studies", StudyDetailSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Return the study's purpose, controller, levels with ε, committee decisions, head counts and datasets."""
        return Response(study_document(visible_study(request.user, slug), request.user))


class TaskSerializer(serializers.Serializer):
    """A task and the URL of its page."""

    study = serializers.CharField(source="study.slug")
    kind = serializers.ChoiceField([(kind.value, kind.value) for kind in Kind if kind not in _PAGES_ALONE])
    text = serializers.CharField()
    url = serializers.SerializerMethodField(help_text="URL of the page for the task.")
    since = MinuteField(help_text="Time the task started waiting, to the minute.")
    answer_by = serializers.DateField(allow_null=True, help_text="Last day for an answer; null if none was set.")
    own = serializers.BooleanField(
        source="is_own", help_text="Whether you made the proposal. If so, someone else has to decide."
    )

    def get_url(self, task: object) -> str:
        return settings.SITE_URL.rstrip("/") + task.url  # type: ignore[attr-defined]


class WaitingSerializer(serializers.Serializer):
    waiting = TaskSerializer(many=True, help_text="Tasks, sorted by deadline, then oldest first.")


class WaitingList(ApiView):
    """Tasks that you can act on now."""

    @operation("Tasks waiting for you", "studies", WaitingSerializer)
    def get(self, request: Request) -> Response:
        """List proposals to decide on, failed runs and missing parts of your studies, according to your role in each.

        Runs without a worker, records to erase and letters to print are listed only on the overview page. They
        depend on how long private work takes or on what people decided, and API responses must not reveal either.
        """
        waiting = [task for task in waiting_for(request_user(request)) if task.kind not in _PAGES_ALONE]
        return Response(WaitingSerializer({"waiting": waiting}).data)
