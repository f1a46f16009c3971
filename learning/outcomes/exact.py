"""Probabilities in exact arithmetic: the same for a record wherever it stands in an array, on every machine.

Everything is an addition, a multiplication, a division or a rounding of single numbers, whose results IEEE 754 defines
to the last bit. Library functions may round otherwise at the end of an array than in its middle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESIDUAL_STEPS = 2**20
"""Probabilities and residuals are rounded to whole multiples of 1 / RESIDUAL_STEPS."""

_SMALLEST_EXPONENT = -32.0
_HALVINGS = 10
_COEFFICIENTS = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def exponentials(exponents: Floats) -> Floats:
    """exp of numbers up to 0, with a relative error below 1e-11; below e⁻³² it is e⁻³².

    exp(x) = exp(x / 2¹⁰)^(2¹⁰), with six terms of the series.
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
    """1 / (1 + exp(-x)), in whole multiples of 1 / `RESIDUAL_STEPS`.

    >>> logistic(np.array([0.0, -100.0, 100.0])) / RESIDUAL_STEPS
    array([0.5, 0. , 1. ])
    """
    less = exponentials(-np.abs(logits))
    return np.rint(np.where(logits < 0, less, 1.0) / (1.0 + less) * RESIDUAL_STEPS)
