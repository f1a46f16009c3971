"""Measures of predicted survival on people of whom some were only followed for a while (censored)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learning.measures import NORMAL_95, Estimate

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_AT_A_TIME = 2**22


def concordance(risks: Floats, times: Floats, events: Bools) -> Estimate:
    """Harrell's C: among pairs of which one is known to be first, the share where that one has the larger risk.

    Equal risks count half. The interval is of the normal distribution, with the variance of a ratio of U-statistics by
    what each person's pairs say (Hoeffding 1948).
    """
    people = len(times)
    right, compared = np.zeros(people), np.zeros(people)
    first = np.flatnonzero(events)
    block = max(1, _AT_A_TIME // max(people, 1))
    for start in range(0, len(first), block):
        mine = first[start : start + block]
        # whoever is censored at the moment of an event outlived it
        later = (times[mine, None] < times) | ((times[mine, None] == times) & ~events)
        agrees = later * ((risks[mine, None] > risks) + 0.5 * (risks[mine, None] == risks))
        right[mine] += agrees.sum(axis=1)
        compared[mine] += later.sum(axis=1)
        right += agrees.sum(axis=0)
        compared += later.sum(axis=0)
    pairs = compared.sum()
    if not pairs:
        return Estimate()
    value = float(right.sum() / pairs)
    half = NORMAL_95 * 2 * float(np.sqrt(((right - value * compared) ** 2).sum())) / float(pairs)
    return Estimate(value, (max(0.0, value - half), min(1.0, value + half)))


def kaplan_meier(times: Floats, events: Bools, moments: Floats, *, before: bool = False) -> tuple[Floats, Floats]:
    """Share that is without the event after each of some moments, and its standard error (Greenwood 1926).

    Args:
        times: `(n,)` of the event, or until when somebody was followed.
        events: `(n,)` which of the two.
        moments: `(m,)`.
        before: count what happens at a moment itself as later.
    """
    distinct = np.unique(times[events])
    ordered = np.sort(times)
    at_risk = len(times) - np.searchsorted(ordered, distinct, side="left")
    happened = np.searchsorted(np.sort(times[events]), distinct, side="right") - np.searchsorted(
        np.sort(times[events]), distinct, side="left"
    )
    left = np.append(1.0, np.cumprod(1 - happened / at_risk))
    spread = np.append(0.0, np.cumsum(happened / (at_risk * np.maximum(at_risk - happened, 1e-9))))
    place = np.searchsorted(distinct, moments, side="left" if before else "right")
    return left[place], left[place] * np.sqrt(spread[place])


def brier_scores(survival: Floats, times: Floats, events: Bools, moments: Floats) -> Floats:
    """`(n, m)` squared errors of predicted survival at some moments, weighed for those censored (Graf et al. 1999).

    Whoever was censored before a moment has weight 0 there, and others stand for them: their weight is
    one over the share that was followed so long, by Kaplan and Meier. The mean of a column is the Brier score.

    Args:
        survival: `(n, m)` predicted share without the event after each moment.
        times: `(n,)`.
        events: `(n,)`.
        moments: `(m,)`.
    """
    followed, _ = kaplan_meier(times, ~events, times, before=True)
    until, _ = kaplan_meier(times, ~events, moments)
    died = (times[:, None] <= moments) & events[:, None]
    lives = times[:, None] > moments
    weights = died / np.maximum(followed, 1e-9)[:, None] + lives / np.maximum(until, 1e-9)
    return np.asarray(weights * (lives - survival) ** 2, np.float64)
