"""Conversions of Gaussian differential privacy, against high precision and published values."""

import mpmath
import numpy as np
import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian
from scipy import stats

from accounting.privacy import gdp_delta, gdp_epsilon, gdp_mu, guess_odds, record_guess_odds

EPSILONS = [0.1, 0.25, 0.5, 1, 2, 3, 5, 8]


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """The definition, with a hundred digits and more."""
    m, e = mpmath.mpf(float(mu)), mpmath.mpf(float(epsilon))
    return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def test_the_published_table() -> None:
    at_5 = [0.03252, 0.07527, 0.14221, 0.26805, 0.50155, 0.71912, 1.12124, 1.66603]
    at_6 = [0.02754, 0.06489, 0.12411, 0.23670, 0.44833, 0.64773, 1.02036, 1.53155]
    np.testing.assert_allclose(gdp_mu(np.array(EPSILONS)[:, None], [1e-5, 1e-6]), np.array([at_5, at_6]).T, atol=5.1e-6)
    odds = guess_odds(gdp_mu(EPSILONS, 1e-5))
    assert np.ceil(100 * odds).tolist() == [51, 52, 53, 56, 60, 65, 72, 80]


@pytest.mark.parametrize("delta", [1e-100, 1e-12, 1e-9, 1e-6, 1e-5, 1e-3, 0.1, 0.49, 0.9])
def test_every_direction_of_rounding_is_safe_and_little_is_lost(delta: float) -> None:
    with mpmath.workdps(130):
        for epsilon in [0, 1e-8, 1e-4, 1e-2, 0.1, 1, 3, 8, 50, 200]:
            mu = gdp_mu(epsilon, delta)
            delta_of_mu = exact_delta(mu, epsilon)
            assert delta * (1 - 2e-10) <= delta_of_mu <= delta
            assert gdp_delta(mu, epsilon) <= delta
            assert gdp_delta(mu, epsilon) == pytest.approx(float(delta_of_mu), rel=1e-12, abs=0)
            back = gdp_epsilon(mu, delta)
            assert back <= epsilon
            assert gdp_epsilon(np.sqrt(mu**2), delta) <= epsilon  # as an account keeps it
            delta_of_epsilon = exact_delta(mu, back)
            assert delta_of_epsilon <= delta
            if back > 0:
                assert delta_of_epsilon >= delta * (1 - 2e-10)
            if delta < 0.5:
                assert back >= epsilon - 1e-9 * (1 + epsilon)


@pytest.mark.parametrize("mu", [1e-9, 1e-4, 0.3, 0.5, 0.50001, 2.0, 30.0, 200.0])
def test_delta_is_the_definition_over_its_whole_range(mu: float) -> None:
    with mpmath.workdps(130):
        for epsilon in [
            0.0,
            mu * mu / 2,
            mu * mu / 2 - mu if mu > 2 else mu,
            mu * mu / 2 + 6 * mu,
            mu * mu / 2 + 15 * mu,
        ]:
            assert gdp_delta(mu, epsilon) == pytest.approx(float(exact_delta(mu, epsilon)), rel=1e-12, abs=0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_it_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    assert gdp_mu(epsilon, delta) == pytest.approx(1 / get_sigma_gaussian(epsilon, delta), rel=1e-8)
    assert gdp_epsilon(0.7, delta) == pytest.approx(get_epsilon_gaussian(1 / 0.7, delta), rel=1e-8)


def test_nothing_released_and_nothing_promised() -> None:
    assert gdp_delta(0.0, [0.0, 1.0]).tolist() == [0, 0]
    assert gdp_epsilon(0.0, 1e-5) == 0
    assert gdp_epsilon(1e-6, 1e-5) == 0  # (0, 1e-5)-DP without any ε
    assert gdp_mu(0.0, 1e-3) == pytest.approx(2 * stats.norm.ppf(0.5005), rel=1e-9)
    assert guess_odds(0.0) == record_guess_odds(0.0) == 0.5


def test_shapes_broadcast_and_a_number_gives_a_number() -> None:
    assert gdp_mu(np.ones((4, 1)), [1e-5, 1e-6]).shape == (4, 2)
    assert gdp_epsilon([0.1, 0.2, 0.3], 1e-5).shape == (3,)
    assert gdp_delta(np.ones((0, 2)), 1.0).shape == (0, 2)
    assert gdp_mu(np.ones(0), 1e-5).shape == (0,)
    assert isinstance(gdp_mu(1.0, 1e-5), float)
    assert isinstance(gdp_delta(1.0, 1.0), float)
    assert isinstance(guess_odds(1.0), float)


def test_a_million_holders_with_few_promises_are_as_good_as_each_alone() -> None:
    epsilons = np.random.default_rng(1).choice([0.1, 1.0, 3.0], 1_000_000)
    mus = gdp_mu(epsilons, 1e-5)
    assert set(mus[epsilons == 1.0]) == {gdp_mu(1.0, 1e-5)}


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_odds_are_those_of_the_best_guess_between_two_gaussians(mu: float) -> None:
    """A threshold at the middle: for participation the means are μ apart, for two records of a participant 2μ."""
    assert guess_odds(mu) == pytest.approx((stats.norm.cdf(mu / 2) + stats.norm.sf(mu / 2, loc=mu)) / 2)
    assert record_guess_odds(mu) == pytest.approx(stats.norm.sf(0, loc=mu))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gdp_mu(-0.1, 1e-5), "epsilon"),
        (lambda: gdp_mu(np.inf, 1e-5), "epsilon"),
        (lambda: gdp_mu([1.0, np.nan], 1e-5), "epsilon"),
        (lambda: gdp_mu(1.0, 0.0), "delta"),
        (lambda: gdp_mu(1.0, 1.0), "delta"),
        (lambda: gdp_mu(1.0, np.nan), "delta"),
        (lambda: gdp_epsilon(-1.0, 1e-5), "mu"),
        (lambda: gdp_epsilon(np.nan, 1e-5), "mu"),
        (lambda: gdp_delta(np.inf, 1.0), "mu"),
        (lambda: gdp_delta(1.0, -1.0), "epsilon"),
        (lambda: guess_odds(-1.0), "mu"),
        (lambda: record_guess_odds(np.nan), "mu"),
        (lambda: gdp_mu([1.0, 2.0], [1e-5, 1e-6, 1e-7]), "broadcast"),
    ],
)
def test_bad_input_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
