"""Arithmetic whose result for a record is identical at any position in an array and on every machine.

*Sums and products*: float64 represents every whole number up to 2⁵³, and float32 up to 2²⁴. If no product and no
partial sum exceeds that range, matrix products and convolutions are exact, however a library splits them into blocks.
The result for a record therefore cannot depend on neighbouring records. Rounding happens only between these steps,
element by element, with operations that IEEE 754 defines to the last bit (division, square root, rounding to a whole
number). exp and log are avoided, because their last bit can differ between a loop's vectorised part and its scalar
remainder.

*Probabilities* are computed one number at a time, only by addition, multiplication, division and rounding, without
library functions.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LARGEST = 2.0**52
"""Largest allowed sum of absolute products; the remaining bit is reserved for an offset."""

RESIDUAL_STEPS = 2**20
"""Probabilities and residuals are rounded to whole multiples of 1 / RESIDUAL_STEPS."""

_SMALLEST_EXPONENT = -32.0
_HALVINGS = 10
_COEFFICIENTS = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def power_of_two_below(value: float) -> float:
    """Return the largest power of two that is at most `value` (above 0).

    >>> power_of_two_below(100.0), power_of_two_below(0.3)
    (64.0, 0.25)
    """
    return math.ldexp(0.5, math.frexp(value)[1])


def whole_matrix(matrix: Floats, bound: float, largest: float = LARGEST) -> tuple[Floats, float]:
    """Return `matrix` times a power of two, rounded to integers whose products with integers up to `bound` are exact.

    Args:
        matrix: `(inputs, outputs)`, finite.
        bound: The largest absolute value of an input.

    Returns:
        The integer matrix and the power of two: `whole / power` is `matrix`, rounded.
    """
    weight = float(np.abs(matrix).sum(axis=0).max()) if matrix.size else 0.0
    # each entry may be rounded up by 0.5
    power = power_of_two_below(largest / (bound * (weight or 1.0))) / 2.0
    while bound * (weight * power + 0.5 * len(matrix)) > largest:
        power /= 2.0
    return np.rint(matrix * power), power


def whole_product(whole: Floats, matrix: Floats, offset: Floats | None = None) -> Floats:
    """Return `whole @ matrix - offset`, exact for whole numbers within the bound given to `whole_matrix`."""
    product = whole @ matrix
    if offset is not None:
        product -= offset
    return product


def exponentials(exponents: Floats) -> Floats:
    """Return exp of non-positive numbers, with a relative error below 1e-11. Results are never below e⁻³².

    Uses exp(x) = exp(x / 2¹⁰)^(2¹⁰), with six terms of the series.
    """
    small = np.maximum(exponents, _SMALLEST_EXPONENT) / 2.0**_HALVINGS
    result = np.full_like(small, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        result *= small
        result += coefficient
    for _ in range(_HALVINGS):
        result *= result
    return result


def logistic(logits: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), rounded to a multiple of 1 / `RESIDUAL_STEPS`.

    >>> logistic(np.array([0.0, -100.0, 100.0])) / RESIDUAL_STEPS
    array([0.5, 0. , 1. ])
    """
    less = exponentials(-np.abs(logits))
    return np.rint(np.where(logits < 0, less, 1.0) / (1.0 + less) * RESIDUAL_STEPS)
