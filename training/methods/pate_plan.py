"""Plan of a run in which teachers vote: number of teachers, kind of release, noise, charges and forecasts.

All of it is public. If a proposal does not set the number of teachers, or whether labels or noisy counts are released,
the plan chooses by forecasts that use only public points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Annotated, Any, cast

import numpy as np
from pydantic import Field

from accounting.privacy import DEFAULT_ORDERS, Conversion, Method, epsilon_from_rdp
from accounting.shares import share_free
from common.artifacts import arrays_load
from common.declarations import NOT_IN_API, stored
from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast, few_people
from learning.learners import learner_create
from learning.mechanisms.choices import HolderChoices
from learning.mechanisms.pate import (
    AGGREGATORS,
    ConfidentGNMax,
    GroupPlan,
    NoisyCounts,
    Plan,
    PrivacyGroup,
    aggregator_from_parameters,
    make_plan,
)
from learning.mechanisms.pate.ballots import VoteBudget
from learning.mechanisms.pate.simulation import vote_costs
from learning.mechanisms.pate.teachers import STOP, Teachers, forecast_votes
from learning.mechanisms.protocol import PlanError
from learning.students.forecasts import VotesRehearsal, records_of
from training.engine.budgets import RESERVE, PlannedPromise, planned_promises, sites_of
from training.engine.records import points_of
from training.methods.planning import MethodPlan, group_answers, group_budgets
from training.models import Dataset, Run

#: Numbers of records per teacher to compare, limited by the number of public points available to represent them.
_RECORDS = (5, 8, 13, 20, 35, 60, 120, 240)
_USUAL = 13
#: Maximum number of labelled public points used in a forecast, and minimum for comparing numbers of teachers.
_SAMPLE, _LEAST_COMPARED = 600, 20
#: The plan uses the largest number of teachers whose forecast is at most this far from the best, because the more
#: teachers vote, the less noise affects the result.
_AS_GOOD = 0.02
_KINDS = {"counts": NoisyCounts.name, "labels": ConfidentGNMax.name}

_COUNTS = gettext_noop(
    "The plan releases noisy counts for %(queries)d points, with %(counts)d in 100 answers expected to be right. "
    "Releasing %(answers)d labels instead would give about %(labels)d in 100."
)
_LABELS = gettext_noop(
    "The plan releases %(answers)d labels, with %(labels)d in 100 answers expected to be right. Releasing noisy "
    "counts for %(queries)d points instead would give about %(counts)d in 100."
)
_NUMBER = gettext_noop("The plan uses %(teachers)d teachers with about %(records)d people each.")
_UNJUDGED = gettext_noop(
    "Without labelled points in a test dataset, the plan cannot compare numbers of teachers, so it uses about 13 "
    "people per teacher."
)


_CHARGE = "Largest amount that an answered query charges to a group, as a share of the run's limit for that group."


@dataclass(frozen=True)
class Compared:
    """Option for the plan: a number of teachers and a kind of release, with the forecast.

    Attributes:
        forecast: Forecast of the share of points whose label for the student is correct.
        is_suggested: Whether the plan chooses this by default.
    """

    teachers: int
    records: Annotated[int, Field(description="Approximate number of people whose records each teacher learns from.")]
    releases: Annotated[str, Field(json_schema_extra={"enum": ["counts", "labels"]})]
    queries: Annotated[
        int, Field(description="Number of points for which the run can afford to release counts or labels.")
    ]
    sigma: Annotated[float, Field(description="Standard deviation of the noise in each count, in votes.")]
    charge: Annotated[float, Field(description=_CHARGE)]
    forecast: Annotated[Forecast, NOT_IN_API]
    is_suggested: Annotated[bool, NOT_IN_API] = False

    @property
    def right(self) -> float:
        """Expected share of correct labels."""
        return self.forecast.noisy

    def to_json(self) -> dict[str, Any]:
        """Return JSON that is stored with a run."""
        return {name: value for name, value in vars(self).items() if name != "forecast"} | {"right": self.right}


@dataclass(frozen=True)
class Search:
    """Chosen option with its forecast, all options that were compared, and notes on the choice."""

    chosen: Teachers
    forecast: Forecast | None = None
    compared: tuple[Compared, ...] = ()
    notes: tuple[Sentence, ...] = ()


def teachers_search(run: Run, chosen: Teachers, groups: Sequence[PrivacyGroup], share: float) -> Search:
    """Return ``chosen`` after filling in open choices, for a ``share`` of every cap.

    This depends only on public information, like `training.methods.pate_plan.teachers_plan`.
    """
    holders = sum(group.holders for group in groups)
    points = min(run.public_points.rows, run.wanted_labels or run.public_points.rows)
    asked = _Asked(run.variant, tuple(groups), run.study.delta, share, len(run.private_dataset.classes), points)
    usual = chosen.teachers or max(1, round(holders / _USUAL))
    test, kind = run.test_dataset, run.public_points.schema["kind"]
    if test is None or test.rows < _LEAST_COMPARED:
        name = "counts" if kind == "image" else "labels"
        return Search(asked.filled(chosen, usual, name), notes=(Sentence(_UNJUDGED),))
    found = _compared(
        asked,
        json.dumps(chosen.to_json()),
        kind,
        (run.public_points.pk, run.public_points.digest),
        (test.pk, test.digest),
    )
    named = [each for each in found if chosen.teachers in (None, each.teachers)]
    if not named:
        return Search(asked.filled(chosen, usual, "labels"))
    suggested, picked = _best(found), _best(named)
    filled = asked.filled(chosen, picked.teachers, picked.releases)
    if not chosen.leaves_open:
        return Search(filled, picked.forecast)
    compared = tuple(replace(each, is_suggested=each is suggested) for each in found)
    return Search(filled, picked.forecast, compared, tuple(_reasons(chosen, found, picked)))


def _best(found: Sequence[Compared]) -> Compared:
    """Return the option with the most teachers among those that are nearly as good as the best."""
    best = max(each.right for each in found)
    return min(
        (each for each in found if each.right >= best - _AS_GOOD), key=lambda each: (-each.teachers, -each.right)
    )


def _reasons(chosen: Teachers, found: Sequence[Compared], picked: Compared) -> Iterator[Sentence]:
    if chosen.teachers is None:
        yield Sentence(_NUMBER, teachers=picked.teachers, records=picked.records)
    same = {each.releases: each for each in found if each.teachers == picked.teachers}
    if len(same) == len(_KINDS):
        counts, labels = same["counts"], same["labels"]
        yield Sentence(
            _COUNTS if picked is counts else _LABELS,
            queries=counts.queries,
            answers=labels.queries,
            counts=round(100 * counts.right),
            labels=round(100 * labels.right),
        )


@dataclass(frozen=True)
class _Asked:
    """Parameters shared by the plans that are compared."""

    variant: str
    groups: tuple[PrivacyGroup, ...]
    delta: float
    share: float
    classes: int
    points: int

    def plan(self, chosen: Teachers) -> Plan:
        assert chosen.teachers is not None, "it is filled"
        return make_plan(
            self.groups,
            variant=self.variant,
            teachers=chosen.teachers,
            aggregator=chosen.vote(),
            delta=self.delta,
            classes=self.classes,
            weight_scheme=chosen.weight_scheme,
            small_groups=chosen.small_groups,
        )

    def filled(self, chosen: Teachers, teachers: int, releases: str) -> Teachers:
        """Return the choices with this number of teachers, and with this kind of vote if no kind was chosen."""
        if chosen.aggregator is not None:
            return replace(chosen, teachers=teachers)
        if releases == "labels":
            kind = AGGREGATORS[_KINDS[releases]]
            values = {field.name: field.suggested(teachers, self.classes) for field in kind.fields()}
            return replace(chosen, teachers=teachers, aggregator=kind(**values).parameters())
        counting = replace(chosen, teachers=teachers, aggregator=NoisyCounts(sigma=1.0).parameters())
        dearest = max(
            budget.answer / budget.allowed for budget in group_budgets(self.plan(counting), self.delta, self.share)
        )
        return replace(counting, aggregator=NoisyCounts(sigma=_rounded_up((self.points * dearest) ** 0.5)).parameters())


def _largest_cost(plan: Plan, budgets: Sequence[VoteBudget]) -> float:
    """Return the largest cost of an answered query to any group, as a share of that group's budget."""
    return max(
        budget.answer / budget.allowed * (group.participants / group.teachers if group.participants else 1.0)
        for group, budget in zip(plan.groups, budgets, strict=True)
    )


def _rounded_up(sigma: float) -> float:
    """Round up to four significant digits.

    >>> _rounded_up(47.12345), _rounded_up(0.5)
    (47.13, 0.5001)
    """
    digits = 10.0 ** (math.floor(math.log10(sigma)) - 3)
    return float(f"{(math.floor(sigma / digits) + 1) * digits:.4g}")


# Datasets never change, and planning, approving and running use the same search.
@lru_cache(maxsize=32)
def _compared(
    asked: _Asked, document: str, kind: str, public_key: tuple[int, str], test_key: tuple[int, str]
) -> tuple[Compared, ...]:
    chosen = Teachers.from_json(json.loads(document))
    learner = json.dumps([chosen.learner, dict(chosen.learner_parameters)])
    rehearsal = _rehearsal(learner, asked.classes, chosen.learns_unlabelled(kind), public_key, test_key)
    holders = sum(group.holders for group in asked.groups)
    numbers = {round(holders / each) for each in _RECORDS if each <= rehearsal.most_records} - {0, 1}
    if chosen.teachers:
        numbers = {chosen.teachers} | (numbers if chosen.leaves_open else set())
    found = []
    for teachers in sorted(numbers):
        for releases in _KINDS if chosen.aggregator is None else [_releases(chosen)]:
            try:
                plan = asked.plan(asked.filled(chosen, teachers, releases))
            except PlanError:
                continue
            budgets = group_budgets(plan, asked.delta, asked.share)
            affordable = (limit for limit in group_answers(plan, budgets) if limit is not None)
            queries = min([asked.points, *affordable])
            expected = rehearsal.forecast(plan, queries) if queries else None
            if expected is not None:
                charge = _largest_cost(plan, budgets)
                sigma, records = plan.aggregator.deviation, records_of(plan)
                found.append(Compared(teachers, records, releases, queries, sigma, charge, expected))
    return tuple(found)


def _releases(chosen: Teachers) -> str:
    return "counts" if chosen.vote().releases_counts else "labels"


@lru_cache(maxsize=4)
def _rehearsal(
    learner: str, classes: int, unlabelled: bool, public_key: tuple[int, str], test_key: tuple[int, str]
) -> VotesRehearsal:
    name, parameters = json.loads(learner)
    arrays: Any = arrays_load(Dataset.objects.get(pk=test_key[0]).artifact)
    rows = np.linspace(0, len(arrays["y"]) - 1, min(len(arrays["y"]), _SAMPLE)).astype(np.int64)
    return VotesRehearsal(
        learner_create(name, parameters),
        HolderChoices().space,
        points_of(Dataset.objects.get(pk=public_key[0])),
        arrays["x"][rows],
        arrays["y"][rows],
        classes,
        unlabelled=unlabelled,
    )


# --- The plan ---------------------------------------------------------------------------------------------------------


#: Minimum number of labelled public points for a forecast.
_LEAST = 12
_TOO_DEAR = gettext_noop(
    "A single answered query costs group %(group)s more than the run may use, so no query can be answered. Give the "
    "run a larger share, more noise, or more teachers."
)


@dataclass(frozen=True)
class TeachersPlan(MethodPlan):
    """Plan of a vote of teachers.

    Attributes:
        budgets: one for each of ``plan.groups``; empty in a rehearsal.
        plan: plan of the vote.
        stops: whether the vote ends when one group's share is used up.
        points: digest of the public points at planning; encoding them later changes it.
        participation: the public seed that determines which teachers take part in each query; empty if all take part in
            every query.
        compared: numbers of teachers and kinds of release that were compared, if the plan chose among them.
    """

    budgets: list[VoteBudget]
    plan: Plan
    stops: bool
    points: str
    participation: str = ""
    compared: tuple[Compared, ...] = ()

    @property
    def groups(self) -> list[tuple[GroupPlan, VoteBudget | None]]:
        """Groups of the plan, each with its budget (None in a rehearsal)."""
        return list(zip_longest(self.plan.groups, self.budgets))

    @property
    def answers(self) -> int | None:
        """Minimum number of answered queries that the run can afford; None if it can afford all, and for rehearsals."""
        return min((limit for limit in group_answers(self.plan, self.budgets) if limit is not None), default=None)

    @property
    def labels(self) -> int | None:
        """The same as ``answers`` if the vote ends after this number of labels, otherwise None."""
        return self.answers if self.stops else None

    def details(self) -> dict[str, Any]:
        """Return the teachers, the vote and the single round as JSON."""
        plan = self.plan
        return {
            "variant": plan.variant,
            "teachers": plan.teachers,
            "aggregator": plan.aggregator.parameters(),
            "groups": stored(plan.groups),
            "left_out": list(plan.left_out),
            "rounds": [{"until": 1.0}],
            "answers": self.answers,
            "points": self.points,
            **({"participation": self.participation} if self.participation else {}),
            **({"compared": [each.to_json() for each in self.compared]} if self.compared else {}),
        }


def teachers_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> TeachersPlan:
    """Return the plan of ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError with a remedy.

    The plan depends only on public information: policies, head counts, shares, evaluation data. It reads no consents,
    private records or accounts (conditions 1 and 2 in docs/gaussian-accounts.md). In a rehearsal study nothing is
    secret.
    """
    chosen, promises = Teachers.from_json(run.choices), promises or planned_promises(run)
    sites = sites_of(run)
    groups = [PrivacyGroup(promise.name, promise.epsilon, promise.holders // sites) for promise in promises]
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
    planned_run = TeachersPlan(planned, budgets, (), (), plan, stops, run.public_points.digest, seed)
    _require_labels(run, planned_run)
    forecasts = _forecasts(
        _of_all(plan, sites),
        chosen.learner,
        json.dumps(chosen.learner_parameters),
        classes,
        None if test is None else (test.pk, test.digest),
        planned_run.answers,
    )
    if search.forecast is not None:  # with noisy counts, the accuracy of single labels says little
        forecasts = (*(() if plan.aggregator.releases_counts else forecasts), search.forecast)
    notes = (*search.notes, *plan.notes, *_warnings(run, plan, budgets, share), *few_people(forecasts, classes))
    return replace(planned_run, notes=notes, forecasts=forecasts, compared=search.compared)


def _of_all(plan: Plan, sites: int) -> Plan:
    """Return the plan with the teachers of all sites; every site has the same number of teachers."""
    groups = (replace(each, holders=sites * each.holders, teachers=sites * each.teachers) for each in plan.groups)
    return replace(plan, notes=(), groups=tuple(groups), teachers=sites * plan.teachers)


# Datasets never change, and planning, approving and running need the same forecasts.
@lru_cache(maxsize=32)
def _forecasts(
    plan: Plan, learner: str, parameters: str, classes: int, test_key: tuple[int, str] | None, answers: int | None
) -> tuple[Forecast, ...]:
    """Return the forecast of the labels, from part of the test data or, if there are too few, from an assumption."""
    points, labels = np.empty(0), None
    if test_key is not None:
        arrays = arrays_load(Dataset.objects.get(pk=test_key[0]).artifact)
        chosen = np.linspace(0, len(arrays["y"]) - 1, min(len(arrays["y"]), _SAMPLE)).astype(np.int64)
        if len(chosen) >= _LEAST:
            points, labels = arrays["x"][chosen], arrays["y"][chosen]
    teacher = learner_create(learner, json.loads(parameters))
    forecast = forecast_votes(plan, teacher, classes, points=points, labels=labels, answers=answers)
    return () if forecast is None else (forecast,)


def _require_labels(run: Run, planned: TeachersPlan) -> None:
    """Raise PlanError if a vanishing vote is expected to release no labels.

    Other variants only get a warning.
    """
    plan = planned.plan
    if run.variant != Run.Variant.VANISHING:
        return
    if run.public_points.rows * plan.aggregator.unanimous_share(plan.votes) < 1:
        text = gettext_noop(
            "Even if all teachers agreed on every point, no label would be expected, because the threshold is too "
            "high for %(votes)d votes. Lower T."
        )
        raise PlanError(Sentence(text, votes=plan.votes))
    answers = group_answers(plan, planned.budgets)
    poor = _rehearsed_poor(run, plan) if run.rehearsal else [number == 0 for number in answers]
    if all(poor) or (any(poor) and (planned.stops or run.rehearsal)):
        raise PlanError(Sentence(_TOO_DEAR, group=plan.groups[poor.index(True)].name))


def _rehearsed_poor(run: Run, plan: Plan) -> list[bool]:
    """Return, for each group of a rehearsal, whether it cannot pay even for the cheapest label, a unanimous one."""
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
            "The run may end with only 1 label, but a student needs at least 2, so you would get no model. Give the "
            "run a larger share, more noise, or more teachers, and request at least 2 labels."
        )
        warnings.append(Sentence(text))
    if not run.rehearsal and share >= share_free(run.study) - RESERVE:
        text = gettext_noop(
            "The run may use everything that is left of every holder's cap, which would leave nothing for later runs."
        )
        warnings.append(Sentence(text))
    return warnings


def plan_from_json(document: dict[str, Any]) -> Plan:
    """Return the plan stored with a run, without its notes."""
    return Plan(
        variant=document["variant"],
        groups=tuple(map(GroupPlan.from_json, document["groups"])),
        aggregator=aggregator_from_parameters(document["aggregator"]),
        teachers=document["teachers"],
        left_out=tuple(document["left_out"]),
    )
