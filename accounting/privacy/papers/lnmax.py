"""The cost of a label by LNMax: the class with the most votes after Laplace noise on every count."""

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy.checks import FloatArray, Method, checked_positive, checked_query
from accounting.privacy.papers.argmax import argmax_rdp, log_miss_bound
from accounting.privacy.papers.data_dependent import log1mexp
from accounting.privacy.papers.noise import LaplaceNoise
from accounting.privacy.papers.orders import DEFAULT_ORDERS


def lnmax_rdp(
    votes: ArrayLike,
    gamma: float,
    *,
    sensitivity: float = 1.0,
    orders: ArrayLike = DEFAULT_ORDERS,
    method: Method = "data_independent",
    group_votes: ArrayLike | None = None,
    teachers_per_holder: int = 1,
) -> FloatArray:
    """RDP of releasing argmax_j (n_j + Lap(1/γ)), query by query.

    The moments α(l) of Papernot et al. (PATE 2017) are RDP in another unit: RDP(l + 1) = α(l)/l. Moving a vote of
    weight w = ``sensitivity`` is 2γw-DP; the formulas are the paper's with γw for γ.

    * ``data_independent``: Theorem 2, α(l) ≤ 2γ²·l·(l+1), so RDP(α) = 2(γw)²·α; at most 2γw, by pure DP.
    * ``data_dependent``: Theorem 3, with q from Lemma 4 where it applies; covers D_α(M(D)‖M(D′)) only.
    * ``exact``: see :func:`accounting.privacy.gnmax_rdp`.

    Args:
        votes: weighted counts, shape (queries, classes).
        gamma: γ > 0, one over the scale of the Laplace noise in votes.
        sensitivity: weight of one teacher of the group in question, or the number of a holder's duplicates.
        orders: orders α > 1, shape (R,); moments l are α − 1.
        method: see above.
        group_votes: for ``exact``: the group's own unweighted counts, shape (queries, classes).
        teachers_per_holder: for ``exact``: over how many teachers the sensitivity is spread.

    Returns:
        Costs, shape (queries, R). All but the data-independent ones depend on the private votes: do not publish them.

    Raises:
        ValueError: an argument out of range, or shapes that do not fit.

    >>> votes = np.array([[230.0, 12.0, 8.0], [90.0, 85.0, 75.0]])
    >>> lnmax_rdp(votes, 0.05, orders=[2, 9])
    array([[0.01 , 0.045],
           [0.01 , 0.045]])
    >>> bool((lnmax_rdp(votes, 0.05, orders=[2, 9], method="data_dependent")[0] < 0.0001).all())
    True
    """
    counts, alpha, weight = checked_query(votes, orders, method, sensitivity, teachers_per_holder)
    noise = LaplaceNoise(1 / checked_positive("gamma", gamma))
    pure = 2 * weight * gamma
    independent = np.minimum(pure**2 / 2 * alpha, pure)
    if method == "data_independent" or weight == 0:
        return np.tile(independent, (len(counts), 1))
    if method == "data_dependent":
        return np.minimum(_theorem3_rdp(log_miss_bound(counts, noise), pure, alpha), independent)
    exact = argmax_rdp(counts, noise, weight, alpha, group_votes, teachers_per_holder)
    return np.minimum(exact, independent)


def _theorem3_rdp(log_q: FloatArray, pure: float, orders: FloatArray) -> FloatArray:
    """PATE 2017, Theorem 3, for a ``pure``-DP mechanism: infinite unless q < (e^ε − 1)/(e^{2ε} − 1) = 1/(e^ε + 1)."""
    applies = log_q < -np.logaddexp(pure, 0.0)
    log_1q = log1mexp(log_q[applies, None])
    log_stay = orders * log_1q - (orders - 1) * log1mexp(log_q[applies, None] + pure)
    log_leave = log_q[applies, None] + (orders - 1) * pure
    rdp = np.full((log_q.size, orders.size), np.inf)
    rdp[applies] = np.maximum(np.logaddexp(log_stay, log_leave) / (orders - 1), 0.0)
    return rdp
