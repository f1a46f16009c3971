"""Budgets of privacy groups on pages: bars, curve of ε over time, warnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _

from accounting.caps import epsilon_of
from accounting.group_budgets import BudgetUse, GroupBudget
from consent.models import Study
from ipate_web.run_words import group_label, percent
from ipate_web.staff.charts import Chart, Series
from training.models import Run
from training.selectors import study_budgets
from training.watch import budgets_low

#: Maximum numbers of points in a curve and of rows in its table.
POINTS, ROWS = 60, 12
#: Number of latest runs that have their own colour in a bar; all earlier runs share one colour.
COLOURS = 5


@dataclass(frozen=True)
class Segment:
    """Part of a bar. ``look`` is its CSS class; ``start`` and ``width`` are in per cent, for attributes."""

    look: str
    words: str
    start: str
    width: str


@dataclass(frozen=True)
class BudgetRow:
    """A group with its name, the parts of its bar, and whether its budget is running low."""

    group: GroupBudget
    name: str
    segments: list[Segment]
    is_low: bool


@dataclass(frozen=True)
class BudgetUses:
    """One use of budgets: its style in the bars, and the part of each group's cap that it used (None if nothing)."""

    use: BudgetUse
    look: str
    shares: list[float | None]


@dataclass(frozen=True)
class BudgetOverview:
    """Budgets of all groups of a study, for its pages.

    Attributes:
        study: the study.
        budgets: budgets of its groups.
        is_live: whether a run in progress reserves or spends part of the budgets.
    """

    study: Study
    budgets: list[GroupBudget]
    is_live: bool

    @cached_property
    def rows(self) -> list[BudgetRow]:
        low = {id(budget) for budget in budgets_low(self.study, self.budgets)}
        looks, several = self._looks, {budget.level for budget in self.budgets if not budget.in_force}
        return [
            BudgetRow(budget, _name(budget, budget.level in several), _segments(budget, looks), id(budget) in low)
            for budget in self.budgets
        ]

    @property
    def low(self) -> list[BudgetRow]:
        """Groups with less budget left than the study's threshold."""
        return [row for row in self.rows if row.is_low]

    @property
    def low_words(self) -> str:
        """The groups of `low` in words: "High protection 8.2 %, Low protection 9.0 %"."""
        return ", ".join(f"{row.name} {percent(row.group.share_left)}" for row in self.low)

    @cached_property
    def uses(self) -> list[BudgetUses]:
        """Uses of budgets, newest first."""
        found: dict[Any, BudgetUses] = {}
        for place, budget in enumerate(self.budgets):
            for use in budget.uses:
                shares: list[float | None] = [None] * len(self.budgets)
                entry = found.setdefault(_key(use), BudgetUses(use, self._looks[_key(use)], shares))
                entry.shares[place] = use.share
        return sorted(found.values(), key=lambda each: each.use.at, reverse=True)

    @cached_property
    def _looks(self) -> dict[Any, str]:
        """Style of the bars of each use, with a separate colour for each of the latest runs."""
        last: dict[Any, datetime] = {}
        for budget in self.budgets:
            for use in budget.uses:
                last[_key(use)] = max(use.at, last.get(_key(use), use.at))
        order = sorted((key for key in last if isinstance(key, UUID)), key=last.__getitem__)
        numbers = {key: place % COLOURS + 1 for place, key in enumerate(order)}
        recent = set(order[-COLOURS:])
        return {key: f"use-{numbers[key]}" if key in recent else "use-other" for key in last}

    @cached_property
    def curve(self) -> Chart | None:
        """Chart of the ε used over time; None before the first charge."""
        moments = sorted({at for budget in self.budgets for at, _used in budget.history})
        if not moments:
            return None
        # Step sizes double, so that earlier points stay the same during a run and their ε is cached.
        step = 1
        while len(moments) > step * POINTS:
            step *= 2
        chosen = sorted({*moments[::step], moments[-1]})
        series = []
        for row in self.rows:
            times = [at for at, _used in row.group.history]
            used = [0.0, *(used for _at, used in row.group.history)]
            places = [int(np.searchsorted(times, at, side="right")) for at in chosen]  # type: ignore[call-overload]
            epsilons = [epsilon_of(used[place], self.study.delta) for place in places]
            series.append(Series(row.name, epsilons, row.group.epsilon))
        x = [1000 * at.timestamp() for at in chosen]
        return Chart(x, series, y_label=_("ε used"), scale="time")

    @property
    def curve_rows(self) -> list[tuple[datetime, list[float | None]]]:
        """Some points of the curve, including the last: the time, and the ε that each group had used."""
        if self.curve is None:
            return []
        rows = [(datetime.fromtimestamp(x / 1000).astimezone(), values) for x, values in self.curve.rows]
        return [rows[place] for place in _spaced(len(rows), ROWS)]


def budget_overview(study: Study) -> BudgetOverview:
    """Return the current budgets of a study's groups."""
    budgets = study_budgets(study)
    is_live = bool(budgets) and study.runs.filter(status__in=Run.ACTIVE, rehearsal=False).exists()
    return BudgetOverview(study, budgets, is_live)


def _spaced(count: int, most: int) -> list[int]:
    """Return evenly spaced positions of at most ``most`` items of a list, including the last."""
    return sorted(set(np.linspace(count - 1, 0, min(count, most)).round().astype(int).tolist()))


def _key(use: BudgetUse) -> Any:
    return use.run or (use.kind, use.at)


def _name(budget: GroupBudget, is_one_of_several: bool) -> str:
    if not is_one_of_several:
        return group_label(budget.level)
    return _("%(level)s, policy %(version)d") % {"level": group_label(budget.level), "version": budget.policy}


def _segments(budget: GroupBudget, looks: dict[Any, str]) -> list[Segment]:
    parts: list[tuple[str, str, float]] = [(looks[_key(use)], use.title, use.share) for use in budget.uses]
    parts += [("reserved", _("reserved"), budget.share_reserved), ("left", _("free"), budget.share_left)]
    return _placed(parts)


def _placed(parts: Sequence[tuple[str, str, float]]) -> list[Segment]:
    segments, start = [], 0.0
    for look, words, share in parts:
        width = min(share, 1 - start)
        if width > 0:
            segments.append(Segment(look, words, f"{100 * start:.3f}", f"{100 * width:.3f}"))
            start += width
    return segments
