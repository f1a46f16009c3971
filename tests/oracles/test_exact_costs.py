"""Exact costs against quadrature with thirty digits and against brute force."""

from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.privacy import gnmax_rdp, lnmax_rdp, threshold_rdp
from accounting.privacy.papers.noise import GaussianNoise, LaplaceNoise, Noise
from tests.oracles.noisy_argmax import NORMAL, displacements, divergences_to_neighbours, precise_win_probabilities

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("votes", [[30.0, 28.5, 0.0], [120.0, 9.0, 8.0, 7.0, 6.0, 5.0, 0.0]])
@pytest.mark.parametrize(("noise", "laplace"), [(GaussianNoise(12.0), False), (LaplaceNoise(9.0), True)])
def test_quadrature_keeps_its_error_bound_in_the_tails(votes: list[float], noise: Noise, laplace: bool) -> None:
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
    ],
    ids=["even", "tie, low order", "high order", "heavy vote"],
)
def test_a_label_costs_the_largest_divergence(
    votes: list[float], scale: float, weight: float, order: float, laplace: bool
) -> None:
    """Both directions, with thirty digits, over every move from a class that can hold the weight."""
    with mpmath.workdps(30):
        moved = [[a + weight * b for a, b in zip(votes, move, strict=True)] for move in displacements(3) if any(move)]
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


def test_large_orders_agree_with_the_definition_in_logarithms() -> None:
    votes, sigma, order = np.array([60.0, 50.0]), 10.0, 16384.0
    log_p = stats.norm.logcdf(np.array([1, -1]) * 10 / np.sqrt(200))
    log_q = stats.norm.logcdf(np.array([1, -1]) * 8 / np.sqrt(200))
    log_r = stats.norm.logcdf(np.array([1, -1]) * 12 / np.sqrt(200))
    truth = max(
        np.logaddexp.reduce(order * first + (1 - order) * second) / (order - 1)
        for first, second in ((log_p, log_q), (log_q, log_p), (log_p, log_r), (log_r, log_p))
    )
    cost = gnmax_rdp(votes[None], sigma, orders=[order], method="exact")[0, 0]
    assert truth <= cost <= truth * (1 + 1e-6)


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
    counts, orders = np.array(votes), np.array([1.5, 4.0, 20.0])
    everywhere = np.ones(3, dtype=bool)
    forward, reverse = divergences_to_neighbours(counts, NORMAL, 12.0, 1.0, orders, everywhere, moves=factor)
    truth = np.maximum(forward, reverse)
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
        forward, reverse = divergences_to_neighbours(votes, NORMAL, 9.0, 1.0, orders, may_leave)
        group = 3 * np.array([mask])
        cost = gnmax_rdp(votes[None], 9.0, orders=orders, method="exact", group_votes=group)[0]
        np.testing.assert_allclose(cost, np.maximum(forward, reverse), rtol=1e-5)
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
