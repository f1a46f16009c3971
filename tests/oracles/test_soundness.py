"""Over thousands of random vote counts: bounds bound, exact costs are exact, and order is kept."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from accounting.privacy import gnmax_rdp, lnmax_rdp, threshold_rdp
from accounting.privacy.checks import METHODS, Method
from tests.oracles.noisy_argmax import LAPLACE, NORMAL, PlainNoise, displacements, renyi, win_probabilities

pytestmark = pytest.mark.slow

ORDERS = np.array([1.05, 1.5, 3.0, 8.0, 25.0, 64.0])
ROUNDING = 1e-12  # what the definition of a divergence loses to the 1 in its moment
PLAIN_SUMS = 1e-6  # relative error of the plain computation


def votes_batches(most_teachers: int, size: int) -> st.SearchStrategy[np.ndarray]:
    """Counts of one number of teachers, from near agreement to an even split."""
    return st.builds(
        random_votes,
        seed=st.integers(0, 2**30),
        classes=st.integers(2, 4),
        teachers=st.integers(3, most_teachers),
        concentration=st.sampled_from([0.05, 0.3, 1.0, 20.0]),
        size=st.just(size),
    )


def random_votes(seed: int, classes: int, teachers: int, concentration: float, size: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(classes, concentration), size=size)
    return generator.multinomial(teachers, shares).astype(float)


def assert_sound(costs: Mapping[Method, np.ndarray], forward: np.ndarray, reverse: np.ndarray) -> None:
    truth = np.maximum(forward, reverse)
    assert (costs["data_dependent"] >= forward * (1 - PLAIN_SUMS) - ROUNDING).all()
    assert (costs["data_dependent"] <= costs["data_independent"]).all()
    assert (costs["exact"] <= costs["data_independent"]).all()
    assert (costs["exact"] >= truth * (1 - PLAIN_SUMS) - ROUNDING).all()
    assert (costs["exact"] <= truth * 1.01 + ROUNDING).all()


spread = st.floats(0.04, 1.0)  # noise, as a share of the teachers
weights = st.floats(0.2, 2.0)
slow = settings(derandomize=True, deadline=None, max_examples=12)
quick = settings(derandomize=True, deadline=None, max_examples=20)


def both_directions(votes: np.ndarray, noise: PlainNoise, scale: float, weight: float) -> tuple[np.ndarray, np.ndarray]:
    """Forward and reverse divergence, largest over every move from a class that holds the weight; (queries, R)."""
    p = win_probabilities(votes, noise, scale)
    forward, reverse = np.zeros((2, len(votes), ORDERS.size))
    for change in displacements(votes.shape[1]):
        moved = votes + weight * np.array(change)
        possible = (moved >= 0).all(axis=1)
        q = win_probabilities(moved, noise, scale)
        forward[possible] = np.maximum(forward, renyi(p, q, ORDERS))[possible]
        reverse[possible] = np.maximum(reverse, renyi(q, p, ORDERS))[possible]
    return forward, reverse


@slow
@given(votes_batches(250, 40), spread, weights)
def test_gnmax_costs_are_sound(votes: np.ndarray, share: float, weight: float) -> None:
    sigma = max(share * votes[0].sum(), weight)
    forward, reverse = both_directions(votes, NORMAL, sigma, weight)
    costs = {method: gnmax_rdp(votes, sigma, sensitivity=weight, orders=ORDERS, method=method) for method in METHODS}
    assert_sound(costs, forward, reverse)


@slow
@given(votes_batches(60, 10), st.floats(2, 8), st.sampled_from([0.5, 1.0, 1.5, 2.0]))
def test_lnmax_costs_are_sound(votes: np.ndarray, scale: float, weight: float) -> None:
    forward, reverse = both_directions(votes, LAPLACE, scale, weight)
    costs = {
        method: lnmax_rdp(votes, 1 / scale, sensitivity=weight, orders=ORDERS, method=method) for method in METHODS
    }
    assert_sound(costs, forward, reverse)


@quick
@given(votes_batches(250, 40), spread, weights, st.floats(-0.5, 1.5))
def test_threshold_costs_are_sound(votes: np.ndarray, share: float, weight: float, height: float) -> None:
    teachers = votes[0].sum()
    sigma, threshold = max(share * teachers, weight), height * teachers
    top = votes.max(axis=1)
    # Towards the less likely outcome, tails keep their digits: Pr[below] and Pr[at least] separately.
    p, up, down = (
        np.stack([stats.norm.cdf((threshold - m) / sigma), stats.norm.sf((threshold - m) / sigma)], axis=1)
        for m in (top, top + weight, top - weight)
    )
    costs = {
        method: threshold_rdp(votes, threshold, sigma, sensitivity=weight, orders=ORDERS, method=method)
        for method in METHODS
    }
    forward = np.maximum(renyi(p, up, ORDERS), renyi(p, down, ORDERS))
    reverse = np.maximum(renyi(up, p, ORDERS), renyi(down, p, ORDERS))
    assert_sound(costs, forward, reverse)
