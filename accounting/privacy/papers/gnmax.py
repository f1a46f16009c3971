"""The cost of a label by GNMax: the class with the most votes after Gaussian noise on every count."""

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy.checks import FloatArray, Method, checked_positive, checked_query
from accounting.privacy.papers.argmax import argmax_rdp, log_miss_bound
from accounting.privacy.papers.data_dependent import data_dependent_rdp
from accounting.privacy.papers.noise import GaussianNoise
from accounting.privacy.papers.orders import DEFAULT_ORDERS


def gnmax_rdp(
    votes: ArrayLike,
    sigma: float,
    *,
    sensitivity: float = 1.0,
    orders: ArrayLike = DEFAULT_ORDERS,
    method: Method = "data_independent",
    group_votes: ArrayLike | None = None,
    teachers_per_holder: int = 1,
) -> FloatArray:
    """RDP of releasing argmax_j (n_j + N(0, σ²)), query by query.

    Neighbours differ in one holder, whose teacher moves its vote of weight w = ``sensitivity`` from one class to
    another: a change of √2·w in Euclidean norm.

    * ``data_independent``: Papernot et al. (PATE 2018), Proposition 8, α·w²/σ², whatever the votes.
    * ``data_dependent``: Theorem 6 with q from Proposition 7; covers D_α(M(D)‖M(D′)) only.
    * ``exact``: the largest Rényi divergence, in both directions, to any neighbouring count, by quadrature (closed form
      for two classes), with its numerical error added; at most the data-independent cost.

    Args:
        votes: weighted counts, shape (queries, classes).
        sigma: standard deviation of the noise on every count, in votes, above 0.
        sensitivity: votes that one holder moves: the weight of one teacher of the group in question, or, in
            upsampling, the number of a holder's duplicates.
        orders: orders α > 1, shape (R,).
        method: see above.
        group_votes: for ``exact``: the group's own unweighted counts, shape (queries, classes). A vote can only leave a
            class that the group voted for; if None, any class whose count can hold it.
        teachers_per_holder: for ``exact``: over how many teachers the sensitivity is spread, so that its votes may move
            apart. 1 but for upsampling, where it is the number of duplicates.

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
    counts, alpha, weight = checked_query(votes, orders, method, sensitivity, teachers_per_holder)
    noise = GaussianNoise(checked_positive("sigma", sigma))
    slope = (weight / sigma) ** 2
    if method == "data_independent" or weight == 0:
        return np.tile(alpha * slope, (len(counts), 1))
    if method == "data_dependent":
        return data_dependent_rdp(log_miss_bound(counts, noise), slope, alpha)
    exact = argmax_rdp(counts, noise, weight, alpha, group_votes, teachers_per_holder)
    return np.minimum(exact, alpha * slope)
