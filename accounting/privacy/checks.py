"""Checks of numeric arguments, with messages that contain the remedy."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

Method = Literal["data_independent", "data_dependent", "exact"]
METHODS: tuple[Method, ...] = ("data_independent", "data_dependent", "exact")


def checked_votes(votes: ArrayLike) -> FloatArray:
    """Return the vote counts as a finite float array (queries, classes), or raise ValueError."""
    array = np.asarray(votes, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(
            f"votes must have the shape (queries, classes), not {array.shape}; use votes[None] for one query"
        )
    if not np.isfinite(array).all():
        raise ValueError("votes must be finite; remove the queries whose counts are NaN or infinite")
    return array


def checked_group_votes(group_votes: ArrayLike, votes: FloatArray) -> FloatArray:
    """Return a group's own unweighted counts, checked to have the same shape as the votes."""
    array = checked_votes(group_votes)
    if array.shape != votes.shape:
        raise ValueError(
            f"group_votes must have the shape of votes, {votes.shape}, not {array.shape}; count the group's own "
            "teachers per query and class"
        )
    if (array < 0).any():
        raise ValueError("group_votes must not be negative; pass the number of the group's teachers per class")
    return array


def checked_orders(orders: ArrayLike) -> FloatArray:
    """Return the orders as an ascending array, or raise ValueError unless each is above 1."""
    array = np.asarray(orders, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all() or array.min() <= 1:
        raise ValueError("orders must be a list of finite numbers above 1; use DEFAULT_ORDERS if in doubt")
    if (np.diff(array) <= 0).any():
        raise ValueError("orders must ascend without repetition; sort them and remove duplicates")
    return array


def checked_positive(name: str, value: float) -> float:
    """Return ``value``, or raise ValueError unless it is finite and above 0."""
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, not {value}; without noise there is no privacy")
    return float(value)


def checked_sensitivity(value: float) -> float:
    """Return ``value``, or raise ValueError unless it is finite and at least 0 (0 for a group without a vote)."""
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(
            f"sensitivity must be a finite number of at least 0, not {value}; pass the weight of one teacher of the "
            "group, or the number of a holder's duplicates"
        )
    return float(value)


def checked_teachers(value: int) -> int:
    """Return the number of teachers that learn from one holder's records, or raise ValueError unless it is positive."""
    if value != int(value) or value < 1:
        raise ValueError(
            f"teachers_per_holder must be a whole number above 0, not {value}; it is 1 except in upsampling"
        )
    return int(value)


def checked_query(
    votes: ArrayLike, orders: ArrayLike, method: str, sensitivity: float, teachers_per_holder: int
) -> tuple[FloatArray, FloatArray, float]:
    """Return the checked votes, orders and sensitivity for computing the costs of queries."""
    checked_method(method)
    checked_teachers(teachers_per_holder)
    return checked_votes(votes), checked_orders(orders), checked_sensitivity(sensitivity)


def checked_delta(value: float) -> float:
    """Return ``value``, or raise ValueError unless it is strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"delta must lie between 0 and 1, not {value}; choose it well below 1 / number of holders")
    return float(value)


def checked_method(method: str) -> None:
    """Raise ValueError unless ``method`` is one of the three ways to compute a cost."""
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
