"""Costs of votes against quadrature with thirty digits, brute force, and thousands of random vote counts."""

from collections.abc import Mapping, Sequence

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from accounting.privacy import gnmax_rdp, lnmax_rdp, threshold_rdp
from accounting.privacy.checks import METHODS, Method
from accounting.privacy.papers.argmax import ArgmaxNoise, GaussianNoise, LaplaceNoise
from tests.oracles.noisy_argmax import LAPLACE, NORMAL, displacements, divergences, precise_win_probabilities, renyi


@pytest.mark.parametrize("votes", [[30.0, 28.5, 0.0], [120.0, 9.0, 8.0, 7.0, 6.0, 5.0, 0.0]])
@pytest.mark.parametrize(("noise", "laplace"), [(GaussianNoise(12.0), False), (LaplaceNoise(9.0), True)])
def test_quadrature_keeps_its_error_bound_in_the_tails(votes: list[float], noise: ArgmaxNoise, laplace: bool) -> None:
    counts = np.array([votes])
    rule = noise.quadrature(counts, 1.0)
    offset = rule.nodes[:, None, :] - counts[:, :, None]
    log_cdf = noise.log_cdf(offset)
    integrand = log_cdf.sum(axis=1, keepdims=True) - log_cdf + noise.log_pdf(offset) + rule.log_weights[:, None, :]
    with mpmath.workdps(30):
        truth = precise_win_probabilities(votes, noise.scale, laplace)
    np.testing.assert_allclose(np.exp(integrand).sum(axis=2)[0], np.array(truth, dtype=float), rtol=1e-11)


def precise_divergence(p: Sequence[mpmath.mpf], q: Sequence[mpmath.mpf], order: float) -> mpmath.mpf:
    """Return the larger of both directions of the Rényi divergence, by its definition."""
    pairs = [list(zip(*each, strict=True)) for each in ((p, q), (q, p))]
    return max(mpmath.log(mpmath.fsum(a**order * b ** (1 - order) for a, b in pair)) for pair in pairs) / (order - 1)


@pytest.mark.parametrize("laplace", [False, True], ids=["gnmax", "lnmax"])
@pytest.mark.parametrize(
    ("votes", "scale", "weight", "order"),
    [
        ([40.0, 35.0, 25.0], 10.0, 1.0, 8.0),
        ([33.0, 33.0, 33.0], 20.0, 1.7, 1.02),
        ([12.5, 7.25, 3.0], 4.0, 0.5, 300.0),
        ([20.0, 9.0, 1.0], 3.0, 3.0, 2.5),
        ([60.0, 50.0], 10.0, 1.0, 16384.0),
    ],
    ids=["even", "tie, low order", "high order", "heavy vote", "largest order"],
)
def test_a_label_costs_the_largest_divergence(votes, scale, weight, order, laplace) -> None:
    """Both directions, with thirty digits, over every move from a class that can hold the weight."""
    with mpmath.workdps(30):
        moves = displacements(len(votes)) - {(0,) * len(votes)}
        moved = [[a + weight * b for a, b in zip(votes, move, strict=True)] for move in moves]
        p, *others = (
            precise_win_probabilities(each, scale, laplace, weight)
            for each in [votes, *(each for each in moved if min(each) >= 0)]
        )
        truth = float(max(precise_divergence(p, q, order) for q in others))
    cost, noise = (lnmax_rdp, 1 / scale) if laplace else (gnmax_rdp, scale)
    assert truth <= cost([votes], noise, sensitivity=weight, orders=[order], method="exact")[0, 0] <= truth * 1.0001


@pytest.mark.parametrize("margin", [0.0, 60.0, 300.0])
def test_threshold_is_the_largest_divergence_of_two_normal_tails(margin: float) -> None:
    sigma, weight, order = 30.0, 1.5, 12.0
    with mpmath.workdps(40):
        below, at, above = (mpmath.ncdf((mpmath.mpf(margin) + change) / 30) for change in (-1.5, 0, 1.5))
        truth = float(max(precise_divergence((at, 1 - at), (q, 1 - q), order) for q in (below, above)))
    votes = [[200 + margin, 200 - 2 * margin]]
    cost = threshold_rdp(votes, 200, sigma, sensitivity=weight, orders=[order], method="exact")[0, 0]
    assert truth <= cost <= truth * 1.0001


@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0])
def test_the_cost_never_exceeds_the_data_independent_one(scale: float) -> None:
    """Not even for noise too small to compute with, or for a label that is certain."""
    for votes in ([[250.0, 0.0], [130.0, 120.0]], [[250.0, 0.0, 0.0], [130.0, 119.0, 1.0]]):
        for cost, noise in ((gnmax_rdp, scale), (lnmax_rdp, 1 / scale)):
            exact, bound = cost(votes, noise, method="exact"), cost(votes, noise)
            assert ((exact >= 0) & (exact <= bound)).all()
            assert (np.diff(exact, axis=1) >= -1e-9 * exact[:, 1:]).all()
    certain = gnmax_rdp([[250.0, 0.0, 0.0]], 5.0, orders=[2.0, 64.0, 16384.0], method="exact")
    assert ((certain >= 0) & np.isfinite(certain)).all() and (certain[:, 0] < 1e-100).all()


@pytest.mark.parametrize("votes", [[45.0, 8.0, 7.0], [22.0, 22.0, 21.0]])
@pytest.mark.parametrize("factor", [2, 3])
def test_duplicated_holders_are_covered_wherever_their_votes_go(votes: list[float], factor: int) -> None:
    orders = np.array([1.5, 4.0, 20.0])
    truth = np.maximum(*divergences(np.array([votes]), NORMAL, 12.0, 1.0, orders, moves=factor))[0]
    cost = gnmax_rdp([votes], 12.0, sensitivity=factor, orders=orders, method="exact", teachers_per_holder=factor)[0]
    assert (truth <= cost * (1 + 1e-6)).all()
    assert (cost <= gnmax_rdp([votes], 12.0, sensitivity=factor, orders=orders)[0]).all()
    assert (cost <= truth * orders / (orders - 1) * 1.1).all()  # what the proof costs, to leading order


@pytest.mark.parametrize("threshold", [20.0, 40.0])
def test_group_votes_limit_where_a_vote_can_leave(threshold: float) -> None:
    """The neighbours, and nothing else, against a plain enumeration of both mechanisms."""
    votes = np.array([30.0, 24.0, 6.0])
    orders = np.array([2.0, 9.0])
    for mask in ([1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]):
        may_leave = np.array(mask, dtype=bool)
        forward, reverse = divergences(votes[None], NORMAL, 9.0, 1.0, orders, may_leave)
        group = 3 * np.array([mask])
        cost = gnmax_rdp(votes[None], 9.0, orders=orders, method="exact", group_votes=group)[0]
        np.testing.assert_allclose(cost, np.maximum(forward, reverse)[0], rtol=1e-5)
        maxima = [votes.max()] + [
            (votes + np.eye(3)[target] - np.eye(3)[source]).max()
            for source in np.flatnonzero(may_leave)
            for target in range(3)
            if target != source
        ]
        p = stats.norm.sf((threshold - np.array(maxima)) / 9)
        table = np.stack([p, 1 - p], axis=1)
        truth = np.zeros(2)
        for column, order in enumerate(orders):
            for q in table[1:]:
                for a, b in ((table[0], q), (q, table[0])):
                    truth[column] = max(truth[column], np.log((a**order * b ** (1 - order)).sum()) / (order - 1))
        check = threshold_rdp(votes[None], threshold, 9.0, orders=orders, method="exact", group_votes=group)[0]
        np.testing.assert_allclose(check, truth, rtol=1e-6, atol=1e-15)


# --- Random vote counts: bounds bound, and exact costs are exact ------------------------------------------------------

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


@slow
@given(votes_batches(250, 40), spread, weights)
def test_gnmax_costs_are_sound(votes: np.ndarray, share: float, weight: float) -> None:
    sigma = max(share * votes[0].sum(), weight)
    forward, reverse = divergences(votes, NORMAL, sigma, weight, ORDERS)
    costs = {method: gnmax_rdp(votes, sigma, sensitivity=weight, orders=ORDERS, method=method) for method in METHODS}
    assert_sound(costs, forward, reverse)


@slow
@given(votes_batches(60, 10), st.floats(2, 8), st.sampled_from([0.5, 1.0, 1.5, 2.0]))
def test_lnmax_costs_are_sound(votes: np.ndarray, scale: float, weight: float) -> None:
    forward, reverse = divergences(votes, LAPLACE, scale, weight, ORDERS)
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
