"""Probabilities of points, spread over the graph of nearest neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

_NEAREST = 10
_STEPS = 60
_LEAST = 1e-9
_DENSE = 1500
"""Number of points up to which a dense decomposition is faster."""
_TOLERANCE = 1e-4


def spread(similar: csr_array, probabilities: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return probabilities after label spreading (Zhou et al. 2004, "Learning with local and global consistency").

    F ← α·S·F + (1 − α)·Y, 60 times, where Y is the part of the probabilities above chance. So points whose own
    probabilities are uninformative get theirs from points close to them.

    Args:
        similar: `(P, P)` S, see `similarities`.
        probabilities: `(P, C)`.
        share: α, the share of a point's result that comes from its neighbours; 0 changes nothing.

    Returns:
        `(P, C)`, rows sum to 1.
    """
    if share == 0:
        return probabilities
    excess = probabilities - 1 / probabilities.shape[1]
    over = excess
    for _ in range(_STEPS):
        over = share * (similar @ over) + (1 - share) * excess
    result = np.maximum(over, 0.0) + _LEAST
    return result / result.sum(axis=1, keepdims=True)


def eigenvectors(similar: csr_array, most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smoothest functions on the graph: the eigenvectors of S with the largest eigenvalues.

    Args:
        similar: `(P, P)` S, see `similarities`.
        most: Largest number of them.

    Returns:
        Eigenvalues `(k,)` in falling order, and eigenvectors `(P, k)`.
    """
    if len(similar.indptr) - 1 <= _DENSE:
        values, vectors = np.linalg.eigh(similar.toarray())
    else:
        from scipy.sparse.linalg import eigsh

        start = np.full(similar.shape[0], similar.shape[0] ** -0.5)
        values, vectors = eigsh(similar.astype(np.float64), k=most, which="LA", v0=start, tol=_TOLERANCE)
    return values[::-1][:most], vectors[:, ::-1][:, :most]


def similarities(coordinates: NDArray[np.number]) -> csr_array:
    """Return `(P, P)` S = D^(−1/2) W D^(−1/2) of points `(P, d)`, with D the sums of the rows of W.

    W of a point and its ten nearest is exp(−d²/s²) with s the median of all these distances d, made symmetric.
    """
    from sklearn.neighbors import NearestNeighbors

    points = np.asarray(coordinates, np.float32)
    count = min(_NEAREST, len(points) - 1)
    if not count:
        return csr_array((len(points), len(points)))
    distances, nearest = NearestNeighbors(n_neighbors=count).fit(points).kneighbors()
    scale = max(float(np.median(distances)), _LEAST)
    rows = np.repeat(np.arange(len(points)), count)
    weights = csr_array(
        (np.exp(-((distances / scale) ** 2)).ravel(), (rows, nearest.ravel())), shape=(len(points),) * 2
    )
    weights = (weights + weights.T) / 2
    shrunk = 1 / np.sqrt(np.maximum(np.asarray(weights.sum(axis=1)).ravel(), _LEAST))
    return csr_array(weights.multiply(shrunk[:, None]).multiply(shrunk[None, :]))
