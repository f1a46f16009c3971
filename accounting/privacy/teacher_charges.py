"""Charges of teacher votes to a holder, in μ².

Neighbours differ in one holder: in whether they are in their teacher, which may then vote in any other way. The number
of teachers, the partition of everyone else, weights and noise are the same with and without them. A holder whose
records were duplicated into k teachers changes k votes.

A Gaussian release costs the largest ‖m − m′‖²/σ², where m and m′ are the exact numbers with and without the holder.
docs/gaussian-accounts.md shows that such charges add up, however the queries are chosen. Laplace noise is pure ε-DP; it
costs as much as the Gaussian release that dominates it.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfinv, ndtri_exp

from accounting.privacy.checks import FloatArray, checked_positive, checked_sensitivity, checked_teachers

_ROUNDING = 1e-12  # more than the relative error of the formulas below, to make sure that a charge is never too small


def label_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of a label or a histogram of votes, each count with N(0, σ²): 2·(kw)²/σ².

    One vote of weight w moves from class a to class b, ‖w·(e_b − e_a)‖² = 2w², or from or to "no vote", w². k votes
    move by at most k·√2·w together (triangle inequality), all from one class to one other.

    Args:
        weight: w ≥ 0 of one vote.
        sigma: standard deviation of the noise on each count, in votes, above 0.
        teachers: k, the number of teachers with the holder's records.

    Raises:
        ValueError: an argument out of range.

    >>> label_charge(weight=1.0, sigma=32.0)
    0.001953125
    """
    return 2 * _relative(weight, teachers, sigma) ** 2


def check_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of whether the largest count, with N(0, σ_T²), reaches a threshold: (kw)²/σ_T².

    A vote that moves changes every count by at most w, hence the maximum by at most w. That stays true if the student's
    share is subtracted first, n_j − S·p_j with S the weight of all votes and p public: a vote that moves leaves S
    unchanged, and one that appears in class a changes difference j by w·(1[j = a] − p_j), which lies between −w and w.

    Args:
        weight: w ≥ 0 of one vote.
        sigma: σ_T, standard deviation of the noise on the maximum, in votes, above 0.
        teachers: k, the number of teachers with the holder's records.

    Raises:
        ValueError: an argument out of range.

    >>> check_charge(weight=3.0, sigma=150.0)
    0.0004
    """
    return _relative(weight, teachers, sigma) ** 2


def lnmax_charge(weight: float, gamma: float, teachers: int = 1) -> float:
    """Return the charge of the top class after Lap(1/γ) noise on each count: μ² of pure DP with ε₀ = 2γkw.

    k votes of weight w that move change the counts by at most 2kw in sum of absolute values, and the density of the
    noise by a factor of at most e^{γ·2kw}. See :func:`accounting.privacy.pure_dp_mu`.

    Args:
        weight: w ≥ 0 of one vote.
        gamma: γ > 0.
        teachers: k, the number of teachers with the holder's records.

    Raises:
        ValueError: an argument out of range.

    >>> round(lnmax_charge(weight=1.0, gamma=0.05), 6)
    0.015702
    """
    pure = 2 * checked_positive("gamma", gamma) * checked_sensitivity(weight) * checked_teachers(teachers)
    return float(pure_dp_mu(pure) ** 2)


def residual_vote_charge(weight: float, sigma: float, disagreements: int, teachers: int = 1) -> float:
    """Return the charge, due in advance, of a residual vote with at most d disagreements per teacher: 4d·(kw)²/σ².

    A teacher that votes y after the public prediction ŷ contributes w·(e_y − e_ŷ), which is 0 if y = ŷ, and nothing
    after it has contributed d times. Take one transcript. With the holder the teacher contributes at no more than d of
    its steps, without at no more than d, so the two differ at no more than 2d steps. There the difference is
    w·(e_y − e_ŷ), its negative, or w·(e_y − e_y′): 2w² each. k teachers add up at most in norm (triangle inequality
    over the whole vote).

    Args:
        weight: w ≥ 0 of one vote.
        sigma: standard deviation of the noise on each count, in votes, above 0.
        disagreements: d, the number after which a teacher falls silent, at least 0.
        teachers: k, the number of teachers with the holder's records.

    Raises:
        ValueError: an argument out of range.

    >>> residual_vote_charge(weight=1.0, sigma=64.0, disagreements=16)
    0.015625
    """
    if disagreements != int(disagreements) or disagreements < 0:
        raise ValueError(f"disagreements must be a whole number of at least 0, not {disagreements}")
    return 4 * int(disagreements) * _relative(weight, teachers, sigma) ** 2


def pure_dp_mu(epsilon: ArrayLike) -> FloatArray:
    """Return the smallest μ such that every ε-DP release is μ-GDP: 2·Φ⁻¹(e^ε/(1 + e^ε)), rounded up.

    A test between two neighbours by an ε-DP release, with false positive rate α, has a false negative rate of at least
    f(α) = max(0, 1 − e^ε·α, e^{−ε}·(1 − α)) (Wasserman and Zhou 2010; Dong, Roth and Su 2022, section 2). f is
    convex and piecewise linear, symmetric about the diagonal, with its kink at α = f(α) = c, c = 1/(1 + e^ε). The curve
    of μ-GDP, G(α) = Φ(Φ⁻¹(1 − α) − μ), is convex, symmetric, and runs from (0, 1) to (1, 0). If G(c) = c, it lies below
    the chords from (0, 1) to (c, c) and from (c, c) to (1, 0), which are f: so G ≤ f everywhere, and the release is
    μ-GDP. No smaller μ will do, because randomised response attains c. G(c) = c reads Φ⁻¹(1 − c) − μ = Φ⁻¹(c), that is
    μ = 2·Φ⁻¹(1 − c).

    Args:
        epsilon: ε ≥ 0, any shape.

    Returns:
        μ, in the same shape; approximately √(π/2)·ε for small ε, 2·√(2ε) for large ε.

    Raises:
        ValueError: ε negative, infinite or NaN.

    >>> pure_dp_mu([0.0, 0.01, 1.0, 10.0]).round(4)
    array([0.    , 0.0125, 1.232 , 7.8279])
    """
    array = np.asarray(epsilon, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("epsilon must be finite and not negative; a release without noise has no ε")
    # e^ε/(1 + e^ε) is (1 + tanh(ε/2))/2; beyond 1 the tail 1/(1 + e^ε) keeps the digits.
    near = 2 * np.sqrt(2) * erfinv(np.tanh(np.minimum(array, 1.0) / 2))
    far = -2 * ndtri_exp(-np.logaddexp(0.0, np.maximum(array, 1.0)))
    return (np.where(array <= 1, near, far) * (1 + _ROUNDING))[()]


def _relative(weight: float, teachers: int, sigma: float) -> float:
    return checked_sensitivity(weight) * checked_teachers(teachers) / checked_positive("sigma", sigma)
