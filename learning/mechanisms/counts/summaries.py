"""Mean and quantiles of a column of numbers, from a released table of its bins alone: nobody is charged for them.

Intervals invert tests of the released sums, whose variance is known: for a mean, the ratio of two sums as Fieller has
it ("Some Problems in Interval Estimation", 1954); for a quantile, one test at each edge. Neither takes many people for
granted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.mechanisms.counts.nonnegative import at_least_zero
from learning.mechanisms.counts.planner import WITHIN_95
from learning.mechanisms.counts.table import CountTable

QUANTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Estimate:
    """Number with the interval that holds the true one at least 95 times in 100."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Mean and quantiles of the numbers of a column, of the people whose number is known.

    Attributes:
        column: its name.
        group: a value of the table's other column, to which these people belong; empty: all people.
        mean: of the numbers; None where noise leaves no finite interval for the number of people.
        quantiles: as `QUANTILES` has them.
    """

    column: str
    group: str
    mean: Estimate | None
    quantiles: tuple[Estimate, ...]


def summaries(table: CountTable) -> list[Summary]:
    """Summaries of the table's first column of numbers, one for each value of the other column; empty without one."""
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


def mean(edges: NDArray[np.float64], sums: NDArray[np.float64], variances: NDArray[np.float64]) -> Estimate | None:
    """Mean of numbers in bins.

    With the middles m of the bins, T(x) = Σ sums·(m − x) has the variance Σ variances·(m − x)² around 0 at the mean x
    of the middles: all x with |T(x)| ≤ 1.96 of its standard deviations. A number is half a bin from its
    middle at most, and so is their mean.

    Args:
        edges: (B + 1,) of the bins, which are equally wide.
        sums: (B,) of the weights in each bin, with noise.
        variances: (B,) of the sums.

    Returns:
        None where no bounded set of x is left.
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
    return Estimate(*(float(np.clip(edges[0] + each, edges[0], edges[-1])) for each in (value, low, high)))


def quantiles(
    edges: NDArray[np.float64],
    sums: NDArray[np.float64],
    variances: NDArray[np.float64],
    shares: tuple[float, ...] = QUANTILES,
) -> tuple[Estimate, ...]:
    """Quantiles of numbers in bins.

    At edge j, T = (1 − q)·(sums below) − q·(sums above) has the variance (1 − q)²·(variances below) + q²·(variances
    above). Its expectation is at most 0 up to the quantile and at least 0 from it on. From below, the edges are left
    behind whose T is more than 1.96 standard deviations below 0; so are those from above. Each end is wrong only if the
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
) -> Estimate:
    bins = len(sums)
    below, variance_below = np.cumsum(sums)[:-1], np.cumsum(variances)[:-1]
    lead = below - share * sums.sum()
    limit = WITHIN_95 * np.sqrt((1 - share) ** 2 * variance_below + share**2 * (variances.sum() - variance_below))
    low = int(np.logical_and.accumulate(lead < -limit).sum())
    high = bins - int(np.logical_and.accumulate((lead > limit)[::-1]).sum())
    counts = at_least_zero(sums)
    reached = np.concatenate([[0.0], np.cumsum(counts)])
    value = float(np.interp(share * reached[-1], reached, edges))
    return Estimate(float(np.clip(value, edges[low], edges[high])), float(edges[low]), float(edges[high]))
