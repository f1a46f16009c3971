"""The forecast on real records: the digits that scikit-learn ships, drawn into holders, public points and sample."""

from functools import cache

import numpy as np
import pytest

from accounting.caps import caps_of
from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.formats import catalogue_load
from learning.mechanisms.levels import Level
from learning.mechanisms.neighbours.forecast import propose
from learning.mechanisms.neighbours.release import read_counts, release_counts
from learning.mechanisms.neighbours.stand_ins import Sample
from learning.mechanisms.neighbours.votes import neighbour_votes
from learning.representations import default_representation

pytestmark = pytest.mark.slow

DELTA, DRAWS = 5e-5, 4


@cache
def digits(seed: int):
    """Coordinates and labels of 1,300 holders, 300 public points and 197 labelled ones."""
    parts = [part for splits in [catalogue_load("digits")] for part in (splits.private, splits.public, splits.test)]
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in "xy")
    drawn = np.split(np.random.default_rng(seed).permutation(len(x)), [1300, 1600])
    fitted = default_representation(x.shape[1:]).fit(x[drawn[1]])
    return [(fitted.transform(x[rows]), y[rows]) for rows in drawn]


@pytest.mark.parametrize("epsilons", [(0.25,), (1.0,), (8.0,), (1.0, 2.0, 3.0)])
def test_labels_and_shares_come_as_forecast(epsilons) -> None:
    caps = np.resize(caps_of(np.array(epsilons), DELTA), 1300)
    levels = [Level(f"{cap}", float(cap), int((caps == cap).sum())) for cap in np.unique(caps)]
    apart = []
    for draw in range(DRAWS):
        (private, classes_of), (public, truth), sample = digits(draw)
        made = propose(public, public, levels, share=1.0, n_classes=10, sample=Sample(*sample))
        accounts = IndividualAccounts(caps)
        votes, _ = neighbour_votes(
            public, public, private, classes_of, np.arange(1300),
            radius_share=made.radius_share, n_classes=10, accounts=accounts, sigma=made.sigma,
        )  # fmt: skip
        counts = [release_counts(votes, made.sigma, SimulationNoise(seed)) for seed in range(10)]
        right = np.mean([read_counts(some, made.sigma).labels == truth for some in counts])
        forecast = made.forecast.labels
        assert forecast.low <= right <= forecast.high
        apart.append(forecast.value - right)
        assert made.forecast.voters[1] == pytest.approx(np.median(votes.sum(axis=1)), rel=0.25)
        assert (accounts.spent <= caps * (1 + 1e-12)).all()
        for level, forecast in zip(levels, made.forecast.levels, strict=True):
            assert forecast.spent == pytest.approx((accounts.spent / caps)[caps == level.cap].mean(), abs=0.05)
    assert np.mean(apart) == pytest.approx(0.0, abs=0.03)
