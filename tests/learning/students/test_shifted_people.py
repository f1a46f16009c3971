"""People whose classes have other shares than those of the public points: a student has the people's in the end."""

import numpy as np
import pytest
from scipy.special import expit

from learning.calibration import CalibratedModel
from learning.learners import Model
from learning.mechanisms.neighbours.votes import radii
from learning.students import Releases, counted, neighbourhoods
from learning.students.calibration import fit_to_releases
from learning.students.shares import Shares

pytestmark = pytest.mark.slow

APART, SPREAD = 30, 40


def points(seed: int, count: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap, the second with this share."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < share).astype(np.int64)
    x = rng.normal(0, SPREAD, (count, 2))
    x[:, 0] += APART * (2 * labels - 1)
    return np.clip(np.rint(x), -127, 127).astype(np.int8), labels


def student(public: np.ndarray, releases: Releases) -> Model:
    """A calibrated student, as the services make it."""
    learned, held_out = releases.split(0.2, 0)
    trial = Shares().learn(public, learned, seed=0).predict_proba(public)
    return CalibratedModel(Shares().learn(public, releases, seed=0), fit_to_releases(trial, held_out))


def loss(second: np.ndarray, truth: np.ndarray) -> float:
    return float(-np.log(np.where(truth == 1, second, 1 - second)).mean())


@pytest.mark.parametrize("sigma", [5.0, 40.0])
@pytest.mark.parametrize("share", [0.15, 0.5], ids=["shifted", "alike"])
def test_a_student_of_votes_has_the_shares_of_the_people(share: float, sigma: float) -> None:
    """Bayes' rule with the people's shares is the best there is: nothing is left for a correction of them."""
    (records, classes_of), (public, _), (others, truth) = (
        points(1, 6000, share),
        points(2, 400, 0.5),
        points(3, 4000, share),
    )
    reach = radii(public, public, 0.05)
    distances = ((public[:, None].astype(np.int64) - records[None].astype(np.int64)) ** 2).sum(axis=2)
    votes = (distances <= reach[:, None]) @ np.eye(2)[classes_of]
    noisy = votes + np.random.default_rng(4).normal(0, sigma, votes.shape)
    everyone = np.arange(400)
    releases = counted(everyone, noisy, sigma, reach=neighbourhoods(everyone, public, reach))
    shares = student((public / SPREAD).astype(np.float32), releases).predict_proba((others / SPREAD).astype(np.float32))
    score = 2 * APART * others[:, 0].astype(np.float64) / SPREAD**2
    best, of_public = loss(expit(score + np.log(share / (1 - share))), truth), loss(expit(score), truth)
    assert loss(shares[:, 1], truth) < best + 0.01
    assert shares[:, 1].mean() == pytest.approx(share, abs=0.03)
    if share != 0.5:
        assert of_public > best + 0.1, "with the public points' shares it would be far off"
