"""Published table of a run: numbers of people with intervals, and mean and quantiles of a column of numbers.

Everything follows from the released sums, at no further charge. Intervals of summaries invert tests of
these sums, whose variance is known: for a mean, the ratio of two sums by Fieller's method ("Some Problems in Interval
Estimation", 1954); for a quantile, one test at each edge. Neither assumes many people.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.spreadsheets import CsvWriter
from learning.mechanisms.counts.counting import PERSON, CountsQuestion, at_least_zero
from learning.mechanisms.counts.table_plan import WITHIN_95, half_interval
from learning.mechanisms.levels import PlannedLevel

QUANTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class LevelPart:
    """A level's contribution to a table: ``people``, by the head counts, each with the same ``weight``."""

    name: str
    people: float
    weight: float


@dataclass(frozen=True)
class Cell:
    """Cell of a table: its ``values``, one of each column, and the number of people in it.

    ``count`` is a noisy number and may be below 0. At least 95 times in 100 the true one is from ``least`` to ``most``,
    however the levels are spread over the cells, and 95 times in 100 from ``low`` to ``high`` if they fall on the cells
    randomly. ``weighted`` is the sum of the weights of these people, with its noise.
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
        """Whether it can be distinguished from an empty cell."""
        return self.least > 0


@dataclass(frozen=True)
class CountTable:
    """Released table.

    Attributes:
        columns: names.
        values: the values of each column, in order.
        sums: of the weights in each cell, row by row, with noise.
        sigma: standard deviation of that noise.
        scale: people for each unit of the sum of weights.
        edges: of the bins of each column of numbers, none for others.
        levels: the people it describes.
        scale_error: standard deviation of the scale due to the noise of the head counts, as a share of it.
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
        """Return the table of the released sums (cells,) of its only question, for people with these levels."""
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
        """Return the table that `to_json` wrote."""
        values, edges = (tuple(map(tuple, document[name])) for name in ("values", "edges"))
        columns, sums = tuple(document["columns"]), tuple(document["sums"])
        levels = tuple(LevelPart(**each) for each in document["levels"])
        error = document.get("scale_error", 0.0)  # missing in tables of earlier versions
        return cls(columns, values, sums, document["sigma"], document["scale"], edges, levels, error)

    def to_json(self) -> dict[str, Any]:
        """Return JSON with lists instead of tuples, which equals the value read from a database."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def people(self) -> float:
        """Number of all people, by the head counts."""
        return sum(level.people for level in self.levels)

    @property
    def weight_variance(self) -> float:
        """Variance of the weights of all people, by the head counts."""
        people = self.people or 1.0
        mean = sum(level.people * level.weight for level in self.levels) / people
        return sum(level.people * (level.weight - mean) ** 2 for level in self.levels) / people

    @property
    def error(self) -> float:
        """Half of the interval around the number of people in a cell of average size."""
        return self.error_of(self.people / len(self))

    def error_of(self, count: float) -> float:
        """Return half of the interval around a number of people, if levels fall on the cells randomly."""
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
        """Variance (cells,) of each sum of weights given the number of people there, if levels fall on cells randomly.

        It combines the variances of the noise and of the levels in the cell.
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
        """Return each level with its shares of all people and of the sum of weights: the people described."""
        people = sum(level.people for level in self.levels) or 1.0
        weight = sum(level.people * level.weight for level in self.levels) or 1.0
        return [(each, each.people / people, each.people * each.weight / weight) for each in self.levels]

    def to_csv(self) -> str:
        """Return a line for each cell: its values, count, interval, sum of weights."""
        text = io.StringIO()
        lines = CsvWriter(text)
        lines.writerow([*self.columns, "people", "low_95", "high_95", "weighted", "least_95", "most_95"])
        for cell in self:
            numbers = (cell.count, cell.low, cell.high, cell.weighted, cell.least, cell.most)
            lines.writerow([*cell.values, *(round(number, 2) for number in numbers)])
        return text.getvalue()


@dataclass(frozen=True)
class IntervalEstimate:
    """Number with an interval that contains the true one at least 95 times in 100."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Mean and quantiles of a column's numbers, for the people whose number is known.

    Attributes:
        column: its name.
        group: a value of the table's other column, which these people share; empty: all people.
        mean: of the numbers; None if noise leaves no finite interval for the number of people.
        quantiles: in the order of `QUANTILES`.
    """

    column: str
    group: str
    mean: IntervalEstimate | None
    quantiles: tuple[IntervalEstimate, ...]


def summaries(table: CountTable) -> list[Summary]:
    """Return summaries of the table's first column of numbers, per value of the other column; empty without one."""
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

    With the midpoints m of the bins, T(x) = Σ sums·(m − x) has the variance Σ variances·(m − x)² around 0 at the mean x
    of the midpoints. The interval contains all x for which |T(x)| is at most 1.96 of its standard deviations. A number
    is at most half a bin from its midpoint, and so is their mean.

    Args:
        edges: (B + 1,) of the bins, which are equally wide.
        sums: (B,) of the weights in each bin, with noise.
        variances: (B,) of the sums.

    Returns:
        None if no bounded set of x is left.
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
    edges: NDArray[np.float64],
    sums: NDArray[np.float64],
    variances: NDArray[np.float64],
    shares: tuple[float, ...] = QUANTILES,
) -> tuple[IntervalEstimate, ...]:
    """Return quantiles of numbers in bins.

    At edge j, T = (1 − q)·(sums below) − q·(sums above) has the variance (1 − q)²·(variances below) + q²·(variances
    above). Its expectation is at most 0 up to the quantile and at least 0 from it on. From below, edges are excluded
    whose T is more than 1.96 standard deviations below 0; likewise from above. Each end is wrong only if the
    test at the first edge beyond the quantile is: 1 time in 40.

    Args:
        edges: (B + 1,) of the bins.
        sums: (B,) of the weights in each bin, with noise.
        variances: (B,) of the sums.
        shares: q, of each quantile.
    """
    return tuple(_quantile(edges, sums, variances, share) for share in shares)


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
