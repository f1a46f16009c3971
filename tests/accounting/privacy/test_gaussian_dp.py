"""Gaussian differential privacy: conversions, the reserve of δ, and the cost of releases in μ²."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import product

import mpmath
import numpy as np
import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian
from scipy import stats

from accounting.privacy import (
    available_delta,
    check_charge,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    guess_odds,
    label_charge,
    lnmax_charge,
    pure_dp_mu,
    record_guess_odds,
    residual_vote_charge,
)

EPSILONS = [0.1, 0.25, 0.5, 1, 2, 3, 5, 8]
PUBLISHED = {  # by δ, μ of these ε: the guarantee, section 2
    1e-5: [0.03252, 0.07527, 0.14221, 0.26805, 0.50155, 0.71912, 1.12124, 1.66603],
    1e-6: [0.02754, 0.06489, 0.12411, 0.23670, 0.44833, 0.64773, 1.02036, 1.53155],
}
CLASSES = 3
NO_VOTE = -1


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Return δ by its definition, with mpmath's current number of digits."""
    m, e = mpmath.mpf(float(mu)), mpmath.mpf(float(epsilon))
    return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def test_the_published_table() -> None:
    for delta, mu in PUBLISHED.items():
        np.testing.assert_allclose(gdp_mu(EPSILONS, delta), mu, atol=5.1e-6)
    odds = guess_odds(gdp_mu(EPSILONS, 1e-5))
    assert np.ceil(100 * odds).tolist() == [51, 52, 53, 56, 60, 65, 72, 80]


@pytest.mark.parametrize("delta", [1e-100, 1e-9, 1e-5, 0.1, 0.49, 0.9])
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
            assert gdp_epsilon(np.sqrt(mu**2), delta) <= epsilon  # as an account stores it
            delta_of_epsilon = exact_delta(mu, back)
            assert delta_of_epsilon <= delta
            if back > 0:
                assert delta_of_epsilon >= delta * (1 - 2e-10)
            if delta < 0.5:
                assert back >= epsilon - 1e-9 * (1 + epsilon)


@pytest.mark.parametrize("mu", [1e-9, 0.3, 0.5, 0.50001, 2.0, 200.0])
def test_delta_is_the_definition_over_its_whole_range(mu: float) -> None:
    middle = mu * mu / 2
    with mpmath.workdps(130):
        for epsilon in [0.0, middle, middle - mu if mu > 2 else mu, middle + 6 * mu, middle + 15 * mu]:
            assert gdp_delta(mu, epsilon) == pytest.approx(float(exact_delta(mu, epsilon)), rel=1e-12, abs=0)


def test_conversions_agree_with_dp_accounting() -> None:
    for epsilon, delta in ((0.1, 1e-5), (8.0, 1e-9)):
        assert gdp_mu(epsilon, delta) == pytest.approx(1 / get_sigma_gaussian(epsilon, delta), rel=1e-8)
        assert gdp_epsilon(0.7, delta) == pytest.approx(get_epsilon_gaussian(1 / 0.7, delta), rel=1e-8)


def test_nothing_released_and_nothing_promised() -> None:
    assert gdp_delta(0.0, [0.0, 1.0]).tolist() == [0, 0]
    assert gdp_epsilon(0.0, 1e-5) == 0
    assert gdp_epsilon(1e-6, 1e-5) == 0  # (0, 1e-5)-DP for any ε
    assert gdp_mu(0.0, 1e-3) == pytest.approx(2 * stats.norm.ppf(0.5005), rel=1e-9)
    assert guess_odds(0.0) == record_guess_odds(0.0) == 0.5
    assert pure_dp_mu(0.0) == 0


def test_shapes_broadcast_and_a_number_gives_a_number() -> None:
    assert gdp_mu(np.ones((4, 1)), [1e-5, 1e-6]).shape == (4, 2)
    assert gdp_epsilon([0.1, 0.2, 0.3], 1e-5).shape == (3,)
    assert gdp_delta(np.ones((0, 2)), 1.0).shape == (0, 2)
    assert pure_dp_mu(np.ones((2, 3))).shape == (2, 3)
    assert all(isinstance(each, float) for each in (gdp_mu(1.0, 1e-5), gdp_delta(1.0, 1.0), guess_odds(1.0)))
    mus = gdp_mu(np.random.default_rng(1).choice([0.1, 1.0, 3.0], 10_000), 1e-5)
    assert set(mus) == {gdp_mu(each, 1e-5) for each in (0.1, 1.0, 3.0)}, "the same as one at a time"


@pytest.mark.parametrize("mu", [0.05, 2.0])
def test_odds_are_those_of_the_best_guess_between_two_gaussians(mu: float) -> None:
    """The threshold is in the middle; means are μ apart for participation, and 2μ for a participant's two records."""
    assert guess_odds(mu) == pytest.approx((stats.norm.cdf(mu / 2) + stats.norm.sf(mu / 2, loc=mu)) / 2)
    assert record_guess_odds(mu) == pytest.approx(stats.norm.sf(0, loc=mu))


def test_available_delta_matches_the_formula() -> None:
    left = available_delta(1e-5, 2.0, draws=1000, distance=1e-12, slacks=[1e-7, 3e-7])
    assert left == pytest.approx(1e-5 - (1 + math.exp(2)) * 1e-9 - 4e-7)
    assert available_delta(1e-5, 1.0) == 1e-5
    assert available_delta(1e-5, 1.0, draws=10**12, distance=2.0**-256) == 1e-5


def test_inexact_noise_within_the_distance_keeps_the_promise() -> None:
    """The worst noise within τ of the ideal: the event {x > t} loses τ without the holder, and gains τ with them."""
    epsilon, delta, distance = 1.0, 1e-3, 5e-5
    mu = gdp_mu(epsilon, available_delta(delta, epsilon, draws=1, distance=distance))
    worst = epsilon / mu + mu / 2
    with_holder, without = stats.norm.sf(worst, loc=mu) + distance, stats.norm.sf(worst) - distance
    assert with_holder == pytest.approx(math.exp(epsilon) * without + delta, rel=1e-8)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-12, 1e-4, 0.3, 0.999999, 1.0, 1.000001, 4.0, 50.0, 800.0, 1e5])
def test_pure_dp_is_never_below_the_formula_and_hardly_above(epsilon: float) -> None:
    with mpmath.workdps(60):
        mu = mpmath.mpf(float(pure_dp_mu(epsilon)))
        # μ = 2Φ⁻¹(1 − c) with c = 1/(1 + e^ε): Φ(−μ/2) ≤ c, but only just
        c = 1 / (1 + mpmath.exp(epsilon))
        if epsilon < 1e-9:
            exact = mpmath.sqrt(mpmath.pi / 2) * epsilon
        else:
            start = -stats.norm.ppf(float(c)) * 2 if epsilon < 700 else 2 * mpmath.sqrt(2 * epsilon)
            exact = mpmath.findroot(lambda m: mpmath.log(mpmath.ncdf(-m / 2)) - mpmath.log(c), start)
        assert exact <= mu <= exact * (1 + 3e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 6.0])
def test_no_test_against_pure_dp_beats_the_gaussian(epsilon: float) -> None:
    """The trade-off curve of ε-DP is nowhere below that of μ-GDP, and touches it; with a smaller μ it is below."""
    c = 1 / (1 + np.exp(epsilon))
    alpha = np.unique(np.concatenate([np.geomspace(1e-12, 0.5, 4000), np.linspace(0, 1, 4001), [c]]))
    pure = np.maximum(0, np.maximum(1 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - alpha)))

    def gaussian(mu: float) -> np.ndarray:
        return stats.norm.cdf(stats.norm.isf(alpha) - mu)

    mu = pure_dp_mu(epsilon)
    assert (gaussian(mu) <= pure + 1e-15).all()
    assert pure[alpha == c] - gaussian(mu)[alpha == c] == pytest.approx(0, abs=1e-11)
    assert (gaussian(0.999 * mu) > pure).any()


def neighbouring_counts(weight: float, teachers: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all votes of two other teachers, with all votes of the holder's teachers with and without them."""

    def histogram(votes: tuple[int, ...]) -> np.ndarray:
        return weight * np.bincount([vote for vote in votes if vote != NO_VOTE], minlength=CLASSES)

    answers = range(NO_VOTE, CLASSES)
    for others in product(answers, repeat=2):
        for mine, without in product(product(answers, repeat=teachers), repeat=2):
            yield histogram(others + mine), histogram(others + without)


@pytest.mark.parametrize(("weight", "teachers"), [(2.5, 1), (0.75, 2)])
def test_label_and_check_are_the_largest_movements(weight: float, teachers: int) -> None:
    pairs = list(neighbouring_counts(weight, teachers))
    moved = max(((a - b) ** 2).sum() for a, b in pairs)
    assert label_charge(weight, 3.0, teachers) == pytest.approx(moved / 9)
    maximum = max((a.max() - b.max()) ** 2 for a, b in pairs)
    assert check_charge(weight, 3.0, teachers) == pytest.approx(maximum / 9)
    in_sum = max(np.abs(a - b).sum() for a, b in pairs)
    assert lnmax_charge(weight, 0.1, teachers) == pytest.approx(float(pure_dp_mu(0.1 * in_sum)) ** 2)


@pytest.mark.parametrize("belief", [(1.0, 0.0, 0.0), (0.2, 0.5, 0.3), (0.0, 0.0, 0.0)])
def test_the_check_against_a_student_costs_no_more(belief: tuple[float, ...]) -> None:
    agreement = [
        [(counts - counts.sum() * np.array(belief)).max() for counts in pair] for pair in neighbouring_counts(1.0, 1)
    ]
    assert max((a - b) ** 2 for a, b in agreement) <= check_charge(1.0, 1.0) + 1e-12


@pytest.mark.parametrize("disagreements", [0, 2])
def test_residual_votes_differ_by_no_more_than_was_charged(disagreements: int) -> None:
    """Compare a teacher's answers with and without the holder in one transcript, when disagreements are limited."""
    steps, predicted = 4, 0

    def contributions(answers: tuple[int, ...]) -> np.ndarray:
        left, given = disagreements, np.zeros((steps, CLASSES))
        for step, answer in enumerate(answers):
            if answer != predicted and left:
                given[step, answer] += 1
                given[step, predicted] -= 1
                left -= 1
        return given

    every = np.array([contributions(answers) for answers in product(range(CLASSES), repeat=steps)])
    largest = ((every[:, None] - every[None, :]) ** 2).sum(axis=(2, 3)).max()
    assert residual_vote_charge(1.0, 1.0, disagreements) == largest
    assert residual_vote_charge(1.5, 2.0, disagreements, teachers=3) == pytest.approx(largest * (3 * 1.5 / 2) ** 2)


def left_of(**given: object) -> float:
    return available_delta(**{"delta": 1e-5, "epsilon": 1.0, "draws": 10, "distance": 0.0} | given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(gdp_mu, -0.1, 1e-5), "epsilon"),
        (partial(gdp_mu, [1.0, np.nan], 1e-5), "epsilon"),
        (partial(gdp_mu, 1.0, 1.0), "delta"),
        (partial(gdp_epsilon, np.nan, 1e-5), "mu"),
        (partial(gdp_delta, np.inf, 1.0), "mu"),
        (partial(gdp_delta, 1.0, -1.0), "epsilon"),
        (partial(guess_odds, -1.0), "mu"),
        (partial(record_guess_odds, np.nan), "mu"),
        (partial(gdp_mu, [1.0, 2.0], [1e-5, 1e-6, 1e-7]), "broadcast"),
        (partial(left_of, delta=0.0), "delta"),
        (partial(left_of, delta=5e-10), "left"),
        (partial(left_of, epsilon=-1.0), "epsilon"),
        (partial(left_of, draws=1.5), "draws"),
        (partial(left_of, distance=math.nan), "distance"),
        (partial(left_of, slacks=[1e-7, -1e-9]), "slacks"),
        (partial(left_of, draws=10**9, distance=1e-14), "release fewer numbers"),
        (partial(pure_dp_mu, -1.0), "epsilon"),
        (partial(label_charge, -1.0, 1.0), "sensitivity"),
        (partial(label_charge, 1.0, 0.0), "sigma"),
        (partial(check_charge, 1.0, 1.0, teachers=0), "whole number"),
        (partial(lnmax_charge, 1.0, -0.1), "gamma"),
        (partial(residual_vote_charge, 1.0, 1.0, 1.5), "disagreements"),
    ],
)
def test_bad_input_is_refused(call: partial, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
