"""Gaussian differential privacy: conversions between μ and (ε, δ), and the odds of a right guess at a given μ."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr

FloatArray = NDArray[np.float64]

#: Parts of δ that `gdp_mu` and `gdp_epsilon` leave unused. They are many times the relative error of `gdp_delta` (below
#: 1e-12). The second is smaller, so that gdp_epsilon(gdp_mu(ε, δ), δ) never exceeds ε.
MU_RESERVE = 1e-10
EPSILON_RESERVE = 5e-11

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_SMALL_MU = 0.5  # below this, the difference of the two normal tails is computed by integration instead of subtraction
_UNDERFLOW = 40.0  # φ(40) is 0 in doubles


def gdp_delta(mu: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """Return the smallest δ such that every μ-GDP mechanism is (ε, δ)-DP.

    Dong, Roth and Su, "Gaussian Differential Privacy" (2022), Corollary 2.13; Balle and Wang (2018), Theorem 8: δ =
    Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2). The relative error is below 1e-12 if δ ≥ 1e-100, however small μ is.

    Args:
        mu: μ ≥ 0, any shape; 0 means that nothing was released, so δ = 0.
        epsilon: ε ≥ 0, in a shape that broadcasts with ``mu``.

    Returns:
        δ, in the common shape.

    Raises:
        ValueError: μ or ε is negative, infinite or NaN, or shapes do not broadcast.

    >>> gdp_delta([0.0, 0.26805, 1.0], 1.0)
    array([0.00000000e+00, 9.99930428e-06, 1.26936738e-01])
    """
    mus, epsilons = np.broadcast_arrays(_not_negative("mu", mu), _not_negative("epsilon", epsilon))
    with np.errstate(under="ignore"):
        return np.exp(_log_delta(mus, epsilons))[()]


def gdp_mu(epsilon: ArrayLike, delta: ArrayLike) -> FloatArray:
    """Return the largest μ for which every μ-GDP mechanism is (ε, δ)-DP, rounded so that gdp_delta(μ, ε) ≤ δ.

    ln δ(μ) is concave and increasing: δ(μ) = ∫₀^μ φ(ε/m − m/2) dm, whose integrand is log-concave in m. Newton's method
    therefore stays below the solution if it starts below. It starts from √2·(√(L + ε) − √L), where L = ln(1/δ), and
    solves for δ·(1 − 1e-10), so that rounding cannot carry it beyond the solution.

    Args:
        epsilon: ε ≥ 0, any shape. At ε = 0 this is 2·Φ⁻¹((1 + δ)/2), which is small but not 0.
        delta: 0 < δ < 1, in a shape that broadcasts with ``epsilon``.

    Returns:
        μ > 0, in the common shape. A million holders with few different ε take a fraction of a second.

    Raises:
        ValueError: an argument is out of range, or shapes do not broadcast.

    >>> gdp_mu([0.1, 1.0, 8.0], 1e-5).round(5)
    array([0.03252, 0.26805, 1.66603])
    """
    return _on_distinct(_mu, _not_negative("epsilon", epsilon), _probability(delta))


def gdp_epsilon(mu: ArrayLike, delta: ArrayLike) -> FloatArray:
    """Return the smallest ε ≥ 0 for which every μ-GDP mechanism is (ε, δ)-DP, rounded so that gdp_delta(μ, ε) ≤ δ.

    ln δ(ε) is concave and decreasing: δ(ε) = ∫ e^{ε−s}·Pr[L > s] ds over s > ε, a convolution of log-concave functions.
    Newton's method, started above the solution at μ²/2 + μ·√(2·ln(1/δ)), therefore stays above it.

    Args:
        mu: μ ≥ 0, any shape; ε is 0 if 2Φ(μ/2) − 1 ≤ δ.
        delta: 0 < δ < 1, in a shape that broadcasts with ``mu``.

    Returns:
        ε, in the common shape. gdp_epsilon(gdp_mu(ε, δ), δ) is at most ε; for δ < 1/2, by no more than 1e-9·(1 + ε).

    Raises:
        ValueError: an argument is out of range, or shapes do not broadcast.

    >>> gdp_epsilon([0.0, 0.26805, 1.66603], 1e-5).round(4)
    array([0., 1., 8.])
    """
    return _on_distinct(_epsilon, _not_negative("mu", mu), _probability(delta))


def guess_odds(mu: ArrayLike) -> FloatArray:
    """Return the largest probability of guessing correctly whether a holder took part, with even prior odds: Φ(μ/2).

    For a μ-GDP mechanism, the two errors of a test add up to at least 1 − (2Φ(μ/2) − 1), and a guess is right with
    probability 1 minus half their sum.

    Raises:
        ValueError: μ is negative, infinite or NaN.

    >>> np.ceil(100 * guess_odds(gdp_mu([0.1, 1.0, 8.0], 1e-5)))
    array([51., 56., 80.])
    """
    return ndtr(_not_negative("mu", mu) / 2)[()]


def record_guess_odds(mu: ArrayLike) -> FloatArray:
    """Return the largest probability of guessing which of two equally likely records belongs to a holder: Φ(μ).

    An attacker who knows that the holder takes part compares two datasets that differ by one removal and one addition,
    which is 2μ-GDP (Dong, Roth and Su 2022, Theorem 2.14).

    Raises:
        ValueError: μ is negative, infinite or NaN.

    >>> round(float(record_guess_odds(0.26805)), 3)
    0.606
    """
    return ndtr(_not_negative("mu", mu))[()]


def _mu(epsilon: FloatArray, delta: FloatArray) -> FloatArray:
    log_inverse, target = -np.log(delta), np.log(delta) + np.log1p(-MU_RESERVE)
    start = np.sqrt(2) * epsilon / (np.sqrt(log_inverse + epsilon) + np.sqrt(log_inverse))
    start = np.maximum(start, np.sqrt(2 * np.pi) * delta) * (1 - 1e-9)  # 2Φ(μ/2) − 1 ≤ μ/√(2π)

    def step(mu: FloatArray) -> FloatArray:
        log_delta = _log_delta(mu, epsilon)
        log_slope = -0.5 * (epsilon / mu - mu / 2) ** 2 - _LOG_SQRT_2PI - log_delta
        return np.maximum(target - log_delta, 0.0) * np.exp(-log_slope)

    return _newton(step, start)


def _epsilon(mu: FloatArray, delta: FloatArray) -> FloatArray:
    epsilon = np.zeros(mu.shape)
    target = np.log(delta) + np.log1p(-EPSILON_RESERVE)
    rows = np.flatnonzero(_log_delta(mu, epsilon) > target)
    mu, target = mu[rows], target[rows]

    def step(epsilon: FloatArray) -> FloatArray:
        log_delta = _log_delta(mu, epsilon)
        log_density = -0.5 * (epsilon / mu - mu / 2) ** 2 - _LOG_SQRT_2PI
        log_slope = log_density + np.log(_mills(epsilon / mu + mu / 2)) - log_delta
        return np.minimum(log_delta - target, 0.0) * np.exp(-log_slope)

    epsilon[rows] = _newton(step, (mu**2 / 2 + mu * np.sqrt(-2 * target)) * (1 + 1e-9))
    return epsilon


def _newton(step: Callable[[FloatArray], FloatArray], start: FloatArray) -> FloatArray:
    """Return the result of repeating Newton's steps, which all have the same sign, until they are negligible."""
    value = start
    for _ in range(100):
        change = step(value)
        value = value + change
        if (np.abs(change) <= 1e-15 * value).all():
            return value
    raise ArithmeticError("Newton's method did not converge; ε, δ or μ is outside the range that doubles can express")


def _log_delta(mu: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Return ln δ, −∞ where μ is 0.

    Let x = ε/μ − μ/2 and y = x + μ, and let R(z) = Φ(−z)/φ(z) be the Mills ratio. Since φ(x) = e^ε·φ(y), we get δ =
    φ(x)·(R(x) − R(y)), where R(x) − R(y) is the integral of −R′(z) = 1 − z·R(z) from x to y. Where x < 0, R(x) may
    overflow, but δ = Φ(−x) − φ(x)·R(y) is accurate.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        log_density = -0.5 * low**2 - _LOG_SQRT_2PI
        nodes = np.minimum(low[..., None] + mu[..., None] * (_NODES + 1) / 2, _UNDERFLOW)
        small = log_density + np.log(mu / 2 * ((1 - nodes * _mills(nodes)) @ _WEIGHTS))
        ahead = log_density + np.log(_mills(low) - _mills(high))
        log_stay, log_other = log_ndtr(-low), log_density + np.log(_mills(high))
        behind = log_stay + np.log1p(-np.exp(log_other - log_stay))
        return np.where(mu == 0, -np.inf, np.where(mu <= _SMALL_MU, small, np.where(low >= 0, ahead, behind)))


def _mills(z: FloatArray) -> FloatArray:
    """Return Φ(−z)/φ(z)."""
    return np.sqrt(np.pi / 2) * erfcx(z / np.sqrt(2))


def _on_distinct(
    function: Callable[[FloatArray, FloatArray], FloatArray], first: FloatArray, second: FloatArray
) -> FloatArray:
    """Apply a function to every pair, computing each distinct pair once."""
    both = np.broadcast_arrays(first, second)
    distinct, place = np.unique(both[0] + 1j * both[1], return_inverse=True)
    return function(distinct.real, distinct.imag)[place].reshape(both[0].shape)[()]


def _not_negative(name: str, value: ArrayLike) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{name} must be finite and not negative; leave out people without {name}")
    return array


def _probability(delta: ArrayLike) -> FloatArray:
    array = np.asarray(delta, dtype=np.float64)
    if not ((array > 0) & (array < 1)).all():
        raise ValueError("delta must lie between 0 and 1; choose it well below 1 / number of holders")
    return array
