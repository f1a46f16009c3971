"""Question for tables of counts, and the published table: numbers of people with intervals, means and quantiles.

A person with m records, k of them in a cell, adds k/m times their weight to that cell. Each person therefore counts
once in a table, however many records they own, and the norm of their contribution is at most their weight (‖k/m‖ ≤ Σ
k/m = 1). The tables of one question form one vector, whose squared norm is the sum over the tables.

The published table is computed from the released sums at no further cost. Intervals of summaries invert tests of these
sums, whose variance is known. A mean is treated as the ratio of two sums, by Fieller's method ("Some Problems in
Interval Estimation", 1954); a quantile is tested at each edge. Neither method assumes a large number of people.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.noise import Noise
from common.spreadsheets import CsvWriter
from learning.mechanisms.counts.table_plan import (
    WITHIN_95,
    CountedColumn,
    CountsPlan,
    Places,
    half_interval,
    number_of_cells,
)
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, PlannedLevel, Records, content_digest

PERSON = 2**18
"""Contribution of a person of weight 1, in units of the released sums."""

ASKED = frozenset({"sigma", "reference", "people", "weight", "cells"})
"""Fields of a plan that determine the question."""


@dataclass(frozen=True)
class CountsQuestion:
    """Question for tables of counts; see :class:`learning.mechanisms.protocol.Question`.

    Attributes:
        caps: Caps of the promises in the run's plan, in μ².
        name: Name of the mechanism, for the register and the card.
    """

    plan: CountsPlan
    tables: tuple[tuple[CountedColumn, ...], ...]
    caps: tuple[float, ...]
    name: str = "counts"

    fitted = None
    size = 1
    grain = 1.0

    @property
    def sigma(self) -> float:
        return self.plan.sigma

    @property
    def spread(self) -> float:
        return self.sigma * PERSON

    def digest(self) -> str:
        # A plan's error estimates are not part of the question; older plans contain fewer of them.
        asked = {name: value for name, value in self.plan.to_json().items() if name in ASKED}
        tables = [list(map(asdict, columns)) for columns in self.tables]
        return content_digest({}, json.dumps([asked, tables], sort_keys=True))

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "columns": list(dict.fromkeys(column.name for columns in self.tables for column in columns)),
            "cells": self.cells,
            "sigma": self.plan.sigma,
            "reference": self.plan.reference,
        }

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> None:
        """Return None: the question does not depend on earlier releases."""

    @property
    def cells(self) -> int:
        """Total number of cells in all tables."""
        return sum(map(number_of_cells, self.tables))

    def of_tables(self, sums: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split the sums (cells,) of all tables into one array for each table, with an axis for each column."""
        ends = np.cumsum([number_of_cells(columns) for columns in self.tables])
        shapes = [tuple(column.size for column in columns) for columns in self.tables]
        return [part.reshape(shape) for part, shape in zip(np.split(sums, ends[:-1]), shapes, strict=True)]

    def bounds(self, part: slice) -> list[float]:
        del part
        return (len(self.tables) * self.plan.weights(self.caps) ** 2 / self.sigma**2).tolist()

    def contributions(self, people: People, records: Records) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return unnoised sums (cells,), scaled by `PERSON`, and each person's charge (H,) in μ². Both are secret."""
        number = len(people.holders)
        most = np.floor(self.plan.weights(people.caps) * PERSON)
        owned = np.bincount(records.owner, minlength=number)
        places = Places(records)
        added = [self._added(columns, places, records.owner, most, owned) for columns in self.tables]
        squares = np.sum([np.bincount(owner, values**2, number) for owner, _cell, values in added], axis=0)
        accounts = people.accounts()
        allowed = accounts.charge(squares / PERSON**2, self.sigma)
        sums = [
            np.bincount(cell, values * allowed[owner], number_of_cells(columns))  # integers below 2⁵³
            for columns, (owner, cell, values) in zip(self.tables, added, strict=True)
        ]
        return np.concatenate(sums).astype(np.int64), accounts.spent - people.spent

    @staticmethod
    def _added(
        columns: tuple[CountedColumn, ...],
        places: Places,
        owner: NDArray[np.int64],
        most: NDArray[np.float64],
        owned: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the owners, cells and amounts of contributions to a table."""
        cells, cell = number_of_cells(columns), places.cells(columns)
        inside = cell >= 0
        owner, cell = owner[inside], cell[inside]
        times = np.ones(len(owner), np.int64)
        if owned.max(initial=0) > 1:  # otherwise unnecessary, and sorting takes longer than all other steps
            pairs, times = np.unique(owner * cells + cell, return_counts=True)
            owner, cell = pairs // cells, pairs % cells
        shares = most[owner] * times / owned[owner]
        values = np.rint(shares)
        # Rounding to nearest could make a person with very many records exceed their weight.
        exceeds = np.bincount(owner, values**2, len(most)) > most**2
        return owner, cell, np.where(exceeds[owner], np.floor(shares), values)

    def answer(
        self, part: slice, state: None, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        sums, charge = self.contributions(people, records())
        return {"sums": sums, "charge": charge}

    def release(self, part: slice, state: None, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        total = np.sum([answer["sums"] for answer in answers], axis=0)
        sums = total + noise.rounded_normal(self.spread, total.shape)
        return PartRelease(
            size=self.size, content={"cells": len(sums), "digest": sums_digest(sums)}, arrays={"sums": sums}
        )


def sums_digest(sums: NDArray[np.int64]) -> str:
    return content_digest({"sums": sums})


def at_least_zero(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the closest nonnegative numbers (B,) with the same total (Duchi et al. 2008, Figure 1)."""
    total = max(float(sums.sum()), 0.0)
    falling = np.sort(sums)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(sums) + 1)
    threshold = excess[np.flatnonzero(falling > excess)[-1]] if (falling > excess).any() else falling[0]
    return np.maximum(sums - threshold, 0.0)


QUANTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class LevelPart:
    """Part of a table for one level: number of ``people`` from the head counts, and ``weight`` of each person."""

    name: str
    people: float
    weight: float


@dataclass(frozen=True)
class Cell:
    """Cell of a table: its ``values``, one per column, and the number of people in it.

    ``count`` is noisy and may be negative. The true number lies between ``least`` and ``most`` with a probability of at
    least 95 %, however levels are distributed among cells. If they are randomly distributed, it lies between ``low``
    and ``high`` with a probability of 95 %. ``weighted`` is the noisy sum of the weights of the people in the cell.
    """

    values: tuple[str, ...]
    count: float
    low: float
    high: float
    weighted: float
    least: float
    most: float

    @property
    def is_distinct(self) -> bool:
        """Whether the cell can be distinguished from an empty cell."""
        return self.least > 0


@dataclass(frozen=True)
class CountTable:
    """Released table.

    Attributes:
        values: Values of each column, in order.
        sums: Noisy sums of the weights in each cell, in row-major order.
        sigma: Standard deviation of the noise in each sum.
        scale: Number of people per unit of the sum of weights.
        edges: Edges of the bins of each numeric column; empty for other columns.
        scale_error: Relative standard deviation of the scale due to the noise of the head counts.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    sums: tuple[float, ...]
    sigma: float
    scale: float
    edges: tuple[tuple[float, ...], ...]
    levels: tuple[LevelPart, ...]
    scale_error: float = 0.0

    @classmethod
    def released(cls, question: CountsQuestion, sums: NDArray[np.int64], levels: Sequence[PlannedLevel]) -> CountTable:
        """Return the table computed from a question's released sums (cells,), for people with these levels."""
        (columns,) = question.tables
        return cls(
            tuple(column.name for column in columns),
            tuple(column.cells for column in columns),
            tuple((sums / PERSON).round(4).tolist()),
            question.sigma,
            question.plan.scale,
            tuple(column.edges for column in columns),
            tuple(
                LevelPart(level.name, level.holders, round(float(question.plan.weights(level.cap)), 4))
                for level in levels
            ),
            question.plan.scale_error,
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CountTable:
        """Return the table from the result of `to_json`."""
        values, edges = (tuple(map(tuple, document[name])) for name in ("values", "edges"))
        columns, sums = tuple(document["columns"]), tuple(document["sums"])
        levels = tuple(LevelPart(**each) for each in document["levels"])
        error = document.get("scale_error", 0.0)  # missing from tables of earlier versions
        return cls(columns, values, sums, document["sigma"], document["scale"], edges, levels, error)

    def to_json(self) -> dict[str, Any]:
        """Return JSON with lists instead of tuples, so that it equals the value read from a database."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def people(self) -> float:
        """Number of all people, according to the head counts."""
        return sum(level.people for level in self.levels)

    @property
    def weight_variance(self) -> float:
        """Variance of all people's weights, according to the head counts."""
        people = self.people or 1.0
        mean = sum(level.people * level.weight for level in self.levels) / people
        return sum(level.people * (level.weight - mean) ** 2 for level in self.levels) / people

    @property
    def error(self) -> float:
        """Half the width of the interval for a cell with an average number of people."""
        return self.error_of(self.people / len(self))

    def error_of(self, count: float) -> float:
        """Return half the width of a count's interval, if levels are randomly distributed among cells."""
        return half_interval(
            count,
            sigma=self.sigma,
            people=self.people,
            scale=self.scale,
            weight_variance=self.weight_variance,
            scale_error=self.scale_error,
        )

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variance (cells,) of each sum of weights, given the people in the cell, if levels are distributed at random.

        This is the sum of the variance of the noise and the variance of the weights in the cell.
        """
        return self.sigma**2 + self.weight_variance * self.scale * np.maximum(self.sums, 0.0)

    def __len__(self) -> int:
        return len(self.sums)

    def __iter__(self) -> Iterator[Cell]:
        weights = [level.weight for level in self.levels] or [1.0]
        lightest, heaviest = min(weights), max(weights)
        for values, weighted in zip(product(*self.values), self.sums, strict=True):
            count, around = self.scale * weighted, WITHIN_95 * self.sigma
            error, least, most = self.error_of(count), weighted - around, weighted + around
            yield Cell(
                values,
                count,
                count - error,
                count + error,
                weighted,
                least / (heaviest if least > 0 else lightest),
                most / (lightest if most > 0 else heaviest),
            )

    @property
    def parts(self) -> list[tuple[LevelPart, float, float]]:
        """Each level with its shares of all people and of the sum of weights."""
        people = sum(level.people for level in self.levels) or 1.0
        weight = sum(level.people * level.weight for level in self.levels) or 1.0
        return [(each, each.people / people, each.people * each.weight / weight) for each in self.levels]

    def to_csv(self) -> str:
        """Return CSV with a line for each cell: its values, count, interval and sum of weights."""
        text = io.StringIO()
        lines = CsvWriter(text)
        lines.writerow([*self.columns, "people", "low_95", "high_95", "weighted", "least_95", "most_95"])
        for cell in self:
            numbers = (cell.count, cell.low, cell.high, cell.weighted, cell.least, cell.most)
            lines.writerow([*cell.values, *(round(number, 2) for number in numbers)])
        return text.getvalue()


@dataclass(frozen=True)
class IntervalEstimate:
    """Number with an interval that contains the true value at least 95 times in 100."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Mean and quantiles of a numeric column, over the people whose value is known.

    Attributes:
        group: These people's common value in the table's other column; empty if the summary is about all people.
        mean: Mean of the numbers; None if its interval would be unbounded because of the noise.
        quantiles: Quantiles in the order of `QUANTILES`.
    """

    column: str
    group: str
    mean: IntervalEstimate | None
    quantiles: tuple[IntervalEstimate, ...]


def summaries(table: CountTable) -> list[Summary]:
    """Return summaries of the first numeric column for each value of the other column; empty if there is none."""
    axis = next((axis for axis, edges in enumerate(table.edges) if edges), None)
    if axis is None:
        return []
    edges = np.array(table.edges[axis])
    shape, bins = [len(each) for each in table.values], len(edges) - 1

    def of_bins(cells: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.moveaxis(cells.reshape(shape), axis, 0)[:bins].reshape(bins, -1).T

    groups = [values for place, values in enumerate(table.values) if place != axis]
    return [
        Summary(table.columns[axis], group, mean(edges, sums, variances), quantiles(edges, sums, variances))
        for group, sums, variances in zip(
            groups[0] if groups else ("",), of_bins(np.array(table.sums)), of_bins(table.variances), strict=True
        )
    ]


def mean(
    edges: NDArray[np.float64], sums: NDArray[np.float64], variances: NDArray[np.float64]
) -> IntervalEstimate | None:
    """Return the mean of numbers in bins.

    For bins with midpoints m, T(x) = Σ sums·(m − x) has expectation 0 and variance Σ variances·(m − x)² if x is the
    mean of the midpoints. The interval contains all x for which |T(x)| is at most 1.96 standard deviations. Each number
    is at most half a bin from a midpoint, so the true mean is at most half a bin from the mean of the midpoints.

    Args:
        edges: (B + 1,) edges of the bins, which have equal width.
        sums: (B,) noisy sums of the weights in each bin.
        variances: (B,) variances of the sums.

    Returns:
        The mean with its interval; None if the interval is unbounded.
    """
    middles = (edges[:-1] + edges[1:]) / 2 - edges[0]
    first, people, squares = float(sums @ middles), float(sums.sum()), WITHIN_95**2 * variances
    a = people**2 - float(squares.sum())
    if a <= 0 or people <= 0:
        return None
    half_b = first * people - float(squares @ middles)
    c = first**2 - float(squares @ middles**2)
    root = math.sqrt(max(half_b**2 - a * c, 0.0))
    half = float(edges[1] - edges[0]) / 2
    low, value, high = ((half_b - root) / a - half, first / people, (half_b + root) / a + half)
    return IntervalEstimate(*(float(np.clip(edges[0] + each, edges[0], edges[-1])) for each in (value, low, high)))


def quantiles(
    edges: NDArray[np.float64], sums: NDArray[np.float64], variances: NDArray[np.float64]
) -> tuple[IntervalEstimate, ...]:
    """Return the `QUANTILES` of numbers in bins.

    At edge j, T = (1 − q)·(sums below) − q·(sums above) has the variance (1 − q)²·(variances below) + q²·(variances
    above). Its expectation is at most 0 at edges below the quantile, and at least 0 at edges above it. Starting from
    the lowest edge, edges are excluded while T is more than 1.96 standard deviations below 0; starting from the highest
    edge, while T is that far above 0. Each end of the interval is wrong only if the test at the first edge beyond the
    quantile is wrong, which happens 1 time in 40.

    Args:
        edges: (B + 1,) edges of the bins.
        sums: (B,) noisy sums of the weights in each bin.
        variances: (B,) variances of the sums.
    """
    return tuple(_quantile(edges, sums, variances, share) for share in QUANTILES)


def _quantile(
    edges: NDArray[np.float64], sums: NDArray[np.float64], variances: NDArray[np.float64], share: float
) -> IntervalEstimate:
    bins = len(sums)
    below, variance_below = np.cumsum(sums)[:-1], np.cumsum(variances)[:-1]
    lead = below - share * sums.sum()
    limit = WITHIN_95 * np.sqrt((1 - share) ** 2 * variance_below + share**2 * (variances.sum() - variance_below))
    low = int(np.logical_and.accumulate(lead < -limit).sum())
    high = bins - int(np.logical_and.accumulate((lead > limit)[::-1]).sum())
    counts = at_least_zero(sums)
    reached = np.concatenate([[0.0], np.cumsum(counts)])
    value = float(np.interp(share * reached[-1], reached, edges))
    return IntervalEstimate(float(np.clip(value, edges[low], edges[high])), float(edges[low]), float(edges[high]))
