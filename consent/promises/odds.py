"""Odds: the meaning of an ε for a person, in right guesses out of 100.

Pages, receipts and policies all show these numbers, for two questions: whether a person took part, and which of two
possible sets of records is theirs. The numbers are for the worst case: someone who knows everything else guesses
between two equally likely answers (50:50).
"""

import math
from functools import lru_cache

from common.gaussian_dp import gdp_mu, guess_odds, record_guess_odds
from consent.models import Level

#: Right guesses in 100 by chance.
CHANCE = 50

#: Maximum number of right guesses in 100 for which a level's name is appropriate: odds of 3:2, 2:1 and 3:1.
MOST_RIGHT_GUESSES = {Level.HIGH: 60, Level.AVERAGE: 66, Level.LOW: 75}


def name_overstates(level: str, right_guesses: int) -> bool:
    """Return whether a level's name promises more than its odds deliver.

    See "When a level's name says too much" in the docs.

    >>> name_overstates("AVERAGE", 66), name_overstates("AVERAGE", 67), name_overstates("LOW", 67)
    (False, True, False)
    """
    return right_guesses > MOST_RIGHT_GUESSES[Level(level)]


def right_guesses_in_100(epsilon: float, delta: float) -> int:
    """Return the largest number of right guesses in 100 about whether a person took part.

    ``epsilon`` is stated at ``delta``, the study's δ, and corresponds to the μ of Gaussian differential privacy with
    the same (ε, δ). The odds are Φ(μ/2); see :func:`right_guesses_at`. Raises ValueError unless ε is finite and at
    least 0, and δ between 0 and 1.

    >>> [right_guesses_in_100(epsilon, 1e-5) for epsilon in (0.1, 0.25, 0.5, 1, 2, 3, 5, 8)]
    [51, 52, 53, 56, 60, 65, 72, 80]
    """
    return right_guesses_at(mu_of(epsilon, delta))


@lru_cache(maxsize=1024)  # every page shows the same few promises
def mu_of(epsilon: float, delta: float) -> float:
    """Return the μ of Gaussian differential privacy with the same (ε, δ)."""
    return float(gdp_mu(epsilon, delta))


@lru_cache(maxsize=1024)
def right_guesses_at(mu: float) -> int:
    """Return the largest number of right guesses at a μ: 100 · Φ(μ/2), rounded up so that "at most" is true.

    >>> right_guesses_at(0.0), right_guesses_at(0.26805)
    (50, 56)
    """
    return math.ceil(100 * guess_odds(mu))


@lru_cache(maxsize=1024)
def right_record_guesses_at(mu: float) -> int:
    """Return the largest number of right guesses in 100 about which of two possible records is a participant's.

    This is 100 · Φ(μ), rounded up. Replacing one record with another is one removal and one addition, hence 2μ instead
    of μ.

    >>> [right_record_guesses_at(mu) for mu in (0.0, 0.03252, 0.26805, 0.50155, 0.71912)]
    [50, 52, 61, 70, 77]
    """
    return math.ceil(100 * record_guess_odds(mu))


def times_as_much(mu: float, than_mu: float) -> int:
    """Return the ratio of two promises' caps, rounded up so that "up to" is true.

    A cap is μ². It bounds the total that is ever charged for learning from a person's records.

    >>> times_as_much(0.50155, 0.26805), times_as_much(0.71912, 0.26805)
    (4, 8)
    """
    return math.ceil((mu / than_mu) ** 2)
