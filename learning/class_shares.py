"""Class shares among the people who took part, estimated from existing releases at no additional privacy cost.

Public points are assumed to represent people, so a model card should show whether their class shares differ. Both
estimates use released sums whose noise is known. Each interval contains the shares that a test on these sums does not
reject.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.measures import NORMAL_95, wilson

Floats = NDArray[np.float64]

_WEIGHED = 0.02
"""Allowance, in addition to noise, for people who contribute less than others because their account cannot pay for a
vote, their gradient is clipped, or they own several records (measured in docs/evaluation.md).
"""

_UNCOUNTED = 0.05
"""Share of the planned people who may have joined or left since planning, or may differ from the public points."""


@dataclass(frozen=True)
class ClassShare:
    """Share of a class with its 95 % interval."""

    value: float
    low: float
    high: float


def voted_shares(counts: Floats, sigma: float) -> list[ClassShare] | None:
    """Return the shares of the classes among all votes.

    The radius of every query contains the same number of public points, so people in regions with few public points
    vote in more queries. The sum over all queries therefore represents people in every region. For X votes for a class
    out of T, X − s·T has noise of variance σ²·Q·(1 − 2s + C·s²), and the interval contains every s for which this
    difference is compatible with 0 (Fieller 1954).

    Args:
        counts: `(Q, C)` released counts of plain votes.
        sigma: Standard deviation of the noise of each count.

    Returns:
        A share for each class, or None if the noise is too large for a bounded interval.
    """
    queries, classes = counts.shape
    total, variance = float(counts.sum()), (NORMAL_95 * sigma) ** 2 * queries
    squared = total**2 - variance * classes
    if total <= 0 or squared <= 0:
        return None
    rows = []
    for votes in counts.sum(axis=0).tolist():
        middle = (votes * total - variance) / squared
        half = math.sqrt(max(0.0, middle**2 - (votes**2 - variance) / squared))
        rows.append(_share(votes / total, middle - half, middle + half))
    return rows


def first_step_shares(intercept: Floats, *, noise: float, lengths: Floats, clip_norm: float) -> list[ClassShare]:
    """Return class shares from the first step of a linear model, when it predicts all classes with equal probability.

    At that step, the gradient of a holder of class y is f ⊗ (1/C − e_y), clipped. Its constant coordinate counts
    classes: to estimate a class's share, divide this coordinate by the fraction of an average holder's gradient that
    remains after clipping, and subtract the result from 1/C. The estimate assumes that the planned people took part,
    and that clipping affects them as much as public points. The interval allows for an error of `_UNCOUNTED`.

    Args:
        intercept: `(C,)` released gradient of the constant coordinate, per planned holder and in units of that
            coordinate.
        noise: Standard deviation of the noise in each number of ``intercept``.
        lengths: `(P,)` norms of public points, including the constant coordinate.
        clip_norm: Norm to which gradients are clipped, in the same units.
    """
    classes = len(intercept)
    centred = intercept - intercept.mean()
    kept = float(np.minimum(1.0, clip_norm / (lengths * math.sqrt(1 - 1 / classes))).mean())
    half = NORMAL_95 * noise * math.sqrt(1 - 1 / classes) / kept
    rows = []
    for gradient in centred.tolist():
        apart = gradient / kept
        error = math.hypot(half, _UNCOUNTED * apart)
        rows.append(_share(1 / classes - apart, 1 / classes - apart - error, 1 / classes - apart + error))
    return rows


def differing(people: ClassShare, share: float, points: int) -> bool:
    """Return whether the intervals show that a class's share differs between people and ``points`` public points."""
    low, high = wilson(share, points)
    return people.high < low or high < people.low


def _share(value: float, low: float, high: float) -> ClassShare:
    ends = min(low, value) - _WEIGHED, value, max(high, value) + _WEIGHED
    low, value, high = (min(1.0, max(0.0, each)) for each in ends)
    return ClassShare(value, low, high)
