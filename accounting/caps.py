"""The μ² that a promise allows: the cap of an account."""

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy import available_delta, gdp_mu
from common.noise import ROUNDED_NORMAL_DISTANCE

#: How many noisy numbers a study may release in all; their sampler's distance is taken out of δ (condition 10).
DRAWS = 10**9


def caps_of(epsilons: ArrayLike, delta: float) -> np.ndarray:
    """Caps of accounts: μ² of promises at a study's δ, less what the sampler of the noise takes from δ.

    Args:
        epsilons: ε of each promise, any shape.
        delta: δ of the study.

    Returns:
        μ², in the same shape.

    >>> caps_of([1.0, 2.0], 1e-5).round(4)
    array([0.0719, 0.2516])
    """
    array = np.asarray(epsilons, dtype=np.float64)
    distinct, place = np.unique(array, return_inverse=True)
    left = [available_delta(delta, float(each), draws=DRAWS, distance=ROUNDED_NORMAL_DISTANCE) for each in distinct]
    # Each by itself: in an array the last bit of one would depend on which others are there, and so would, by the caps
    # of everybody else, whether the only holder with some promise takes part.
    squares = np.array([float(gdp_mu(each, own)) ** 2 for each, own in zip(distinct.tolist(), left, strict=True)])
    return squares[place].reshape(array.shape)
