"""Sources of noise.

`SystemNoise` is the only source that a real vote may use: the privacy proofs assume that no one can predict the noise,
but a statistical generator's output can be predicted from a few values. `SimulationNoise` is reproducible from a seed
and marked as such, so that code that writes to a ledger can refuse it.

Numbers that are released, rather than only compared, get integer noise from `rounded_normal`, which has none of the low
bits that distinguish a floating-point draw from an ideal one.
"""

import math
from collections.abc import Callable
from numbers import Real
from os import urandom
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, ndtri_exp

Shape = int | tuple[int, ...]

ROUNDED_NORMAL_DISTANCE = 2.0**-256
"""Bound on the total variation between one number from `SystemNoise.rounded_normal` and an ideal rounded Gaussian."""

LARGEST_ROUNDED_SCALE = 2.0**34
"""Largest standard deviation of `SystemNoise.rounded_normal`."""

JOINT_NORMAL_DISTANCE = 2.0**-236
"""The same bound for sums across sites; see docs/sites.md.

It applies to a sum of up to a million numbers, each of scale at least `LARGEST_ROUNDED_SCALE` / 2, and to the rounded
sum of one Gaussian and other, independent noise.
"""

GRID = 2.0**-16
"""Unit of noise and vote weights; both are multiples of this."""

_QUANTILE_ERROR = 1e-13  # a hundred times the largest relative error of ndtri and log, 1e-15
_MORE_BYTES = 32


class Noise(Protocol):
    """Source of independent, centred noise. `is_simulation` is True if the noise is reproducible."""

    is_simulation: ClassVar[bool]

    def normal(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        """Return Gaussian noise with standard deviation `scale`."""
        ...

    def laplace(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        """Return Laplace noise with density exp(-|x| / scale) / (2 scale)."""
        ...

    def rounded_normal(self, scale: float, shape: Shape) -> NDArray[np.int64]:
        """Return Gaussian noise with standard deviation `scale`, rounded to the nearest integer."""
        ...


class SystemNoise:
    """Noise from the operating system's cryptographic generator, computed by inverting the distribution function.

    Noise is an integer multiple of `GRID` (see `rounded_normal`), because the low bits of a floating-point draw could
    be distinguished from those of ideal noise (Mironov 2012, "On significance of the least significant bits for
    differential privacy").

    >>> SystemNoise().normal(40.0, (2, 3)).shape
    (2, 3)
    """

    is_simulation: ClassVar[bool] = False

    def normal(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        """Return Gaussian noise rounded to multiples of `GRID`, for counts that are also multiples of it."""
        return np.multiply(GRID, self.rounded_normal(scale / GRID, shape), dtype=np.float64)

    def laplace(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        """Return Laplace noise rounded to multiples of `GRID`, drawn as accurately as `rounded_normal`."""
        unit = _require_scale(scale / GRID)
        drawn = _rounded(
            shape,
            quantile=lambda tail: -unit * np.log(2.0 * tail),
            guess=lambda log_tail: -unit * (math.log(2.0) + log_tail),
            tail_beyond=lambda exact, value: exact.exp(-value / unit) / 2,
        )
        return np.multiply(GRID, drawn, dtype=np.float64)

    def rounded_normal(self, scale: float, shape: Shape) -> NDArray[np.int64]:
        """Return integers k with probability Φ((k + ½)/scale) - Φ((k - ½)/scale), within `ROUNDED_NORMAL_DISTANCE`.

        Adding this to an integer count gives round(count + N(0, scale²)), a function of the Gaussian mechanism's
        output. It therefore costs no more, and its low bits reveal nothing. Sums that are not integers must be
        expressed in a finer unit.

        The magnitude is the inverse distribution function of a uniform number with infinitely many bits. The first 53
        are drawn; if both ends of the remaining interval, with the error of `ndtri`, round to the same integer, no
        further bit matters. Otherwise (a share of about 1e-13·scale of the draws, and the far tail) 256 more bits are
        drawn and compared with the boundary between two integers in 512-bit arithmetic.

        Args:
            scale: standard deviation, above 0, at most 2^34.
            shape: shape of the result. A million numbers take about 0.1 s.

        Raises:
            ValueError: the scale is out of range.

        >>> SystemNoise().rounded_normal(40.0, (2, 3)).dtype
        dtype('int64')
        """
        unit = _require_scale(scale)
        return _rounded(
            shape,
            quantile=lambda tail: -unit * ndtri(tail),
            guess=lambda log_tail: -unit * float(ndtri_exp(log_tail)),
            tail_beyond=lambda exact, value: exact.ncdf(-value / unit),
        )


class SimulationNoise:
    """Noise that is reproducible from a seed, for benchmarks and tests.

    >>> bool(SimulationNoise(7).normal(1.0, 1) == SimulationNoise(7).normal(1.0, 1))
    True
    """

    is_simulation: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def normal(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        return self._generator.normal(0.0, require_positive("scale", scale), shape)

    def laplace(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        return self._generator.laplace(0.0, require_positive("scale", scale), shape)

    def rounded_normal(self, scale: float, shape: Shape) -> NDArray[np.int64]:
        return np.rint(self.normal(scale, shape)).astype(np.int64)


def require_positive(name: str, value: float) -> float:
    """Return `value` as a float; raise ValueError unless it is a finite number above 0.

    >>> require_positive("sigma", 40)
    40.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a finite number above 0, not {value!r}.")
    return float(value)


def _require_scale(scale: float) -> float:
    if require_positive("scale", scale) > LARGEST_ROUNDED_SCALE:
        raise ValueError(f"scale must be at most 2^34, not {scale!r}: use a coarser unit.")
    return scale


def _rounded(
    shape: Shape,
    *,
    quantile: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    guess: Callable[[float], float],
    tail_beyond: Callable[[Any, Any], Any],
) -> NDArray[np.int64]:
    """Return symmetric noise rounded to the nearest integer; see `SystemNoise.rounded_normal`.

    Args:
        shape: shape of the result.
        quantile: magnitude at a tail probability in (0, 1/2), with a relative error below `_QUANTILE_ERROR`.
        guess: the magnitude, given the logarithm of the probability.
        tail_beyond: multi-precision probability beyond a magnitude.
    """
    bits = np.frombuffer(urandom(8 * int(np.prod(shape))), dtype=np.uint64).reshape(shape)
    cell = bits >> np.uint64(11)  # the tail probability lies between cell and cell + 1, in units of 2^-54
    with np.errstate(divide="ignore"):  # the quantile at a tail probability of 0 is infinite
        above = np.floor(quantile(np.float64(2.0**-54) * cell) * (1 + _QUANTILE_ERROR) + 0.5)
    below = np.floor(quantile(np.float64(2.0**-54) * (cell + np.uint64(1))) * (1 - _QUANTILE_ERROR) + 0.5)
    magnitude = np.array(below, dtype=np.int64)
    undecided = [tuple(place) for place in np.argwhere(above != below)]
    if undecided:
        # Imported here because it is rarely needed and slow to import.
        from mpmath import MPContext

        exact = MPContext()  # a separate context, because another thread may change the precision of the shared one
        exact.prec = 512
        for place in undecided:
            magnitude[place] = _refined_magnitude(int(cell[place]), guess, tail_beyond, exact)
    return np.where(bits & np.uint64(1), -magnitude, magnitude)


def _refined_magnitude(
    cell: int, guess: Callable[[float], float], tail_beyond: Callable[[Any, Any], Any], exact: Any
) -> int:
    """Return the rounded magnitude if its first bits, `cell`, do not determine it, using the arithmetic ``exact``."""
    half = exact.mpf(0.5)
    more = int.from_bytes(urandom(_MORE_BYTES), "little")
    tail = (cell + (more + half) / 2 ** (8 * _MORE_BYTES)) / 2**54
    magnitude = max(0, round(guess(float(exact.log(tail)))))
    while magnitude > 0 and tail > tail_beyond(exact, magnitude - half):
        magnitude -= 1
    while tail <= tail_beyond(exact, magnitude + half):
        magnitude += 1
    return magnitude
