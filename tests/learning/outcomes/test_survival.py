"""Measures of survival against counts by hand, and of other outcomes against their definitions."""

from itertools import product

import numpy as np
import pytest
from sklearn.metrics import r2_score, roc_auc_score

from learning.outcomes import Labels, Numbers, Times
from learning.outcomes.survival import brier_scores, concordance, kaplan_meier


def test_concordance_is_the_share_of_pairs_in_the_right_order() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        risks, times = rng.integers(0, 8, 40) / 8, rng.integers(1, 20, 40).astype(float)
        events = rng.random(40) < 0.6
        right = pairs = 0.0
        for one, other in product(range(40), repeat=2):
            later = times[one] < times[other] or (times[one] == times[other] and not events[other])
            if one != other and events[one] and later:
                pairs += 1
                right += 1.0 if risks[one] > risks[other] else 0.5 if risks[one] == risks[other] else 0.0
        value = concordance(risks, times, events)
        assert value.value == pytest.approx(right / pairs)
        assert value.interval and value.interval[0] < value.value < value.interval[1]
    assert concordance(np.ones(3), np.ones(3), np.zeros(3, bool)).value is None


@pytest.mark.statistical
def test_the_interval_of_concordance_is_as_wide_as_it_varies() -> None:
    rng, found, halves = np.random.default_rng(1), [], []
    for _ in range(300):
        risks = rng.normal(0, 1, 150)
        times, lost = rng.exponential(np.exp(-risks)), rng.exponential(2, 150)
        value = concordance(risks, np.minimum(times, lost), times <= lost)
        assert value.interval and value.value
        found.append(value.value)
        halves.append((value.interval[1] - value.interval[0]) / 2)
    assert np.mean(halves) == pytest.approx(1.96 * np.std(found), rel=0.25)


def test_kaplan_and_meiers_shares_are_products_by_hand() -> None:
    times = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    events = np.array([True, True, False, False, True])
    shares, errors = kaplan_meier(times, events, np.array([0.5, 1.0, 2.5, 3.5]))
    assert shares == pytest.approx([1, 4 / 5, 4 / 5 * 3 / 4, 3 / 5])
    greenwood = 3 / 5 * np.sqrt(1 / (5 * 4) + 1 / (4 * 3))
    assert errors[3] == pytest.approx(greenwood) and errors[0] == 0
    before, _ = kaplan_meier(times, events, np.array([1.0, 2.0]), before=True)
    assert before == pytest.approx([1, 4 / 5])


def test_brier_scores_are_mean_squares_and_those_who_stayed_stand_for_those_who_were_lost() -> None:
    times, moments = np.array([1.0, 3.0, 5.0]), np.array([2.0, 4.0])
    survival = np.array([[0.2, 0.1], [0.7, 0.4], [0.9, 0.8]])
    value = brier_scores(survival, times, np.ones(3, bool), moments)
    assert value.mean(axis=0) == pytest.approx([(0.04 + 0.09 + 0.01) / 3, (0.01 + 0.16 + 0.04) / 3])
    times, events = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, True, True])
    value = brier_scores(np.full((4, 1), 0.5), times, events, np.array([2.5]))
    assert value[:, 0] == pytest.approx([0, 0.25 / (3 / 4), 0.25 / (3 / 4), 0.25 / (3 / 4)])


def test_measures_of_numbers_and_labels_are_their_definitions() -> None:
    rng, target = np.random.default_rng(2), Numbers(0, 10, "kg")
    truth = rng.uniform(1, 9, 200)
    said = truth + rng.normal(0, 1, 200)
    found = target.evaluated(np.stack([said, said - 1, said + 1], axis=1), target.coded([truth]))
    value = {each.name: each.estimate.value for each in found.measures}
    assert value["r2"] == pytest.approx(r2_score(truth, said), abs=1e-4)
    assert value["mean_absolute_error"] == pytest.approx(np.abs(truth - said).mean(), abs=1e-4)
    assert value["coverage"] == pytest.approx((np.abs(truth - said) < 1).mean())
    assert value["width"] == pytest.approx(2)
    interval = found.measures[0].estimate.interval
    assert interval and interval[0] < value["r2"] < interval[1]
    labels, bits, said = Labels(("ill", "old")), rng.integers(0, 2, (2, 100)), rng.random((100, 2))
    areas = [roc_auc_score(bits[place], said[:, place]) for place in range(2)]
    measures = labels.evaluated(said, labels.coded(list(bits.astype(float)))).measures
    by_label = {each.of: each.estimate.value for each in measures if each.name == "area"}
    assert by_label == pytest.approx({"": np.mean(areas), "ill": areas[0], "old": areas[1]})


def test_a_predicted_curve_stands_beside_the_observed_one() -> None:
    target = Times((1, 2, 4), "years")
    times, events = np.array([0.5, 1.5, 3.0, 9.0]), np.array([1.0, 1.0, 1.0, 0.0])
    said = np.tile([0.75, 0.5, 0.25], (4, 1))
    found = target.evaluated(said, target.coded([times, events]))
    assert [point["observed"] for point in found.curve] == pytest.approx([0.75, 0.5, 0.25])
    assert [point["predicted"] for point in found.curve] == pytest.approx([0.75, 0.5, 0.25])
    assert {each.name: each.estimate.value for each in found.measures}["concordance"] == 0.5
    assert target.said(said[:1]) == [2.0]
    assert target.said(np.array([[0.9, 0.8, 0.7]])) == [None]
