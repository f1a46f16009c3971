"""Votes of teachers: counts from their predictions, and checks of votes and budgets that several mechanisms share."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy.checks import checked_votes

NO_VOTE = -1
"""Prediction of a teacher that takes no part in the vote: retired, or not drawn for this query."""


def count_votes(predictions: ArrayLike, classes: int, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return weighted vote counts: entry (i, j) is the summed weight of the teachers that chose class j for query i.

    Individualized PATE (Boenisch et al. 2023), weighting; with equal weights the counts n_j of PATE (Papernot et
    al. 2017).

    predictions: `(teachers, queries)` integers, `NO_VOTE` or 0 … classes - 1.  weights: `(teachers,)`, 1 each if None.
    Returns `(queries, classes)` floats. Raises ValueError on other shapes or values.

    >>> count_votes([[0, 1], [0, 0], [1, NO_VOTE]], 2, weights=[0.5, 0.5, 2.0])
    array([[1. , 2. ],
           [0.5, 0.5]])
    """
    matrix = _require_predictions(predictions, classes)
    teachers, queries = matrix.shape
    weight = np.ones(teachers) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != (teachers,):
        raise ValueError(f"weights has the shape {weight.shape}, but there are {teachers} teachers: pass one each.")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("weights must be finite and not negative: pass the weights of the plan.")
    voted = matrix != NO_VOTE
    cell = np.arange(queries) * classes + matrix
    counts = np.bincount(cell[voted], np.broadcast_to(weight[:, None], matrix.shape)[voted], queries * classes)
    return counts.astype(np.float64).reshape(queries, classes)


def group_votes(predictions: ArrayLike, classes: int, members: ArrayLike) -> NDArray[np.float64]:
    """Return the unweighted vote counts of one group's own teachers, `(queries, classes)`.

    They show the classes that one of the group's votes can leave, which the group's exact cost depends on.

    members: `(teachers,)` booleans, True for the group's teachers.

    >>> group_votes([[0, 1], [0, 0], [1, 1]], 2, [True, True, False])
    array([[2., 0.],
           [1., 1.]])
    """
    matrix = _require_predictions(predictions, classes)
    mask = np.asarray(members)
    if mask.dtype != np.bool_ or mask.shape != matrix.shape[:1]:
        raise ValueError(f"members must hold one boolean for each of the {len(matrix)} teachers: pass such a mask.")
    return count_votes(matrix[mask], classes)


def require_votes(votes: ArrayLike) -> NDArray[np.float64]:
    """Return `votes` without noise; raise ValueError for anything else.

    >>> require_votes([[3, 1]])
    array([[3., 1.]])
    """
    array = checked_votes(votes)
    if (array < 0).any():
        raise ValueError("votes must not be negative: pass the output of count_votes.")
    return array


def require_budgets(budgets: ArrayLike) -> NDArray[np.float64]:
    """Return `budgets` as a `(groups,)` float array of ε values; raise ValueError unless all are finite and above 0.

    >>> require_budgets([1, 2])
    array([1., 2.])
    """
    array = np.asarray(budgets, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"budgets must be a list of at least one ε, not of shape {array.shape}: pass one per group.")
    if not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError(f"budgets must be finite and above 0, not {array.tolist()}: leave out groups without budget.")
    return array


def _require_predictions(predictions: ArrayLike, classes: int) -> NDArray[np.int64]:
    matrix = np.asarray(predictions)
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.integer):
        raise ValueError(
            f"predictions must be integers of the shape (teachers, queries), not {matrix.dtype} of {matrix.shape}: "
            "pass one row per teacher."
        )
    if classes < 1:
        raise ValueError(f"classes must be at least 1, not {classes}: pass the number of classes of the study.")
    if matrix.size and (matrix.min() < NO_VOTE or matrix.max() >= classes):
        raise ValueError(
            f"predictions run from {matrix.min()} to {matrix.max()}, but there are {classes} classes: "
            f"pass {NO_VOTE} (no vote) or 0 … {classes - 1}."
        )
    return matrix.astype(np.int64)
