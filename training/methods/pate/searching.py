"""What a plan chooses that was left open: how many teachers vote, and whether labels or noisy counts are released.

By forecast, from public points alone, as the plan itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from common.artifacts import arrays_load
from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast
from learning.learners import learner_create
from learning.mechanisms.choices import HolderChoices
from learning.mechanisms.pate import AGGREGATORS, ConfidentGNMax, Group, NoisyCounts, Plan, make_plan
from learning.mechanisms.pate.ballots import VoteBudget
from learning.mechanisms.pate.teachers import Teachers
from learning.mechanisms.protocol import PlanError
from learning.students.forecasts import VotesRehearsal, records_of
from training.methods.planning import group_answers, group_budgets
from training.methods.space import points_of
from training.models import Dataset, Run

#: Records of a teacher that are compared, where public points can stand in for so many.
_RECORDS = (5, 8, 13, 20, 35, 60, 120, 240)
_USUAL = 13
_SAMPLE, _LEAST = 600, 20
#: The most teachers are taken whose forecast lies within this of the best: what many say varies less with the noise.
_AS_GOOD = 0.02
_KINDS = {"counts": NoisyCounts.name, "labels": ConfidentGNMax.name}

_COUNTS = gettext_noop(
    "The plan releases noisy counts: those of %(queries)d points are expected to tell %(counts)d of 100 right, where "
    "%(answers)d labels tell %(labels)d."
)
_LABELS = gettext_noop(
    "The plan releases labels: %(answers)d of them are expected to tell %(labels)d of 100 right, where noisy counts of "
    "%(queries)d points tell %(counts)d."
)
_NUMBER = gettext_noop("The plan takes %(teachers)d teachers, each of about %(records)d people.")
_UNJUDGED = gettext_noop(
    "Without labelled points in a test dataset the plan cannot compare: it takes about 13 people for each teacher."
)


@dataclass(frozen=True)
class Compared:
    """A number of teachers and what they release, with what is expected of it.

    Attributes:
        teachers: How many there are.
        records: About how many people teach each.
        releases: ``counts`` or ``labels``.
        queries: Points whose counts, or labels, the run can afford.
        sigma: Noise of each count, in votes.
        charge: Of an answered query, as a share of what the run may charge the group that it costs most.
        forecast: Of the share of points that the student is told right.
        is_suggested: Whether the plan chooses this where nothing else is named.
    """

    teachers: int
    records: int
    releases: str
    queries: int
    sigma: float
    charge: float
    forecast: Forecast
    is_suggested: bool = False

    @property
    def right(self) -> float:
        """The expected share."""
        return self.forecast.noisy

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of it."""
        return {name: value for name, value in vars(self).items() if name != "forecast"} | {"right": self.right}


@dataclass(frozen=True)
class Search:
    """What was chosen and what is expected of it, everything that was compared, and why."""

    chosen: Teachers
    forecast: Forecast | None = None
    compared: tuple[Compared, ...] = ()
    notes: tuple[Sentence, ...] = ()


def teachers_search(run: Run, chosen: Teachers, groups: Sequence[Group], share: float) -> Search:
    """Return ``chosen`` with what it leaves open, for a ``share`` of every cap.

    A function of what is public alone, as `training.methods.pate.planning.run_plan` says.
    """
    holders = sum(group.holders for group in groups)
    points = min(run.public_points.rows, run.wanted_labels or run.public_points.rows)
    asked = _Asked(run.variant, tuple(groups), run.study.delta, share, len(run.private_dataset.classes), points)
    usual = chosen.teachers or max(1, round(holders / _USUAL))
    test, kind = run.test_dataset, run.public_points.schema["kind"]
    if test is None or test.rows < _LEAST:
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
    return Search(filled, picked.forecast, compared, tuple(_why(chosen, found, picked)))


def _best(found: Sequence[Compared]) -> Compared:
    """Return the one with most teachers among those that are as good as the best."""
    best = max(each.right for each in found)
    return min(
        (each for each in found if each.right >= best - _AS_GOOD), key=lambda each: (-each.teachers, -each.right)
    )


def _why(chosen: Teachers, found: Sequence[Compared], picked: Compared) -> Iterator[Sentence]:
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
    """What plans that are compared have in common."""

    variant: str
    groups: tuple[Group, ...]
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
        """Return the choices with this number of teachers, and a vote of this kind where none was chosen."""
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


def _dearest(plan: Plan, budgets: Sequence[VoteBudget]) -> float:
    """Return the cost of an answered query to the group that it costs most, as a share of what that may be charged."""
    return max(
        budget.answer / budget.allowed * (group.participants / group.teachers if group.participants else 1.0)
        for group, budget in zip(plan.groups, budgets, strict=True)
    )


def _rounded_up(sigma: float) -> float:
    """To four digits.

    >>> _rounded_up(47.12345), _rounded_up(0.5)
    (47.13, 0.5001)
    """
    digits = 10.0 ** (math.floor(math.log10(sigma)) - 3)
    return float(f"{(math.floor(sigma / digits) + 1) * digits:.4g}")


# Datasets never change; a plan is looked at, approved under the study's lock, and carried out one after the other.
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
                charge = _dearest(plan, budgets)
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
