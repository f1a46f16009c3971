"""Proposals of runs as submitted, and plans: the steps, possible charges and expected results of a run."""

import tomllib
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounting.shares import share_check, suggested_share
from common.sentences import in_words
from common.slots import slot
from consent.models import Study
from consent.permissions import studies_with_permission
from ipate_web.api.base import ApiView, IdField, StrictSerializer, body_of, operation, permission_check, request_user
from ipate_web.api.problems import CONFLICT
from ipate_web.api.run_documents import (
    ChoicesField,
    ForecastSerializer,
    OutlookSerializer,
    PromiseSerializer,
    declared_by,
    outlook_document,
    visible_run,
)
from learning.mechanisms.counts.table_plan import CountsPlan
from learning.mechanisms.neighbours.forecast import LevelForecast, RoundForecast
from learning.mechanisms.pate.ballots import VoteBudget
from learning.mechanisms.pate.plan import GroupPlan
from training.errors import STATE
from training.methods import IMPLEMENTED
from training.methods.pate_plan import Compared
from training.models import Dataset, Run
from training.services.forecasts import Alternative, forecast
from training.services.runs import run_check, suggestion_for

EXAMPLES = [
    OpenApiExample(title, request_only=True, value=value)
    for title, value in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
]


_CHOSEN = {choice.name for method in IMPLEMENTED for choice in method.choices.described()}
"""Names of the choices of all methods."""


class RunProposalSerializer(StrictSerializer, serializers.ModelSerializer):
    study = serializers.SlugRelatedField(
        slug_field="slug", queryset=Study.objects.none(), label="Study", help_text="Slug of the study."
    )
    private_dataset = IdField(queryset=Dataset.objects.none())
    public_dataset = IdField(
        queryset=Dataset.objects.none(),
        required=False,
        allow_null=True,
        help_text="Id of the dataset of public points. You can omit it only for variants that use random samples; no "
        "student is trained in that case.",
    )
    test_dataset = IdField(queryset=Dataset.objects.none(), required=False, allow_null=True)
    labelled_dataset = IdField(
        queryset=Dataset.objects.none(),
        required=False,
        allow_null=True,
        help_text="Id of a public dataset whose labels the student learns from, in addition to the releases.",
    )
    choices = ChoicesField(required=False)
    student_parameters = serializers.DictField(required=False)
    rehearsed = serializers.DictField(
        required=False,
        help_text="Settings for rehearsal studies: levels with their share and ε, the accounting method, "
        "and the conversion of costs.",
    )

    class Meta:
        model = Run
        fields = [
            *("study", "title", "purpose", "private_dataset", "public_dataset", "test_dataset"),
            "labelled_dataset",
            *("method", "variant", "choices", "student_learner", "student_parameters", "batch_size"),
            *("wanted_labels", "seed", "rehearsed"),
        ]
        validators: list[Any] = []
        extra_kwargs = {
            "method": {
                "required": False,
                "help_text": "Method of the run; defaults to the one suggested for the study's data.",
            },
            "student_learner": {
                "required": False,
                "help_text": "Name of the student; defaults to the one suggested for the study's data.",
            },
        }

    def get_fields(self) -> dict[str, serializers.Field]:
        """Return the fields, offering as choices only related objects that the user may see."""
        fields = super().get_fields()
        if "request" in self.context:
            studies = studies_with_permission(self.context["request"].user, "training.view_run")
            datasets = Dataset.objects.filter(study__in=studies)
            for name, field in fields.items():
                if isinstance(field, serializers.RelatedField):
                    field.queryset = studies if name == "study" else datasets  # type: ignore[arg-type]
        return fields

    def to_internal_value(self, data: Any) -> Any:
        """Refuse a choice of a method that was sent outside ``choices``."""
        misplaced = _CHOSEN & data.keys() if isinstance(data, dict) else set()
        if misplaced:
            message = "Send it within “choices”. GET /api/v1/methods lists the choices of each method."
            raise serializers.ValidationError(dict.fromkeys(sorted(misplaced), message))
        return super().to_internal_value(data)

    def validate(self, proposal: dict[str, Any]) -> dict[str, Any]:
        """Fill in the method and the student suggested for the study if none are given."""
        if {"method", "student_learner"} <= proposal.keys():
            return proposal
        suggested = suggestion_for(proposal["study"])
        return {"method": suggested.method, "student_learner": suggested.student} | proposal


def proposal_of(request: Request, serializer: type[RunProposalSerializer] = RunProposalSerializer) -> dict[str, Any]:
    """Return the fields of the proposed run, after checking that the user may propose runs in its study."""
    proposal = body_of(request, serializer, request=request)
    permission_check(request.user, "training.propose_run", proposal["study"])
    return proposal


@declared_by(GroupPlan)
class GroupPlanSerializer(serializers.Serializer):
    pass


@declared_by(VoteBudget)
class BudgetSerializer(serializers.Serializer):
    """Largest charge to a group or promise and, if teachers vote, the cost of a query, in μ²."""


class PlannedPromiseSerializer(PromiseSerializer):
    """The holders of one promise."""

    name = serializers.CharField()
    holders = serializers.IntegerField(help_text="Number of holders, public or noisy.")
    group = serializers.IntegerField(help_text="Index of its group in `groups`, from 0; -1 if it is left out.")


class PlannedPhaseSerializer(serializers.Serializer):
    """Steps on random samples that all use the same mechanism. Lists are in the order of ``promises``."""

    rates = serializers.ListField(
        child=serializers.FloatField(), help_text="Probability that a holder is drawn for a step, for each promise."
    )
    norms = serializers.ListField(
        child=serializers.FloatField(), help_text="Largest norm of a contribution, for each promise."
    )
    sigma = serializers.FloatField(
        help_text="Standard deviation of the noise in each number, as a multiple of the clipping norm."
    )
    clip_norm = serializers.FloatField()
    expected = serializers.FloatField()
    steps = serializers.IntegerField()


class PlannedStepsSerializer(serializers.Serializer):
    """Plan of the gradient steps of a round."""

    steps = serializers.IntegerField()
    sigma = serializers.FloatField(
        help_text="Standard deviation of the noise in each number, as a multiple of the clipping norm."
    )
    clip_norm = serializers.FloatField(help_text="Largest norm of a gradient for points of norm 1.")
    step_size = serializers.FloatField()
    momentum = serializers.FloatField(required=False, help_text="Momentum, if each step uses a random sample.")
    ridge = serializers.FloatField(required=False, help_text="Value added to the curvature of the public points.")
    network = serializers.CharField(required=False, help_text="Network to train, if each step uses a random sample.")
    weights = serializers.IntegerField(required=False, help_text="Number of weights in the network.")
    expected = serializers.FloatField(required=False, help_text="Mean number of holders drawn for a step.")
    phases = PlannedPhaseSerializer(
        many=True, required=False, help_text="Phases of the steps. There is only one phase, except in baselines."
    )
    charges = serializers.ListField(
        child=serializers.FloatField(allow_null=True),
        required=False,
        help_text="Charge in μ² to every holder of each promise for the whole run, made before its first step.",
    )
    slack = serializers.FloatField(required=False, help_text="δ′ of the run, set aside from the study's δ.")


@declared_by(CountsPlan)
class PlannedCellsSerializer(serializers.Serializer):
    """Plan of counts, for tables and for synthetic rows."""


class PlannedTableSerializer(PlannedCellsSerializer):
    """Plan of a table of counts."""

    cells = serializers.IntegerField()
    error = serializers.FloatField(
        help_text="Margin of error for a cell of average size: with 95 % probability, the number of people in the "
        "table is within this margin of the true number."
    )


class PlannedMarginalsSerializer(PlannedCellsSerializer):
    """Plan of a round of tables that synthetic rows are drawn from."""

    tables = serializers.IntegerField(
        source="cells", help_text="Number of tables. Their cells are determined by the previous round."
    )
    rows = serializers.IntegerField(help_text="Number of synthetic rows that are drawn at the end.")
    bins = serializers.IntegerField(help_text="Number of bins for a column of numbers.")


class PlannedRoundSerializer(serializers.Serializer):
    """Plan of a round of votes on public points, of gradient steps, or of tables of counts."""

    queries = serializers.IntegerField(required=False, help_text="Number of public points.")
    sigma = serializers.FloatField(required=False, help_text="Standard deviation of the noise in each count.")
    radius_share = serializers.FloatField(
        required=False, help_text="Share of the public points within the radius of a query."
    )
    plan = PlannedStepsSerializer(required=False)
    table = PlannedTableSerializer(required=False)
    marginals = PlannedMarginalsSerializer(required=False)
    until = serializers.FloatField(
        help_text="Part of the run's share that may be used by the end of this round, from 0 to 1."
    )


@declared_by(Compared)
class ComparedTeachersSerializer(serializers.Serializer):
    """A number of teachers, and what they release, that the plan compared."""

    right = serializers.FloatField(help_text="Expected share of points for which the student gets the correct label.")


@declared_by(LevelForecast)
class LevelForecastSerializer(serializers.Serializer):
    """Forecast for the holders of one promise in the first round."""


@declared_by(RoundForecast)
class TurnoutSerializer(serializers.Serializer):
    """Expected number of voters in the first round, according to public points and head counts."""


@declared_by(Alternative)
class AlternativeSerializer(serializers.Serializer):
    """A way to ask people: each with the promise they chose, or all with the same promise."""


@extend_schema_field({"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": True})
class AggregatorField(serializers.JSONField):
    """Name and parameters, as listed by GET /api/v1/aggregators."""


class PlanSerializer(serializers.Serializer):
    """Plan of a run.

    It is calculated only from policies, head counts, shares and public points, so all of it is public. Plans of all
    methods have promises, budgets, forecasts and notes. Other fields depend on the run's method.
    """

    method = serializers.ChoiceField(Run.Method.choices)
    share = serializers.FloatField(help_text="Share of every cap that the plan is for, from 0 to 1.")
    outlook = OutlookSerializer(help_text="Expected results and costs of the run.")
    promises = PlannedPromiseSerializer(many=True)
    budgets = BudgetSerializer(
        many=True,
        help_text="Budgets of each group, or of each promise if there are no groups; empty if teachers vote in "
        "a rehearsal.",
    )
    notes = serializers.ListField(
        child=serializers.CharField(), help_text="Explanations of the plan's choices, and warnings."
    )

    variant = serializers.CharField(required=False)
    teachers = serializers.IntegerField(required=False)
    aggregator = AggregatorField(required=False, help_text="Aggregator, scaled to the number of votes.")
    groups = GroupPlanSerializer(many=True, required=False)
    answers = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="Minimum number of queries that the run can afford to answer; null if it can afford all of them, "
        "and in a rehearsal.",
    )
    left_out = serializers.ListField(child=serializers.CharField(), required=False)
    participation = serializers.CharField(
        required=False,
        help_text="Public seed that determines which teachers take part in which vote, for the vanishing variant.",
    )
    compared = ComparedTeachersSerializer(
        many=True,
        required=False,
        help_text="All options that the plan compared, if it chose the number of teachers or what they release.",
    )

    rounds = PlannedRoundSerializer(many=True, required=False)
    representation = serializers.CharField(
        required=False, help_text="Space in which votes are cast or steps are taken."
    )
    turnout = TurnoutSerializer(required=False)
    forecasts = ForecastSerializer(
        many=True, help_text="Forecasts for the labels and the model, in the same form for all methods."
    )
    alternatives = AlternativeSerializer(
        many=True,
        required=False,
        help_text="Alternatives to the plan, which show the benefit of personal levels; empty if everyone has the "
        "same promise.",
    )


def plan_document(run: Run, planned: dict[str, Any]) -> dict[str, Any]:
    """Return the API's document of a plan, in the language of the request."""
    document = {"method": run.method, "outlook": outlook_document(run, planned), **in_words(planned)}
    return PlanSerializer(document).data


class PlanRequestSerializer(RunProposalSerializer):
    share = serializers.FloatField(
        required=False,
        help_text="Share of every cap to plan for, above 0 and at most 1. Defaults to a quarter or the free share, "
        "whichever is smaller (1 in a rehearsal).",
    )

    class Meta(RunProposalSerializer.Meta):
        fields = [*RunProposalSerializer.Meta.fields, "share"]


class RunPlan(ApiView):
    """A dry run of a proposal."""

    @operation("Plan a run", "runs", PlanSerializer, CONFLICT, request=PlanRequestSerializer, examples=EXAMPLES)
    def post(self, request: Request) -> Response:
        """Plan a run without saving anything: its steps, largest charges, forecasts and warnings.

        You can plan one run at a time, and the site can plan a few at once. After a 429, try again in `Retry-After`
        seconds.
        """
        proposal = proposal_of(request, PlanRequestSerializer)
        share = proposal.pop("share", None)
        run = Run(created_by=request_user(request), rehearsal=proposal["study"].rehearsal, **proposal)
        run_check(run)
        if share is not None:
            share_check(share)
        with slot(request_user(request).pk):
            planned = forecast(run, share)
        return Response(plan_document(run, planned.to_json()))


class ShareQuerySerializer(serializers.Serializer):
    share = serializers.FloatField(
        required=False,
        help_text="Share of every cap, for a draft. Defaults to a quarter or the free share, whichever is smaller (1 "
        "in a rehearsal).",
    )


class RunPlanned(ApiView):
    """The plan of a saved run."""

    query_class = ShareQuerySerializer

    @operation("Plan of a run (operators)", "runs", PlanSerializer, CONFLICT, parameters=[ShareQuerySerializer])
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the run's plan.

        For a draft, this is the plan that would result from approving it now with the given `share`.
        """
        run = visible_run(request.user, pk, "training.approve_run")
        if run.plan:
            return Response(plan_document(run, run.plan | {"share": run.share}))
        if run.status == Run.Status.PLANNING:
            raise ValidationError("The plan is being calculated. Try again once the run is approved.", code=STATE)
        share = self.query.get("share", suggested_share(run.study))
        share_check(share)
        run_check(run)
        with slot(request_user(request).pk):
            planned = forecast(run, share)
        return Response(plan_document(run, planned.to_json()))
