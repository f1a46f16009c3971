"""Parts of every plan in which each holder is asked: promises, budgets, levels, warnings."""

from collections.abc import Sequence
from dataclasses import asdict

from accounting.caps import caps_of
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.base import PlanError
from learning.mechanisms.levels import Level
from learning.mechanisms.pate import Plan
from learning.mechanisms.pate.budgets import VoteBudget
from training.engine.budgets import RESERVE, Budget, PlannedPromise
from training.models import Run


def budgets_of(run: Run, promises: list[PlannedPromise], share: float) -> list[Budget]:
    """Most that a run may charge holders of each promise at a ``share`` of its cap; everyone pays for their part."""
    caps = [float(caps_of(promise.epsilon, run.study.delta)) for promise in promises]
    return [Budget(cap, share * cap * (1 - RESERVE)) for cap in caps]


def group_budgets(plan: Plan, delta: float, share: float) -> list[VoteBudget]:
    """Return the most that a run of this plan of teachers may charge each group at a ``share`` of its cap."""
    budgets = []
    for group in plan.groups:
        charge = plan.aggregator.charge(group.sensitivity)
        cap = float(caps_of(group.epsilon, delta))
        budgets.append(VoteBudget(cap, share * cap * (1 - RESERVE), **asdict(charge)))
    return budgets


def group_answers(plan: Plan, budgets: Sequence[VoteBudget]) -> list[int | None]:
    """Return for each group how many answered queries it can pay for at least; None for all of them.

    Of a group of which some teachers take part in each query, in turn, each is in so much fewer of them.
    """
    return [
        budget.answers
        if budget.answers is None or not group.participants
        else budget.answers * group.teachers // group.participants
        for group, budget in zip(plan.groups, budgets, strict=False)
    ]


def levels_of(promises: list[PlannedPromise], budgets: list[Budget], records: float = 1.0) -> tuple[Level, ...]:
    """The promises that somebody has, for a planner, with a public number of ``records`` per holder.

    Raises PlanError where there are none.
    """
    levels = tuple(
        Level(promise.name, budget.cap, float(promise.holders), records)
        for promise, budget in zip(promises, budgets, strict=True)
        if promise.holders
    )
    if not levels:
        raise PlanError(
            gettext_noop("By the head counts nobody takes part, so that there is nobody to ask. Wait for consents.")
        )
    return levels


def share_warning(run: Run, share: float) -> tuple[Sentence, ...]:
    """Warnings about a ``share`` of every cap, for whoever approves it."""
    if share < 1 - RESERVE or run.rehearsal:
        return ()
    text = gettext_noop("The run may use all that is left of every holder's cap: no later run could ask again.")
    return (Sentence(text),)
