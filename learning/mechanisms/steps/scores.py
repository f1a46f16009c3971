"""Scores of a linear model in exact arithmetic, the same for a record wherever it stands in an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learning.exact_arithmetic import whole_matrix, whole_product
from learning.representations.coordinates import LARGEST

Floats = NDArray[np.float64]


class Scores:
    """A linear model on whole-number features of at most 127.

    Args:
        weights: `(features, outputs)`, rounded to a multiple of a power of two with which scores are exact.
    """

    def __init__(self, weights: Floats) -> None:
        self._whole, self._power = whole_matrix(weights, LARGEST)

    def of(self, features: Floats) -> Floats:
        """`(n, outputs)` for `(n, features)`.

        >>> Scores(np.array([[0.5, 0.25]])).of(np.array([[2.0]])).tolist()
        [[1.0, 0.5]]
        """
        return whole_product(features, self._whole) / self._power
