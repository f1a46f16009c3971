"""Where the noise of a vote comes from.

`SystemNoise` is the only source a real vote may use: the privacy proofs assume that nobody can predict the noise, and
the output of a statistical generator can be predicted from a few of its values. `SimulationNoise` repeats itself from
a seed and is marked, so that whoever writes to a ledger can refuse it.
"""

import os
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from training.pate.validation import require_positive

Shape = int | tuple[int, ...]


class Noise(Protocol):
    """A source of independent, centred noise; `is_simulation` is True if it can be repeated."""

    is_simulation: ClassVar[bool]

    def normal(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        """Gaussian noise of standard deviation `scale`."""
        ...

    def laplace(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        """Laplace noise of density exp(-|x| / scale) / (2 scale)."""
        ...


class SystemNoise:
    """Noise from the operating system's cryptographic generator, by the inverse of the distribution function.

    Each draw takes 64 random bits: one for the sign, 53 for a point in the middle of a cell of (0, 1/2), where doubles
    are fine enough for the far tail. The low bits of such a draw can be told from those of ideal noise (Mironov 2012,
    "On significance of the least significant bits for differential privacy"); a vote releases an arg-max or one side
    of a threshold, never the noisy number, so they are not seen.

    >>> SystemNoise().normal(40.0, (2, 3)).shape
    (2, 3)
    """

    is_simulation: ClassVar[bool] = False

    def normal(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        tail, sign = _tail_and_sign(shape)
        return require_positive("scale", scale) * sign * ndtri(tail)

    def laplace(self, scale: float, shape: Shape) -> NDArray[np.float64]:
        tail, sign = _tail_and_sign(shape)
        return require_positive("scale", scale) * sign * np.log(2.0 * tail)


class SimulationNoise:
    """Noise that a seed repeats, for benchmarks and tests.

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


def _tail_and_sign(shape: Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A tail probability in (0, 1/2) and a sign, both uniform and independent."""
    bits = np.frombuffer(os.urandom(8 * int(np.prod(shape))), dtype=np.uint64).reshape(shape)
    tail = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-54
    sign = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    return tail, sign
