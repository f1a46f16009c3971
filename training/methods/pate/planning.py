"""Plan of a run of teachers: groups, teachers, weights, charges, warnings. Everything in it is public."""

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any, cast

import numpy as np

from accounting.privacy import DEFAULT_ORDERS, Conversion, Method, epsilon_from_rdp
from accounting.shares import share_free
from common.artifacts import arrays_load
from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast, few_people
from learning.learners import learner_create
from learning.mechanisms.pate import Group, GroupPlan, Plan, aggregator_from_parameters, make_plan
from learning.mechanisms.pate.ballots import VoteBudget
from learning.mechanisms.pate.simulation import vote_costs
from learning.mechanisms.pate.teachers import STOP, Teachers, forecast_votes
from learning.mechanisms.protocol import PlanError
from training.engine.budgets import RESERVE, PlannedPromise, planned_promises, sites_of
from training.methods.pate.searching import Compared, Search, teachers_search
from training.methods.planning import MethodPlan, group_answers, group_budgets
from training.models import Dataset, Run

#: As many labelled public points as a forecast looks at, and at least.
_SAMPLE, _LEAST = 600, 12
_TOO_DEAR = gettext_noop(
    "A single answered query costs group %(group)s more than the run may use: no query can be answered. Give the run a "
    "larger share, more noise, or more teachers."
)


@dataclass(frozen=True)
class RunPlan(MethodPlan):
    """Plan of teachers that vote.

    Attributes:
        budgets: stand beside ``plan.groups``; none in a rehearsal.
        plan: of the vote.
        stops: whether it ends when the share of one group is used up.
        points: digest of the public points as they are now; encoders that come later change it.
        participation: the public seed that says which teachers take part in which query; empty where all do.
        compared: numbers of teachers and what they release, where the plan chose these.
    """

    budgets: list[VoteBudget]
    plan: Plan
    stops: bool
    points: str
    participation: str = ""
    compared: tuple[Compared, ...] = ()

    @property
    def groups(self) -> list[tuple[GroupPlan, VoteBudget | None]]:
        """The groups of the plan, each with what it may be charged; None in a rehearsal."""
        return list(zip_longest(self.plan.groups, self.budgets))

    @property
    def answers(self) -> int | None:
        """Number of answered queries that the run affords at least; None in a rehearsal, and where it affords all."""
        return min((limit for limit in group_answers(self.plan, self.budgets) if limit is not None), default=None)

    @property
    def labels(self) -> int | None:
        """``answers``, if the vote ends with them."""
        return self.answers if self.stops else None

    def details(self) -> dict[str, Any]:
        """JSON of teachers and vote, and of the only round."""
        plan = self.plan
        return {
            "variant": plan.variant,
            "teachers": plan.teachers,
            "aggregator": plan.aggregator.parameters(),
            "groups": [asdict(group) for group in plan.groups],
            "left_out": list(plan.left_out),
            "rounds": [{"until": 1.0}],
            "answers": self.answers,
            "points": self.points,
            **({"participation": self.participation} if self.participation else {}),
            **({"compared": [each.to_json() for each in self.compared]} if self.compared else {}),
        }


def run_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> RunPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, evaluation data. Nobody's consent, records or
    account is looked at (conditions 1 and 2 of the guarantee); in a rehearsal study nothing is secret.
    """
    chosen, promises = Teachers.from_json(run.choices), promises or planned_promises(run)
    sites = sites_of(run)
    groups = [Group(promise.name, promise.epsilon, promise.holders // sites) for promise in promises]
    search = Search(chosen)
    if chosen.leaves_open or (chosen.vote().releases_counts and not run.rehearsal and not run.alliance_id):
        search = teachers_search(run, chosen, groups, share)
    chosen = search.chosen
    assert chosen.teachers is not None, "it was chosen"
    plan = make_plan(
        groups,
        variant=run.variant,
        teachers=chosen.teachers,
        aggregator=chosen.vote(),
        delta=run.study.delta,
        classes=len(run.private_dataset.classes),
        weight_scheme=chosen.weight_scheme,
        conversion=cast(Conversion, run.rehearsed.get("conversion", "improved")),
        small_groups=chosen.small_groups,
    )
    budgets = [] if run.rehearsal else group_budgets(plan, run.study.delta, share)
    planned = [replace(promise, group=plan.index_of(promise.name)) for promise in promises]
    test, classes = run.test_dataset, len(run.private_dataset.classes)
    stops, drawn = chosen.on_exhausted == STOP, run.variant == Run.Variant.VANISHING and not run.rehearsal
    seed = run.public_points.digest if drawn else ""
    planned_run = RunPlan(planned, budgets, (), (), plan, stops, run.public_points.digest, seed)
    _require_labels(run, planned_run)
    forecasts = _forecasts(
        _of_all(plan, sites),
        chosen.learner,
        json.dumps(chosen.learner_parameters),
        classes,
        None if test is None else (test.pk, test.digest),
        planned_run.answers,
    )
    if search.forecast is not None:  # single labels of noisy counts say little
        forecasts = (*(() if plan.aggregator.releases_counts else forecasts), search.forecast)
    notes = (*search.notes, *plan.notes, *_warnings(run, plan, budgets, share), *few_people(forecasts, classes))
    return replace(planned_run, notes=notes, forecasts=forecasts, compared=search.compared)


def _of_all(plan: Plan, sites: int) -> Plan:
    """The plan with the teachers of all sites, each of which has as many."""
    groups = (replace(each, holders=sites * each.holders, teachers=sites * each.teachers) for each in plan.groups)
    return replace(plan, notes=(), groups=tuple(groups), teachers=sites * plan.teachers)


# Datasets never change; a plan is looked at, approved under the study's lock, and carried out one after the other.
@lru_cache(maxsize=32)
def _forecasts(
    plan: Plan,
    learner: str,
    parameters: str,
    classes: int,
    test_key: tuple[int, str] | None,
    answers: int | None,
) -> tuple[Forecast, ...]:
    """Forecast of the labels, from some of the test data; with an assumption where there are none, or too few."""
    points, labels = np.empty(0), None
    if test_key is not None:
        arrays = arrays_load(Dataset.objects.get(pk=test_key[0]).artifact)
        chosen = np.linspace(0, len(arrays["y"]) - 1, min(len(arrays["y"]), _SAMPLE)).astype(np.int64)
        if len(chosen) >= _LEAST:
            points, labels = arrays["x"][chosen], arrays["y"][chosen]
    teacher = learner_create(learner, json.loads(parameters))
    forecast = forecast_votes(plan, teacher, classes, points=points, labels=labels, answers=answers)
    return () if forecast is None else (forecast,)


def _require_labels(run: Run, planned: RunPlan) -> None:
    """Refuse a vanishing vote that cannot expect a single label, whatever its teachers say. Raises PlanError.

    Other variants are warned of it.
    """
    plan = planned.plan
    if run.variant != Run.Variant.VANISHING:
        return
    if run.public_points.rows * plan.aggregator.unanimous_share(plan.votes) < 1:
        text = gettext_noop(
            "Even if all teachers agreed on every point, no label could be expected: the threshold is too high for "
            "%(votes)d votes. Lower T."
        )
        raise PlanError(Sentence(text, votes=plan.votes))
    answers = group_answers(plan, planned.budgets)
    poor = _rehearsed_poor(run, plan) if run.rehearsal else [number == 0 for number in answers]
    if all(poor) or (any(poor) and (planned.stops or run.rehearsal)):
        raise PlanError(Sentence(_TOO_DEAR, group=plan.groups[poor.index(True)].name))


def _rehearsed_poor(run: Run, plan: Plan) -> list[bool]:
    """Return which groups of a rehearsal could not even pay for a label on which all teachers agree, the cheapest."""
    orders, n_classes = DEFAULT_ORDERS, len(run.private_dataset.classes)
    unanimous = np.zeros((plan.teachers, 1), dtype=np.int64)
    student = np.zeros((1, n_classes)) if plan.aggregator.asks_student else None
    method = cast(Method, run.rehearsed.get("method", "exact"))
    costs = vote_costs(plan, unanimous, n_classes, method=method, orders=orders, student_probabilities=student)
    conversion = cast(Conversion, run.rehearsed.get("conversion", "improved"))
    spent = [epsilon_from_rdp(cost.label, run.study.delta, orders, conversion)[0] for cost in costs]
    return [bool(each.max() > group.epsilon) for each, group in zip(spent, plan.groups, strict=True)]


def _warnings(run: Run, plan: Plan, budgets: list[VoteBudget], share: float) -> list[Sentence]:
    warnings = []
    answers = group_answers(plan, budgets)
    for group, affordable in zip(plan.groups, answers, strict=False):
        if affordable == 0:
            warnings.append(Sentence(_TOO_DEAR, group=group.name))
    if min([1 if run.wanted_labels == 1 else 2, *(number for number in answers if number is not None)]) == 1:
        text = gettext_noop(
            "The run may end with 1 label, and a student needs 2 at least: then it has no model. Give the run a larger "
            "share, more noise, or more teachers, and don't end it at 1 label."
        )
        warnings.append(Sentence(text))
    if not run.rehearsal and share >= share_free(run.study) - RESERVE:
        text = gettext_noop("The run may use all that is left of every holder's cap: no later run could ask again.")
        warnings.append(Sentence(text))
    return warnings


def plan_from_json(document: dict[str, Any]) -> Plan:
    """The plan as a run keeps it, without its notes."""
    return Plan(
        variant=document["variant"],
        groups=tuple(GroupPlan(**{**group, "merged": tuple(group["merged"])}) for group in document["groups"]),
        aggregator=aggregator_from_parameters(document["aggregator"]),
        teachers=document["teachers"],
        left_out=tuple(document["left_out"]),
    )
