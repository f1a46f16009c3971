"""Conversions between ε and μ²: the caps of promises, the ε of a charge, and the slacks of sampled runs.

A slack is the δ′ of a sampled run. It does not depend on holders, so it is public, and the register stores it. Does not
import Django.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from accounting.privacy import SMALLEST_DELTA, available_delta, gdp_epsilon, promise_caps
from common.noise import JOINT_NORMAL_DISTANCE

#: Upper bound on the noisy numbers that a study can ever draw. Drawing a million takes 0.08 s on one core, so this many
#: would take 2,500 years. δ is reduced by the sampler's distance for each of them (condition 10 in
#: docs/gaussian-accounts.md).
DRAWS = 10**18

#: Maximum number of runs with a slack (a δ′ in addition to μ²) per study, and the ratio of the study's δ to each slack.
SLACKS = 10
_PARTS = 1000


def slack_of(delta: float) -> float:
    """Return the δ′ of one sampled run: a thousandth of the study's δ, or 0 if too little δ would remain for promises.

    :data:`SLACKS` slacks are subtracted from δ before any cap is computed, even if no such run takes place, because a
    cap must not depend on later decisions about runs.

    Args:
        delta: δ of the study.

    >>> slack_of(1e-5)
    1e-08
    """
    part = delta / _PARTS
    return part if delta - SLACKS * part >= 2 * SMALLEST_DELTA else 0.0


def caps_of(epsilons: ArrayLike, delta: float) -> np.ndarray:
    """Return the caps of accounts for promises, after deducting the δ reserved for the noise sampler and sampled runs.

    Args:
        epsilons: ε of each promise, any shape.
        delta: δ of the study.

    Returns:
        μ², in the same shape.

    >>> caps_of([1.0, 2.0], 1e-5).round(4)
    array([0.0718, 0.2513])
    """
    return promise_caps(epsilons, lambda epsilon: _left(delta, epsilon))


@lru_cache(maxsize=4096)  # pages that show a run request the same values repeatedly
def epsilon_of(charge: float, delta: float) -> float:
    """Return the ε of an account with this charge in μ² at a study's δ, including sampled runs; 0 for no charge.

    >>> epsilon_of(float(caps_of(2.0, 1e-5)), 1e-5)
    1.99999...
    """
    if not charge:
        return 0.0
    epsilon = 0.0
    for _ in range(3):  # the remaining δ decreases slightly with ε
        epsilon = float(gdp_epsilon(math.sqrt(charge), _left(delta, epsilon)))
    return epsilon


def _left(delta: float, epsilon: float) -> float:
    slacks = [slack_of(delta)] * SLACKS
    return available_delta(delta, epsilon, draws=DRAWS, distance=JOINT_NORMAL_DISTANCE, slacks=slacks)
