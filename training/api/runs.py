"""Runs: propose, follow, approve, cancel; their labels; and, for staff alone, their plan and what they have cost."""

import csv
import io
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import exceptions, generics, serializers, status
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.selectors import account_consumption
from consent.models import Level, Study
from consent.permissions import studies_with_permission
from training.api.base import ApiView, Strict, person, require
from training.models import Dataset, Query, Run
from training.selectors import promises, run_cost_history, run_groups, run_progress, runs_visible_to
from training.services.lifecycle import run_approve, run_cancel, run_check, run_propose
from training.services.planning import plan_to_json, run_plan

NOT_FOR_PUBLICATION = (
    "Not for publication: these numbers depend on the holders' records. Publish “epsilon_published” of the run instead."
)

PROPOSAL = OpenApiExample(
    "A weighting run",
    request_only=True,
    value={
        "study": "digits",
        "title": "Weighted, 100 teachers",
        "purpose": "How many labels do these choices of protection allow?",
        "private_dataset": 1,
        "public_dataset": 2,
        "test_dataset": 3,
        "learner": "nearest_neighbour",
        "student_learner": "random_forest",
        "variant": "weighting",
        "aggregator": {"name": "confident_gnmax", "sigma": 20, "sigma_threshold": 30, "threshold": 50},
        "teachers": 100,
    },
)


def visible_run(user: Any, pk: UUID) -> Run:
    """The run, if ``user`` may see it; for everyone else it does not exist."""
    run = runs_visible_to(user).select_related("public_dataset", "account", "created_by").filter(pk=pk).first()
    if run is None:
        raise exceptions.NotFound("There is no such run, or none that you may see. GET /api/v1/runs lists yours.")
    return run


# --- Seeing ---------------------------------------------------------------------------------------------------------


class RunSerializer(serializers.ModelSerializer):
    study: serializers.SlugRelatedField = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    rejected = serializers.IntegerField(read_only=True)

    class Meta:
        model = Run
        fields = [
            *("id", "study", "title", "variant", "status", "simulation", "labels", "rejected", "stop_reason"),
            *("created_at", "ended_at"),
        ]


class ProgressSerializer(serializers.Serializer):
    """How far a run is."""

    teachers = serializers.FloatField(
        help_text="Share that is trained, 0 to 1, in tenths; in steps of one teacher if fewer than ten were asked for."
    )
    queries = serializers.IntegerField(help_text="Public points put to the vote so far.")
    points = serializers.IntegerField(help_text="Public points in all.")
    labels = serializers.IntegerField(help_text="Queries answered so far.")


class PublishedGroupSerializer(serializers.Serializer):
    """What was promised to holders, and the data-independent bound on what this run cost them.

    One for each level and ε promised, with the largest bound; staff see each privacy group.
    """

    level = serializers.ChoiceField(Level.choices)
    epsilon_promised = serializers.FloatField()
    epsilon_published = serializers.FloatField()


@extend_schema_field({"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": True})
class AggregatorField(serializers.JSONField):
    """Name and parameters, as GET /api/v1/aggregators lists them."""


class RunDetailSerializer(RunSerializer):
    progress = ProgressSerializer()
    groups = PublishedGroupSerializer(many=True)
    aggregator = AggregatorField()
    created_by: serializers.SlugRelatedField = serializers.SlugRelatedField(slug_field="username", read_only=True)
    model = serializers.UUIDField(allow_null=True, help_text="Its student model, once there is one.")
    message = serializers.CharField(allow_null=True, help_text="Why it failed or waits; for staff alone.")

    class Meta(RunSerializer.Meta):
        fields = [
            *RunSerializer.Meta.fields,
            *("purpose", "private_dataset", "public_dataset", "test_dataset", "learner", "learner_parameters"),
            *("student_learner", "student_parameters", "weight_scheme", "aggregator", "teachers", "small_groups"),
            *("on_exhausted", "method", "conversion", "batch_size", "wanted_labels"),
            *(
                "spending_share",
                "spending_epsilons",
                "created_by",
                "approved_at",
                "started_at",
                "voting_at",
                "progress",
                "groups",
                "model",
                "message",
            ),
        ]


def run_document(run: Run, user: Any) -> dict[str, Any]:
    """A run as the API tells it: parameters and what was released; of its costs, only what may be published."""
    progress, groups = run_progress(run), []
    if run.account and user.has_perm("consent.view_group_sizes", run.study):
        groups = [
            {"level": item.group.level, "epsilon_promised": item.budget, "epsilon_published": item.announced}
            for item in account_consumption(run.account)
        ]
    elif run.account:
        groups = promises(run.account)
    run.progress = {  # type: ignore[attr-defined]
        "teachers": progress.teachers_share,
        "queries": progress.position,
        "points": progress.points,
        "labels": progress.labels,
    }
    run.groups = groups  # type: ignore[attr-defined]
    run.model = run.pk if hasattr(run, "student") and not run.simulation else None  # type: ignore[attr-defined]
    if not user.has_perm("consent.view_dashboard", run.study):
        run.message = None  # type: ignore[assignment]  # it may tell how many holders there are
    return RunDetailSerializer(run).data


# --- Proposing ------------------------------------------------------------------------------------------------------


class RunProposalSerializer(Strict, serializers.ModelSerializer):
    study = serializers.SlugRelatedField(slug_field="slug", queryset=Study.objects.none())
    private_dataset = serializers.PrimaryKeyRelatedField(queryset=Dataset.objects.none())
    public_dataset = serializers.PrimaryKeyRelatedField(queryset=Dataset.objects.none())
    test_dataset = serializers.PrimaryKeyRelatedField(queryset=Dataset.objects.none(), required=False, allow_null=True)
    aggregator = AggregatorField()
    learner_parameters = serializers.DictField(required=False)
    student_parameters = serializers.DictField(required=False)

    class Meta:
        model = Run
        fields = [
            *("study", "title", "purpose", "private_dataset", "public_dataset", "test_dataset"),
            *("learner", "learner_parameters", "student_learner", "student_parameters", "variant", "weight_scheme"),
            *("aggregator", "teachers", "small_groups", "on_exhausted", "method", "conversion", "batch_size"),
            "wanted_labels",
        ]
        validators: list[Any] = []

    def get_fields(self) -> dict[str, serializers.Field]:
        """What the user may not see cannot be named either."""
        fields = super().get_fields()
        if "request" in self.context:
            studies = studies_with_permission(self.context["request"].user, "training.view_run")
            datasets = Dataset.objects.filter(study__in=studies)
            for name, field in fields.items():
                if isinstance(field, serializers.RelatedField):
                    field.queryset = studies if name == "study" else datasets  # type: ignore[arg-type]
        return fields

    def validate_aggregator(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise serializers.ValidationError("Give an object with “name” and the aggregator's parameters.")
        return value


def _proposal(request: Request) -> dict[str, Any]:
    """The fields of the proposed run, of a study in which the user may propose one."""
    proposal = RunProposalSerializer(data=request.data, context={"request": request})
    proposal.is_valid(raise_exception=True)
    require(request.user, "training.propose_run", proposal.validated_data["study"])
    return proposal.validated_data


class RunFilterSerializer(serializers.Serializer):
    """Which runs to list; all that you may see if nothing is given."""

    study = serializers.SlugField(required=False, help_text="Of this study.")
    status = serializers.ChoiceField(Run.Status.choices, required=False)
    variant = serializers.ChoiceField(Run.Variant.choices, required=False)


class RunList(ApiView, generics.ListAPIView):
    """Runs, newest first; and new ones."""

    serializer_class = RunSerializer

    def get_queryset(self) -> QuerySet[Run]:
        chosen = RunFilterSerializer(data=self.request.query_params.dict())
        chosen.is_valid(raise_exception=True)
        by = {"study__slug" if name == "study" else name: value for name, value in chosen.validated_data.items()}
        return runs_visible_to(self.request.user).filter(**by)

    @extend_schema(summary="Runs", tags=["runs"], parameters=[RunFilterSerializer])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The runs that you may see, newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        summary="Propose a run",
        tags=["runs"],
        request=RunProposalSerializer,
        responses={201: RunDetailSerializer},
        examples=[PROPOSAL],
    )
    def post(self, request: Request) -> Response:
        """Save a draft. It starts once an operator of the study approves it."""
        run = run_propose(acting_user=person(request), **_proposal(request))
        document = run_document(visible_run(request.user, run.pk), request.user)
        return Response(document, status=status.HTTP_201_CREATED)


class GroupPlanSerializer(serializers.Serializer):
    name = serializers.CharField()
    epsilon = serializers.FloatField()
    budget = serializers.FloatField(help_text="The ε that this run may spend.")
    holders = serializers.IntegerField()
    teachers = serializers.IntegerField()
    weight = serializers.FloatField()
    factor = serializers.IntegerField()
    merged = serializers.ListField(child=serializers.CharField())


class PlanSerializer(serializers.Serializer):
    """What the run would do on the consents of this moment."""

    not_for_publication = serializers.CharField()
    variant = serializers.CharField()
    teachers = serializers.IntegerField()
    aggregator = AggregatorField(help_text="Scaled to the number of votes.")
    groups = GroupPlanSerializer(many=True)
    left_out = serializers.ListField(child=serializers.CharField())
    notes = serializers.ListField(child=serializers.CharField(), help_text="Choices made, and warnings.")


class RunPlan(ApiView):
    """A dry run of a proposal."""

    @extend_schema(
        summary="Plan a run (staff)",
        tags=["runs"],
        request=RunProposalSerializer,
        responses=PlanSerializer,
        examples=[PROPOSAL],
    )
    def post(self, request: Request) -> Response:
        """Groups, teachers, weights and warnings, without saving anything. For those who may see sizes and costs."""
        run = Run(created_by=person(request), **_proposal(request))
        require(request.user, "consent.view_group_sizes", run.study)
        # Budgets and weights follow from what earlier votes on private data have left.
        require(request.user, "accounting.view_private_costs", run.study)
        run_check(run)
        planned = run_plan(run)
        document = {"not_for_publication": NOT_FOR_PUBLICATION, **plan_to_json(planned), "notes": planned.notes}
        return Response(PlanSerializer(document).data)


# --- One run --------------------------------------------------------------------------------------------------------


class RunDetail(ApiView):
    @extend_schema(summary="A run", tags=["runs"], responses=RunDetailSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Status, progress, parameters, and what may be published about its privacy."""
        return Response(run_document(visible_run(request.user, pk), request.user))


class EpsilonsSerializer(Strict):
    """An ε for each level."""

    HIGH = serializers.FloatField()
    AVERAGE = serializers.FloatField()
    LOW = serializers.FloatField()


class SpendingSerializer(Strict):
    """What the run may spend; all that is left if nothing is given. It is reserved until its vote has ended."""

    share = serializers.FloatField(default=1.0, help_text="Of what is left and not reserved: above 0, at most 1.")
    epsilons = EpsilonsSerializer(required=False, help_text="Instead: the ε that the run alone may cost each level.")


class RunApprove(ApiView):
    @extend_schema(
        summary="Approve a draft (operators)", tags=["runs"], request=SpendingSerializer, responses=RunDetailSerializer
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Let a draft start, and reserve what it may spend. Approving what has started changes nothing."""
        run = visible_run(request.user, pk)
        require(request.user, "training.approve_run", run.study)
        spending = SpendingSerializer(data=request.data or {})
        spending.is_valid(raise_exception=True)
        run_approve(run=run, acting_user=person(request), **spending.validated_data)
        return Response(run_document(visible_run(request.user, pk), request.user))


class RunCancel(ApiView):
    @extend_schema(summary="Cancel a run (operators)", tags=["runs"], request=None, responses=RunDetailSerializer)
    def post(self, request: Request, pk: UUID) -> Response:
        """End a run that has not ended. What it released stays released and charged."""
        run = visible_run(request.user, pk)
        require(request.user, "training.cancel_run", run.study)
        run_cancel(run=run, acting_user=person(request))
        return Response(run_document(visible_run(request.user, pk), request.user))


class PrivateGroupSerializer(serializers.Serializer):
    name = serializers.CharField(source="consumption.group.name")
    level = serializers.ChoiceField(Level.choices, source="consumption.group.level")
    holders = serializers.IntegerField()
    teachers = serializers.IntegerField()
    weight = serializers.FloatField()
    factor = serializers.IntegerField()
    retired = serializers.BooleanField()
    epsilon_budget = serializers.FloatField(source="consumption.budget")
    epsilon_before = serializers.FloatField(source="consumption.past", help_text="Spent in earlier runs.")
    epsilon_spent = serializers.FloatField(source="consumption.spent", help_text="In all, this run included.")
    epsilon_published = serializers.FloatField(source="consumption.published")


class CostHistorySerializer(serializers.Serializer):
    """After each batch: queries and labels so far, and each group's ε."""

    queries = serializers.ListField(child=serializers.IntegerField())
    labels = serializers.ListField(child=serializers.IntegerField())
    epsilons = serializers.DictField(child=serializers.ListField(child=serializers.FloatField()))
    budgets = serializers.DictField(child=serializers.FloatField())


class PrivateCostsSerializer(serializers.Serializer):
    not_for_publication = serializers.CharField()
    teacher_accuracy = serializers.FloatField(allow_null=True)
    groups = PrivateGroupSerializer(many=True)
    history = CostHistorySerializer()


class RunPrivateCosts(ApiView):
    @extend_schema(
        summary="What a run has cost (staff; not for publication)", tags=["runs"], responses=PrivateCostsSerializer
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """Costs as they were counted, group by group: functions of the private data, never to be published."""
        run = visible_run(request.user, pk)
        require(request.user, "accounting.view_private_costs", run.study)
        document = {
            "not_for_publication": NOT_FOR_PUBLICATION,
            "teacher_accuracy": run.teacher_accuracy,
            "groups": run_groups(run),
            "history": run_cost_history(run),
        }
        return Response(PrivateCostsSerializer(document).data)


# --- Labels ---------------------------------------------------------------------------------------------------------


class LabelSerializer(serializers.Serializer):
    row = serializers.IntegerField(help_text="The point's row in the public dataset, from 0.")
    label = serializers.CharField(help_text="The name of its class.")  # type: ignore[assignment]


class LabelsCsv(BaseRenderer):
    """The labels as a table."""

    media_type = "text/csv"
    format = "csv"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, ["row", "label"])
        writer.writeheader()
        writer.writerows(data)
        return text.getvalue()


class RunLabels(ApiView, generics.ListAPIView):
    """What a run has released. Of a simulation, nothing is."""

    serializer_class = LabelSerializer
    renderer_classes = [JSONRenderer, LabelsCsv]

    def get_queryset(self) -> QuerySet[Query]:
        return self.run.queries.filter(label__isnull=False).order_by("row")

    def get_serializer(self, queries: Any, **kwargs: Any) -> LabelSerializer:
        classes = self.run.public_dataset.classes
        return LabelSerializer([{"row": query.row, "label": classes[query.label]} for query in queries], **kwargs)

    @extend_schema(
        summary="Released labels",
        tags=["labels and models"],
        parameters=[OpenApiParameter("format", enum=["json", "csv"], description="csv: all labels at once.")],
        responses={(200, "application/json"): LabelSerializer(many=True), (200, "text/csv"): OpenApiTypes.STR},
        examples=[OpenApiExample("As a table", value="row,label\n0,7\n3,1\n", media_type="text/csv")],
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """The public points that the vote labelled; as JSON page by page, or all of them as CSV."""
        self.run = visible_run(request.user, pk)
        if self.run.simulation:
            raise exceptions.NotFound("A simulation releases no labels. Look at a run that is none.")
        require(request.user, "training.use_student", self.run.study)
        if request.accepted_renderer.format == LabelsCsv.format:
            return Response(self.get_serializer(self.get_queryset(), many=True).data)
        return self.list(request)
