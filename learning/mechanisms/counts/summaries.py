"""Mean and quantiles of a column of numbers, from a released table of its bins alone: nobody is charged for them.

Intervals invert tests of the released sums, whose noise is known: for a mean, the ratio of two sums as Fieller has it
("Some Problems in Interval Estimation", 1954); for a quantile, one test at each edge. Neither takes many people for
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
    sums = np.moveaxis(np.array(table.sums).reshape([len(each) for each in table.values]), axis, 0)
    groups = [values for place, values in enumerate(table.values) if place != axis]
    of_groups = sums[: len(edges) - 1].reshape(len(edges) - 1, -1).T
    return [
        Summary(table.columns[axis], group, mean(edges, of_group, table.sigma), quantiles(edges, of_group, table.sigma))
        for group, of_group in zip(groups[0] if groups else ("",), of_groups, strict=True)
    ]


def mean(edges: NDArray[np.float64], sums: NDArray[np.float64], sigma: float) -> Estimate | None:
    """Mean of numbers in bins.

    With the middles m of the bins, T(x) = Σ sums·(m − x) has noise of variance σ²·Σ(m − x)² and is 0 without noise at
    the mean x of the middles: all x with |T(x)| ≤ 1.96 of its standard deviations. A number is half a bin from its
    middle at most, and so is their mean.

    Args:
        edges: (B + 1,) of the bins, which are equally wide.
        sums: (B,) of the weights in each bin, with noise.
        sigma: Standard deviation of that noise.

    Returns:
        None where no bounded set of x is left.
    """
    middles = (edges[:-1] + edges[1:]) / 2 - edges[0]
    first, people, variance = float(sums @ middles), float(sums.sum()), (WITHIN_95 * sigma) ** 2
    a = people**2 - variance * len(sums)
    if a <= 0 or people <= 0:
        return None
    half_b = first * people - variance * float(middles.sum())
    c = first**2 - variance * float((middles**2).sum())
    root = math.sqrt(max(half_b**2 - a * c, 0.0))
    half = float(edges[1] - edges[0]) / 2
    low, value, high = ((half_b - root) / a - half, first / people, (half_b + root) / a + half)
    return Estimate(*(float(np.clip(edges[0] + each, edges[0], edges[-1])) for each in (value, low, high)))


def quantiles(
    edges: NDArray[np.float64], sums: NDArray[np.float64], sigma: float, shares: tuple[float, ...] = QUANTILES
) -> tuple[Estimate, ...]:
    """Quantiles of numbers in bins.

    At edge j, T = (1 − q)·(sums below) − q·(sums above) has noise of variance σ²·((1 − q)²·j + q²·(B − j)). Without
    noise it is at most 0 up to the quantile and at least 0 from it on. From below, the edges are left behind whose T is
    more than 1.96 standard deviations below 0; so are those from above. Each end is wrong only if the test at the first
    edge beyond the quantile is: 1 time in 40.

    Args:
        edges: (B + 1,) of the bins.
        sums: (B,) of the weights in each bin, with noise.
        sigma: Standard deviation of that noise.
        shares: q, of each quantile.
    """
    return tuple(_quantile(edges, sums, sigma, share) for share in shares)


def _quantile(edges: NDArray[np.float64], sums: NDArray[np.float64], sigma: float, share: float) -> Estimate:
    bins = len(sums)
    inner = np.arange(1, bins)
    below = np.cumsum(sums)[:-1]
    lead = below - share * sums.sum()
    limit = WITHIN_95 * sigma * np.sqrt((1 - share) ** 2 * inner + share**2 * (bins - inner))
    low = int(np.logical_and.accumulate(lead < -limit).sum())
    high = bins - int(np.logical_and.accumulate((lead > limit)[::-1]).sum())
    counts = at_least_zero(sums)
    reached = np.concatenate([[0.0], np.cumsum(counts)])
    value = float(np.interp(share * reached[-1], reached, edges))
    return Estimate(float(np.clip(value, edges[low], edges[high])), float(edges[low]), float(edges[high]))
