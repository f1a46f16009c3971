"""Probabilities of a linear softmax model in exact arithmetic, the same for a record wherever it stands in an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learning.representations.coordinates import LARGEST
from learning.representations.exact import whole_matrix, whole_product

Floats = NDArray[np.float64]

PROBABILITY_STEPS = 2**20
"""Probabilities are rounded to whole multiples of 1 / PROBABILITY_STEPS."""

_EXPONENTIAL_STEPS = 2.0**30
_SMALLEST_EXPONENT = -32.0
_HALVINGS = 10
_COEFFICIENTS = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


class Softmax:
    """A linear softmax model on whole-number features of at most 127.

    Args:
        weights: `(features, classes)`, rounded to a multiple of a power of two with which logits are exact.
    """

    def __init__(self, weights: Floats) -> None:
        self._whole, self._power = whole_matrix(weights, LARGEST)

    def probabilities(self, features: Floats) -> Floats:
        """`(n, classes)` whole multiples of 1 / `PROBABILITY_STEPS`, for `(n, features)`.

        >>> Softmax(np.array([[0.0, np.log(3)]])).probabilities(np.array([[1.0]])) / PROBABILITY_STEPS
        array([[0.25, 0.75]])
        """
        logits = whole_product(features, self._whole)
        logits -= logits.max(axis=1, keepdims=True)
        logits /= self._power
        # whole numbers again, so that their sum is exact in any order
        parts = np.rint(exponentials(logits) * _EXPONENTIAL_STEPS)
        parts /= parts.sum(axis=1, keepdims=True)
        return np.rint(parts * PROBABILITY_STEPS)


def exponentials(exponents: Floats) -> Floats:
    """exp of numbers up to 0, with a relative error below 1e-11; below e⁻³² it is e⁻³².

    By additions and multiplications alone, whose results IEEE 754 defines to the last bit: exp(x) = exp(x / 2¹⁰)^(2¹⁰)
    with six terms of the series. Library functions may round otherwise at the end of an array than in its middle.
    """
    small = np.maximum(exponents, _SMALLEST_EXPONENT) / 2.0**_HALVINGS
    result = np.full_like(small, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        result *= small
        result += coefficient
    for _ in range(_HALVINGS):
        result *= result
    return result
