"""Smooth sensitivity of data-dependent costs, and the cost of publishing them: PATE 2018, Appendix B.

A cost that depends on the votes is itself secret. Papernot et al. (2018) publish it with Gaussian noise in proportion
to its smooth sensitivity, which bounds how much the cost differs between neighbours. The project never does this,
because its accounts do not depend on votes. This module reproduces the paper's table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from accounting.privacy import gnmax_rdp, threshold_rdp
from accounting.privacy.papers.argmax import GaussianNoise, log_miss_bound
from accounting.privacy.papers.votes import data_dependent_rdp

Floats = NDArray[np.float64]
BETAS = np.arange(0.3, 0.495, 0.01)
"""Candidates for β·λ, where λ is the order; the release needs β·λ < 1/2 (Theorem 23)."""


@dataclass(frozen=True)
class Published:
    """ε at one order, before publication and as published: normal with this mean and standard deviation.

    mended: the mean, including the cost of the release according to `release_divergence`.
    """

    order: float
    answered: float
    before: float
    mean: float
    deviation: float
    mended: float
    beta: float
    sensitivity: float


def gnmax_local_sensitivities(votes: ArrayLike, sigma: float, order: float) -> Floats:
    """Return bounds on the local sensitivity of a label's cost at every distance (Algorithms 3 to 5).

    The cost is Theorem 6 applied to the probability q that another class wins (Proposition 7). Moving one vote changes
    q to a value between B_L(q) and B_U(q); the bound is largest from q₁ to q₀ = B_U(q₁), where the data-independent
    cost begins. At distance d, d votes have been moved to bring q as close to this as possible.

    Args:
        votes: counts of teachers, `(queries, classes)`, all rows with the same sum.
        sigma: standard deviation of the noise on each count, in votes.
        order: λ > 1.

    Returns:
        `(queries, teachers)`, distances 0 to teachers − 1.
    """
    counts = -np.sort(-np.asarray(votes, np.float64), axis=1)
    queries, classes = counts.shape
    teachers = round(float(counts[0].sum()))
    log_q0 = _log_q0(sigma, order)
    log_q1 = float(_moved(np.array([log_q0]), sigma, classes, 1.0)[0])
    noise = GaussianNoise(sigma)
    bounds = np.full((queries, teachers), _gnmax_bound(np.array([log_q1]), sigma, classes, order)[0])
    log_q = log_miss_bound(counts, noise)
    walking = (log_q < log_q1) | (log_q > log_q0)
    left = log_q > log_q0
    bounds[walking, 0] = _gnmax_bound(log_q[walking], sigma, classes, order)
    for distance in range(1, teachers):
        walking &= np.where(left, (log_q > log_q0) & (counts[:, 1] > 0), log_q < log_q1)
        if not walking.any():
            break
        towards = np.where(left, 1.0, -1.0)[walking]
        counts[walking, 0] += towards
        counts[walking, 1] -= towards
        counts[walking, 1:] = -np.sort(-counts[walking, 1:], axis=1)
        log_q[walking] = log_miss_bound(counts[walking], noise)
        bounds[walking, distance] = _gnmax_bound(log_q[walking], sigma, classes, order)
    return bounds


def threshold_local_sensitivities(votes: ArrayLike, threshold: float, sigma: float, order: float) -> Floats:
    """Return bounds `(queries, teachers)` for the cost of the check, which depends only on the largest count."""
    counts = np.asarray(votes, np.float64)
    teachers = round(float(counts[0].sum()))
    costs = threshold_rdp(
        np.arange(teachers + 1.0)[:, None], threshold, sigma, orders=[order], method="data_dependent"
    )[:, 0]
    steps = np.abs(np.diff(costs))
    local = np.maximum(np.append(steps, 0.0), np.append(0.0, steps))
    largest = np.rint(counts.max(axis=1)).astype(int)[:, None]
    distances = np.arange(teachers)
    padded = np.concatenate([np.zeros(teachers), local, np.zeros(teachers)])
    return np.maximum(padded[largest + distances + teachers], padded[largest - distances + teachers])


def smooth_sensitivity(local: ArrayLike, beta: float) -> float:
    """Return max_d e^{−βd}·LS_d (Nissim, Raskhodnikova, Smith 2007, Definition 2.2).

    >>> round(smooth_sensitivity([0.0, 1.0, 2.0], beta=0.5), 4)
    0.7358
    """
    bounds = np.asarray(local, np.float64)
    return float((bounds * np.exp(-beta * np.arange(len(bounds)))).max())


def release_rdp(beta: float, sigma: float, order: float) -> float:
    """Return RDP of f(D) + SS_β(D)·N(0, σ²), Theorem 23: λe^{2β}/σ² + (βλ − ln(1 − 2λβ)/2)/(λ − 1), λ < 1/(2β).

    This is not a bound if 2βλ is near 1; see `release_divergence`.

    >>> round(release_rdp(beta=0.0, sigma=2.0, order=10.0), 4)
    2.5
    """
    if beta < 0 or not order > 1 or 2 * beta * order >= 1:
        raise ValueError(f"the order {order} must lie between 1 and 1/(2β) with β = {beta}: choose a smaller β.")
    return order * math.exp(2 * beta) / sigma**2 + (beta * order - math.log1p(-2 * order * beta) / 2) / (order - 1)


def release_divergence(beta: float, sigma: float, order: float) -> float:
    """Return D_λ of two releases allowed by smooth sensitivity: SS(D) = e^β·SS(D′), and f differs by SS(D′).

    Both are normal, so it is λ/(2v) − ln(v / (σ²e^{2β(1−λ)}))/(2(λ − 1)) with v = σ²(λ − (λ − 1)e^{2β}) (Gil, Alajaji,
    Linder 2013). Theorem 23 charges less when 2βλ is near 1. Infinite if v ≤ 0.

    >>> round(release_divergence(beta=0.0, sigma=2.0, order=10.0), 4)
    1.25
    """
    variance = sigma**2 * (order - (order - 1) * math.exp(2 * beta))
    if variance <= 0:
        return math.inf
    ratio = math.log(variance / sigma**2) + 2 * beta * (order - 1)
    return order / (2 * variance) - ratio / (2 * (order - 1))


def published_epsilon(
    votes: ArrayLike, *, sigma: float, threshold: float, sigma_threshold: float, delta: float, orders: ArrayLike
) -> Published:
    """Return the publishable ε of Confident-GNMax, with the β and σ that minimise the mean plus 2 deviations.

    It is computed in expectation, as in the paper: every label is weighted by its probability of being answered.
    """
    counts = np.asarray(votes, np.float64)
    answered = np.exp(log_ndtr((counts.max(axis=1) - threshold) / sigma_threshold))
    alpha = np.unique(np.asarray(orders, np.float64))
    curve = threshold_rdp(counts, threshold, sigma_threshold, orders=alpha, method="data_dependent").sum(axis=0)
    curve = curve + answered @ gnmax_rdp(counts, sigma, orders=alpha, method="data_dependent")
    penalty = math.log(1 / delta) / (alpha - 1)
    best = int(np.argmin(curve + penalty))
    order, before = float(alpha[best]), float((curve + penalty)[best])
    local = answered @ gnmax_local_sensitivities(counts, sigma, order)
    local = local + threshold_local_sensitivities(counts, threshold, sigma_threshold, order).sum(axis=0)
    found = None
    for beta in BETAS / order:
        sensitivity = smooth_sensitivity(local, beta)
        scale = (order * math.exp(2 * beta) / sensitivity) ** (1 / 3)
        mean, deviation = before + release_rdp(beta, scale, order), sensitivity * scale
        if found is None or mean + 2 * deviation < found.mean + 2 * found.deviation:
            mended = before + release_divergence(beta, scale, order)
            found = Published(order, float(answered.sum()), before, mean, deviation, mended, float(beta), sensitivity)
    assert found is not None
    return found


def conditions_hold(sigma: float, classes: int, order: float, points: int = 20_000) -> bool:
    """Check conditions C5 and C6 on a grid of q: cost and its growth by one vote do not fall, up to q₀ and q₁."""
    log_q0 = _log_q0(sigma, order)
    log_q1 = float(_moved(np.array([log_q0]), sigma, classes, 1.0)[0])
    below_q0, below_q1 = (np.linspace(10 * end, end * (1 + 1e-12), points) for end in (log_q0, log_q1))
    growth = _cost(_moved(below_q1, sigma, classes, -1.0), sigma, order) - _cost(below_q1, sigma, order)
    return bool(all((np.diff(part) >= -1e-15).all() for part in (_cost(below_q0, sigma, order), growth)))


def _cost(log_q: Floats, sigma: float, order: float) -> Floats:
    dependent = data_dependent_rdp(log_q, 1 / sigma**2, np.array([order]))[:, 0]
    return np.where(log_q < _log_q0(sigma, order), dependent, order / sigma**2)


def _moved(log_q: Floats, sigma: float, classes: int, votes: float) -> Floats:
    """Return ln B_L(q) for votes = 1, ln B_U(q) for −1: equal margins of Proposition 7, moved by two votes."""
    log_others = math.log(classes - 1)
    margin = -ndtri_exp(np.minimum(log_q - log_others, 0.0))
    return np.minimum(log_others + log_ndtr(-(margin + votes * math.sqrt(2) / sigma)), 0.0)


def _gnmax_bound(log_q: Floats, sigma: float, classes: int, order: float) -> Floats:
    log_q0 = _log_q0(sigma, order)
    log_q1 = _moved(np.array([log_q0]), sigma, classes, 1.0)[0]
    log_q = np.where((log_q1 <= log_q) & (log_q <= log_q0), log_q1, log_q)
    cost = _cost(log_q, sigma, order)
    higher, lower = (_cost(_moved(log_q, sigma, classes, votes), sigma, order) for votes in (-1.0, 1.0))
    return np.maximum(higher - cost, cost - lower)


@cache
def _log_q0(sigma: float, order: float) -> float:
    """Return ln q₀, at which the data-independent cost begins, but at most where Theorem 6 certainly applies."""
    independent = order / sigma**2
    low, high = -1e4, -(max(1 + 1 / sigma, (order - 0.99) / sigma, 1 / sigma) ** 2)

    def is_below(log_q: float) -> bool:
        cost = data_dependent_rdp(np.array([log_q]), 1 / sigma**2, np.array([order]))[0, 0]
        return bool(cost < independent * (1 - 1e-12))

    if is_below(high):
        return high
    while high - low > -1e-14 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low
