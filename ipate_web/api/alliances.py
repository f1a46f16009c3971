"""Endpoints of alliances and of runs across sites, at the hub and at a site."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from common.sentences import in_words
from ipate_web.api.base import (
    IDEMPOTENCY_KEY,
    ApiView,
    IdField,
    MinuteField,
    StrictSerializer,
    body_of,
    created,
    operation,
    permission_check,
    request_user,
    visible_study,
)
from ipate_web.api.problems import CONFLICT, UNPROCESSABLE
from ipate_web.api.run_documents import ChoicesField, RunDetailSerializer, run_document, visible_run
from ipate_web.tokens.models import Scope
from training.alliances.renewals import renewals_waiting
from training.alliances.runs import joint_run_decline, joint_run_go_on, joint_run_propose, joint_run_take
from training.alliances.selectors import hub_fingerprint, joint_document, participant_rows
from training.alliances.services import proposal_document
from training.models import Alliance, Dataset, JointRun, Run


class ParticipantSerializer(serializers.Serializer):
    """A site of an alliance."""

    name = serializers.CharField()
    fingerprint = serializers.CharField(
        help_text="Fingerprint of the site's public key; empty until it has registered."
    )
    joined_at = MinuteField(
        allow_null=True, help_text="Time the site joined, to the minute, known only to the hub; null until then."
    )
    left_at = MinuteField(
        allow_null=True,
        help_text="Time the site left, to the minute, known only to the hub; null if it has not left.",
    )
    last_contact = MinuteField(
        allow_null=True,
        help_text="Time of the site's last contact, to the minute, known only to the hub; null before the first.",
    )
    version = serializers.CharField(help_text="iPATE version of the site, known only to the hub; empty if unknown.")


class ProposalSerializer(serializers.Serializer):
    """A run proposed by the hub that this site has neither accepted nor declined yet."""

    number = serializers.CharField(help_text="Identifier that the hub and the sites use for the run.")
    title = serializers.CharField()
    purpose = serializers.CharField(allow_blank=True)
    method = serializers.CharField()
    share = serializers.FloatField(help_text="Share of every cap that the run may use at the hub, from 0 to 1.")


class RenewalSerializer(serializers.Serializer):
    """Pending replacement of a site's key."""

    site = serializers.CharField()
    former = serializers.CharField(help_text="Fingerprint of the current key.")
    fingerprint = serializers.CharField(help_text="Fingerprint of the new key; empty until the site has registered it.")


class AllianceSerializer(serializers.Serializer):
    """An alliance as seen by the hub or by this site."""

    id = serializers.IntegerField(source="pk")
    key = serializers.UUIDField(help_text="Identifier of the alliance, the same at the hub and at every site.")
    name = serializers.CharField()
    own_name = serializers.CharField(help_text="Name of this site in the alliance; empty at the hub.")
    hub = serializers.CharField(source="terms.hub", help_text="Organisation that controls the hub's study.")
    hub_fingerprint = serializers.SerializerMethodField(
        help_text="Fingerprint of the hub's public key; empty at a site until the hub has signed."
    )
    colluding = serializers.IntegerField(help_text="Maximum number of sites, t, that may collude with the hub.")
    is_signed = serializers.BooleanField()
    joined_at = MinuteField(
        allow_null=True, help_text="Time this site signed, to the minute; null before, and at the hub."
    )
    left_at = MinuteField(
        allow_null=True,
        help_text="Time this site left or the hub ended the alliance, to the minute; null if neither has happened.",
    )
    last_contact = MinuteField(
        allow_null=True,
        help_text="Time of the hub's last response, to the minute; null before the first and at the hub.",
    )
    problem = serializers.SerializerMethodField(
        help_text="Reason why this site's last contact with the hub failed; empty if it succeeded and at the hub."
    )
    sites = serializers.SerializerMethodField()
    proposals = serializers.SerializerMethodField()
    renewals = serializers.SerializerMethodField(
        help_text="New keys that operators of this study must compare and confirm."
    )

    def get_hub_fingerprint(self, alliance: Alliance) -> str:
        return hub_fingerprint(alliance)

    def get_problem(self, alliance: Alliance) -> str:
        return in_words(alliance.problem) if alliance.problem else ""

    @extend_schema_field(ParticipantSerializer(many=True))
    def get_sites(self, alliance: Alliance) -> Any:
        return ParticipantSerializer(participant_rows(alliance), many=True).data

    @extend_schema_field(ProposalSerializer(many=True))
    def get_proposals(self, alliance: Alliance) -> Any:
        proposals = [{**proposal_document(alliance, number), "number": number} for number in alliance.open_proposals]
        return ProposalSerializer(proposals, many=True).data

    @extend_schema_field(RenewalSerializer(many=True))
    def get_renewals(self, alliance: Alliance) -> Any:
        return RenewalSerializer(renewals_waiting(alliance), many=True).data


class _OfDatasetsSerializer(StrictSerializer):
    """Base of requests whose fields name datasets of one study."""

    def get_fields(self) -> dict[str, serializers.Field]:
        fields, study = super().get_fields(), self.context.get("study")
        for field in fields.values():
            if study is not None and isinstance(field, serializers.RelatedField):
                field.queryset = Dataset.objects.filter(study=study, removed_at=None)  # type: ignore[arg-type]
        return fields


class JointProposalSerializer(_OfDatasetsSerializer):
    """A run across sites, proposed at the hub."""

    title = serializers.CharField(max_length=200)
    purpose = serializers.CharField(required=False, allow_blank=True)
    method = serializers.ChoiceField(Run.Method.choices)
    variant = serializers.ChoiceField(Run.Variant.choices, required=False, allow_blank=True)
    mode = serializers.ChoiceField(JointRun.Mode.choices, required=False, default=JointRun.Mode.TOGETHER)
    sites = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Names of the sites to ask; all of them if omitted."
    )
    public_dataset = IdField(
        queryset=Dataset.objects.none(),
        required=False,
        allow_null=True,
        help_text="Dataset with the alliance's public points.",
    )
    test_dataset = IdField(queryset=Dataset.objects.none(), required=False, allow_null=True)
    choices = ChoicesField(required=False)
    student_learner = serializers.CharField(required=False, allow_blank=True)
    batch_size = serializers.IntegerField(required=False, min_value=1)
    wanted_labels = serializers.IntegerField(required=False, allow_null=True, min_value=1)


class TakingSerializer(_OfDatasetsSerializer):
    """Datasets that a site uses when it accepts a proposal."""

    private_dataset = IdField(queryset=Dataset.objects.none())
    test_dataset = IdField(queryset=Dataset.objects.none(), required=False, allow_null=True)


class WaitingSiteSerializer(serializers.Serializer):
    """A site that the open question is waiting for."""

    name = serializers.CharField()
    last_contact = MinuteField(
        allow_null=True,
        help_text="Time of the site's last contact, to the minute, known only to the hub; null before the first.",
    )


class JointQuestionSerializer(serializers.Serializer):
    """A question to the sites."""

    number = serializers.IntegerField()
    participants = serializers.IntegerField(help_text="Number of sites that were asked.")
    endorsed = serializers.IntegerField(help_text="Number of sites that have endorsed the question.")
    state = serializers.ChoiceField(["open", "total", "ended"])
    ended = serializers.SerializerMethodField(
        help_text="Reason why the question ended without a total; otherwise empty."
    )
    opened_at = MinuteField(help_text="Time the question was opened, to the minute.")
    answered_at = MinuteField(
        allow_null=True,
        help_text="Time this site's people were charged, to the minute; null before, and at the hub.",
    )
    sent_at = MinuteField(
        allow_null=True,
        help_text="Time the hub received this site's answer, to the minute; null before, and at the hub.",
    )
    charge = serializers.FloatField(
        allow_null=True,
        help_text="Largest charge to any of this site's people, in μ²; null before they are charged and at the hub.",
    )

    def get_ended(self, question: Any) -> str:
        return str(question.ended or "")


class JointRunSerializer(serializers.Serializer):
    """Questions and releases of a run across sites, and the sites that the run is waiting for."""

    alliance = serializers.IntegerField(source="alliance.pk")
    is_hub = serializers.BooleanField()
    mode = serializers.SerializerMethodField()
    sites = serializers.ListField(child=serializers.CharField())
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="Sites that have not approved the run yet."
    )
    dropped = serializers.SerializerMethodField(help_text="Sites that are no longer asked, each with the reason.")
    waits_for = WaitingSiteSerializer(many=True)
    questions = JointQuestionSerializer(many=True)

    def get_mode(self, document: dict[str, Any]) -> str:
        return JointRun.Mode.TOGETHER.value if document["masked"] else JointRun.Mode.SEPARATE.value

    def get_dropped(self, document: dict[str, Any]) -> dict[str, str]:
        return {name: str(why) for name, why in document["dropped"].items()}


class GoOnSerializer(StrictSerializer):
    """Site to leave out of the rest of a run."""

    without = serializers.CharField(help_text="Name of a site that the open question is waiting for.")


def _alliance(request: Request, slug: str, pk: int, permission: str = "") -> Alliance:
    """Return an alliance of a study that the user may see. Raises NotFound or PermissionDenied."""
    study = visible_study(request.user, slug)
    found = Alliance.objects.filter(study=study, pk=pk).select_related("study").first()
    if found is None:
        raise exceptions.NotFound("This alliance does not exist in the study.")
    if permission:
        permission_check(request.user, permission, study)
    return found


class StudyAlliances(ApiView):
    @operation("Alliances of a study", "alliances", AllianceSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """List the alliances that the study has founded or joined."""
        study = visible_study(request.user, slug)
        return Response(AllianceSerializer(Alliance.objects.filter(study=study), many=True).data)


class StudyAlliance(ApiView):
    @operation("An alliance", "alliances", AllianceSerializer)
    def get(self, request: Request, slug: str, pk: int) -> Response:
        """Return the sites, with their fingerprints and the time of their last contact.

        At a site, this also lists the runs that the hub proposes.
        """
        return Response(AllianceSerializer(_alliance(request, slug, pk)).data)


class AllianceRuns(ApiView):
    @operation(
        "Propose a run across sites (at the hub)",
        "alliances",
        RunDetailSerializer,
        CONFLICT,
        UNPROCESSABLE,
        status=201,
        request=JointProposalSerializer,
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, slug: str, pk: int) -> Response:
        """Save a draft. Another operator of the hub approves it, and then each site approves it with its own share."""
        found = _alliance(request, slug, pk, "training.propose_run")
        sent = body_of(request, JointProposalSerializer, study=found.study)
        run = joint_run_propose(alliance=found, acting_user=request_user(request), **sent)
        document = run_document(visible_run(request.user, run.pk), request.user)
        return created(document, "run", run.pk)


class ProposalTake(ApiView):
    @operation(
        "Accept a proposed run (at a site)",
        "alliances",
        RunDetailSerializer,
        CONFLICT,
        status=201,
        request=TakingSerializer,
    )
    def post(self, request: Request, slug: str, pk: int, number: str) -> Response:
        """Save the hub's proposal as a draft of this study. Another operator has to approve it with a share."""
        found = _alliance(request, slug, pk, "training.propose_run")
        sent = body_of(request, TakingSerializer, study=found.study)
        run = joint_run_take(alliance=found, number=number, acting_user=request_user(request), **sent)
        document = run_document(visible_run(request.user, run.pk), request.user)
        return created(document, "run", run.pk)


class ProposalDecline(ApiView):
    scope = Scope.DECIDE

    @operation("Decline a proposed run (operators, at a site)", "alliances", AllianceSerializer, CONFLICT, request=None)
    def post(self, request: Request, slug: str, pk: int, number: str) -> Response:
        """Tell the hub that this site will not take part.

        The run ends, but the hub can propose another run without this site.
        """
        found = _alliance(request, slug, pk, "training.cancel_run")
        joint_run_decline(alliance=found, number=number, acting_user=request_user(request))
        return Response(AllianceSerializer(_alliance(request, slug, pk)).data)


class RunSites(ApiView):
    @operation("A run across sites", "alliances", JointRunSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the run's sites and questions, and the sites that it is waiting for.

        The response is 404 if this is not a run across sites.
        """
        return Response(JointRunSerializer(_joint(visible_run(request.user, pk))).data)


class RunGoOn(ApiView):
    scope = Scope.DECIDE

    @operation(
        "Continue without a site (operators, at the hub)",
        "alliances",
        JointRunSerializer,
        CONFLICT,
        request=GoOnSerializer,
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """End the open question and ask the remaining sites a new one. If too few sites remain, the run ends."""
        run = visible_run(request.user, pk, "training.cancel_run")
        _joint(run)
        sent = body_of(request, GoOnSerializer)
        joint_run_go_on(run=run, without=sent["without"], acting_user=request_user(request))
        return Response(JointRunSerializer(_joint(visible_run(request.user, pk))).data)


def _joint(run: Run) -> dict[str, Any]:
    document = joint_document(run)
    if document is None:
        raise exceptions.NotFound("This run asks the people of only one study.")
    return document
