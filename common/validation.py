"""Checks of arguments; each error names the argument and says what to do."""

import math
from numbers import Real


def require_positive(name: str, value: float) -> float:
    """Return `value` as a float; ValueError unless it is a finite number above 0.

    >>> require_positive("sigma", 40)
    40.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a finite number above 0, not {value!r}: give {name} such a number.")
    return float(value)
