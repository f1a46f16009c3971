"""Rounds: which points are asked when, and from totals to what leaves."""

import numpy as np
import pytest
from scipy.stats import kstest

from common.noise import SimulationNoise
from learning.mechanisms.neighbours.released_counts import read_counts, release_counts
from learning.mechanisms.neighbours.rounds import doubtful_queries, expected_agreement, split_share, spread_queries


def test_the_share_is_split_and_never_exceeded() -> None:
    for rounds in range(1, 8):
        parts = split_share(0.7, rounds)
        assert len(parts) == rounds and sum(parts) == pytest.approx(0.7) and sum(parts) <= 0.7 + 1e-15
    with pytest.raises(ValueError, match="round"):
        split_share(0.7, 0)


def test_first_queries_are_spread_over_all_clusters_and_doubtful_ones_come_first() -> None:
    rng = np.random.default_rng(0)
    middles = rng.integers(-100, 100, (12, 6))
    points = (np.repeat(middles, 30, axis=0) + rng.integers(-3, 4, (360, 6))).astype(np.int8)
    chosen = spread_queries(points, 24)
    assert len(set(chosen.tolist())) == 24
    assert len(set((chosen // 30).tolist())) >= 10
    np.testing.assert_array_equal(chosen, spread_queries(points, 24))
    assert spread_queries(np.zeros((9, 2), np.int8), 9).tolist() == list(range(9))
    assert len(set(spread_queries(np.zeros((9, 2), np.int8), 4).tolist())) == 4
    with pytest.raises(ValueError, match="ask for fewer"):
        spread_queries(np.zeros((9, 2), np.int8), 10)
    assert doubtful_queries([[0.2, 0.8], [0.5, 0.5], [0.45, 0.55], [0.5, 0.5]], 3).tolist() == [1, 3, 2]


def test_a_tenth_of_the_people_is_recognised_by_the_noisy_counts() -> None:
    rng = np.random.default_rng(1)
    expected = rng.uniform(500, 1500, 600)
    counts = np.rint(rng.dirichlet(np.ones(10), 600) * expected[:, None] * 0.1 + rng.normal(0, 50, (600, 10)))
    assert expected_agreement(counts, expected) == pytest.approx(0.1, abs=0.02)
    assert expected_agreement([[-5, 0]], [10.0]) == 0.0


@pytest.mark.statistical
def test_counts_are_whole_and_their_noise_has_the_sigma_that_is_charged() -> None:
    totals = np.tile([[100.25, 3.5]], (20_000, 1))
    counts = release_counts(totals, 30.0, SimulationNoise(0))
    assert counts.dtype == np.int64
    assert kstest(((counts - totals) / 30.0).ravel(), "norm").pvalue > 0.01


def test_labels_margins_and_ties_and_guesses_are_overturned_only_against_those_who_agree() -> None:
    release = read_counts([[5, 5, 1], [-7, -3, -30]], 2.0)
    assert release.labels.tolist() == [0, 1] and release.margins.tolist() == [0.0, 2.0]
    assert read_counts([[4]], 1.0).labels.tolist() == [0]
    counts = [[-40, 38, 2], [-40, 38, 2]]
    release = read_counts(counts, 1.0, predicted=[0, 0], voters=np.array([100.0, 50.0]))
    assert release.labels.tolist() == [0, 1]
    assert release.margins.tolist() == [22.0, 28.0]
    np.testing.assert_array_equal(release.counts, counts)
