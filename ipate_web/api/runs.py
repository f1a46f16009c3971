"""Runs: propose, plan, follow, approve, cancel; their charges and labels."""

import hashlib
import json
import re
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import exceptions, generics, serializers, status
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.shares import share_check, share_suggested
from common.sentences import in_words
from consent.models import Level, Study
from consent.permissions import studies_with_permission
from ipate_web.api.base import ApiView, MinuteField, StrictSerializer, permission_check, request_user
from ipate_web.api.pagination import LabelPages
from ipate_web.api.problems import CONFLICT, UNPROCESSABLE
from ipate_web.tokens.models import Scope
from training.errors import STATE
from training.models import Dataset, Query, Run
from training.queue import run_place
from training.run_lists import SEARCH_LENGTH, SORTS, runs_listed
from training.selectors import run_cost_history, run_groups, run_progress, run_promises, run_reason, runs_visible_to
from training.services.downloads import download_record
from training.services.drafts import run_edit, run_withdraw
from training.services.forecasts import forecast
from training.services.label_files import LABEL_FORMATS
from training.services.runs import run_approve, run_cancel, run_check, run_propose
from training.services.suggestions import suggestion_for

PROPOSAL = OpenApiExample(
    "A weighting run",
    request_only=True,
    value={
        "study": "demo-digits",
        "title": "Weighted, 100 teachers",
        "purpose": "How many labels do these choices of protection allow?",
        "private_dataset": 1,
        "public_dataset": 2,
        "test_dataset": 3,
        "method": "pate",
        "learner": "nearest_neighbour",
        "student_learner": "random_forest",
        "variant": "weighting",
        "aggregator": {"name": "confident_gnmax", "sigma": 20, "sigma_threshold": 30, "threshold": 50},
        "teachers": 100,
    },
)
EVERYBODY = OpenApiExample(
    "Every holder votes",
    request_only=True,
    value={
        "study": "demo-digits",
        "title": "Every holder votes",
        "purpose": "As many labels as these choices of protection allow.",
        "private_dataset": 1,
        "public_dataset": 2,
        "test_dataset": 3,
        "method": "neighbours",
        "asking": {"rounds": 1, "radius_share": 0.02},
        "student_learner": "random_forest",
    },
)
STEPS = OpenApiExample(
    "Private gradient steps",
    request_only=True,
    value={
        "study": "demo-digits",
        "title": "Private gradient steps",
        "purpose": "One model for all classes, from everybody's gradients.",
        "private_dataset": 1,
        "public_dataset": 2,
        "test_dataset": 3,
        "method": "sgd",
        "asking": {"steps": 50},
        "student_learner": "random_forest",
    },
)
SAMPLES = OpenApiExample(
    "Gradient steps over samples, without public points",
    request_only=True,
    value={
        "study": "demo-digits",
        "title": "A small network",
        "purpose": "A network of its own, from the holders' records alone.",
        "private_dataset": 1,
        "test_dataset": 3,
        "method": "sgd",
        "variant": "scale",
        "asking": {"network": "mlp", "steps": 500, "expected": 512},
    },
)
REHEARSAL = OpenApiExample(
    "A rehearsal",
    request_only=True,
    value={
        **PROPOSAL.value,
        "study": "demo-digits-rehearsal",
        **{"private_dataset": 4, "public_dataset": 5, "test_dataset": 6},
        "variant": "upsampling",
        "seed": 5,
        "rehearsed": {
            "levels": {"HIGH": {"share": 0.5, "epsilon": 1}, "LOW": {"share": 0.5, "epsilon": 3}},
            "method": "data_dependent",
            "conversion": "improved",
        },
    },
)


def visible_run(user: Any, pk: UUID) -> Run:
    """The run, if ``user`` may see it; for everyone else it does not exist."""
    run = runs_visible_to(user).select_related("public_dataset", "created_by", "student").filter(pk=pk).first()
    if run is None:
        raise exceptions.NotFound("There is no such run, or none that you may see. GET /api/v1/runs lists yours.")
    return run


# --- Seeing ---------------------------------------------------------------------------------------------------------


class RunSerializer(serializers.ModelSerializer):
    study: serializers.SlugRelatedField = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    rejected = serializers.IntegerField(read_only=True)
    accuracy = serializers.FloatField(
        source="student.accuracy", allow_null=True, help_text="Of its published model on the test data, rounded."
    )
    created_by = serializers.CharField(
        source="created_by.username", allow_null=True, help_text="Its user's name; null if gone."
    )
    ended_at = MinuteField(allow_null=True, help_text="To the minute.")

    class Meta:
        model = Run
        fields = [
            *("id", "study", "title", "method", "variant", "status", "rehearsal", "labels", "rejected", "stop_reason"),
            *("accuracy", "created_by", "created_at", "ended_at"),
        ]


class StageSerializer(serializers.Serializer):
    """A stage of the run's method, and how much of it is done."""

    stage = serializers.CharField(help_text="The run's status in this stage.")
    share = serializers.FloatField(
        help_text="0 to 1. Of teachers in training in tenths; in steps of one teacher if fewer than ten were asked for."
    )


class ProgressSerializer(serializers.Serializer):
    """Progress of a run."""

    stages = StageSerializer(many=True, help_text="In the order in which they follow.")
    queries = serializers.IntegerField(help_text="Public points put to the vote, or gradient steps taken, so far.")
    points = serializers.IntegerField(help_text="How many public points there are, or gradient steps were planned.")
    labels = serializers.IntegerField(help_text="Queries answered so far.")
    student = serializers.FloatField(
        allow_null=True, help_text="How much of the training of a student under way is done, 0 to 1; null if none is."
    )


class PromiseSerializer(serializers.Serializer):
    """Promise to the holders of one level. The model keeps exactly this, over all that the study releases."""

    level = serializers.ChoiceField(Level.choices)
    epsilon = serializers.FloatField(help_text="ε at the study's δ.")


class AskingField(serializers.DictField):
    """Parameters that GET /api/v1/methods lists for the run's method; what is missing has its default."""


@extend_schema_field({"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": True})
class AggregatorField(serializers.JSONField):
    """Name and parameters, as GET /api/v1/aggregators lists them."""


class RunDetailSerializer(RunSerializer):
    progress = ProgressSerializer()
    promises = PromiseSerializer(many=True)
    asking = AskingField()
    aggregator = AggregatorField()
    model = serializers.UUIDField(allow_null=True, help_text="Its student model, once there is one.")
    place = serializers.IntegerField(
        allow_null=True, help_text="Its place among approved runs that no worker has begun, from 1; null for others."
    )
    reason = serializers.CharField(help_text="Why it ended, in words; empty before.")
    message = serializers.CharField(allow_null=True, help_text="Why it failed or waits; for staff alone.")
    approved_at = MinuteField(allow_null=True, help_text="To the minute.")
    started_at = MinuteField(allow_null=True, help_text="To the minute.")
    voting_at = MinuteField(allow_null=True, help_text="To the minute.")
    rehearsed = serializers.DictField(help_text="Rehearsals: levels with share and ε, method and conversion of costs.")
    outcome = serializers.DictField(help_text="Rehearsals: ε that each level spent by the papers' accounting.")

    class Meta(RunSerializer.Meta):
        fields = [
            *RunSerializer.Meta.fields,
            *("purpose", "private_dataset", "public_dataset", "test_dataset", "asking", "learner"),
            *(
                "learner_parameters",
                "student_learner",
                "student_parameters",
                "weight_scheme",
                "aggregator",
                "teachers",
                "small_groups",
            ),
            *("on_exhausted", "batch_size", "wanted_labels", "seed", "rehearsed", "outcome", "share"),
            *(
                "revision",
                "approved_at",
                "started_at",
                "voting_at",
                "progress",
                "place",
                "promises",
                "model",
                "reason",
                "message",
            ),
        ]


def run_document(run: Run, user: Any) -> dict[str, Any]:
    """A run as the API tells it: parameters, progress, promises, and what was released."""
    progress = run_progress(run)
    run.progress = {  # type: ignore[attr-defined]
        "stages": [{"stage": stage, "share": share} for stage, share in progress.stages],
        "queries": progress.position,
        "points": progress.size,
        "labels": progress.labels,
        "student": progress.student,
    }
    run.place = run_place(run)  # type: ignore[attr-defined]
    run.reason = run_reason(run)  # type: ignore[attr-defined]
    run.promises = run_promises(run)  # type: ignore[attr-defined]
    run.model = run.pk if run.student_id else None  # type: ignore[attr-defined]
    if not user.has_perm("consent.view_dashboard", run.study):
        run.message = None  # type: ignore[assignment]  # it is written for those who can do something about it
    return RunDetailSerializer(run).data


# --- Proposing ------------------------------------------------------------------------------------------------------


class RunProposalSerializer(StrictSerializer, serializers.ModelSerializer):
    study = serializers.SlugRelatedField(slug_field="slug", queryset=Study.objects.none())
    private_dataset = serializers.PrimaryKeyRelatedField(queryset=Dataset.objects.none())
    public_dataset = serializers.PrimaryKeyRelatedField(
        queryset=Dataset.objects.none(),
        required=False,
        allow_null=True,
        help_text="Only variants over samples can do without; then no student is trained.",
    )
    test_dataset = serializers.PrimaryKeyRelatedField(queryset=Dataset.objects.none(), required=False, allow_null=True)
    asking = AskingField(required=False)
    aggregator = AggregatorField(required=False)
    learner_parameters = serializers.DictField(required=False)
    student_parameters = serializers.DictField(required=False)
    rehearsed = serializers.DictField(
        required=False, help_text="Rehearsal studies: levels with share and ε, method and conversion of the costs."
    )

    class Meta:
        model = Run
        fields = [
            *("study", "title", "purpose", "private_dataset", "public_dataset", "test_dataset"),
            *("method", "asking", "learner", "learner_parameters", "student_learner", "student_parameters"),
            *("variant", "weight_scheme", "aggregator", "teachers", "small_groups", "on_exhausted", "batch_size"),
            *("wanted_labels", "seed", "rehearsed"),
        ]
        validators: list[Any] = []
        extra_kwargs = {
            "method": {"required": False, "help_text": "If missing, what is suggested for the study's data."},
            "student_learner": {"required": False, "help_text": "If missing, what is suggested for the study's data."},
        }

    def get_fields(self) -> dict[str, serializers.Field]:
        """Fields, with only those related objects as choices that the user may see."""
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

    def validate(self, proposal: dict[str, Any]) -> dict[str, Any]:
        """Take the method and the student that are suggested for the study where none is named."""
        if {"method", "student_learner"} <= proposal.keys():
            return proposal
        suggested = suggestion_for(proposal["study"])
        return {"method": suggested.method, "student_learner": suggested.student} | proposal


class ApprovalSerializer(StrictSerializer):
    """Share of every holder's cap that the run may use; what it did not need publicly is free again in the end."""

    share = serializers.FloatField(
        required=False,
        help_text="Of every cap: above 0, and at most what is free. If missing, a quarter or what is free.",
    )
    revision = serializers.IntegerField(
        required=False, help_text="Of the proposal that you looked at: if it was changed since, the answer is 409."
    )
    only_plan = serializers.BooleanField(
        default=False, help_text="Tell the plan for this share, as approving it would keep it, and approve nothing."
    )


class PlanRequestSerializer(RunProposalSerializer):
    share = serializers.FloatField(
        required=False, help_text="Plan for this share of every cap. If missing, a quarter or what is free."
    )

    class Meta(RunProposalSerializer.Meta):
        fields = [*RunProposalSerializer.Meta.fields, "share"]


def _proposal(request: Request, serializer: type[RunProposalSerializer] = RunProposalSerializer) -> dict[str, Any]:
    """The fields of the proposed run, of a study in which the user may propose one."""
    proposal = serializer(data=request.data, context={"request": request})
    proposal.is_valid(raise_exception=True)
    permission_check(request.user, "training.propose_run", proposal.validated_data["study"])
    return proposal.validated_data


KEY_HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = OpenApiParameter(
    KEY_HEADER,
    {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="A text of your own, new for every proposal. Sent again with it, the same proposal gives the same run.",
)
_KEY = re.compile(r"[!-~]{1,100}")


def proposal_key(key: str | None, proposal: Any) -> dict[str, Any]:
    """The fields of a run that tell a repeated proposal: the key, and a digest of what was sent with it."""
    if key is None:
        return {}
    if not _KEY.fullmatch(key):
        raise serializers.ValidationError({KEY_HEADER: "Give 1 to 100 printable ASCII characters without spaces."})
    sent = json.dumps(proposal, sort_keys=True).encode()
    return {"proposal_key": key, "proposal_digest": hashlib.sha256(sent).hexdigest()}


class RunFilterSerializer(serializers.Serializer):
    """Filter of runs; all that you may see if nothing is given."""

    study = serializers.SlugField(required=False, help_text="Of this study.")
    search = serializers.CharField(
        required=False, max_length=SEARCH_LENGTH, help_text="Words of the title or the purpose; all of them."
    )
    status = serializers.ChoiceField(Run.Status.choices, required=False)
    method = serializers.ChoiceField(Run.Method.choices, required=False)
    variant = serializers.ChoiceField(Run.Variant.choices, required=False)
    proposer = serializers.CharField(required=False, max_length=150, help_text="Name of the user who proposed it.")
    since = serializers.DateField(required=False, help_text="First day of the proposal.")
    until = serializers.DateField(required=False, help_text="Last day of the proposal.")
    sort = serializers.ChoiceField(list(SORTS), required=False, help_text="Newest first if left out.")


class RunList(ApiView, generics.ListAPIView):
    """Runs, searched, filtered and sorted; and new ones."""

    query_class = RunFilterSerializer
    serializer_class = RunSerializer

    def get_queryset(self) -> QuerySet[Run]:
        return runs_listed(runs_visible_to(self.request.user), **self.query)

    @extend_schema(summary="Runs", tags=["runs"], parameters=[RunFilterSerializer])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The runs that you may see and that fit all parameters, newest first or in the order of `sort`."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        summary="Propose a run",
        tags=["runs"],
        request=RunProposalSerializer,
        responses={201: RunDetailSerializer, **CONFLICT, **UNPROCESSABLE},
        examples=[PROPOSAL, EVERYBODY, STEPS, SAMPLES, REHEARSAL],
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Save a draft. It starts once an operator of the study, another person than you, approves it.

        With a key of your own in the header `Idempotency-Key` it is saved once, however often you send it.
        """
        user, proposal = request_user(request), _proposal(request)
        run = run_propose(acting_user=user, **proposal, **proposal_key(request.headers.get(KEY_HEADER), request.data))
        document = run_document(visible_run(request.user, run.pk), request.user)
        return Response(document, status=status.HTTP_201_CREATED)


class GroupPlanSerializer(serializers.Serializer):
    name = serializers.CharField()
    epsilon = serializers.FloatField(help_text="The smallest ε promised in the group.")
    holders = serializers.IntegerField(help_text="A public or noisy number.")
    teachers = serializers.IntegerField()
    weight = serializers.FloatField()
    factor = serializers.IntegerField()
    merged = serializers.ListField(child=serializers.CharField())


class BudgetSerializer(serializers.Serializer):
    """Most that the run may charge a group, and cost of a query, in μ²; 0 where everyone pays for their own votes."""

    cap = serializers.FloatField()
    allowed = serializers.FloatField()
    check = serializers.FloatField(help_text="Of every query.")
    label = serializers.FloatField(help_text="Of an answered one, beside the check.")  # type: ignore[assignment]


class PlannedPromiseSerializer(PromiseSerializer):
    """The holders of one promise."""

    name = serializers.CharField()
    holders = serializers.IntegerField(help_text="A public or noisy number.")
    group = serializers.IntegerField(help_text="Its place in groups; -1 where it is left out.")


class PlannedPhaseSerializer(serializers.Serializer):
    """Steps over samples by the same mechanism; lists stand beside ``promises``."""

    rates = serializers.ListField(child=serializers.FloatField(), help_text="A holder's probability to be in a step.")
    norms = serializers.ListField(child=serializers.FloatField(), help_text="Largest norm of a contribution.")
    sigma = serializers.FloatField(help_text="Noise of each number, in clipping norms.")
    clip_norm = serializers.FloatField()
    expected = serializers.FloatField()
    steps = serializers.IntegerField()


class PlannedStepsSerializer(serializers.Serializer):
    """Plan of the gradient steps of a round."""

    steps = serializers.IntegerField()
    sigma = serializers.FloatField(help_text="Noise of each number, in clipping norms.")
    clip_norm = serializers.FloatField(help_text="Largest norm of a gradient, where points have norm 1.")
    step_size = serializers.FloatField()
    momentum = serializers.FloatField()
    network = serializers.CharField(required=False, help_text="What is trained over samples.")
    weights = serializers.IntegerField(required=False, help_text="How many numbers it has.")
    expected = serializers.FloatField(required=False, help_text="How many holders a step draws, on average.")
    phases = PlannedPhaseSerializer(many=True, required=False, help_text="One, except in baselines.")
    charges = serializers.ListField(
        child=serializers.FloatField(allow_null=True),
        required=False,
        help_text="In μ²: what every holder of each promise is charged for the whole run before its first step.",
    )
    slack = serializers.FloatField(required=False, help_text="δ′ of the run, set aside from the study's δ.")


class PlannedRoundSerializer(serializers.Serializer):
    """Plan of a round: public points of the holders' votes, or gradients by a plan."""

    queries = serializers.IntegerField(required=False, help_text="Public points.")
    sigma = serializers.FloatField(required=False, help_text="Standard deviation of the noise of each count.")
    radius_share = serializers.FloatField(
        required=False, help_text="Share of the public points within the radius of a query."
    )
    plan = PlannedStepsSerializer(required=False)
    until = serializers.FloatField(help_text="The part of the run's share that may be used by its end.")


class LevelForecastSerializer(serializers.Serializer):
    """Forecast of the first round for one promise."""

    name = serializers.CharField()
    votes_allowed = serializers.IntegerField(help_text="Votes that the round's share of the cap pays for.")
    votes_asked = serializers.FloatField(help_text="How often a holder is near a query, on average.")
    votes_cast = serializers.FloatField(help_text="How many of these the account allows, on average.")
    spent = serializers.FloatField(help_text="Forecast: the share of the cap that is spent on average.")
    share = serializers.FloatField(help_text="The share of the cap that may be spent.")


class ForecastSerializer(serializers.Serializer):
    """Forecast of the first round, by public points and head counts."""

    queries = serializers.IntegerField()
    sigma = serializers.FloatField()
    radius_share = serializers.FloatField()
    voters = serializers.ListField(
        child=serializers.FloatField(), help_text="Voters of a query: 10th, 50th and 90th percentile."
    )
    margin = serializers.FloatField(help_text="Expected lead of the right class, in standard deviations of the noise.")
    accuracy = serializers.ListField(
        child=serializers.FloatField(), help_text="Lowest, expected and highest share of right labels."
    )
    from_labels = serializers.BooleanField(help_text="Whether the accuracy rests on labelled test data.")
    levels = LevelForecastSerializer(many=True)


class ExpectationSerializer(serializers.Serializer):
    """Forecast of the first round of gradient steps, by public points and head counts."""

    right = serializers.FloatField(help_text="Expected share of right points.")
    noiseless = serializers.FloatField(help_text="The same without any noise.")
    from_labels = serializers.BooleanField(
        help_text="Whether it rests on labelled test data, or on clusters of public points, an easier task."
    )


class PlanSerializer(serializers.Serializer):
    """Plan of a run. Everything in it is public: it rests on policies, head counts, shares and public points.

    Promises, budgets and notes are told of every method; of the rest what the run's method has.
    """

    method = serializers.ChoiceField(Run.Method.choices)
    share = serializers.FloatField(help_text="Of every cap, that the plan is for.")
    promises = PlannedPromiseSerializer(many=True)
    budgets = BudgetSerializer(
        many=True, help_text="One for each group, or for each promise where there are none; none of rehearsed teachers."
    )
    notes = serializers.ListField(child=serializers.CharField(), help_text="Choices made, and warnings.")

    variant = serializers.CharField(required=False)
    teachers = serializers.IntegerField(required=False)
    aggregator = AggregatorField(required=False, help_text="Scaled to the number of votes.")
    groups = GroupPlanSerializer(many=True, required=False)
    answers = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="How many answered queries the run can afford at least; null where no vote ends by its charges.",
    )
    left_out = serializers.ListField(child=serializers.CharField(), required=False)

    rounds = PlannedRoundSerializer(many=True, required=False)
    representation = serializers.CharField(required=False, help_text="The space in which votes or steps work.")
    forecast = ForecastSerializer(required=False)
    student = serializers.FloatField(
        required=False,
        allow_null=True,
        help_text="Votes about images: the share of the public points that a student is expected to be taught right, "
        "from all counts of the first round together.",
    )
    expectation = ExpectationSerializer(required=False, allow_null=True)


def _plan_document(run: Run, planned: dict[str, Any]) -> dict[str, Any]:
    return PlanSerializer({"method": run.method, **in_words(planned)}).data


class RunPlan(ApiView):
    """A dry run of a proposal."""

    @extend_schema(
        summary="Plan a run",
        tags=["runs"],
        request=PlanRequestSerializer,
        responses={200: PlanSerializer, **CONFLICT},
        examples=[PROPOSAL, EVERYBODY, STEPS, SAMPLES, REHEARSAL],
    )
    def post(self, request: Request) -> Response:
        """Plan a run without saving anything: what it would do, what it may charge, what to expect, and warnings."""
        proposal = _proposal(request, PlanRequestSerializer)
        share = proposal.pop("share", None)
        run = Run(created_by=request_user(request), rehearsal=proposal["study"].rehearsal, **proposal)
        run_check(run)
        if share is not None:
            share_check(share)
        return Response(_plan_document(run, forecast(run, share).to_json()))


# --- One run --------------------------------------------------------------------------------------------------------


class RunDetail(ApiView):
    """A run, and another proposal in the place of a draft."""

    @extend_schema(summary="A run", tags=["runs"], responses=RunDetailSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Status, progress, parameters, and what may be published about its privacy."""
        return Response(run_document(visible_run(request.user, pk), request.user))

    @extend_schema(
        summary="Change a draft of yours",
        tags=["runs"],
        request=RunProposalSerializer,
        responses={200: RunDetailSerializer, **CONFLICT},
        examples=[PROPOSAL, EVERYBODY, STEPS, SAMPLES, REHEARSAL],
    )
    def put(self, request: Request, pk: UUID) -> Response:
        """Put another proposal, whole and of the same study, in the place of your draft, on record.

        Another's draft gives 403, and 409 what is no draft any more.
        """
        run = visible_run(request.user, pk)
        permission_check(request.user, "training.propose_run", run.study)
        proposal = _proposal(request)
        if proposal.pop("study") != run.study:
            raise serializers.ValidationError({"study": "The draft belongs to another study. Propose a run there."})
        run_edit(run=run, acting_user=request_user(request), **proposal)
        return Response(run_document(visible_run(request.user, pk), request.user))


class RunWithdraw(ApiView):
    @extend_schema(
        summary="Withdraw a draft of yours",
        tags=["runs"],
        request=None,
        responses={200: RunDetailSerializer, **CONFLICT},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Withdraw your draft for good, on record. Another's gives 403, and 409 what is no draft any more."""
        run = visible_run(request.user, pk)
        permission_check(request.user, "training.propose_run", run.study)
        run_withdraw(run=run, acting_user=request_user(request))
        return Response(run_document(visible_run(request.user, pk), request.user))


class ApprovedSerializer(RunDetailSerializer):
    """A run with its plan."""

    plan = PlanSerializer(allow_null=True, help_text="null where the run has ended before there was one.")

    class Meta(RunDetailSerializer.Meta):
        fields = [*RunDetailSerializer.Meta.fields, "plan"]


class RunApprove(ApiView):
    scope = Scope.DECIDE

    @extend_schema(
        summary="Approve a draft (operators)",
        tags=["runs"],
        request=ApprovalSerializer,
        responses={200: ApprovedSerializer, **CONFLICT},
        examples=[OpenApiExample("A quarter of every cap", request_only=True, value={"share": 0.25})],
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """Let a draft of another person start, with a share of every holder's cap; your own gives 403.

        The answer has the plan, with all warnings. Approving what has started changes nothing; what was cancelled or
        has failed gives 409.
        """
        run = visible_run(request.user, pk)
        permission_check(request.user, "training.approve_run", run.study)
        asked = ApprovalSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        share = asked.validated_data.get("share", share_suggested(run.study))
        if not asked.validated_data["only_plan"]:
            looked_at = asked.validated_data.get("revision")
            run = run_approve(run=run, acting_user=request_user(request), share=share, revision=looked_at)
        planned: dict[str, Any] | None = run.plan | {"share": run.share} if run.plan else None
        if run.status == Run.Status.DRAFT:
            share_check(share)
            run_check(run)
            planned = forecast(run, share).to_json()
        plan = _plan_document(run, planned) if planned else None
        return Response(run_document(visible_run(request.user, pk), request.user) | {"plan": plan})


class RunCancel(ApiView):
    scope = Scope.DECIDE

    @extend_schema(
        summary="Cancel a run (operators)",
        tags=["runs"],
        request=None,
        responses={200: RunDetailSerializer, **CONFLICT},
    )
    def post(self, request: Request, pk: UUID) -> Response:
        """End a run that has not ended; 409 where it is finished or has failed, nothing where it was cancelled.

        What it released stays released and charged.
        """
        run = visible_run(request.user, pk)
        permission_check(request.user, "training.cancel_run", run.study)
        ended = run_cancel(run=run, acting_user=request_user(request))
        if ended.status != Run.Status.CANCELLED:
            raise ValidationError("This run has ended already: there is nothing to cancel.", code=STATE)
        return Response(run_document(visible_run(request.user, pk), request.user))


class GroupSpendingSerializer(serializers.Serializer):
    name = serializers.CharField()
    levels = serializers.ListField(child=serializers.ChoiceField(Level.choices))
    epsilon = serializers.FloatField(help_text="The smallest promise in the group.")
    cap = serializers.FloatField(help_text="Its μ².")
    allowed = serializers.FloatField(help_text="The run's share of the cap.")
    spent = serializers.FloatField(
        help_text="In μ²: what every member was charged by this run so far; where every holder is asked, at most that."
    )
    retired = serializers.BooleanField()


class CostHistorySerializer(serializers.Serializer):
    """After each batch: queries or steps so far, labels, and by group the share of its members' caps that was used."""

    queries = serializers.ListField(child=serializers.IntegerField(), source="positions")
    labels = serializers.ListField(child=serializers.IntegerField())
    shares = serializers.DictField(child=serializers.ListField(child=serializers.FloatField()))


class CostsSerializer(serializers.Serializer):
    groups = GroupSpendingSerializer(many=True)
    history = CostHistorySerializer()


class RunCosts(ApiView):
    @extend_schema(summary="What a run has cost", tags=["runs"], responses=CostsSerializer)
    def get(self, request: Request, pk: UUID) -> Response:
        """Charges group by group: what all members were charged alike, or at most. Functions of what was released.

        Empty in a rehearsal. Where every holder is asked a group is the holders of one promise.
        """
        run = visible_run(request.user, pk)
        return Response(CostsSerializer({"groups": run_groups(run), "history": run_cost_history(run)}).data)


# --- Labels ---------------------------------------------------------------------------------------------------------


class LabelSerializer(serializers.Serializer):
    row = serializers.IntegerField(help_text="The point's row in the public dataset, from 0.")
    label = serializers.CharField(help_text="The name of its class.")  # type: ignore[assignment]
    counts = serializers.ListField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="Noisy counts in the order of the classes, where they were released; they may be below 0.",
    )


class LabelFileRenderer(BaseRenderer):
    """The labels as a file, given as its bytes."""

    charset: str | None = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return data


class LabelsCsv(LabelFileRenderer):
    media_type = LABEL_FORMATS["csv"].media_type
    format = "csv"
    charset = "utf-8"


class LabelsParquet(LabelFileRenderer):
    media_type = LABEL_FORMATS["parquet"].media_type
    format = "parquet"


class LabelsNpz(LabelFileRenderer):
    media_type = LABEL_FORMATS["npz"].media_type
    format = "npz"


class RunLabels(ApiView, generics.ListAPIView):
    """Labels that a run has released."""

    serializer_class = LabelSerializer
    pagination_class = LabelPages
    renderer_classes = [JSONRenderer, LabelsCsv, LabelsParquet, LabelsNpz]

    def get_queryset(self) -> QuerySet[Query]:
        return self.run.queries.filter(label__isnull=False).order_by("row")

    def get_serializer(self, queries: Any, **kwargs: Any) -> LabelSerializer:
        classes = self.run.classes
        labels = [{"row": query.row, "label": classes[query.label], "counts": query.counts} for query in queries]
        return LabelSerializer(labels, **kwargs)

    @extend_schema(
        summary="Released labels",
        tags=["labels and models"],
        parameters=[
            OpenApiParameter(
                "format",
                enum=["json", *LABEL_FORMATS],
                description="csv, parquet: all labels at once; npz: NumPy arrays, with the public points themselves.",
            )
        ],
        responses={
            (200, "application/json"): LabelSerializer(many=True),
            (200, "text/csv"): OpenApiTypes.STR,
            (200, LabelsParquet.media_type): OpenApiTypes.BINARY,
            (200, LabelsNpz.media_type): OpenApiTypes.BINARY,
        },
        examples=[
            OpenApiExample("As a table", value="row,label\n0,7\n3,1\n", media_type="text/csv"),
            OpenApiExample(
                "With noisy counts",
                value="row,label,count_no,count_yes\n0,yes,-31,214\n3,no,190,27\n",
                media_type="text/csv",
            ),
        ],
    )
    def get(self, request: Request, pk: UUID) -> Response:
        """The public points that were labelled; as JSON, 1,000 a page and at most 10,000, or all of them as a file.

        As npz: `x`, all public points as encoded records, `row`, `label` (numbers of classes), `counts` where they were
        released, and the names of the `classes`. Their own labels, which nobody learns from, are not told.

        Where every holder votes, each with the noisy number of holders who voted for each class; none where a run
        learns by gradient steps. However many pages you fetch of the same labels, the release register gets one entry.
        """
        self.run = visible_run(request.user, pk)
        permission_check(request.user, "training.use_student", self.run.study)
        if request.method == "GET":  # HEAD takes nothing away
            download_record(run=self.run, what="labels", acting_user=request_user(request))
        chosen = LABEL_FORMATS.get(request.accepted_renderer.format)
        return self.list(request) if chosen is None else Response(chosen.content(self.run))
