"""Rényi divergences between distributions over few outcomes, rounded up.

The moment Σ_k b_k·x_k^α, where b is the second distribution and x_k the ratio of the first to the second, is computed
as 1 + Σ_k b_k·(x_k^α − 1 − α·(x_k − 1)). The result is the same because both distributions sum to 1. But every term is
now at least 0 and grows with |ln x_k|, so outcomes do not cancel, and enlarging |ln x_k| by its error gives an upper
bound.
"""

import numpy as np
from numpy.typing import NDArray

from accounting.privacy.checks import FloatArray

IndexArray = NDArray[np.intp]

#: Relative error of a probability in closed form, with a margin for the library's normal tails.
CLOSED_FORM_ERROR = 1e-12

# Bound, with a margin, on the relative rounding of a sum of exponentials of numbers below _LARGEST_EXPONENT.
_ROUNDING = 1e-12
_LARGEST_EXPONENT = 600.0
_ANCHOR_STEP = 6  # number of orders between consecutive orders that are computed for all rows
_LOG_ROUNDING = 4 * np.finfo(float).eps


def divergences(
    log_p: FloatArray, log_neighbours: FloatArray, owner: IndexArray, orders: FloatArray, relative_error: float
) -> tuple[FloatArray, FloatArray]:
    """Return the largest D_α(P‖P′) and largest D_α(P′‖P) over the neighbours P′ of every distribution P.

    Args:
        log_p: log probabilities, shape (queries, outcomes).
        log_neighbours: log probabilities of the neighbours, shape (rows, outcomes).
        owner: the query of every row, shape (rows,), ascending.
        orders: orders α > 1, shape (R,).
        relative_error: bound on the relative error of every probability passed in.

    Returns:
        Forward and reverse divergence, each of shape (queries, R); 0 for a query without neighbours. Neither is below
        the true value.

    >>> p, q = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    >>> forward, reverse = divergences(p, q, np.array([0]), np.array([2.0]), 0.0)
    >>> np.exp([forward, reverse]).round(9).ravel()  # 4/3 and 5/4
    array([1.33333333, 1.25      ])
    """
    forward, reverse = np.zeros((2, len(log_p), orders.size))
    if owner.size == 0:
        return forward, reverse
    rows, top = np.arange(owner.size), log_p.argmax(axis=1)
    log_first, missed_first = _from_complement(log_p, top)
    log_second, missed_second = _from_complement(log_neighbours, top[owner])
    log_first, missed_first = log_first[owner], missed_first[owner]
    error = np.full(log_second.shape, 2.5 * relative_error)
    error[rows, top[owner]] *= np.minimum(1.0, 2 * (missed_first + missed_second))
    error -= _LOG_ROUNDING * (log_first + log_second)
    log_ratio = log_first - log_second
    log_ratio += np.copysign(error, log_ratio)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    for result, log_base, ratio in ((forward, log_second, log_ratio), (reverse, log_first, -log_ratio)):
        slope = _difference(log_base, ratio).sum(axis=1)
        log_moment = _largest_log_moment(log_base, ratio, slope, orders, starts)
        result[owner[starts]] = log_moment / (orders - 1) * (1 + 3 * relative_error)
    return forward, reverse


def tangent_divergence(
    log_p: FloatArray,
    tangents: FloatArray,
    errors: FloatArray,
    owner: IndexArray,
    orders: FloatArray,
    relative_error: float,
) -> FloatArray:
    """Return the largest D_α(P·e^t‖P) over tangents t of every P, where Σ_k P_k·t_k = 0; shape (queries, R).

    If every log probability is a concave function of the votes and t is its linear change, P·e^t bounds the neighbour.

    Args:
        log_p: log probabilities, shape (queries, outcomes).
        tangents: linear change of every log probability, shape (rows, outcomes).
        errors: bound on the absolute error of the tangents, same shape.
        owner: the query of every row, shape (rows,), ascending.
        orders: orders α > 1, shape (R,).
        relative_error: bound on the relative error of every probability passed in.

    >>> p, t = np.log([[0.5, 0.5]]), np.array([[0.1, -0.1]])
    >>> bound = tangent_divergence(p, t, 0 * t, np.array([0]), np.array([2.0]), 0.0)
    >>> bool(np.isclose(bound, np.log(np.cosh(0.2))).all())
    True
    """
    result = np.zeros((len(log_p), orders.size))
    if owner.size == 0:
        return result
    log_base = _from_complement(log_p, log_p.argmax(axis=1))[0][owner]
    ratio = tangents + np.copysign(errors, tangents)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    log_moment = _largest_log_moment(log_base, ratio, (np.exp(log_base) * ratio).sum(axis=1), orders, starts)
    result[owner[starts]] = log_moment / (orders - 1) * (1 + 3 * relative_error)
    return result


def _from_complement(log_p: FloatArray, top: IndexArray) -> tuple[FloatArray, FloatArray]:
    """Return log probabilities with the leading one recomputed from the sum of the others, and that sum.

    Near 1, only this keeps the relative accuracy of the logarithm.
    """
    rows = np.arange(len(log_p))
    result = log_p.copy()
    result[rows, top] = -np.inf
    missed = np.exp(result).sum(axis=1)
    result[rows, top] = np.where(missed < 0.5, np.log1p(-np.minimum(missed, 0.5)), log_p[rows, top])
    return result, missed


def _largest_log_moment(
    log_base: FloatArray, log_ratio: FloatArray, slope: FloatArray, orders: FloatArray, starts: IndexArray
) -> FloatArray:
    """Return ln(1 + Σ_k b_k·(e^{α·r_k} − 1) − α·slope), maximised over each query's rows; shape (queries, R).

    Most rows are computed at a few orders only. A log moment is convex in α, so it lies below its chord between two of
    these orders. A row whose chords all lie below those of the leading rows, less their sag, cannot be the largest.
    """
    log_base, log_ratio = np.ascontiguousarray(log_base.T), np.ascontiguousarray(log_ratio.T)
    rows = slope.size
    query = np.repeat(np.arange(starts.size), np.diff(starts, append=rows))
    anchors = np.union1d(np.arange(0, orders.size, _ANCHOR_STEP), orders.size - 1)
    at_anchors = _log_moments(log_base, log_ratio, slope, orders[anchors])
    leading = (at_anchors == np.maximum.reduceat(at_anchors, starts)[query]).any(axis=1)
    result = np.zeros((starts.size, orders.size))

    def take(chosen: NDArray[np.bool_]) -> None:
        if chosen.any():
            owner = query[chosen]
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            curves = _log_moments(log_base[:, chosen], log_ratio[:, chosen], slope[chosen], orders)
            result[owner[first]] = np.maximum(result[owner[first]], np.maximum.reduceat(curves, first))

    take(leading)
    if anchors.size < orders.size:
        segment = np.clip(np.searchsorted(anchors, np.arange(orders.size), side="right") - 1, None, anchors.size - 2)
        start, stop = orders[anchors[segment]], orders[anchors[segment + 1]]
        share = (orders - start) / (stop - start)
        chords = result[:, anchors[segment]] * (1 - share) + result[:, anchors[segment + 1]] * share
        with np.errstate(invalid="ignore"):
            sag = np.minimum.reduceat(np.nan_to_num(result / chords, nan=1.0), anchors[:-1], axis=1)
        sag = np.minimum(np.c_[sag[:, :1], sag], np.c_[sag, sag[:, -1:]])
        take(~leading & (at_anchors > (result[:, anchors] * sag)[query]).any(axis=1))
    return result


def _log_moments(log_base: FloatArray, log_ratio: FloatArray, slope: FloatArray, orders: FloatArray) -> FloatArray:
    """Return the log moments of all rows, shape (rows, R), given log_base and log_ratio of shape (outcomes, rows)."""
    base, largest = np.exp(log_base), log_ratio.max()
    slack = 2 * _ROUNDING * np.abs(_difference(log_base, log_ratio)).sum(axis=0)
    result, exponent = np.empty((slope.size, orders.size)), np.empty_like(log_ratio)
    for column, alpha in enumerate(orders):
        np.multiply(log_ratio, alpha, out=exponent)
        if alpha * largest < _LARGEST_EXPONENT:
            moment = np.einsum("kn,kn->n", base, np.expm1(exponent, out=exponent))
        elif (log_base + exponent).max() < _LARGEST_EXPONENT:
            moment = _difference(log_base, exponent).sum(axis=0)
        else:
            result[:, column] = _huge_log_moment(log_base, exponent, alpha * slope, alpha * slack)
            continue
        result[:, column] = _log_moment(moment - alpha * slope, alpha * slack)
    return result


def _log_moment(excess: FloatArray, slack: FloatArray) -> FloatArray:
    return np.log1p(np.maximum(excess, 0.0) * (1 + _ROUNDING) + slack)


def _huge_log_moment(log_base: FloatArray, exponent: FloatArray, linear: FloatArray, slack: FloatArray) -> FloatArray:
    """Return log moments when some exceed the float range, by using logarithms in the rows with large moments."""
    joint = log_base + exponent
    peak = np.maximum(joint.max(axis=0), 0.0)
    small = _log_moment(_difference(log_base, np.minimum(exponent, 1 - log_base)).sum(axis=0) - linear, slack)
    rest = (1 - np.exp(log_base).sum(axis=0) - linear) * np.exp(-peak)
    large = peak + np.log(np.maximum(np.exp(joint - peak).sum(axis=0) + rest, np.exp(-peak)))
    return np.where(peak < 1, small, large + _ROUNDING * (1 + np.abs(exponent).max(axis=0)))


def _difference(log_base: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """Return b·(e^r − 1), however small b and however large r, provided that b·e^r is a finite float."""
    base = np.exp(log_base)
    small = base * np.expm1(np.minimum(log_ratio, 1.0))
    return np.where(log_ratio < 1, small, np.exp(log_base + log_ratio) - base)
