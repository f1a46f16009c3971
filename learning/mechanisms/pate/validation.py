"""Checks of arguments that several mechanisms share; each error names the argument and says what to do."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def require_totals(votes: ArrayLike) -> NDArray[np.float64]:
    """`votes`, which may come with noise, as a `(queries, classes)` float array; ValueError if it is anything else.

    >>> require_totals([[3, -1]])
    array([[ 3., -1.]])
    """
    array = np.asarray(votes, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"votes must have the shape (queries, classes), not {array.shape}: pass one row per query.")
    if not np.isfinite(array).all():
        raise ValueError("votes must be finite: pass the output of count_votes.")
    return array


def require_votes(votes: ArrayLike) -> NDArray[np.float64]:
    """`votes` without noise; ValueError if they are anything else.

    >>> require_votes([[3, 1]])
    array([[3., 1.]])
    """
    array = require_totals(votes)
    if (array < 0).any():
        raise ValueError("votes must not be negative: pass the output of count_votes.")
    return array


def require_budgets(budgets: ArrayLike) -> NDArray[np.float64]:
    """`budgets` as a `(groups,)` float array of ε values; ValueError if one is not a finite number above 0.

    >>> require_budgets([1, 2])
    array([1., 2.])
    """
    array = np.asarray(budgets, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"budgets must be a list of at least one ε, not of shape {array.shape}: pass one per group.")
    if not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError(f"budgets must be finite and above 0, not {array.tolist()}: leave out groups without budget.")
    return array
