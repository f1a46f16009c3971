"""The μ² that a promise allows: the cap of an account. And its inverse, the ε that a charge is worth."""

import math

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy import SMALLEST_DELTA, available_delta, gdp_epsilon, gdp_mu
from common.noise import JOINT_NORMAL_DISTANCE

#: More noisy numbers than a study can ever draw; their sampler's distance is taken out of δ (condition 10). A million
#: take 0.08 s of a core, so many 2,500 years.
DRAWS = 10**18

#: How many runs of a study may have a slack, a δ′ beside their μ²; and which part of the study's δ each of them has.
SLACKS = 10
_PARTS = 1000


def slack_of(delta: float) -> float:
    """The δ′ of one sampled run: a thousandth of the study's δ; 0 where a promise would be left with too little.

    :data:`SLACKS` of them are taken out of δ before any cap is computed, whether there will be such runs or not: a cap
    must not depend on what runs a study decides on later.

    Args:
        delta: δ of the study.

    >>> slack_of(1e-5)
    1e-08
    """
    part = delta / _PARTS
    return part if delta - SLACKS * part >= 2 * SMALLEST_DELTA else 0.0


def caps_of(epsilons: ArrayLike, delta: float) -> np.ndarray:
    """Caps of accounts: μ² of promises at a study's δ, less what the noise's sampler and sampled runs take from δ.

    Args:
        epsilons: ε of each promise, any shape.
        delta: δ of the study.

    Returns:
        μ², in the same shape.

    >>> caps_of([1.0, 2.0], 1e-5).round(4)
    array([0.0718, 0.2513])
    """
    array = np.asarray(epsilons, dtype=np.float64)
    distinct, place = np.unique(array, return_inverse=True)
    left = [_left(delta, float(each)) for each in distinct]
    # Each by itself: in an array the last bit of one would depend on which others are there, and so would, by the caps
    # of everybody else, whether the only holder with some promise takes part.
    squares = np.array([float(gdp_mu(each, own)) ** 2 for each, own in zip(distinct.tolist(), left, strict=True)])
    return squares[place].reshape(array.shape)


def epsilon_of(charge: float, delta: float) -> float:
    """ε at a study's δ of an account that was charged this, in μ², sampled runs included: 0 of one charged nothing.

    >>> epsilon_of(float(caps_of(2.0, 1e-5)), 1e-5)
    1.99999...
    """
    if not charge:
        return 0.0
    epsilon = 0.0
    for _ in range(3):  # what is left of δ falls with ε, hardly
        epsilon = float(gdp_epsilon(math.sqrt(charge), _left(delta, epsilon)))
    return epsilon


def _left(delta: float, epsilon: float) -> float:
    slacks = [slack_of(delta)] * SLACKS
    return available_delta(delta, epsilon, draws=DRAWS, distance=JOINT_NORMAL_DISTANCE, slacks=slacks)
