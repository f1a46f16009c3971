"""Rényi costs of Gaussian sums, the orders α used for all costs, and quantities derived from a curve.

The derived quantities are the ε at a δ, and the number of queries that may be released before a group would exceed its
ε (the budget filter).

Divergences between distributions over few outcomes are rounded to the safe side. The moment Σ_k b_k·x_k^α, where b is
the second distribution and x_k the ratio of the first to the second, is computed as 1 + Σ_k b_k·(x_k^α − 1 − α·(x_k −
1)), which is equal because both distributions sum to 1. In this form every term is at least 0 and grows with |ln x_k|,
so outcomes do not cancel, and enlarging |ln x_k| by its error gives an upper bound.
"""

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy.checks import FloatArray, checked_delta, checked_orders, checked_positive, checked_sensitivity

#: Orders used by the PATE and Individualized PATE papers. With the classic conversion these orders cannot express an ε
#: below ln(1/δ)/49, so they are used to reproduce published numbers and not for real accounts.
PAPER_ORDERS: FloatArray = np.arange(2.0, 51.0)

#: The best order for 0.01 ≤ ε ≤ 100 and 1e-12 ≤ δ ≤ 1e-2 lies within this range. Orders below 1.5 are for large ε,
#: steps of a half for the papers' results, and large orders, which grow by larger and larger steps, for small ε.
DEFAULT_ORDERS: FloatArray = np.concatenate(
    [
        [1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4],
        np.arange(1.5, 11.0, 0.5),
        np.arange(11.0, 65.0),
        [72.0, 80.0, 88.0, 96.0, 112.0, 128.0, 160.0, 192.0, 256.0, 320.0, 384.0, 512.0],
        [640.0, 768.0, 1024.0, 1536.0, 2048.0, 3072.0, 4096.0, 6144.0, 8192.0, 16384.0],
    ]
)

for _orders in (PAPER_ORDERS, DEFAULT_ORDERS):
    _orders.flags.writeable = False

Conversion = Literal["improved", "classic"]

BoolArray = NDArray[np.bool_]

#: Share of ε that is never spent, so that rounding cannot make the same costs exceed the budget when they are added in
#: another order.
BUDGET_RESERVE = 1e-9

_BATCH_VALUES = 1 << 20  # numbers held at once (8 MiB per temporary array)


def gaussian_rdp(sigma: float, sensitivity: float = 1.0, orders: ArrayLike = DEFAULT_ORDERS) -> FloatArray:
    """Return the RDP of adding N(0, σ²) to a value that one holder changes by at most ``sensitivity`` in ℓ₂ norm.

    Mironov, "Rényi Differential Privacy" (2017), Proposition 7: α·sensitivity²/(2σ²).

    Args:
        sigma: standard deviation of the noise, above 0, in the unit of the value.
        sensitivity: largest change by one holder, at least 0, in the same unit.
        orders: orders α > 1, shape (R,).

    Returns:
        The cost at every order, shape (R,).

    Raises:
        ValueError: sigma, sensitivity or orders are out of range.

    >>> gaussian_rdp(2.0, 1.0, [2, 8])
    array([0.25, 1.  ])
    """
    alpha = checked_orders(orders)
    return alpha * (checked_sensitivity(sensitivity) / checked_positive("sigma", sigma)) ** 2 / 2


def sampled_gaussian_rdp(
    sample_rate: float, noise_multiplier: float, steps: int, orders: ArrayLike = DEFAULT_ORDERS
) -> FloatArray:
    """Return the RDP of Gaussian sums over Poisson samples (DP-SGD); neighbours differ by one holder added or removed.

    Mironov, Talwar and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019), Section 3.3.

    Args:
        sample_rate: probability that a holder takes part in a step, 0 to 1.
        noise_multiplier: standard deviation of the noise divided by the sensitivity, above 0.
        steps: number of steps, at least 0.
        orders: orders α > 1, shape (R,).

    Returns:
        The cost of all steps at every order, shape (R,).

    Raises:
        ValueError: an argument is out of range.

    >>> import numpy as np
    >>> sampled_gaussian_rdp(1.0, 2.0, 4, [2, 8])
    array([1., 4.])
    >>> bool((sampled_gaussian_rdp(0.01, 2.0, 4, [2, 8]) < [0.001, 0.005]).all())
    True
    """
    # Imported here because this takes a second, which would delay the start of the site and the workers.
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    if not 0 <= sample_rate <= 1:
        raise ValueError(f"sample_rate must lie between 0 and 1, not {sample_rate}; divide the batch by the holders")
    if steps != int(steps) or steps < 0:
        raise ValueError(f"steps must be a whole number of at least 0, not {steps}")
    event = PoissonSampledDpEvent(sample_rate, GaussianDpEvent(checked_positive("noise_multiplier", noise_multiplier)))
    accountant = RdpAccountant(checked_orders(orders)).compose(event, int(steps))
    return np.asarray(accountant.rdp, dtype=np.float64)


def epsilon_from_rdp(
    rdp: ArrayLike, delta: float, orders: ArrayLike = DEFAULT_ORDERS, conversion: Conversion = "improved"
) -> tuple[FloatArray, FloatArray]:
    """Return the smallest ε for which a mechanism with this RDP curve is (ε, δ)-DP, and the order that attains it.

    ``classic`` is Mironov, "Rényi Differential Privacy" (2017), Proposition 3, as used by the PATE papers: ε = RDP(α) +
    ln(1/δ)/(α−1). ``improved`` is Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
    Proposition 12: ε = RDP(α) + ln((α−1)/α) − (ln δ + ln α)/(α−1), which is never larger than the classic one. Both
    increase with every entry of the curve, so an overestimated cost gives an overestimated ε.

    Args:
        rdp: non-negative costs in natural units, shape (..., R); infinity where an order gives no bound.
        delta: the δ of (ε, δ)-DP, between 0 and 1.
        orders: the orders α > 1 of the last axis, shape (R,).
        conversion: "improved" or "classic".

    Returns:
        ε and the best order, both of shape rdp.shape[:-1] (0-d arrays for one curve). ε is at least 0, and 0 for a
        curve of zeros (nothing was released).

    Raises:
        ValueError: shapes do not match, costs are negative or NaN, δ or orders are out of range, or the conversion is
            unknown.

    Warns:
        UserWarning: the best order is the first or last, so more orders would give a smaller ε.

    >>> epsilon, order = epsilon_from_rdp(DEFAULT_ORDERS / 2, delta=1e-5)  # a Gaussian of noise multiplier 1
    >>> round(float(epsilon), 3), float(order)
    (4.729, 5.5)
    >>> epsilon, order = epsilon_from_rdp(DEFAULT_ORDERS / 2, delta=1e-5, conversion="classic")
    >>> round(float(epsilon), 3), float(order)
    (5.303, 6.0)
    """
    curve, alpha = np.asarray(rdp, dtype=np.float64), checked_orders(orders)
    if curve.shape[-1:] != alpha.shape:
        raise ValueError(f"the last axis of rdp must match the {alpha.size} orders; its shape is {curve.shape}")
    if np.isnan(curve).any() or (curve < 0).any():
        raise ValueError("rdp must not be negative or NaN; a cost was computed from invalid input")
    candidates = curve + conversion_penalty(delta, alpha, conversion)
    best = candidates.argmin(axis=-1)
    epsilon = np.take_along_axis(candidates, best[..., None], axis=-1)[..., 0]
    nothing_spent = (curve == 0).all(axis=-1)
    epsilon = np.where(nothing_spent, 0.0, np.maximum(epsilon, 0.0))
    at_an_end = ((best == 0) | (best == alpha.size - 1)) & (epsilon > 0)
    if alpha.size > 1 and at_an_end.any():
        warnings.warn(
            f"the best order lies at an end of {alpha[0]:g}..{alpha[-1]:g}: ε is valid but larger than necessary; "
            "widen the orders",
            stacklevel=2,
        )
    return epsilon, alpha[best]


def conversion_penalty(delta: float, orders: FloatArray, conversion: Conversion) -> FloatArray:
    """Return the penalty at every order, where ε is the minimum over α of RDP(α) + penalty(α).

    >>> conversion_penalty(1e-5, np.array([2.0, 3.0]), "classic").round(3)
    array([11.513,  5.756])
    """
    delta = checked_delta(delta)
    if conversion == "classic":
        return -np.log(delta) / (orders - 1)
    if conversion == "improved":
        return np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    raise ValueError(f"unknown conversion {conversion!r}; choose 'improved' or 'classic'")


@dataclass(frozen=True, eq=False)
class Prefix:
    """The part of a batch that may be released.

    Attributes:
        count: the number of leading queries that may be released.
        spent: each group's total cost after these queries, including earlier costs, shape (G, R).
        exhausted: whether each group's budget rules out the next query, shape (G,); all False if the whole batch may be
            released.
    """

    count: int
    spent: FloatArray
    exhausted: BoolArray


def affordable_prefix(
    past: ArrayLike,
    check: ArrayLike,
    label: ArrayLike,
    answered: ArrayLike,
    epsilons: ArrayLike,
    delta: float,
    orders: ArrayLike = DEFAULT_ORDERS,
    conversion: Conversion = "improved",
) -> Prefix:
    """Return the longest prefix of queries that can be released while every privacy group stays within its ε.

    A Rényi filter (Feldman and Zrnic, "Individual Privacy Accounting via a Rényi Filter", 2021): query i may be
    released only if ``past``, the cost of earlier queries in the batch, its check and its label together stay within
    every budget. The label is included whether or not it will be released, so that the decision to stop does not depend
    on the noise of query i. The check is always charged, and the label only if it is released.

    To continue without exhausted groups ("vanishing only when exhausted"), retire their teachers, recount the votes of
    the remaining queries, and call again with ``spent`` as ``past`` and costs of 0 for the retired groups. A group
    whose next cost is 0 never stops a query.

    Args:
        past: each group's cost of all earlier runs and batches, shape (G, R).
        check: cost of each query's check, always charged, shape (Q, G, R); zeros if there is none.
        label: cost of each query's label, charged if answered, shape (Q, G, R).
        answered: whether the check passed, shape (Q,).
        epsilons: the groups' budgets, shape (G,), above 0.
        orders: orders α > 1, shape (R,).
        conversion: conversion from RDP to (ε, δ); see :func:`accounting.privacy.epsilon_from_rdp`.

    Returns:
        The prefix. Time and memory are linear in the batch; temporaries are bounded.

    Raises:
        ValueError: shapes do not match, costs are negative or NaN, or budgets are not above 0.

    >>> cost = np.tile(DEFAULT_ORDERS / 1600, (500, 1, 1))  # GNMax with σ = 40, one group
    >>> prefix = affordable_prefix(np.zeros((1, DEFAULT_ORDERS.size)), 0 * cost, cost, np.ones(500, bool), [2.0], 1e-5)
    >>> prefix.count, prefix.exhausted
    (173, array([ True]))
    """
    alpha = checked_orders(orders)
    spent, checks, labels, passed, budgets = _checked(past, check, label, answered, epsilons, alpha)
    penalty = conversion_penalty(delta, alpha, conversion)
    limits = budgets * (1 - BUDGET_RESERVE)
    batch = max(1, _BATCH_VALUES // max(1, spent.size))
    for start in range(0, len(passed), batch):
        rows = slice(start, start + batch)
        paid = checks[rows] + np.where(passed[rows, None, None], labels[rows], 0.0)
        # Adding costs one by one to the past gives the same floats no matter how a vote is divided into batches.
        before = np.cumsum(np.concatenate([spent[None], paid]), axis=0)
        wanted = checks[rows] + labels[rows]
        epsilon = (before[:-1] + wanted + penalty).min(axis=-1)
        over = (epsilon > limits) & (wanted > 0).any(axis=-1)
        stops = over.any(axis=1)
        if stops.any():
            first = int(stops.argmax())
            return Prefix(start + first, before[first], over[first])
        spent = before[-1]
    return Prefix(len(passed), spent, np.zeros(len(budgets), dtype=bool))


def _checked(
    past: ArrayLike, check: ArrayLike, label: ArrayLike, answered: ArrayLike, epsilons: ArrayLike, orders: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray, FloatArray]:
    spent, checks, labels = (np.asarray(costs, dtype=np.float64) for costs in (past, check, label))
    passed, budgets = np.asarray(answered, dtype=bool), np.asarray(epsilons, dtype=np.float64)
    group_shape = (budgets.size, orders.size)
    expected = {
        "epsilons": (budgets.shape, (budgets.size,)),
        "past": (spent.shape, group_shape),
        "answered": (passed.shape, (passed.size,)),
        "check": (checks.shape, (passed.size, *group_shape)),
        "label": (labels.shape, (passed.size, *group_shape)),
    }
    for name, (shape, wanted) in expected.items():
        if shape != wanted:
            raise ValueError(f"{name} must have the shape {wanted} to fit answered, epsilons and orders, not {shape}")
    if not (np.isfinite(budgets).all() and (budgets > 0).all()):
        raise ValueError("epsilons must be finite and above 0; leave groups without a budget out of the vote")
    for name, costs in (("past", spent), ("check", checks), ("label", labels)):
        if np.isnan(costs).any() or (costs < 0).any():
            raise ValueError(f"{name} must not contain negative or NaN costs; recompute them from the votes")
    return spent, checks, labels, passed, budgets


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
        Forward and reverse divergence, each of shape (queries, R); 0 for a query without neighbours. Both are at least
        the true values.

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

    If every log probability is a concave function of the votes and t is its linear change, the neighbour is at most
    P·e^t.

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

    For a probability near 1, only this keeps the logarithm's relative accuracy.
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
    these orders. ``sag`` is the smallest ratio of the leading rows' moments to their chords near each of the computed
    orders. A row whose moments at these orders do not exceed the leading rows' moments times ``sag`` is skipped,
    because it cannot have the largest moment.
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
    """Return log moments that may exceed the float range, using logarithms in the rows with large moments."""
    joint = log_base + exponent
    peak = np.maximum(joint.max(axis=0), 0.0)
    small = _log_moment(_difference(log_base, np.minimum(exponent, 1 - log_base)).sum(axis=0) - linear, slack)
    rest = (1 - np.exp(log_base).sum(axis=0) - linear) * np.exp(-peak)
    large = peak + np.log(np.maximum(np.exp(joint - peak).sum(axis=0) + rest, np.exp(-peak)))
    return np.where(peak < 1, small, large + _ROUNDING * (1 + np.abs(exponent).max(axis=0)))


def _difference(log_base: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """Return b·(e^r − 1) for any small b and large r, provided that b·e^r is a finite float."""
    base = np.exp(log_base)
    small = base * np.expm1(np.minimum(log_ratio, 1.0))
    return np.where(log_ratio < 1, small, np.exp(log_base + log_ratio) - base)
