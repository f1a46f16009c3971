"""Charges of teacher votes to a holder, in μ²; "Charges" in docs/gaussian-accounts.md derives them.

Neighbours differ in one holder: in whether they are in their teacher, which may then vote in any other way. The number
of teachers, the partition of everyone else, weights and noise are the same with and without them. A holder whose
records were duplicated into k teachers changes k votes.

All functions of a vote take ``weight``, w ≥ 0 of one vote; ``sigma``, the standard deviation of the noise on each count
(of a check, on the largest one), in votes, above 0; and ``teachers``, k, the number of teachers with the holder's
records. They raise ValueError if an argument is out of range.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfinv, ndtri_exp

from accounting.privacy.checks import FloatArray, checked_positive, checked_sensitivity, checked_teachers

_ROUNDING = 1e-12  # more than the relative error of the formulas below, to make sure that a charge is never too small


def label_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of a label or a histogram of votes, each count with N(0, σ²): 2·(kw)²/σ².

    >>> label_charge(weight=1.0, sigma=32.0)
    0.001953125
    """
    return 2 * _relative(weight, teachers, sigma) ** 2


def check_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of whether the largest count, with N(0, σ_T²), reaches a threshold: (kw)²/σ_T².

    It is the same if the student's share is subtracted first.

    >>> check_charge(weight=3.0, sigma=150.0)
    0.0004
    """
    return _relative(weight, teachers, sigma) ** 2


def lnmax_charge(weight: float, gamma: float, teachers: int = 1) -> float:
    """Return the charge of the top class after Lap(1/γ) noise on each count: `pure_dp_mu` squared, with ε₀ = 2γkw.

    >>> round(lnmax_charge(weight=1.0, gamma=0.05), 6)
    0.015702
    """
    pure = 2 * checked_positive("gamma", gamma) * checked_sensitivity(weight) * checked_teachers(teachers)
    return float(pure_dp_mu(pure) ** 2)


def residual_vote_charge(weight: float, sigma: float, disagreements: int, teachers: int = 1) -> float:
    """Return the charge, due in advance, of a residual vote with at most d disagreements per teacher: 4d·(kw)²/σ².

    A teacher falls silent after d = ``disagreements`` votes against the public prediction.

    >>> residual_vote_charge(weight=1.0, sigma=64.0, disagreements=16)
    0.015625
    """
    if disagreements != int(disagreements) or disagreements < 0:
        raise ValueError(f"disagreements must be a whole number of at least 0, not {disagreements}")
    return 4 * int(disagreements) * _relative(weight, teachers, sigma) ** 2


def pure_dp_mu(epsilon: ArrayLike) -> FloatArray:
    """Return the smallest μ such that every ε-DP release is μ-GDP: 2·Φ⁻¹(e^ε/(1 + e^ε)), rounded up.

    Lemma 6 of docs/gaussian-accounts.md; no smaller μ will do, because randomised response attains it.

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
