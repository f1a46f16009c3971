"""Charges of teacher votes to a holder, in μ².

Neighbours differ in one holder: in whether they are in their teacher, which may then vote in any other way. The number
of teachers, the partition of everyone else, weights and noise are the same with and without them. A holder whose
records were duplicated into k teachers changes k votes.

A Gaussian release costs the largest ‖m − m′‖²/σ², where m and m′ are the exact numbers with and without the holder.
docs/gaussian-accounts.md shows that such charges add up, however the queries are chosen.
"""

from accounting.privacy.checks import checked_positive, checked_sensitivity, checked_teachers
from accounting.privacy.pure_dp import pure_dp_mu


def label_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """A label or a histogram of votes, each count with N(0, σ²): 2·(kw)²/σ².

    One vote of weight w moves from class a to class b, ‖w·(e_b − e_a)‖² = 2w², or from or to "no vote", w². k votes
    move by at most k·√2·w together (triangle inequality), all from one class to one other.

    Args:
        weight: w ≥ 0 of one vote.
        sigma: standard deviation of the noise on each count, in votes, above 0.
        teachers: k, in how many teachers the holder's records are.

    Raises:
        ValueError: an argument out of range.

    >>> label_charge(weight=1.0, sigma=32.0)
    0.001953125
    """
    return 2 * _relative(weight, teachers, sigma) ** 2


def check_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Whether the largest count, with N(0, σ_T²), reaches a threshold: (kw)²/σ_T².

    A vote that moves changes every count by at most w, hence the maximum by at most w. That stays true if the student's
    share is subtracted first, n_j − S·p_j with S the weight of all votes and p public: a vote that moves leaves S as it
    is, and one that appears in class a changes difference j by w·(1[j = a] − p_j), which lies between −w and w.

    Args:
        weight: w ≥ 0 of one vote.
        sigma: σ_T, standard deviation of the noise on the maximum, in votes, above 0.
        teachers: k, in how many teachers the holder's records are.

    Raises:
        ValueError: an argument out of range.

    >>> check_charge(weight=3.0, sigma=150.0)
    0.0004
    """
    return _relative(weight, teachers, sigma) ** 2


def lnmax_charge(weight: float, gamma: float, teachers: int = 1) -> float:
    """The class with the most votes after Laplace noise of scale 1/γ on each count: μ² of pure DP with ε₀ = 2γkw.

    k votes of weight w that move change the counts by at most 2kw in sum of absolute values, and the density of the
    noise by a factor of at most e^{γ·2kw}. See :func:`accounting.privacy.pure_dp_mu`.

    Args:
        weight: w ≥ 0 of one vote.
        gamma: γ > 0.
        teachers: k, in how many teachers the holder's records are.

    Raises:
        ValueError: an argument out of range.

    >>> round(lnmax_charge(weight=1.0, gamma=0.05), 6)
    0.015702
    """
    pure = 2 * checked_positive("gamma", gamma) * checked_sensitivity(weight) * checked_teachers(teachers)
    return float(pure_dp_mu(pure) ** 2)


def residual_vote_charge(weight: float, sigma: float, disagreements: int, teachers: int = 1) -> float:
    """A whole vote by residuals, each teacher silent after d disagreements, charged before it begins: 4d·(kw)²/σ².

    A teacher that votes y where ŷ was predicted publicly contributes w·(e_y − e_ŷ), which is 0 if y = ŷ, and nothing
    any more once it has contributed d times. Take one transcript. With the holder the teacher contributes at no more
    than d of its steps, without at no more than d, so at no more than 2d steps do the two differ. Where they do, the
    difference is w·(e_y − e_ŷ), its negative, or w·(e_y − e_y′): 2w² each. k teachers add up at most in norm (triangle
    inequality over the whole vote).

    Args:
        weight: w ≥ 0 of one vote.
        sigma: standard deviation of the noise on each count, in votes, above 0.
        disagreements: d, after how many a teacher falls silent, at least 0.
        teachers: k, in how many teachers the holder's records are.

    Raises:
        ValueError: an argument out of range.

    >>> residual_vote_charge(weight=1.0, sigma=64.0, disagreements=16)
    0.015625
    """
    if disagreements != int(disagreements) or disagreements < 0:
        raise ValueError(f"disagreements must be a whole number of at least 0, not {disagreements}")
    return 4 * int(disagreements) * _relative(weight, teachers, sigma) ** 2


def _relative(weight: float, teachers: int, sigma: float) -> float:
    return checked_sensitivity(weight) * checked_teachers(teachers) / checked_positive("sigma", sigma)
