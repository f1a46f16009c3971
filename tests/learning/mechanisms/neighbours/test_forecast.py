"""The forecast against votes that were really held; it sees public points and head counts only."""

import numpy as np
import pytest

from common.noise import SimulationNoise
from learning.forecasts import LABELS
from learning.mechanisms.neighbours.forecast import propose, released_accuracy
from learning.mechanisms.neighbours.released_counts import read_counts, release_counts
from learning.mechanisms.neighbours.stand_ins import Sample
from learning.mechanisms.neighbours.votes import neighbour_votes
from learning.mechanisms.protocol import PlannedLevel
from tests.learning.mechanisms.neighbours.accounts import PlainAccounts

CAP = 0.26805**2


def blobs(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Four classes in the plane that touch each other."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    middles = np.array([[-40, -40], [-40, 40], [40, -40], [40, 40]])
    return np.clip(np.rint(middles[labels] + rng.normal(0, 25, (count, 2))), -127, 127).astype(np.int8), labels


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("labelled", [True, False])
def test_the_forecast_comes_true(records, labelled) -> None:
    public, truth = blobs(0, 300)
    private, classes_of = blobs(1, 3000)
    sample = Sample(*blobs(2, 600)) if labelled else None
    levels = [PlannedLevel("HIGH", CAP, 500, records), PlannedLevel("LOW", 4 * CAP, 3000 / records - 500, records)]
    proposal = propose(public, public, levels, share=0.5, n_classes=4, sample=sample)
    expected = proposal.forecast
    caps = np.where(np.arange(3000 // records) < 500, CAP, 4 * CAP)
    accounts = PlainAccounts(0.5 * caps)
    votes, _ = neighbour_votes(
        public, public, private, classes_of, np.arange(3000) % (3000 // records),
        radius_share=proposal.radius_share, n_classes=4, accounts=accounts, sigma=proposal.sigma,
    )  # fmt: skip
    release = read_counts(release_counts(votes, proposal.sigma, SimulationNoise(0)), proposal.sigma)
    right = float((release.labels == truth).mean())
    result = expected.labels
    assert result.low <= right <= result.high and result.of == LABELS and bool(result.judged) == labelled
    if labelled:
        assert result.value == pytest.approx(right, abs=0.03)
    assert expected.voters[1] == pytest.approx(np.median(votes.sum(axis=1)), rel=0.2)
    for level, spent in zip(expected.levels, (accounts.spent[:500] / CAP, accounts.spent[500:] / 4 / CAP), strict=True):
        if records == 1:
            assert level.spent == pytest.approx(spent.mean(), abs=0.06)
        assert level.spent <= level.share == 0.5
    assert expected.levels[0].votes_allowed * 4 <= expected.levels[1].votes_allowed


def test_a_released_batch_bounds_its_own_accuracy() -> None:
    public, truth = blobs(3, 400)
    private, classes_of = blobs(4, 5000)
    for sigma in (5.0, 60.0):
        votes, _ = neighbour_votes(
            public, public, private, classes_of, np.arange(5000),
            radius_share=0.05, n_classes=4, accounts=PlainAccounts([1e9] * 5000), sigma=sigma,
        )  # fmt: skip
        counts = release_counts(votes, sigma, SimulationNoise(1))
        low, high = released_accuracy(counts, sigma)
        assert low - 0.03 <= (read_counts(counts, sigma).labels == truth).mean() <= high + 0.03
