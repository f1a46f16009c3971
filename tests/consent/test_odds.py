"""Tests of the odds."""

import itertools
import math

import mpmath
import pytest

from accounting.caps import caps_of
from common.gaussian_dp import gdp_mu
from consent.promises.odds import mu_of, right_guesses_at, right_guesses_in_100, right_record_guesses_at, times_as_much


def in_100(probability: mpmath.mpf) -> int:
    return int(mpmath.ceil(100 * probability))


def exact_mu(epsilon: float, delta: float) -> mpmath.mpf:
    """Find the root of δ(μ) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2), which grows with μ, by bisection with 60 digits."""
    epsilon, low, high = mpmath.mpf(epsilon), mpmath.mpf("1e-12"), mpmath.mpf(1000)
    for _ in range(200):
        mu = (low + high) / 2
        found = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
        low, high = (mu, high) if found < delta else (low, mu)
    return low


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-5, 1e-2])
@pytest.mark.parametrize("epsilon", [0, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 60])
def test_are_those_of_the_gaussian_mechanism_with_this_epsilon_and_delta(epsilon: float, delta: float) -> None:
    with mpmath.workdps(60):
        mu = exact_mu(epsilon, delta)
        assert right_guesses_in_100(epsilon, delta) == in_100(mpmath.ncdf(mu / 2))
        assert right_record_guesses_at(float(gdp_mu(epsilon, delta))) == in_100(mpmath.ncdf(mu))


def test_compare_what_may_be_learned_by_the_caps_of_the_accounts() -> None:
    for epsilon, delta in itertools.product((0.5, 2, 8), (1e-9, 1e-5, 1e-2)):
        ratio = float(caps_of(epsilon, delta) / caps_of(0.5, delta))
        assert ratio <= times_as_much(mu_of(epsilon, delta), mu_of(0.5, delta)) < ratio + 1
    assert right_guesses_at(0.0) == right_record_guesses_at(0.0) == 50
    assert (right_guesses_at(4.65), right_guesses_at(4.66), right_guesses_at(50)) == (99, 100, 100)


def test_refuse_invalid_epsilon_and_delta() -> None:
    for epsilon in (-1, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon must be finite"):
            right_guesses_in_100(epsilon, 1e-5)
    for delta in (0, 1, math.nan):
        with pytest.raises(ValueError, match="delta must lie between"):
            right_guesses_in_100(1, delta)
