"""Costs of a vote of teachers: a label by GNMax or LNMax, and the check of Confident-GNMax.

N. Papernot et al., "Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data" (PATE 2017) and
"Scalable Private Learning with PATE" (PATE 2018).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from accounting.privacy.checks import FloatArray, Method, checked_positive, checked_query
from accounting.privacy.papers.argmax import GaussianNoise, LaplaceNoise, argmax_rdp, extreme_maxima, log_miss_bound
from accounting.privacy.papers.curves import CLOSED_FORM_ERROR, DEFAULT_ORDERS, divergences

_BATCH_VALUES = 1 << 15  # numbers held at once, small enough to keep temporaries in the cache


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
    """Return the RDP of releasing argmax_j (n_j + N(0, σ²)) for each query.

    Neighbours differ in one holder, whose teacher moves its vote of weight w = ``sensitivity`` from one class to
    another, which is a change of √2·w in Euclidean norm.

    * ``data_independent``: Papernot et al. (PATE 2018), Proposition 8, α·w²/σ² for all votes.
    * ``data_dependent``: Theorem 6 with q from Proposition 7; bounds D_α(M(D)‖M(D′)) only.
    * ``exact``: the largest Rényi divergence, in either direction, to any neighbouring count, by quadrature (closed
      form for two classes), with its numerical error added; at most the data-independent cost.

    Args:
        votes: weighted counts, shape (queries, classes).
        sigma: standard deviation of the noise on every count, in votes, above 0.
        sensitivity: votes that one holder moves: the weight of one teacher of the group or, in upsampling, the number
            of a holder's duplicates.
        orders: orders α > 1, shape (R,).
        group_votes: for ``exact``: the group's own unweighted counts, shape (queries, classes). A vote can only leave a
            class that the group voted for or, if this is None, any class whose count is large enough.
        teachers_per_holder: for ``exact``: the number of teachers that share the sensitivity, whose votes may move
            independently. 1 except in upsampling, where it is the number of duplicates.

    Returns:
        Costs, shape (queries, R). All except the data-independent ones depend on the private votes: do not publish
        them.

    Raises:
        ValueError: an argument is out of range, or shapes do not match.

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
    """Return the RDP of releasing argmax_j (n_j + Lap(1/γ)) for each query.

    The moments α(l) of Papernot et al. (PATE 2017) are RDP in another unit: RDP(l + 1) = α(l)/l. Moving a vote of
    weight w = ``sensitivity`` is 2γw-DP; the formulas are those of the paper with γw instead of γ.

    * ``data_independent``: Theorem 2, α(l) ≤ 2γ²·l·(l+1), so RDP(α) = 2(γw)²·α; at most 2γw, by pure DP.
    * ``data_dependent``: Theorem 3, with q from Lemma 4 where it applies; bounds D_α(M(D)‖M(D′)) only.
    * ``exact``: see :func:`gnmax_rdp`, which also describes all arguments, costs and errors; γ > 0 is the inverse of
      the scale of the Laplace noise in votes.

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
    """Return the RDP of releasing whether max_j n_j + N(0, σ²) ≥ T for each query, charged for both outcomes.

    One holder's teacher of weight w = ``sensitivity`` changes the largest count by at most w. See :func:`gnmax_rdp` for
    all arguments, costs and errors. σ is the standard deviation of the noise on the largest count; for
    Interactive-GNMax, subtract the student's share from the votes.

    * ``data_independent``: the Gaussian mechanism, α·w²/(2σ²) for all votes.
    * ``data_dependent``: Papernot et al. (PATE 2018), Theorem 6, where q is the probability of the less likely outcome;
      bounds D_α(M(D)‖M(D′)) only.
    * ``exact``: the largest Rényi divergence, in either direction, to the neighbouring counts with the lowest and the
      highest maximum, in closed form; all counts in between have smaller divergences.

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


def log1mexp(x: FloatArray) -> FloatArray:
    """Return ln(1 − eˣ) for x < 0, accurate at both ends (Mächler 2012).

    >>> log1mexp(np.array([-1e-20, -50.0]))
    array([-4.60517019e+01, -1.92874985e-22])
    """
    with np.errstate(divide="ignore"):
        return np.where(x > -np.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def data_dependent_rdp(log_q: FloatArray, slope: float, orders: FloatArray) -> FloatArray:
    """Return the RDP, at every order, of a mechanism that misses its most likely outcome with probability at most q.

    Papernot et al., "Scalable Private Learning with PATE" (2018), Theorem 6: for a mechanism whose RDP is at most
    α·slope at every order α, with μ₂ = √(ln(1/q)/slope) and μ₁ = μ₂ + 1 (Proposition 10). This bounds only
    D_α(M(D)‖M(D′)). The data-independent α·slope applies where the theorem's conditions fail or its bound is larger.

    Args:
        log_q: ln q, shape (queries,), at most 0; −∞ for a certain outcome.
        slope: data-independent RDP per unit of α, at least 0.
        orders: orders α > 1, shape (R,).

    Returns:
        Costs, shape (queries, R).

    >>> data_dependent_rdp(np.log([1e-6, 0.5]), slope=1 / 1600, orders=np.array([2.0, 20.0]))
    array([[4.08474279e-07, 1.97022616e-06],
           [1.25000000e-03, 1.25000000e-02]])
    """
    rdp = np.empty((log_q.size, orders.size))
    batch = max(1, _BATCH_VALUES // orders.size)
    for start in range(0, log_q.size, batch):
        rows = slice(start, start + batch)
        rdp[rows] = _data_dependent_batch(log_q[rows, None], slope, orders)
    return rdp


def _theorem3_rdp(log_q: FloatArray, pure: float, orders: FloatArray) -> FloatArray:
    """Return the RDP of PATE 2017, Theorem 3, for a ``pure``-DP mechanism: infinite unless q < 1/(e^ε + 1)."""
    applies = log_q < -np.logaddexp(pure, 0.0)
    log_1q = log1mexp(log_q[applies, None])
    log_stay = orders * log_1q - (orders - 1) * log1mexp(log_q[applies, None] + pure)
    log_leave = log_q[applies, None] + (orders - 1) * pure
    rdp = np.full((log_q.size, orders.size), np.inf)
    rdp[applies] = np.maximum(np.logaddexp(log_stay, log_leave) / (orders - 1), 0.0)
    return rdp


def _data_dependent_batch(log_q: FloatArray, slope: float, orders: FloatArray) -> FloatArray:
    bound = np.broadcast_to(orders * slope, (log_q.size, orders.size)).copy()
    bound[log_q[:, 0] == -np.inf] = 0.0
    if slope == 0:
        return bound
    # Rows outside the theorem's conditions produce meaningless values, which are never used.
    with np.errstate(all="ignore"):
        mu2 = np.sqrt(-log_q / slope)
        mu1 = mu2 + 1
        rdp1, rdp2 = mu1 * slope, mu2 * slope
        # Below this q the bound increases with q, so an upper bound on q may be used instead of q.
        largest_log_q = (mu2 - 1) * rdp2 - mu2 * (np.log1p(1 / (mu1 - 1)) + np.log1p(1 / (mu2 - 1)))
        applies = np.isfinite(log_q) & (mu2 > 1) & (log_q <= largest_log_q) & (-log_q > rdp2)
        rows = np.flatnonzero(applies)
        log_q, mu1, mu2, rdp1, rdp2 = (value[rows] for value in (log_q, mu1, mu2, rdp1, rdp2))
        log_1q = log1mexp(log_q)
        log_a = log_1q - log1mexp((log_q + rdp2) * (1 - 1 / mu2))
        log_b = rdp1 - log_q / (mu1 - 1)
        stay, leave = log_1q + (orders - 1) * log_a, log_q + (orders - 1) * log_b
        log_moment = np.maximum(stay, leave) + np.log1p(np.exp(-np.abs(stay - leave)))
        tight = np.maximum(log_moment / (orders - 1), 0.0)
        tight[orders >= mu1] = np.inf
        bound[rows] = np.minimum(tight, orders * slope)
    return bound
