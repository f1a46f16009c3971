"""Plan of a run: groups, teachers, weights, charges, warnings. Everything in it is public."""

from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any, cast

import numpy as np

from accounting.caps import caps_of
from accounting.head_counts import head_counts
from accounting.privacy import Conversion
from accounting.shares import share_free
from common.sentences import Sentence, gettext_noop
from consent.selectors import policy_in_force
from learning.mechanisms.pate import Group, GroupPlan, Plan, PlanError, aggregator_from_parameters, make_plan
from learning.mechanisms.pate.choices import Teachers
from training.engine.records import owners_of
from training.engine.rehearsals import rehearsed_levels
from training.models import Run

#: What of its share a run never plans to use: the rounding of sums.
RESERVE = 1e-9

#: Largest δ, times the people of the head counts; see "How large δ may be" in docs/gaussian-accounts.md.
MOST_DELTA = 1.0


@dataclass(frozen=True)
class PlannedPromise:
    """The holders of one promise: ``group`` is the index in the plan's groups, -1 where they are left out.

    ``holders`` is a public or noisy number.
    """

    name: str
    level: str
    epsilon: float
    holders: int
    group: int


@dataclass(frozen=True)
class GroupBudget:
    """Most that a run may charge one group of the plan, and cost of a query, in μ².

    ``cap`` is the smallest in the group; ``allowed`` the run's share of it; the rest as in
    :class:`learning.mechanisms.pate.VoteCharge`.
    """

    cap: float
    allowed: float
    check: float
    label: float
    first: int | None = None
    rest: float = 0.0

    @property
    def answer(self) -> float:
        """Cost of an answered query, one of the first where these alone are paid for one by one."""
        return self.check + self.label

    @property
    def answers(self) -> int | None:
        """Number of queries that can be answered at least, if each is; None for all of them."""
        if self.first is not None and self.first * self.answer + self.rest <= self.allowed:
            return None
        affordable = int(self.allowed / self.answer)
        return affordable if self.first is None else min(affordable, self.first)

    def costs(self, start: int, answered: np.ndarray) -> np.ndarray:
        """(Q,) what each query of a batch costs that begins with query ``start``, given whether each is answered."""
        one_by_one = self.check + self.label * answered
        if self.first is None:
            return one_by_one
        number = np.arange(start, start + len(answered))
        return np.where(number < self.first, one_by_one, np.where(number == self.first, self.rest, 0.0))


@dataclass(frozen=True)
class RunPlan:
    """A plan with the promises that it rests on; ``budgets`` stand beside ``plan.groups``, none in a rehearsal."""

    plan: Plan
    promises: list[PlannedPromise]
    budgets: list[GroupBudget]
    notes: tuple[Sentence, ...]

    @property
    def groups(self) -> list[tuple[GroupPlan, GroupBudget | None]]:
        """The groups of the plan, each with what it may be charged; None in a rehearsal."""
        return list(zip_longest(self.plan.groups, self.budgets))

    @property
    def answers(self) -> int | None:
        """Number of answered queries that the run affords at least; None in a rehearsal, and where it affords all."""
        limits = [budget.answers for budget in self.budgets]
        return min((limit for limit in limits if limit is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of its plan."""
        return plan_to_json(self)


def run_plan(run: Run, share: float = 1.0) -> RunPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares. Nobody's consent, records or account is looked at
    (conditions 1 and 2 of the guarantee); in a rehearsal study nothing is secret.
    """
    chosen, promises = Teachers.from_json(run.choices), promises_counted(run)
    groups = [Group(promise.name, promise.epsilon, promise.holders) for promise in promises]
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
    return RunPlan(plan, planned, budgets, (*plan.notes, *_warnings(run, plan, budgets, share)))


def group_budgets(plan: Plan, delta: float, share: float) -> list[GroupBudget]:
    """Most that a run of this plan may charge each group at a ``share`` of its cap."""
    budgets = []
    for group in plan.groups:
        charge = plan.aggregator.charge(group.sensitivity)
        cap = float(caps_of(group.epsilon, delta))
        budgets.append(GroupBudget(cap, share * cap * (1 - RESERVE), **asdict(charge)))
    return budgets


def promises_counted(run: Run) -> list[PlannedPromise]:
    """Every promise with its public or noisy number of holders, each a group of its own, strictest first.

    Raises PlanError where policy, head counts or shares are missing, or δ is too large for so many people.
    """
    rows = _rehearsed(run) if run.rehearsal else _counted(run)
    return [
        PlannedPromise(name, level, epsilon, holders, place)
        for place, (name, level, epsilon, holders) in enumerate(rows)
    ]


def _counted(run: Run) -> list[tuple[str, str, float, int]]:
    """Name, level, ε and number of holders of each promise, from the study's head counts."""
    if policy_in_force(run.study) is None:
        raise PlanError(
            gettext_noop("The study has no approved ε policy. Ask its ethics committee to propose and approve one.")
        )
    counts = head_counts(run.study)
    if not counts:
        raise PlanError(
            gettext_noop(
                "The study has no head counts yet, on which numbers of teachers and weights rest. Draw them with "
                "noise, or enter numbers that are public anyway."
            )
        )
    if share_free(run.study) <= 0:
        raise PlanError(
            gettext_noop(
                "All of every holder's cap is used or held for other runs. Wait until one ends, or cancel one."
            )
        )
    people = sum(count.count for count in counts)
    if run.study.delta * people > MOST_DELTA:
        raise PlanError(
            Sentence(
                gettext_noop(
                    "The head counts say that about %(people)d people take part, so that δ may be at most %(most).2g; "
                    "in this study it is %(delta).2g, and what people were promised is not changed. Ask them in a new "
                    "study with a smaller δ."
                ),
                people=people,
                most=MOST_DELTA / people,
                delta=run.study.delta,
            )
        )
    names: dict[str, int] = {}
    promises = []
    for count in counts:
        alike = names[count.level] = names.get(count.level, 0) + 1
        name = f"{count.level} {alike}" if alike > 1 else count.level
        promises.append((name, count.level, count.epsilon, count.count))
    return promises


def _rehearsed(run: Run) -> list[tuple[str, str, float, int]]:
    owners = len(owners_of(run.private_dataset))
    levels = rehearsed_levels(run, owners)
    return [(level, level, epsilon, count) for level, epsilon, count in levels]


def _warnings(run: Run, plan: Plan, budgets: list[GroupBudget], share: float) -> list[Sentence]:
    warnings = []
    for group, budget in zip(plan.groups, budgets, strict=False):
        if budget.answers == 0:
            told = gettext_noop(
                "A single answered query costs group %(group)s more than the run may use: no query can be answered. "
                "Give the run a larger share, more noise, or more teachers."
            )
            warnings.append(Sentence(told, group=group.name))
    if not run.rehearsal and share >= share_free(run.study) - RESERVE:
        told = gettext_noop("The run may use all that is left of every holder's cap: no later run could ask again.")
        warnings.append(Sentence(told))
    return warnings


def plan_to_json(planned: RunPlan) -> dict[str, Any]:
    """JSON that a run keeps of its plan."""
    plan = planned.plan
    return {
        "variant": plan.variant,
        "teachers": plan.teachers,
        "aggregator": plan.aggregator.parameters(),
        "groups": [asdict(group) for group in plan.groups],
        "left_out": list(plan.left_out),
        "notes": [note.to_json() for note in planned.notes],
        "promises": [asdict(promise) for promise in planned.promises],
        "budgets": [asdict(budget) for budget in planned.budgets],
        "answers": planned.answers,
    }


def plan_from_json(document: dict[str, Any]) -> Plan:
    """The plan that :func:`plan_to_json` kept, without its notes."""
    return Plan(
        variant=document["variant"],
        groups=tuple(GroupPlan(**{**group, "merged": tuple(group["merged"])}) for group in document["groups"]),
        aggregator=aggregator_from_parameters(document["aggregator"]),
        teachers=document["teachers"],
        left_out=tuple(document["left_out"]),
    )


def budgets_from_json(document: dict[str, Any]) -> list[GroupBudget]:
    """The budgets that :func:`plan_to_json` kept."""
    return [GroupBudget(**budget) for budget in document["budgets"]]
