"""Sums, products and quotients of doubles together with what rounding took from them, as a second double.

A pair (high, low) stands for the real number high + low. Dekker, "A floating-point technique for extending the
available precision" (1971); Knuth, "The Art of Computer Programming", volume 2, section 4.2.2.
"""

import numpy as np
from numpy.typing import NDArray

from accounting.privacy.checks import FloatArray

Pair = tuple[FloatArray, FloatArray]

_SPLITTER = 2.0**27 + 1.0
_RESERVE = 2.0**-50  # of the low part: more than the rounding of the few operations that make it


def exact_sum(a: FloatArray, b: FloatArray) -> Pair:
    """a + b, exactly.

    >>> exact_sum(np.array([1.0]), np.array([2.0**-60]))[1] == 2.0**-60
    array([ True])
    """
    high = a + b
    rest = high - a
    return high, (a - (high - rest)) + (b - rest)


def exact_product(a: FloatArray, b: FloatArray) -> Pair:
    """a · b, exactly while nothing over- or underflows (both between 1e-140 and 1e140, or 0)."""
    high = a * b
    a1, b1 = _leading_half(a), _leading_half(b)
    a2, b2 = a - a1, b - b1
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def quotient_above(a: FloatArray, b: Pair) -> Pair:
    """a / b for a ≥ 0, b > 0: exactly where the quotient is a double, elsewhere above by a relative 2^-100 at most."""
    high = a / b[0]
    product, rest = exact_product(high, b[0])
    left, correction = (a - product) - rest, high * b[1]
    return high, ((left - correction) + (np.abs(left) + np.abs(correction)) * _RESERVE) / b[0]


def sum_above(a: Pair, b: Pair) -> Pair:
    """a + b: exactly where both low parts and the sum's are 0, elsewhere above by a relative 2^-100 at most."""
    high, low = exact_sum(a[0], b[0])
    low = low + (np.abs(low) + np.abs(a[1]) + np.abs(b[1])) * _RESERVE + (a[1] + b[1])
    return exact_sum(high, low)


def at_most(a: Pair, bound: FloatArray) -> NDArray[np.bool_]:
    """Whether a ≤ bound, for a pair whose high part is the double nearest to it; not for NaN."""
    return (a[0] < bound) | ((a[0] == bound) & (a[1] <= 0))


def _leading_half(a: FloatArray) -> FloatArray:
    """The leading 26 bits."""
    scaled = _SPLITTER * a
    return scaled - (scaled - a)
