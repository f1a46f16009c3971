"""The forecast of a student, beside votes that are held."""

import numpy as np
import pytest

from learning.forecasts import MODEL
from learning.mechanisms.neighbours.stand_ins import Sample
from learning.mechanisms.neighbours.votes import radii
from learning.students import counted, neighbourhoods, refine
from learning.students.forecast import student_forecast

pytestmark = pytest.mark.slow

RADIUS = 0.1


@pytest.fixture(scope="module")
def world():
    """Records, public points and a labelled sample around four centres, and their classes."""
    rng = np.random.default_rng(4)
    centres = rng.integers(-60, 60, (4, 8))

    def points(count):
        classes = rng.integers(4, size=count)
        return np.clip(centres[classes] + rng.normal(0, 22, (count, 8)), -127, 127).astype(np.int8), classes

    return points(2000), points(400), points(200)


def held(world, sigma: float) -> tuple[float, np.ndarray]:
    """Share of right refined labels of a vote of the records themselves, and the voters of each point."""
    (records, classes_of), (public, truth), _ = world
    reach = radii(public, public, RADIUS)
    distances = ((public[:, None].astype(np.int64) - records[None].astype(np.int64)) ** 2).sum(axis=2)
    counts = (distances <= reach[:, None]) @ np.eye(4)[classes_of]
    noisy = counts + np.random.default_rng(1).normal(0, sigma, counts.shape)
    released = counted(np.arange(400), noisy, sigma, reach=neighbourhoods(np.arange(400), public, reach))
    return float((refine(public, released, seed=0).labels == truth).mean()), counts.sum(axis=1)


@pytest.mark.parametrize("sigma", [5.0, 150.0, 400.0, 20_000.0])
def test_the_forecast_is_near_what_a_vote_brings(world, sigma):
    _, (public, _), (known, labels) = world
    right, voters = held(world, sigma)
    forecast = student_forecast(
        np.arange(400), public, voters, radius_share=RADIUS, sigma=sigma, n_classes=4, sample=Sample(known, labels)
    )
    assert forecast.value == pytest.approx(right, abs=0.2) and forecast.of == MODEL and forecast.judged == 200


def test_noise_and_few_voters_are_distinguished_without_labels(world):
    _, (public, _), _ = world

    def best_forecast(voters, sigma, queries=400):
        fixed = {"radius_share": RADIUS, "n_classes": 4}
        made = student_forecast(np.arange(queries), public, np.full(queries, voters), sigma=sigma, **fixed)
        assert made.value is None and made.judged == 0, "clusters bound it, and no more"
        return made.high

    assert best_forecast(200.0, 10.0) > 0.9
    assert best_forecast(200.0, 20_000.0) < 0.6
    assert best_forecast(2.0, 200.0) < best_forecast(200.0, 200.0)
    assert best_forecast(200.0, 10.0, queries=100) > 0.8
