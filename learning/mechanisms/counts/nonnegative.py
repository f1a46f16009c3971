"""Counts of at least 0 from noisy ones."""

import numpy as np
from numpy.typing import NDArray


def at_least_zero(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest numbers (B,) of at least 0 with the same total (Duchi et al. 2008, Figure 1)."""
    total = max(float(sums.sum()), 0.0)
    falling = np.sort(sums)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(sums) + 1)
    threshold = excess[np.flatnonzero(falling > excess)[-1]] if (falling > excess).any() else falling[0]
    return np.maximum(sums - threshold, 0.0)
