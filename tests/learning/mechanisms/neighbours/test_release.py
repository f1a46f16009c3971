"""From totals to what leaves."""

import numpy as np
import pytest
from scipy.stats import kstest

from common.noise import SimulationNoise
from learning.mechanisms.neighbours.release import read_counts, release_counts


@pytest.mark.statistical
def test_counts_are_whole_and_their_noise_has_the_sigma_that_is_charged() -> None:
    totals = np.tile([[100.25, 3.5]], (20_000, 1))
    counts = release_counts(totals, 30.0, SimulationNoise(0))
    assert counts.dtype == np.int64
    assert kstest(((counts - totals) / 30.0).ravel(), "norm").pvalue > 0.01


def test_labels_margins_and_ties() -> None:
    release = read_counts([[5, 5, 1], [-7, -3, -30]], 2.0)
    assert release.labels.tolist() == [0, 1] and release.margins.tolist() == [0.0, 2.0]
    assert read_counts([[4]], 1.0).labels.tolist() == [0]


def test_residual_counts_overturn_a_guess_only_against_those_who_agree() -> None:
    counts = [[-40, 38, 2], [-40, 38, 2]]
    release = read_counts(counts, 1.0, predicted=[0, 0], voters=np.array([100.0, 50.0]))
    assert release.labels.tolist() == [0, 1]
    assert release.margins.tolist() == [22.0, 28.0]
    np.testing.assert_array_equal(release.counts, counts)
