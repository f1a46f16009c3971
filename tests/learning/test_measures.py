"""Measures of probabilities, against scikit-learn and against hand calculations."""

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from learning.measures import area, average_precision, base_loss, brier, calibration, gain, losses, mean_estimate


def drawn(points: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are right about classes drawn from them; some are equal."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(classes), points).round(2) + 1e-3
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities, (probabilities.cumsum(axis=1) < rng.random((points, 1))).sum(axis=1).clip(max=classes - 1)


def test_areas_are_those_of_scikit_learn() -> None:
    two, truth = drawn(300, 2)
    assert area(two, truth).value == pytest.approx(roc_auc_score(truth, two[:, 1]), abs=1e-12)
    assert average_precision(two, truth).value == pytest.approx(average_precision_score(truth, two[:, 1]), abs=1e-12)
    assert brier(two, truth).value == pytest.approx(brier_score_loss(truth, two[:, 1]), abs=1e-12)
    four, truth = drawn(300, 4)
    assert area(four, truth).value == pytest.approx(roc_auc_score(truth, four, multi_class="ovr"), abs=1e-12)
    single = [average_precision_score(truth == number, four[:, number]) for number in range(4)]
    assert average_precision(four, truth).value == pytest.approx(np.mean(single), abs=1e-12)


def test_the_interval_of_an_area_is_that_of_the_paper() -> None:
    """By the paper's own sums over pairs, written out."""
    probabilities, truth = drawn(60, 2)
    scores, many, few = probabilities[:, 1], np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    wins = np.array([[(scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j]) for j in few] for i in many])
    variance = wins.mean(axis=1).var(ddof=1) / len(many) + wins.mean(axis=0).var(ddof=1) / len(few)
    found = area(probabilities, truth)
    assert found.interval is not None and found.value is not None
    assert found.interval[1] - found.value == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-9)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("classes", [2, 4])
def test_intervals_of_areas_hold_as_often_as_they_say(classes: int) -> None:
    true = area(*drawn(200_000, classes, seed=99)).value
    held = 0
    for seed in range(200):
        ends = area(*drawn(150, classes, seed=seed)).interval
        assert ends is not None
        held += ends[0] <= true <= ends[1]
    assert 180 <= held <= 199


def test_one_class_alone_has_no_area() -> None:
    assert area(np.full((5, 2), 0.5), np.zeros(5, np.int64)).value is None
    assert average_precision(np.full((5, 2), 0.5), np.zeros(5, np.int64)).value is None


def test_a_true_class_of_probability_0_has_infinite_loss() -> None:
    probabilities = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert losses(probabilities, np.array([1, 0])).tolist() == [math.inf, pytest.approx(math.log(2))]
    assert losses(np.array([[1 - 1e-12, 1e-12]]), np.array([1]))[0] == pytest.approx(27.63, abs=0.01)


def test_the_base_rate_is_the_entropy_of_the_classes() -> None:
    assert base_loss(np.array([0, 0, 0, 1]), 2) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert base_loss(np.array([1, 1]), 3) == 0.0


def test_the_calibration_error_is_seen_where_probabilities_are_too_sure() -> None:
    truth = np.random.default_rng(0).random(5000) < 0.7
    sure = np.tile([0.1, 0.9], (5000, 1))
    error, bins = calibration(sure, truth.astype(np.int64))
    assert len(bins) == 1 and bins[0].predicted == pytest.approx(0.9)
    assert error.value == pytest.approx(0.2, abs=0.02)
    assert error.interval is not None and error.interval[0] > 0.15
    right, classes = drawn(20_000, 2)
    error, bins = calibration(right, classes)
    assert len(bins) == 10 and max(each.points for each in bins) < 1.3 * min(each.points for each in bins)
    assert error.value is not None and error.value < 0.01


def test_the_gain_compares_the_same_points() -> None:
    truth = np.array([0] * 60 + [1] * 40)
    assert gain(np.zeros(100, np.int64), truth).value == 0.0
    found = gain(truth, truth)
    assert found.value == pytest.approx(0.4)
    assert found.interval is not None and found.interval[0] > 0.3


def test_a_mean_of_one_point_has_no_interval() -> None:
    assert mean_estimate(np.array([2.0])).interval is None
