"""The cost of Confident-GNMax's check: is the largest count, after Gaussian noise, at least the threshold?"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from accounting.privacy.checks import FloatArray, Method, checked_positive, checked_query
from accounting.privacy.papers.data_dependent import data_dependent_rdp
from accounting.privacy.papers.neighbours import extreme_maxima
from accounting.privacy.papers.orders import DEFAULT_ORDERS
from accounting.privacy.papers.renyi import CLOSED_FORM_ERROR, divergences


def threshold_rdp(
    votes: ArrayLike,
    threshold: float,
    sigma: float,
    *,
    sensitivity: float = 1.0,
    orders: ArrayLike = DEFAULT_ORDERS,
    method: Method = "data_independent",
    group_votes: ArrayLike | None = None,
    teachers_per_holder: int = 1,
) -> FloatArray:
    """RDP of telling whether max_j n_j + N(0, σ²) ≥ T, query by query. It is paid whatever the outcome.

    One holder's teacher of weight w = ``sensitivity`` changes the largest count by at most w.

    * ``data_independent``: the Gaussian mechanism, α·w²/(2σ²), whatever the votes.
    * ``data_dependent``: Papernot et al. (PATE 2018), Theorem 6, with q the probability of the less likely outcome;
      covers D_α(M(D)‖M(D′)) only.
    * ``exact``: the largest Rényi divergence, in both directions, to the neighbouring counts with the lowest and the
      highest maximum, in closed form; any count between them is nearer.

    Args:
        votes: weighted counts, shape (queries, classes); less the student's share for Interactive-GNMax.
        threshold: T, in votes.
        sigma: standard deviation of the noise on the largest count, in votes, above 0.
        sensitivity: weight of one teacher of the group in question, or the number of a holder's duplicates.
        orders: orders α > 1, shape (R,).
        method: see above.
        group_votes: for ``exact``: the group's own unweighted counts, shape (queries, classes). A vote can only leave a
            class that the group voted for; if None, any class.
        teachers_per_holder: for ``exact``: over how many teachers the sensitivity is spread; 1 but for upsampling.

    Returns:
        Costs, shape (queries, R). All but the data-independent ones depend on the private votes: do not publish them.

    Raises:
        ValueError: an argument out of range, or shapes that do not fit.

    >>> votes = np.array([[230.0, 12.0, 8.0]])
    >>> threshold_rdp(votes, 200.0, 150.0, orders=[2, 9]).round(7)
    array([[4.44e-05, 2.00e-04]])
    """
    counts, alpha, weight = checked_query(votes, orders, method, sensitivity, teachers_per_holder)
    slope = (weight / checked_positive("sigma", sigma)) ** 2 / 2
    if not np.isfinite(threshold):
        raise ValueError(f"threshold must be finite, not {threshold}; leave the check out to answer every query")
    if method == "data_independent" or weight == 0:
        return np.tile(alpha * slope, (len(counts), 1))
    margin = (counts.max(axis=1) - threshold) / sigma
    if method == "data_dependent":
        return data_dependent_rdp(log_ndtr(-np.abs(margin)), slope, alpha)
    extremes = extreme_maxima(counts, weight, group_votes, teachers_per_holder)
    owner, side = np.nonzero(extremes != counts.max(axis=1, keepdims=True))
    moved = (extremes[owner, side] - threshold) / sigma
    log_p, log_neighbours = (np.stack([log_ndtr(m), log_ndtr(-m)], axis=1) for m in (margin, moved))
    exact = np.maximum(*divergences(log_p, log_neighbours, owner, alpha, CLOSED_FORM_ERROR))
    return np.minimum(exact, alpha * slope)
