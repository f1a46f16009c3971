"""The budget filter: how many queries may be released before a group would exceed its ε."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy.checks import FloatArray, checked_orders
from accounting.privacy.papers.curves import DEFAULT_ORDERS, Conversion, conversion_penalty

BoolArray = NDArray[np.bool_]

#: Share of ε that is never spent, so that adding the same costs up in another order cannot exceed the budget.
BUDGET_RESERVE = 1e-9

_BATCH_VALUES = 1 << 20  # numbers held at once: 8 MiB per temporary array


@dataclass(frozen=True, eq=False)
class Prefix:
    """The part of a batch that may be released.

    Attributes:
        count: how many leading queries may be released.
        spent: what every group has spent after them, past included, shape (G, R).
        exhausted: the groups that stopped the next query, shape (G,); all False if the whole batch may be released.
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
    """The longest run of leading queries whose release keeps every privacy group within its ε.

    A Rényi filter (Feldman and Zrnic, "Individual Privacy Accounting via a Rényi Filter", 2021): query i may be
    released only if the past, all that was released before it, its check and its label stay within every budget. The
    label counts as if it will be released: the decision to stop does not depend on the noise of query i. What is
    charged is the check, and the label where answered.

    To go on without the groups that are exhausted ("vanishing only when exhausted"), retire their teachers, count the
    votes of the remaining queries anew, and call again with ``spent`` as the past and 0 as the costs of the retired
    groups. A group whose next cost is 0 never stops a query.

    Args:
        past: what each group has spent in all earlier runs and batches, shape (G, R).
        check: cost of each query's check, always paid, shape (Q, G, R); zeros if there is none.
        label: cost of each query's label, paid if answered, shape (Q, G, R).
        answered: whether the check passed, shape (Q,).
        epsilons: the groups' budgets, shape (G,), above 0.
        delta: the study's δ.
        orders: orders α > 1, shape (R,).
        conversion: from RDP to (ε, δ), see :func:`accounting.privacy.epsilon_from_rdp`.

    Returns:
        The prefix. Time and memory are linear in the batch; temporaries are bounded.

    Raises:
        ValueError: shapes that do not fit, negative or NaN costs, budgets that are not above 0.

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
        # One sum after the other from the past on: the same floats come out however a vote is cut into batches.
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
