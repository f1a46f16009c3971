"""Neighbourhoods of queries: the public points within the radius, which stand for those who were asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack

from learning.mechanisms.neighbours.distances import QUERIES_AT_A_TIME, kernel_weights, near_pairs, squared_norms

_MOST_STAND_INS = 10_000
"""More public points than these say no more about an average, and need memory."""


def neighbourhoods(
    rows: ArrayLike, public: NDArray[np.signedinteger], squared_radii: ArrayLike, *, kernel: str = "uniform"
) -> csr_array:
    """Weights with which public points stand for the voters of a query.

    Holders vote whose records are within the radius, and public points are spread as records are. So the expected share
    of a class among the voters is the average of its probability over the public points within the radius, not its
    probability at the query: a student that knows this undoes the smoothing.

    Args:
        rows: `(Q,)` positions of the queries among the public points; a query does not stand for its voters, unless
            nobody else does.
        public: `(P, d)` coordinates of the round.
        squared_radii: `(Q,)`, see `learning.mechanisms.neighbours.votes.radii`.
        kernel: Of the votes.

    Returns:
        `(Q, P)`, rows sum to 1. Of more than 10,000 public points some, evenly taken, stand for all.

    >>> neighbourhoods([0, 2], np.array([[0], [1], [5]]), [1, 4]).toarray().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    queries, reach = np.asarray(rows, np.int64), np.asarray(squared_radii, np.int64)
    columns = np.arange(len(public))
    if len(columns) > _MOST_STAND_INS:
        columns = np.linspace(0, len(public) - 1, _MOST_STAND_INS).astype(np.int64)
    points = public[columns]
    norms, parts = squared_norms(points), []
    for start in range(0, len(queries), QUERIES_AT_A_TIME):
        batch = slice(start, start + QUERIES_AT_A_TIME)
        query, near, distance = near_pairs(public[queries[batch]], reach[batch], points, norms)
        weight = kernel_weights(kernel, distance, reach[batch][query]).astype(np.float64)
        weight[columns[near] == queries[batch][query]] = 0.0
        alone = np.flatnonzero(np.bincount(query, weight, len(queries[batch])) == 0)
        query = np.concatenate([query, alone])
        near = np.concatenate([columns[near], queries[batch][alone]])
        weight = np.concatenate([weight, np.ones(len(alone))])
        weight /= np.bincount(query, weight)[query]
        is_near = weight > 0
        shape = (len(queries[batch]), len(public))
        parts.append(csr_array((weight[is_near].astype(np.float32), (query[is_near], near[is_near])), shape=shape))
    return csr_array(vstack(parts, format="csr")) if parts else csr_array((0, len(public)), dtype=np.float32)
