"""How far apart the weights of a model lie, estimated from what steps released about them: more signal, more spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CANDIDATES = np.geomspace(0.02, 8.0, 61)


def weights_spread(observed: Floats, matrices: Floats, variance: float) -> float:
    """The standard deviation of the weights that makes what was observed likeliest, from 0.02 to 8.

    Observed of the weights w_c of a score is H_c w_c + N(0, variance·I). With w_c normal around 0, its coordinates
    along the eigenvectors of H_c are independent, of variance (eigenvalue · spread)² + variance.

    Args:
        observed: `(F, outputs)`.
        matrices: `(outputs, F, F)`, or `(1, F, F)` where all scores have the same; symmetric.
        variance: Of the noise of each number.

    >>> round(weights_spread(np.array([[3.0], [-3.0]]), np.eye(2)[None], 1e-6), 1)  # the candidate next to 3
    2.9
    """
    unlikely = np.zeros(len(_CANDIDATES))
    for place, matrix in enumerate(matrices):
        values, vectors = np.linalg.eigh(matrix)
        squares = (vectors.T @ (observed[:, place : place + 1] if len(matrices) > 1 else observed)) ** 2
        expected = (values * _CANDIDATES[:, None]) ** 2 + variance
        unlikely += squares.shape[1] * np.log(expected).sum(axis=1) + (squares.sum(axis=1) / expected).sum(axis=1)
    return float(_CANDIDATES[unlikely.argmin()])
