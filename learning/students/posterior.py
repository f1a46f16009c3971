"""The class that leads before noise, given counts after noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

_REACH = 8.0  # standard deviations on either side of the counts; beyond it there is less than 1e-15
_STEPS = 161
_NEVER = -1e4  # the logarithm of no probability, and still a number to subtract
_BATCH = 512


def leading_probabilities(counts: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """Posterior probabilities that each class has the largest count before noise.

    Counts before noise are independent with a flat prior on [0, ∞), so given a noisy count y they follow N(y, σ²), cut
    off below 0. With density f_c and distribution F_c,

        P(c leads) = ∫ f_c(x) · Π_{k ≠ c} F_k(x) dx,

    which is integrated over x numerically (trapezoidal rule, whose error falls faster than any power of the step).

    Args:
        counts: `(Q, C)` noisy counts.
        sigma: A number, or `(Q,)`: standard deviation of their noise; where it is 0, counts are probabilities up to a
            factor, and negative ones are 0.

    Returns:
        `(Q, C)`, rows sum to 1.

    >>> leading_probabilities([[60.0, 40.0]], 10.0).round(2).tolist()
    [[0.92, 0.08]]
    """
    noisy = np.asarray(counts, np.float64)
    deviation = np.broadcast_to(np.asarray(sigma, np.float64), noisy.shape[:1])
    result = np.maximum(noisy, 0.0)
    for start in range(0, len(noisy), _BATCH):
        chosen = start + np.flatnonzero(deviation[start : start + _BATCH] > 0)
        if len(chosen):
            result[chosen] = _integrated(noisy[chosen] / deviation[chosen, None])
    totals = result.sum(axis=1, keepdims=True)
    return np.divide(result, totals, out=np.full_like(result, 1 / noisy.shape[1]), where=totals > 0)


def _integrated(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """`means` (Q, C) in units of σ; results are in proportion to the probabilities."""
    top = np.maximum(means.max(axis=1), 0.0)
    low, high = np.maximum(top - _REACH, 0.0), top + _REACH
    x = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _STEPS)
    distance = x[:, None, :] - means[:, :, None]
    above = log_ndtr(means)[:, :, None]
    with np.errstate(divide="ignore"):
        distribution = np.log(-np.expm1(np.minimum(log_ndtr(-distance) - above, 0.0)))  # F = 1 − Φ(y − x) / Φ(y)
    distribution = np.maximum(distribution, _NEVER)
    others = distribution.sum(axis=1, keepdims=True) - distribution
    density = np.exp(-0.5 * distance**2 - above + others)
    density[:, :, [0, -1]] *= 0.5
    return density.sum(axis=2)
