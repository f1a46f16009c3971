"""The report of one run for auditors: tables, and plots as static SVG that print as they are. Staff only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.utils.translation import gettext as _

from accounting.models import LedgerEntry, RunAccount
from accounting.selectors import Consumption, account_consumption, epsilon_by_batch

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 136, 28, 40
LINE = 15


@dataclass(frozen=True)
class Curve:
    """A line of a plot: ``points`` is what SVG's polyline takes; it ends at the height ``end``.

    ``colour`` is one of three; ``label`` the height of its name, ``limit`` that of its budget, if it has one.
    """

    name: str
    colour: int
    points: str
    end: float
    label: float
    limit: float | None


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where it is, in the plot's units, and what it says."""

    at: float
    text: str


@dataclass(frozen=True)
class Plot:
    """What ``accounting/report_plot.html`` draws."""

    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


@dataclass(frozen=True)
class BatchRow:
    """What one batch released, and each group's ε after it, all earlier runs included."""

    number: int
    queries: int
    labels: int
    epsilons: list[float]


@dataclass(frozen=True)
class RunReport:
    """Everything that the ledger knows of one run."""

    account: RunAccount
    groups: list[Consumption]
    batches: list[BatchRow]
    entries: list[LedgerEntry]
    plots: list[Plot]


def run_report(account: RunAccount) -> RunReport:
    """The report of a run that has an account and is no simulation: those leave nothing in the ledger to report."""
    groups = account_consumption(account)
    entries = list(
        LedgerEntry.objects.filter(group__account=account).select_related("group").order_by("batch", "group__index")
    )
    first = [entry for entry in entries if entry.group.index == 0]
    epsilons = epsilon_by_batch(account)
    batches = [
        BatchRow(entry.batch, entry.queries, entry.labels, [epsilons[item.group.index][row] for item in groups])
        for row, entry in enumerate(first)
    ]
    plots = [_plot_of_epsilon(groups, batches), _plot_of_curves(account, groups)] if batches else []
    return RunReport(account, groups, batches, entries, plots)


def _plot_of_epsilon(groups: list[Consumption], batches: list[BatchRow]) -> Plot:
    labels = np.cumsum([0, *(batch.labels for batch in batches)])
    series = [
        (item.group.name, labels, [item.past, *(batch.epsilons[place] for batch in batches)], item.budget)
        for place, item in enumerate(groups)
    ]
    return _plot(_("ε spent as labels were released, with each group's budget"), _("labels released"), "ε", series)


def _plot_of_curves(account: RunAccount, groups: list[Consumption]) -> Plot:
    series = [
        (item.group.name, np.log10(account.orders), np.log10(np.maximum(spent, 1e-300)), None)
        for item in groups
        if np.any(spent := np.add(item.group.past_rdp, item.group.spent_rdp))
    ]
    return _plot(_("RDP curves of what each group has spent in all"), _("order α"), "RDP", series, logarithmic=True)


def _plot(title: str, x_label: str, y_label: str, series: Sequence[Any], *, logarithmic: bool = False) -> Plot:
    """``series`` are (name, x, y, limit); with ``logarithmic``, x and y are decimal logarithms."""
    if not series:
        return Plot(title, x_label, y_label, [], [], [])
    limits = [limit for *_, limit in series if limit is not None]
    x_low, x_high = _range(np.concatenate([x for _, x, _, _ in series]), logarithmic)
    y_low, y_high = _range(np.concatenate([*(y for _, _, y, _ in series), limits]), logarithmic)

    def across(value: float) -> float:
        return round(LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT), 1)

    def up(value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - BOTTOM - TOP), 1)

    labels = _apart([up(y[-1]) for _, _, y, _ in series])
    curves = [
        Curve(
            name,
            number % 3,
            " ".join(f"{across(a)},{up(b)}" for a, b in zip(x, y, strict=True)),
            up(y[-1]),
            labels[number],
            None if limit is None else up(limit),
        )
        for number, (name, x, y, limit) in enumerate(series)
    ]
    x_ticks = [Tick(across(value), text) for value, text in _marks(x_low, x_high, logarithmic)]
    y_ticks = [Tick(up(value), text) for value, text in _marks(y_low, y_high, logarithmic)]
    return Plot(title, x_label, y_label, curves, x_ticks, y_ticks)


def _apart(heights: Sequence[float]) -> list[float]:
    """``heights`` moved as little as it takes for a line of text to fit at each, in their order from top to bottom."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    moved = [heights[place] for place in order]
    for place in range(1, len(moved)):
        moved[place] = max(moved[place], moved[place - 1] + LINE)
    moved[-1] = min(moved[-1], HEIGHT - LINE / 2)
    for place in reversed(range(len(moved) - 1)):
        moved[place] = min(moved[place], moved[place + 1] - LINE)
    return [round(height, 1) for _, height in sorted(zip(order, moved, strict=True))]


def _range(values: np.ndarray, logarithmic: bool) -> tuple[float, float]:
    low, high = (float(values.min()), float(values.max())) if logarithmic else (0.0, float(values.max()))
    return (low, high) if high > low else (low, low + 1)


def _marks(low: float, high: float, logarithmic: bool) -> list[tuple[float, str]]:
    """At most seven round numbers between ``low`` and ``high``, with what is written beside them."""
    if logarithmic:
        powers = range(math.ceil(low), math.floor(high) + 1)
        step = math.ceil(len(powers) / 7) or 1
        return [(power, f"{10.0**power:g}") for power in powers[::step]]
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return [(value, f"{value:g}") for value in np.arange(0, math.floor(high / step + 1e-9) + 1) * step]
