"""Kernels: how much a record counts, a public function of its distance, in whole numbers."""

import numpy as np
from numpy.typing import NDArray

UNIT = 2**16
"""Contributions are whole multiples of 1 / UNIT, so that sums are exact in any order."""

KERNELS = ("uniform", "epanechnikov")


def kernel_weights(
    kernel: str, squared_distances: NDArray[np.int64], squared_radii: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The weight of each pair, 0 … `UNIT`.

    "uniform": everyone within the radius counts in full. "epanechnikov": 1 - (distance / radius)², so that who is near
    counts most and somebody at the rim hardly at all; what a contribution costs shrinks with its square.

    Args:
        kernel: One of `KERNELS`.
        squared_distances, squared_radii: `(pairs,)`, distances at most the radii.

    >>> kernel_weights("epanechnikov", np.array([0, 25, 100]), np.array([100, 100, 100])) / UNIT
    array([1.  , 0.75, 0.  ])
    """
    if kernel == "uniform":
        return np.full(len(squared_distances), UNIT)
    if kernel == "epanechnikov":
        return UNIT - (squared_distances * UNIT + squared_radii - 1) // np.maximum(squared_radii, 1)
    raise ValueError(f"There is no kernel {kernel!r}: choose one of {', '.join(KERNELS)}.")
