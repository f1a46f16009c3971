"""Neighbouring vote counts: one holder's teacher changes its vote."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy.checks import FloatArray, checked_group_votes

_TOLERANCE = 1e-9  # sums of weights are off by rounding


def may_have_voted(votes: FloatArray, weight: float, group_votes: ArrayLike | None) -> NDArray[np.bool_]:
    """Whether a teacher of the group, of this weight, may stand behind each count, shape (queries, classes).

    Where the group's own counts are known, they tell; otherwise any count of at least the weight may hold its vote.

    >>> may_have_voted(np.array([[5.0, 0.4, 0.0]]), 0.5, None)
    array([[ True, False, False]])
    >>> may_have_voted(np.array([[5.0, 0.4, 0.0]]), 0.5, [[0, 0, 1]])
    array([[False, False,  True]])
    """
    if group_votes is None:
        return votes >= weight * (1 - _TOLERANCE)
    return checked_group_votes(group_votes, votes) >= 1 - _TOLERANCE


def extreme_maxima(
    votes: FloatArray, weight: float, group_votes: ArrayLike | None, teachers_per_holder: int
) -> FloatArray:
    """The lowest and the highest maximum among the votes and their neighbours, shape (queries, 2).

    Without the group's own counts, or where a holder's votes may move apart, simply the maximum less and plus the
    weight. (A count may then have a student's share subtracted, and tells nothing of who voted for it.)

    >>> extreme_maxima(np.array([[9.0, 1.0, 0.0]]), 1.0, None, 1)
    array([[ 8., 10.]])
    >>> extreme_maxima(np.array([[9.0, 1.0, 0.0]]), 1.0, [[3, 0, 0]], 1)  # a vote can only leave the leading class
    array([[8., 9.]])
    """
    top = votes.max(axis=1)
    if group_votes is None or teachers_per_holder > 1 or votes.shape[1] == 1:
        extremes = np.stack([top - weight, top + weight], axis=1)
        if group_votes is not None:
            fixed = ~may_have_voted(votes, weight, group_votes).any(axis=1)
            extremes[fixed] = top[fixed, None]
        return extremes
    ordered = np.sort(votes, axis=1)
    leads = votes == ordered[:, -1:]
    # The largest and the smallest count among the other classes, for every class that a vote may leave.
    largest = np.where(leads & (ordered[:, -2:-1] < ordered[:, -1:]), ordered[:, -2:-1], ordered[:, -1:])
    trails = votes == ordered[:, :1]
    smallest = np.where(trails & (ordered[:, 1:2] > ordered[:, :1]), ordered[:, 1:2], ordered[:, :1])
    highest = largest + weight
    lowest = np.maximum.reduce([smallest + weight, votes - weight, largest])
    movable = may_have_voted(votes, weight, group_votes)
    highest = np.where(movable, highest, -np.inf).max(axis=1)
    lowest = np.where(movable, lowest, np.inf).min(axis=1)
    return np.stack([np.minimum(lowest, top), np.maximum(highest, top)], axis=1)
