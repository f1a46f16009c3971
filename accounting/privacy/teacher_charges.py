"""Charges of teacher votes to a holder, in μ², as derived in "Charges" in docs/gaussian-accounts.md.

Neighbours differ in whether one holder's records are in that holder's teacher, which may vote differently as a result.
The number of teachers, the partition of everyone else, weights and noise are the same with and without the holder. A
holder whose records were duplicated into k teachers changes k votes.

All functions about votes take ``weight``, the weight w ≥ 0 of one vote; ``sigma``, the standard deviation in votes,
above 0, of the noise on each count (in a check, on the largest one); and ``teachers``, the number k of teachers with
the holder's records. They raise ValueError if an argument is out of range.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfinv, ndtri_exp

from accounting.privacy.checks import FloatArray, checked_positive, checked_sensitivity, checked_teachers

_ROUNDING = 1e-12  # above the relative error of the formulas below, so that a charge is never too small


def label_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of a label or a histogram of votes with noise N(0, σ²) on each count: 2·(kw)²/σ².

    >>> label_charge(weight=1.0, sigma=32.0)
    0.001953125
    """
    return 2 * _relative(weight, teachers, sigma) ** 2


def check_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of checking whether the largest count plus N(0, σ_T²) reaches a threshold: (kw)²/σ_T².

    The charge is the same if the student's share is subtracted first.

    >>> check_charge(weight=3.0, sigma=150.0)
    0.0004
    """
    return _relative(weight, teachers, sigma) ** 2


def lnmax_charge(weight: float, gamma: float, teachers: int = 1) -> float:
    """Return the charge of the top class with Lap(1/γ) noise on each count: `pure_dp_mu` squared, with ε₀ = 2γkw.

    >>> round(lnmax_charge(weight=1.0, gamma=0.05), 6)
    0.015702
    """
    pure = 2 * checked_positive("gamma", gamma) * checked_sensitivity(weight) * checked_teachers(teachers)
    return float(pure_dp_mu(pure) ** 2)


def residual_vote_charge(weight: float, sigma: float, disagreements: int, teachers: int = 1) -> float:
    """Return the charge, made in advance, of a residual vote with at most d disagreements per teacher: 4d·(kw)²/σ².

    A teacher stops voting after d = ``disagreements`` votes against the public prediction.

    >>> residual_vote_charge(weight=1.0, sigma=64.0, disagreements=16)
    0.015625
    """
    if disagreements != int(disagreements) or disagreements < 0:
        raise ValueError(f"disagreements must be a whole number of at least 0, not {disagreements}")
    return 4 * int(disagreements) * _relative(weight, teachers, sigma) ** 2


def pure_dp_mu(epsilon: ArrayLike) -> FloatArray:
    """Return the smallest μ such that every ε-DP release is μ-GDP: 2·Φ⁻¹(e^ε/(1 + e^ε)), rounded up.

    This is Lemma 6 of docs/gaussian-accounts.md; randomised response shows that no smaller μ is possible.

    Args:
        epsilon: ε ≥ 0, any shape.

    Returns:
        μ in the same shape; approximately √(π/2)·ε for small ε and 2·√(2ε) for large ε.

    Raises:
        ValueError: ε is negative, infinite or NaN.

    >>> pure_dp_mu([0.0, 0.01, 1.0, 10.0]).round(4)
    array([0.    , 0.0125, 1.232 , 7.8279])
    """
    array = np.asarray(epsilon, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("epsilon must be finite and not negative; a release without noise has no ε")
    # e^ε/(1 + e^ε) equals (1 + tanh(ε/2))/2; beyond 1, computing the tail 1/(1 + e^ε) keeps more digits.
    near = 2 * np.sqrt(2) * erfinv(np.tanh(np.minimum(array, 1.0) / 2))
    far = -2 * ndtri_exp(-np.logaddexp(0.0, np.maximum(array, 1.0)))
    return (np.where(array <= 1, near, far) * (1 + _ROUNDING))[()]


def _relative(weight: float, teachers: int, sigma: float) -> float:
    return checked_sensitivity(weight) * checked_teachers(teachers) / checked_positive("sigma", sigma)
