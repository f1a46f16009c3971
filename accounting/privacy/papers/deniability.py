"""Costs of plausible deniability for one released row, and for several rows together.

V. Bindschaedler, R. Shokri, C. A. Gunter: Plausible Deniability for Privacy-Preserving Data Synthesis, PVLDB 2017.
"""

import math

import numpy as np
import scipy
from scipy.special import gammaln


def row_cost(k: int, gamma: float, epsilon0: float, delta: float) -> tuple[float, int]:
    """Return the smallest ε of one released row at δ, and the t that attains it.

    By Theorem 1 with the randomised test (threshold k + Lap(1/ε₀)), a row is (ε, δ)-DP for every 1 ≤ t < k, with ε = ε₀
    + ln(1 + γ/t) and δ = exp(−ε₀·(k − t)).

    Args:
        k: minimum number of plausible seeds.
        gamma: γ > 1, the largest ratio of probabilities between plausible seeds.
        epsilon0: ε₀ of the test.
        delta: δ of the row, above 0 and below 1.

    Raises:
        ValueError: no t is sufficient; increase k or ε₀.

    >>> epsilon, t = row_cost(50, 4, 1.0, 1e-9)
    >>> round(epsilon, 3), t
    (1.129, 29)
    """
    if not (k > 1 and gamma > 1 and epsilon0 > 0 and 0 < delta < 1):
        raise ValueError("k and gamma must be above 1, epsilon0 above 0, delta between 0 and 1")
    t = min(k - 1, math.floor(k + math.log(delta) / epsilon0))
    if t < 1:
        raise ValueError(f"No row is ({epsilon0:g}, {delta:g})-DP with k = {k}: use a larger k or a larger epsilon0.")
    return epsilon0 + math.log1p(gamma / t), t


def composed_delta(epsilon_row: float, delta_row: float, rows: int, epsilon: float) -> float:
    """Return the smallest δ at ``epsilon`` of the composition of several (ε, δ)-DP releases.

    Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy, ICML 2015, Theorem 3.3: the worst case is
    ``rows`` randomised responses that each reveal the truth with probability ``delta_row``. If none of them does, their
    log-likelihood ratio is (2X − rows)·ε_row with X ~ Bin(rows, e^ε_row/(1 + e^ε_row)).
    """
    successes = np.arange(rows + 1)
    excess = epsilon - (2 * successes - rows) * epsilon_row
    above = excess < 0
    hits = successes[above]
    chosen = gammaln(rows + 1) - gammaln(hits + 1) - gammaln(rows - hits + 1)
    log_mass = chosen + (hits - rows) * epsilon_row - rows * math.log1p(math.exp(-epsilon_row))
    whole = float(np.sum(np.exp(log_mass) * -np.expm1(excess[above])))
    return float(-np.expm1(rows * math.log1p(-delta_row)) + (1 - delta_row) ** rows * whole)


def composed_epsilon(epsilon_row: float, delta_row: float, rows: int, delta: float) -> float:
    """Return the smallest ε at ``delta`` of the composition of several (ε, δ)-DP releases; see `composed_delta`.

    Raises:
        ValueError: the δ of the rows add up to more than ``delta``.

    >>> round(composed_epsilon(1.0, 0.0, 1, 1e-9), 6), round(composed_epsilon(0.1, 0.0, 100, 1e-6), 2)
    (1.0, 4.77)
    """
    if composed_delta(epsilon_row, delta_row, rows, rows * epsilon_row) > delta:
        raise ValueError(f"{rows} rows with δ = {delta_row:g} exceed the total δ of {delta:g}: use less per row.")
    if composed_delta(epsilon_row, delta_row, rows, 0.0) <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        return composed_delta(epsilon_row, delta_row, rows, epsilon) - delta

    return float(scipy.optimize.brentq(excess, 0.0, rows * epsilon_row))


def part_of(epsilon: float, parts: int, delta: float) -> float:
    """Return the largest ε of each of ``parts`` releases whose composition costs ``epsilon`` at ``delta``.

    >>> round(part_of(1.0, 1, 1e-9), 6), round(part_of(4.77, 100, 1e-6), 3)
    (1.0, 0.1)
    """
    low, high = epsilon / parts, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if composed_epsilon(middle, 0.0, parts, delta) <= epsilon else (low, middle)
    return low
