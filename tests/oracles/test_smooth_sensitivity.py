"""Smooth sensitivity of data-dependent costs: the authors' tests, high precision, and all neighbours."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from accounting.privacy.papers.votes import data_dependent_rdp
from benchmarks.reproduce.smooth_sensitivity import (
    conditions_hold,
    gnmax_local_sensitivities,
    published_epsilon,
    release_divergence,
    release_rdp,
    smooth_sensitivity,
    threshold_local_sensitivities,
)
from benchmarks.reproduce.tables.pate2018 import ORDERS
from tests.oracles.test_exact_costs import published

# tensorflow/privacy, research/pate_2018/smooth_sensitivity_test.py
FEW = [3.13503646e-17, 1.60178280e-08, 5.90681786e-03] + [5.99981308] * 7
MANY = [0.0] * 298 + [2.77693450548e-7, 2.10853979548e-6] + [2.73113623988e-6] * 1700
HIGH_THRESHOLD = [0.0] * 3 + [
    *(1.48454129e-04, 1.47826870e-02, 3.94153241e-02, 6.45775697e-02, 9.01543247e-02, 1.16054002e-01, 1.42180452e-01),
    *(1.42180452e-01, 1.48454129e-04, 1.47826870e-02, 3.94153241e-02, 6.45775697e-02, 9.01543266e-02, 1.16054000e-01),
    *(1.42180452e-01, 1.68302106e-01, 1.93127860e-01),
]
LOW_THRESHOLD = [
    *(1.60212079e-01, 2.07021132e-01, 2.07021132e-01, 1.93127860e-01, 1.68302106e-01, 1.42180452e-01, 1.16054002e-01),
    *(9.01543247e-02, 6.45775697e-02, 3.94153241e-02, 1.47826870e-02, 1.48454129e-04),
]


def test_local_sensitivities_and_conditions_are_those_of_the_authors() -> None:
    assert gnmax_local_sensitivities([[10, 0, 0]], 0.5, 1.5)[0] == pytest.approx(FEW, rel=1e-7)
    many = gnmax_local_sensitivities([[1000, 500, 300, 200, 0]], 250.0, 10.0)[0]
    assert many == pytest.approx(MANY, rel=1e-7, abs=1e-18)
    for threshold, local in ((16, HIGH_THRESHOLD), (2, LOW_THRESHOLD)):
        found = threshold_local_sensitivities([[20, 10, 0]], threshold, 2, 10)[0]
        assert found[: len(local)] == pytest.approx(local, rel=1e-6, abs=1e-15)
    assert conditions_hold(30, 10, 25.0) and not conditions_hold(20, 10, 25.0)


@pytest.mark.parametrize("votes", [(6, 5, 1), (12, 0, 0)])
def test_no_pair_of_neighbours_differs_by_more(votes: tuple[int, int, int]) -> None:
    """The bound at distance d covers all pairs of neighbours that moving d votes can reach."""
    sigma, order, teachers = 4.0, 3.0, sum(votes)
    bounds = gnmax_local_sensitivities([votes], sigma, order)[0]
    every = [n for n in itertools.product(range(teachers + 1), repeat=3) if sum(n) == teachers]
    costs = {n: _cost(n, sigma, order) for n in every}
    largest = np.zeros(teachers)
    for n in every:
        distance = sum(abs(a - b) for a, b in zip(n, votes, strict=True)) // 2
        changes = [abs(costs[n] - costs[m]) for m in _neighbours(n)]
        if distance < teachers:
            largest[distance] = max(largest[distance], max(changes))
    assert (np.maximum.accumulate(bounds) >= np.maximum.accumulate(largest) - 1e-12).all()
    assert largest.max() > 0


def _cost(votes: tuple[int, ...], sigma: float, order: float) -> float:
    """Compute Theorem 6 for the sum of tails in Proposition 7, with thirty digits."""
    with mpmath.workdps(30):
        first, *others = sorted(votes, reverse=True)
        miss = sum(mpmath.erfc((first - n) / (2 * mpmath.mpf(sigma))) / 2 for n in others)
        log_q = float(mpmath.log(min(miss, 1 - mpmath.mpf(1) / len(votes))))
    return float(data_dependent_rdp(np.array([log_q]), 1 / sigma**2, np.array([order]))[0, 0])


def _neighbours(votes: tuple[int, ...]) -> list[tuple[int, ...]]:
    moves = itertools.permutations(range(len(votes)), 2)
    return [tuple(n - (k == a) + (k == b) for k, n in enumerate(votes)) for a, b in moves if votes[a]]


def _release(beta: float, scale: float, order: float, *, wider_first: bool) -> float:
    """Compute D_λ by quadrature between normals with scales 1 and e^β whose means differ by the smaller scale."""
    with mpmath.workdps(30):
        scales = [mpmath.mpf(scale) * mpmath.exp(beta), mpmath.mpf(scale)]
        one, other = scales if wider_first else scales[::-1]
        pieces = [mpmath.mpf(piece) * scale for piece in range(-80, 81, 4)]
        moment = mpmath.quad(
            lambda x: mpmath.npdf(x, 0, one) ** order * mpmath.npdf(x, 1, other) ** (1 - order), pieces
        )
        return float(mpmath.log(moment) / (order - 1))


@pytest.mark.parametrize(("beta", "scale", "order"), [(0.0, 2.0, 5.0), (0.0178, 6.0, 14.0), (0.05, 3.0, 9.0)])
def test_the_divergence_of_a_release(beta: float, scale: float, order: float) -> None:
    exact = _release(beta, scale, order, wider_first=True)
    assert release_divergence(beta, scale, order) == pytest.approx(exact, rel=1e-9)
    assert _release(beta, scale, order, wider_first=False) <= exact * (1 + 1e-12)
    assert release_divergence(0.1, 2.0, 20.0) == math.inf


def test_theorem_23_covers_the_divergence_up_to_a_half_but_not_near_one() -> None:
    assert _release(0.0178, 6.0, 14.0, wider_first=True) < release_rdp(0.0178, 6.0, 14.0)
    assert _release(0.05, 3.0, 9.0, wider_first=True) > 2 * release_rdp(0.05, 3.0, 9.0)
    assert release_rdp(0.0, 2.0, 8.0) == pytest.approx(8.0 / 2.0**2), "the Gaussian mechanism"
    with pytest.raises(ValueError, match="smaller β"):
        release_rdp(0.1, 2.0, 8.0)


def test_smooth_sensitivity_looks_at_every_distance() -> None:
    local = np.random.default_rng(0).random(40)
    assert smooth_sensitivity(local, 0.1) == max(v * math.exp(-0.1 * d) for d, v in enumerate(local))


@pytest.mark.parametrize(
    ("name", "queries", "threshold", "deviation", "mean", "spread"),
    [("mnist", 640, 200.0, 150.0, 2.516, 0.385), ("adult", 1_500, 300.0, 200.0, 2.086, 0.263)],
)
def test_published_epsilons(name, queries, threshold, deviation, mean, spread) -> None:
    votes = published(f"{name}_250_teachers")[:queries]
    found = published_epsilon(
        votes, sigma=40.0, threshold=threshold, sigma_threshold=deviation, delta=1e-5, orders=ORDERS
    )
    assert (round(found.mean, 3), round(found.deviation, 3)) == (mean, spread)
