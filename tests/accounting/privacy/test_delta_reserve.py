"""Reserve of δ."""

import math

import pytest
from scipy import stats

from accounting.privacy import available_delta, gdp_mu


def test_it_is_the_formula() -> None:
    left = available_delta(1e-5, 2.0, draws=1000, distance=1e-12, slacks=[1e-7, 3e-7])
    assert left == pytest.approx(1e-5 - (1 + math.exp(2)) * 1e-9 - 4e-7)
    assert available_delta(1e-5, 1.0) == 1e-5
    assert available_delta(1e-5, 1.0, draws=10**12, distance=2.0**-256) == 1e-5


def test_noise_that_is_off_by_the_distance_still_keeps_the_promise() -> None:
    """The worst noise within τ of the ideal, for the worst event: {x > t} loses τ without the holder, gains τ with."""
    epsilon, delta, distance = 1.0, 1e-3, 5e-5
    mu = gdp_mu(epsilon, available_delta(delta, epsilon, draws=1, distance=distance))
    worst = epsilon / mu + mu / 2
    with_holder, without = stats.norm.sf(worst, loc=mu) + distance, stats.norm.sf(worst) - distance
    assert with_holder == pytest.approx(math.exp(epsilon) * without + delta, rel=1e-8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 5e-10}, "left"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"draws": -1}, "draws"),
        ({"draws": 1.5}, "draws"),
        ({"distance": -1e-9}, "distance"),
        ({"distance": math.nan}, "distance"),
        ({"slacks": [1e-7, -1e-9]}, "slacks"),
        ({"slacks": [0.5]}, "left"),
        ({"draws": 10**9, "distance": 1e-14}, "release fewer numbers"),
    ],
)
def test_bad_input_and_too_little_left_are_refused(wrong: dict, message: str) -> None:
    right = {"delta": 1e-5, "epsilon": 1.0, "draws": 10, "distance": 0.0, "slacks": []}
    with pytest.raises(ValueError, match=message):
        available_delta(**(right | wrong))
