"""Released noisy counts, and what follows from them without asking anybody again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from common.noise import Noise


@dataclass(frozen=True, eq=False)
class Release:
    """The outcome of a batch.

    counts: `(Q, C)` whole noisy counts.  labels: `(Q,)` the class with the largest; the smaller number of equal ones.
    margins: `(Q,)` by how much it leads, in units of σ.
    """

    counts: NDArray[np.int64]
    labels: NDArray[np.int64]
    margins: NDArray[np.float64]


def release_counts(totals: ArrayLike, sigma: float, noise: "Noise") -> NDArray[np.int64]:
    """`totals + N(0, σ²)`, rounded to whole numbers after the noise.

    Args:
        totals: `(Q, C)` of all shards.
        sigma: Standard deviation.
        noise: `SystemNoise`, or in rehearsals `SimulationNoise`; used once, for all numbers together.

    Returns:
        `(Q, C)`.
    """
    sums = np.asarray(totals, np.float64)
    return np.rint(sums + noise.normal(sigma, sums.shape)).astype(np.int64)


def read_counts(
    counts: ArrayLike, sigma: float, *, predicted: ArrayLike | None = None, voters: ArrayLike = 0.0
) -> Release:
    """Labels and margins from noisy counts.

    Args:
        counts: `(Q, C)` as released.
        sigma: Of their noise.
        predicted: `(Q,)` the public guess that residual votes were cast against; None for plain votes.
        voters: `(Q,)` or a number: how many voters the queries had in all, by a public estimate. Residual counts say
            who disagrees; this says how many there are to be convinced.

    >>> read_counts([[-30, 30]], 10.0, predicted=[0], voters=100.0).labels
    array([0])
    """
    released = np.asarray(counts, np.int64)
    standing = released.astype(np.float64)
    if predicted is not None:
        standing[np.arange(len(standing)), np.asarray(predicted)] += voters
    labels = standing.argmax(axis=1)
    if standing.shape[1] == 1:
        return Release(released, labels, np.full(len(labels), np.inf))
    ordered = np.partition(standing, -2, axis=1)
    return Release(released, labels, (ordered[:, -1] - ordered[:, -2]) / sigma)
