"""Measures of probabilities, and forecasts of them with intervals that widen where little is known."""

import json
import math

import numpy as np
import pytest

from common.sentences import Sentence
from learning.forecasts import LABELS, MODEL, Forecast, few_people, headline, judged_forecast, thirds
from learning.measures import area, average_precision, base_loss, brier, calibration, gain, losses, mean_estimate
from tests.learning.lazily import metrics


def drawn(points: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are right about classes drawn from them; some are equal."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(classes), points).round(2) + 1e-3
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities, (probabilities.cumsum(axis=1) < rng.random((points, 1))).sum(axis=1).clip(max=classes - 1)


def test_areas_are_those_of_scikit_learn() -> None:
    two, truth = drawn(300, 2)
    assert area(two, truth).value == pytest.approx(metrics.roc_auc_score(truth, two[:, 1]), abs=1e-12)
    assert average_precision(two, truth).value == pytest.approx(
        metrics.average_precision_score(truth, two[:, 1]), abs=1e-12
    )
    assert brier(two, truth).value == pytest.approx(metrics.brier_score_loss(truth, two[:, 1]), abs=1e-12)
    four, truth = drawn(300, 4)
    assert area(four, truth).value == pytest.approx(metrics.roc_auc_score(truth, four, multi_class="ovr"), abs=1e-12)
    single = [metrics.average_precision_score(truth == number, four[:, number]) for number in range(4)]
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


def test_losses_gains_and_base_rates_are_their_definitions_at_the_ends_too() -> None:
    probabilities = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert losses(probabilities, np.array([1, 0])).tolist() == [math.inf, pytest.approx(math.log(2))]
    assert losses(np.array([[1 - 1e-12, 1e-12]]), np.array([1]))[0] == pytest.approx(27.63, abs=0.01)
    assert base_loss(np.array([0, 0, 0, 1]), 2) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert base_loss(np.array([1, 1]), 3) == 0.0
    truth = np.array([0] * 60 + [1] * 40)
    assert gain(np.zeros(100, np.int64), truth).value == 0.0
    found = gain(truth, truth)
    assert found.value == pytest.approx(0.4) and found.interval is not None and found.interval[0] > 0.3
    for measure in (area, average_precision):
        assert measure(np.full((5, 2), 0.5), np.zeros(5, np.int64)).value is None, "of one class alone"
    assert mean_estimate(np.array([2.0])).interval is None


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


RESTS = Sentence("%(points)d of 100 points", points=30)


def made(right: float, noiseless: float, of: str = MODEL, judged: int = 300) -> Forecast:
    return judged_forecast(of, right, noiseless, judged=judged, standing=2 * judged, rests_on=RESTS)


def test_few_points_make_a_wide_interval_and_many_a_narrow_one() -> None:
    few, many = made(0.735, 0.75, judged=34), made(0.735, 0.75, judged=1000)
    assert few.low < 0.56 and few.high > 0.88
    assert 0.03 < many.high - 0.735 < 0.05
    sure = made(1.0, 1.0, judged=34)
    assert sure.high == 1.0 and sure.low < 0.9, "34 right ones out of 34 are no certainty"


def test_the_interval_holds_what_is_measured() -> None:
    """A share from some points, and one that others measure: 95 times in 100 the second is in the first's interval."""
    rng = np.random.default_rng(0)
    inside = []
    for true in (0.6, 0.9):
        judged, measured = rng.binomial(40, true, 2000) / 40, rng.binomial(1000, true, 2000) / 1000
        for right, came in zip(judged, measured, strict=True):
            result = made(float(right), 1.0, judged=40)
            inside.append(result.low <= came <= result.high)
    assert np.mean(inside) >= 0.95


def test_chance_moves_a_share_of_few_answers_too() -> None:
    """Six hundred points judge, and accounts afford 40 labels."""
    rng = np.random.default_rng(0)
    judged, came = rng.binomial(600, 0.85, 2000) / 600, rng.binomial(40, 0.85, 2000) / 40
    inside = {}
    for measured in (40, None):
        entries = [
            judged_forecast(LABELS, right, 1.0, judged=600, standing=400, rests_on=RESTS, measured=measured)
            for right in judged.tolist()
        ]
        inside[measured] = np.mean([each.low <= share <= each.high for each, share in zip(entries, came, strict=True)])
    assert inside[40] >= 0.95 and inside[None] < 0.8


def test_people_are_too_few_where_noise_costs_a_fifth_of_what_could_be_learned() -> None:
    assert not few_people([made(0.71, 0.74)], 2)
    (warning,) = few_people([made(0.68, 0.74)], 2)
    assert "68 of 100" in warning and "without it about 74" in warning
    assert not few_people([made(0.50, 0.51)], 2), "what nothing can be learned of needs no more people"
    bound = Forecast(MODEL, None, 0.1, 0.5, 0.95, 0, RESTS)
    assert few_people([bound], 10) and not few_people([], 10) and not few_people([bound], 1)
    labels, model = made(0.4, 0.9, of=LABELS), made(0.88, 0.9)
    assert headline([labels, model]) == model and headline([labels]) == labels and headline([]) is None
    assert not few_people([labels, model], 10) and few_people([labels], 10), "the model's decides where there is one"
    again = Forecast.from_json(json.loads(json.dumps(model.to_json())))
    assert again == model and again.rests_on.template == RESTS.template


@pytest.mark.parametrize(("points", "ways"), [(9, 3), (600, 3), (601, 1), (3000, 1)])
def test_every_point_judges_where_there_are_few(points: int, ways: int) -> None:
    divided = thirds(points)
    assert len(divided) == ways
    for standing, judged in divided:
        assert sorted([*standing, *judged]) == list(range(points))
    if ways == 3:
        assert sorted(np.concatenate([judged for _, judged in divided])) == list(range(points))
