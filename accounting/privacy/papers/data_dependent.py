"""The data-dependent bound shared by GNMax and the threshold check: PATE 2018, Theorem 6 with Proposition 10."""

import numpy as np

from accounting.privacy.checks import FloatArray

_BATCH_VALUES = 1 << 15  # numbers held at once, so that temporaries stay in the cache


def log1mexp(x: FloatArray) -> FloatArray:
    """ln(1 − eˣ) for x < 0, accurate at both ends (Mächler 2012).

    >>> log1mexp(np.array([-1e-20, -50.0]))
    array([-4.60517019e+01, -1.92874985e-22])
    """
    with np.errstate(divide="ignore"):
        return np.where(x > -np.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def data_dependent_rdp(log_q: FloatArray, slope: float, orders: FloatArray) -> FloatArray:
    """RDP, at every order, of a mechanism that misses its most likely outcome with probability at most q.

    Papernot et al., "Scalable Private Learning with PATE" (2018), Theorem 6: for a mechanism whose RDP is at most
    α·slope at every order α, with μ₂ = √(ln(1/q)/slope) and μ₁ = μ₂ + 1 (Proposition 10). It bounds D_α(M(D)‖M(D′))
    only. Where its conditions fail, and where it is larger, the data-independent α·slope stands.

    Args:
        log_q: ln q, shape (queries,), at most 0; −∞ for an outcome that is certain.
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
        # q at most this is where the bound grows with q, so that an upper bound on q may stand in for q.
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
