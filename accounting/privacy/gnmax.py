"""The cost of a label by GNMax: the class with the most votes after Gaussian noise on every count."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp

from accounting.privacy.checks import (
    Method,
    checked_method,
    checked_orders,
    checked_positive,
    checked_sensitivity,
    checked_votes,
)
from accounting.privacy.orders import DEFAULT_ORDERS, FloatArray
from accounting.privacy.theorem6 import theorem6_rdp


def gnmax_rdp(
    votes: ArrayLike,
    sigma: float,
    *,
    sensitivity: float = 1.0,
    orders: ArrayLike = DEFAULT_ORDERS,
    method: Method = "data_independent",
    group_votes: ArrayLike | None = None,
) -> FloatArray:
    """RDP of releasing argmax_j (n_j + N(0, σ²)), query by query.

    Neighbours differ in one holder, whose teacher moves its vote of weight w = ``sensitivity`` from one class to
    another: a change of √2·w in Euclidean norm.

    * ``data_independent``: Papernot et al. (PATE 2018), Proposition 8, α·w²/σ², whatever the votes.
    * ``data_dependent``: Theorem 6 with q from Proposition 7; covers D_α(M(D)‖M(D′)) only.

    Args:
        votes: weighted counts, shape (queries, classes).
        sigma: standard deviation of the noise on every count, in votes, above 0.
        sensitivity: weight of one teacher of the group in question, or the number of a holder's duplicates.
        orders: orders α > 1, shape (R,).
        method: see above.
        group_votes: the group's own unweighted counts, shape (queries, classes); used by ``exact`` alone.

    Returns:
        Costs, shape (queries, R). All but the data-independent ones depend on the private votes: do not publish them.

    Raises:
        ValueError: an argument out of range, or shapes that do not fit.

    >>> votes = np.array([[230.0, 12.0, 8.0], [90.0, 85.0, 75.0]])
    >>> gnmax_rdp(votes, 40.0, orders=[2, 10])
    array([[0.00125, 0.00625],
           [0.00125, 0.00625]])
    >>> bool((gnmax_rdp(votes, 40.0, orders=[2, 10], method="data_dependent")[0] < 0.001).all())
    True
    """
    counts, alpha = checked_votes(votes), checked_orders(orders)
    checked_method(method)
    slope = (checked_sensitivity(sensitivity) / checked_positive("sigma", sigma)) ** 2
    if method == "data_independent":
        return np.tile(alpha * slope, (len(counts), 1))
    if method == "data_dependent":
        return theorem6_rdp(gnmax_log_q(counts, sigma), slope, alpha)
    raise NotImplementedError


def gnmax_log_q(votes: FloatArray, sigma: float) -> FloatArray:
    """Upper bound on ln Pr[another class than the one with the most votes comes out], shape (queries,).

    Papernot et al. (PATE 2018), Proposition 7: Σ_{j≠j*} Φ(−(n_j* − n_j)/(√2·σ)), summed in logarithms from the tails,
    and at most 1 − 1/classes, since no class is more likely than the leading one.

    >>> gnmax_log_q(np.array([[50.0, 50.0], [5000.0, 0.0]]), 40.0).round(3)
    array([-6.930000e-01, -3.911651e+03])
    """
    classes = votes.shape[1]
    if classes == 1:
        return np.full(len(votes), -np.inf)
    ordered = np.sort(votes, axis=1)
    log_tails = log_ndtr((ordered[:, :-1] - ordered[:, -1:]) / (np.sqrt(2) * sigma))
    return np.minimum(logsumexp(log_tails, axis=1), np.log1p(-1 / classes))
