"""Measures and forecasts of probabilities, and calibration by releases, compared with independent calculations."""

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from common.sentences import Sentence
from learning.calibration import Balance, Calibration, StepCheck, Threshold, fit_to_sums, rule_of_card
from learning.class_shares import ClassShare, differing, first_step_shares, voted_shares
from learning.forecasts import LABELS, MODEL, Forecast, baseline_warning, few_people, headline, judged_forecast, thirds
from learning.measures import (
    GRID,
    area,
    average_precision,
    balanced_accuracy,
    base_loss,
    brier,
    calibration,
    commonest_answer,
    curves,
    gain,
    losses,
    mean_estimate,
    share_estimate,
    wilson,
)
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.descent import Descent, descent_calibration, descent_shares
from learning.mechanisms.steps.linear import INTERCEPT, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.steps_plan import Steps, plan_steps
from learning.students import counted, labelled, predicted
from learning.students.releases import fit_to_releases
from tests.learning.lazily import graphs, metrics, naive_bayes, onnxruntime


def test_a_share_of_intervals_that_hold_has_an_interval_within_0_and_1() -> None:
    for holding in (0, 1, 49, 50):
        found = share_estimate(np.arange(50) < holding)
        assert found.value == holding / 50 and found.interval is not None
        assert 0 <= found.interval[0] <= found.value <= found.interval[1] <= 1
        assert found.interval[1] - found.interval[0] > 0.05
    assert share_estimate(np.zeros(0, bool)).value is None


@pytest.mark.parametrize(("majority", "warns"), [(0.7, False), (0.765, True), (0.9, True), (None, False)])
def test_a_forecast_that_does_not_clear_the_most_frequent_class_is_warned_of(majority: Any, warns: bool) -> None:
    of_labels = Forecast(LABELS, 0.6, 0.5, 0.7, 0.8, 100, Sentence("by labels"), majority=majority)
    forecast = Forecast(MODEL, 0.765, 0.72, 0.8, 0.8, 100, Sentence("by labels"), majority=majority)
    assert Forecast.from_json(forecast.to_json()) == forecast
    notes = baseline_warning((of_labels, forecast))
    assert bool(notes) == warns and baseline_warning(()) == ()
    assert all("72 to 80 of 100" in note and f"with {round(100 * majority)} for" in note for note in notes)


def drawn(points: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities, some of them equal, and classes drawn from them, so that they are calibrated."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(classes), points).round(2) + 1e-3
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities, (probabilities.cumsum(axis=1) < rng.random((points, 1))).sum(axis=1).clip(max=classes - 1)


def test_areas_are_those_of_scikit_learn() -> None:
    two, truth = drawn(300, 2)
    assert area(two, truth).value == pytest.approx(metrics.roc_auc_score(truth, two[:, 1]), abs=1e-12)
    precise = metrics.average_precision_score(truth, two[:, 1])
    assert average_precision(two, truth).value == pytest.approx(precise, abs=1e-12)
    assert brier(two, truth).value == pytest.approx(metrics.brier_score_loss(truth, two[:, 1]), abs=1e-12)
    found, precisions, fewest = curves(two, truth)
    rates, recalls, _thresholds = metrics.roc_curve(truth, two[:, 1], drop_intermediate=False)
    assert found == pytest.approx(np.interp(GRID, rates, recalls))
    exact, recall, _thresholds = metrics.precision_recall_curve(truth, two[:, 1])
    assert precisions[-1] == exact[recall == 1].max() and fewest == min(np.bincount(truth))
    assert curves(two, np.zeros(300, int))[2] == 0, "a single class is not evaluated"
    four, truth = drawn(300, 4)
    assert area(four, truth).value == pytest.approx(metrics.roc_auc_score(truth, four, multi_class="ovr"), abs=1e-12)
    single = [metrics.average_precision_score(truth == number, four[:, number]) for number in range(4)]
    assert average_precision(four, truth).value == pytest.approx(np.mean(single), abs=1e-12)


def test_the_interval_of_an_area_is_that_of_the_paper() -> None:
    """The sums over pairs are written out as in the paper."""
    probabilities, truth = drawn(60, 2)
    scores, many, few = probabilities[:, 1], np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    wins = np.array([[(scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j]) for j in few] for i in many])
    variance = wins.mean(axis=1).var(ddof=1) / len(many) + wins.mean(axis=0).var(ddof=1) / len(few)
    found = area(probabilities, truth)
    assert found.interval is not None and found.value is not None
    assert found.interval[1] - found.value == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-9)


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
        assert measure(np.full((5, 2), 0.5), np.zeros(5, np.int64)).value is None, "of a single class"
    assert mean_estimate(np.array([2.0])).interval is None


def test_balanced_accuracy_is_that_of_scikit_learn_and_its_interval_combines_wilsons() -> None:
    probabilities, truth = drawn(300, 4)
    predicted = probabilities.argmax(axis=1)
    found = balanced_accuracy(predicted, truth)
    assert found.value == pytest.approx(metrics.balanced_accuracy_score(truth, predicted), abs=1e-12)
    recalls = metrics.recall_score(truth, predicted, average=None)
    ends = [wilson(recall, count) for recall, count in zip(recalls, np.bincount(truth), strict=True)]
    halves = [sum((recall - low) ** 2 for recall, (low, _) in zip(recalls, ends, strict=True)) ** 0.5 / 4]
    halves += [sum((high - recall) ** 2 for recall, (_, high) in zip(recalls, ends, strict=True)) ** 0.5 / 4]
    assert found.interval == pytest.approx((found.value - halves[0], found.value + halves[1]))
    assert balanced_accuracy(np.zeros(9, int), np.arange(9) % 3).value == pytest.approx(1 / 3)
    single = balanced_accuracy(np.array([0, 0, 1, 0]), np.zeros(4, int))
    assert single.value == 0.75 and single.interval == pytest.approx(wilson(0.75, 4))
    assert balanced_accuracy(np.zeros(0, int), np.zeros(0, int)).value is None


def test_balanced_answers_are_those_of_bayes_rule_with_equal_priors() -> None:
    """Naive Bayes classifiers of scikit-learn give both: probabilities for unequal classes, answers for equal ones."""
    rng = np.random.default_rng(3)
    truth = rng.choice(3, 4000, p=[0.85, 0.1, 0.05])
    x = rng.normal(np.array([[0.0, 0.0], [1.0, 0.5], [-0.5, 1.5]])[truth], 1.0)
    shares = np.bincount(truth) / len(truth)
    uneven, even = naive_bayes.GaussianNB(priors=shares).fit(x, truth), naive_bayes.GaussianNB(priors=[1 / 3] * 3)
    probabilities, answers = uneven.predict_proba(x), even.fit(x, truth).predict(x)
    assert Balance(tuple(shares)).labels(probabilities).tolist() == answers.tolist()
    found = Balance.of(probabilities)
    assert found.shares == pytest.approx(shares, abs=0.01)
    labels = found.labels(probabilities)
    assert (labels == answers).mean() > 0.98
    likeliest = balanced_accuracy(probabilities.argmax(axis=1), truth).value
    assert balanced_accuracy(labels, truth).value > likeliest + 0.15
    assert found.labels(np.tile(found.shares, (2, 1)) * [[1, 1.01, 1], [1, 1, 1.01]]).tolist() == [1, 2]
    assert rule_of_card({}, "ab") is None and rule_of_card({"balance": {"shares": [0.9, 0.1]}}, "ab") == Balance(
        (0.9, 0.1)
    )
    threshold = {"class": "b", "least": 0.3}
    assert rule_of_card({"balance": {"shares": [0.9, 0.1]}, "threshold": threshold}, "ab") == Threshold(1, 0.3)


def test_a_models_commonest_answer_is_compared_with_points_of_other_classes() -> None:
    """Probabilities replace classes that are unknown."""
    predicted, truth = np.array([1, 1, 1, 0]), np.array([1, 0, 2, 0])
    known = commonest_answer(predicted, np.eye(3)[truth])
    assert (known.number, known.share, known.others, known.missed) == (1, 0.75, 3.0, 2.0)
    expected = commonest_answer(
        predicted, np.array([[0.2, 0.7, 0.1], [0.0, 1.0, 0.0], [0.3, 0.4, 0.3], [0.9, 0.1, 0.0]])
    )
    assert (expected.number, expected.share) == (1, 0.75)
    assert (expected.others, expected.missed) == (pytest.approx(0.3 + 0.0 + 0.6 + 0.9), pytest.approx(0.9))


def test_overconfident_probabilities_have_a_calibration_error() -> None:
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
    return judged_forecast(of, right, noiseless, judged=judged, surrogates=2 * judged, rests_on=RESTS)


def test_the_interval_holds_what_is_measured() -> None:
    """The interval from a few points contains the share measured on many others in at least 95 of 100 cases."""
    rng = np.random.default_rng(0)
    inside = []
    for true in (0.6, 0.9):
        judged, measured = rng.binomial(40, true, 2000) / 40, rng.binomial(1000, true, 2000) / 1000
        for right, came in zip(judged, measured, strict=True):
            result = made(float(right), 1.0, judged=40)
            inside.append(result.low <= came <= result.high)
    assert np.mean(inside) >= 0.95
    few, many, sure = made(0.735, 0.75, judged=34), made(0.735, 0.75, judged=1000), made(1.0, 1.0, judged=34)
    assert few.low < 0.56 and few.high > 0.88 and 0.03 < many.high - 0.735 < 0.05
    assert sure.high == 1.0 and sure.low < 0.9, "34 of 34 correct is not certainty"


def test_intervals_allow_for_few_answers() -> None:
    """There are six hundred test points, and accounts can afford 40 labels."""
    rng = np.random.default_rng(0)
    judged, came = rng.binomial(600, 0.85, 2000) / 600, rng.binomial(40, 0.85, 2000) / 40
    inside = {}
    for measured in (40, None):
        forecast = partial(judged_forecast, LABELS, judged=600, surrogates=400, rests_on=RESTS, measured=measured)
        entries = [forecast(right, 1.0) for right in judged.tolist()]
        inside[measured] = np.mean([each.low <= share <= each.high for each, share in zip(entries, came, strict=True)])
    assert inside[40] >= 0.95 and inside[None] < 0.8


def test_people_are_too_few_where_noise_costs_a_fifth_of_what_could_be_learned() -> None:
    assert not few_people([made(0.71, 0.74)], 2)
    (warning,) = few_people([made(0.68, 0.74)], 2)
    assert "68 of 100" in warning and "about 74 without it" in warning
    assert not few_people([made(0.50, 0.51)], 2), "more people do not help if nothing can be learned"
    bound = Forecast(MODEL, None, 0.1, 0.5, 0.95, 0, RESTS)
    assert few_people([bound], 10) and not few_people([], 10) and not few_people([bound], 1)
    labels, model = made(0.4, 0.9, of=LABELS), made(0.88, 0.9)
    assert headline([labels, model]) == model and headline([labels]) == labels and headline([]) is None
    assert not few_people([labels, model], 10) and few_people([labels], 10), "the model's decides, if there is one"
    again = Forecast.from_json(json.loads(json.dumps(model.to_json())))
    assert again == model and again.rests_on.template == RESTS.template


@pytest.mark.parametrize(("points", "ways"), [(9, 3), (600, 3), (601, 1), (3000, 1)])
def test_every_point_judges_where_there_are_few(points: int, ways: int) -> None:
    divided = thirds(points)
    assert len(divided) == ways
    for surrogates, judged in divided:
        assert sorted([*surrogates, *judged]) == list(range(points))
    if ways == 3:
        assert sorted(np.concatenate([judged for _, judged in divided])) == list(range(points))


def descended(points: np.ndarray, classes: np.ndarray, public: np.ndarray, cap: float) -> Any:
    """Return the weights after all planned steps, and the calibration from their releases."""
    people = np.arange(len(points))
    records = owned_records(points, classes, people, people)
    level = PlannedLevel("ALL", cap, float(len(points)))
    plan = plan_steps([level], dimensions=points.shape[1], n_classes=2, share=1.0, steps=Steps())
    state, noise, found = Descent.begin(plan, public, 2), SimulationNoise(1), []
    accounts = IndividualAccounts(np.full(len(points), cap))
    while not state.finished:
        fixed = {"clip_norm": state.clip_norm, "accounts": accounts, "sigma": plan.sigma}
        sums, _charged = step_contributions(records, state.weights, **fixed)
        found.append((state, release_sums(sums, plan.sigma, noise)))
        state = state.after(found[-1][1])
    return state.learned, descent_calibration(found, state, public, records=1.0)


def people_like(number: int, seed: int, noise_only: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates of 8 numbers, half of which say something about the classes."""
    rng = np.random.default_rng(seed)
    points = np.clip(np.rint(rng.normal(0, 30, (number, 8))), -127, 127).astype(np.int8)
    chance = np.full(number, 0.5) if noise_only else expit(points[:, 0] / 30 + points[:, 1] / 60)
    return points, (rng.random(number) < chance).astype(np.int64)


def said(weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    return softmax(points.astype(float) @ weights[:-1] + INTERCEPT * weights[-1], axis=1)


def test_a_model_of_clipped_steps_is_too_sure_before_and_calibrated_after() -> None:
    test, truth = people_like(4000, 2)
    weights, found = descended(*people_like(8000, 0), people_like(2000, 1)[0], cap=0.05)
    before, after = said(weights, test), found.applied(said(weights, test))
    assert calibration(before, truth)[0].value > 0.08, "otherwise there is nothing to calibrate"
    assert calibration(after, truth)[0].value < 0.03
    assert losses(after, truth).mean() < losses(before, truth).mean()
    assert losses(after, truth).mean() < base_loss(truth, 2)
    assert area(after, truth).value == pytest.approx(area(before, truth).value)


def test_a_model_of_pure_noise_is_calibrated_to_the_base_rate() -> None:
    """Classes cannot be predicted, so the loss is that of the base rate."""
    test, truth = people_like(4000, 2, noise_only=True)
    weights, found = descended(*people_like(400, 0, noise_only=True), people_like(500, 1)[0], cap=0.02)
    before, after = losses(said(weights, test), truth).mean(), losses(found.applied(said(weights, test)), truth).mean()
    assert before > 0.8, "otherwise it was uncertain already"
    assert after < 0.75


def test_little_information_changes_little() -> None:
    kept = fit_to_sums(np.zeros((5, 3)), [], lengths=np.ones(5), clip_norm=1.0, constant=1.0)
    probabilities = np.array([[0.2, 0.8, 0.0]])
    assert kept == Calibration.none(3) and kept.applied(probabilities) is probabilities
    logits = np.random.default_rng(0).normal(0, 1e-3, (50, 2))
    check = StepCheck(logits, logits, 0.0, np.zeros(2), 1e-3, 1e-3)
    found = fit_to_sums(logits, [check], lengths=np.ones(50), clip_norm=0.25, constant=1.0)
    assert np.isfinite([found.scale, *found.offsets]).all(), "for a model with very small weights"
    found = fit_to_releases(np.array([[0.6, 0.4]] * 4), labelled([0], [0], classes=2))
    assert found.applied(np.array([[0.6, 0.4]]))[0, 0] < 0.95, "with one label"


@pytest.mark.parametrize("sigma", [0.0, 20.0])
def test_an_overconfident_student_is_calibrated_by_held_out_counts(sigma: float) -> None:
    rng = np.random.default_rng(3)
    chances = expit(rng.normal(0, 1, 2000))
    shares, voters = np.column_stack([1 - chances, chances]), 50
    sure = softmax(4 * np.log(shares), axis=1)
    votes = rng.binomial(voters, chances)
    counts = np.column_stack([voters - votes, votes]) + rng.normal(0, sigma, (2000, 2))
    found = fit_to_releases(sure, counted(np.arange(2000), counts, sigma))
    truth = (rng.random(2000) < chances).astype(np.int64)
    assert found.scale == pytest.approx(0.25, rel=0.25)
    assert calibration(found.applied(sure), truth)[0].value < 0.04 < calibration(sure, truth)[0].value


def test_releases_reveal_shifted_class_shares() -> None:
    """In the shifted run, public points have both classes equally often, but nine in ten people have one of them."""
    rng = np.random.default_rng(4)
    balanced = softmax(rng.normal(0, 0.5, (3000, 2)), axis=1)
    shifted = balanced * [0.9, 0.1]
    shifted /= shifted.sum(axis=1, keepdims=True)
    found = fit_to_releases(balanced, predicted(np.arange(3000), shifted))
    assert found.applied(balanced).mean(axis=0) == pytest.approx(shifted.mean(axis=0), abs=0.01)


def test_a_file_holds_the_same_calibration() -> None:
    found, probabilities = Calibration(0.4, (-0.3, 0.1, 0.2)), np.array([[0.7, 0.3, 0.0], [0.1, 0.1, 0.8]])
    graph = graphs.Graph()
    result = found.to_graph(graph, graph.input("p", graphs.DOUBLE, (3,)))
    content = graph.to_bytes({"calibrated": (result, graphs.DOUBLE, (3,))}, {})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"p": probabilities})
    assert answer == pytest.approx(found.applied(probabilities), abs=1e-12)
    assert Calibration.from_json(found.to_json()) == found
    assert (answer > 0).all(), "a class considered impossible is possible again"


WEIGHED = 0.02
SHARES = np.array([0.7, 0.2, 0.1])


def votes(seed: int, sigma: float) -> np.ndarray:
    """Return votes of 50 queries with about 300 voters each."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(300, SHARES, 50) + rng.normal(0, sigma, (50, 3))


def test_the_ends_of_votes_are_as_far_from_them_as_their_noise_allows() -> None:
    counts, sigma = votes(0, 40.0), 40.0
    found = voted_shares(counts, sigma)
    assert found is not None
    total = counts.sum()
    for share, votes_for in zip(found, counts.sum(axis=0), strict=True):
        assert share.value == pytest.approx(votes_for / total)
        for end, sign in ((share.low + WEIGHED, 1), (share.high - WEIGHED, -1)):
            # of the class minus the upper end of all three
            deviation = sigma * math.sqrt(50 * (1 - 2 * end + 3 * end**2))
            assert votes_for - end * total == pytest.approx(sign * 1.959964 * deviation)
    assert voted_shares(votes(0, 1e5), 1e5) is None, "noise exceeds them"
    assert voted_shares(np.full((3, 2), -1.0), 0.1) is None
    shares = voted_shares(np.array([[0.0, 10.0]]), 1e-9)
    assert shares is not None and shares[1].value == shares[1].high == 1.0 and shares[1].low == pytest.approx(0.98)


@pytest.mark.statistical
def test_intervals_hold_the_shares_of_the_people() -> None:
    """Even without the margin for people who count for less, they hold about nineteen times in twenty."""
    inside = []
    for seed in range(200):
        found = voted_shares(votes(seed, 100.0), 100.0)
        assert found is not None
        inside.append(found[0].low + WEIGHED <= SHARES[0] <= found[0].high - WEIGHED)
    assert 0.9 < np.mean(inside) < 0.985


def released(shares: list[float], people: int, cap: float, *, planned: float = 1.0, sigma: float | None = None) -> Any:
    """Return the release of the first step of this many people; a plan had counted only some of them."""
    rng, classes, everyone = np.random.default_rng(3), len(shares), np.arange(people)
    points = np.clip(np.rint(rng.normal(0, 30, (people, 6))), -127, 127).astype(np.int8)
    records = owned_records(points, rng.choice(classes, people, p=shares), everyone, everyone)
    level, accounts = PlannedLevel("ALL", cap, people * planned), IndividualAccounts(np.full(people, cap))
    plan = plan_steps([level], dimensions=6, n_classes=classes, share=1.0, steps=Steps(sigma=sigma))
    begin = Descent.begin(plan, points[:500], classes)
    fixed = {"clip_norm": begin.clip_norm, "accounts": accounts, "sigma": plan.sigma}
    sums, _charged = step_contributions(records, begin.weights, **fixed)
    return descent_shares(begin, release_sums(sums, plan.sigma, SimulationNoise(5))) or []


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.93, 0.07], [0.1, 0.2, 0.7]])
def test_the_first_step_counts_classes(shares: list[float]) -> None:
    found = released(shares, 5000, 100.0)
    assert [each.value for each in found] == pytest.approx(shares, abs=0.02)
    assert all(each.low <= share <= each.high for each, share in zip(found, shares, strict=True))
    assert sum(each.value for each in found) == pytest.approx(1.0, abs=1e-9)
    weak = released(shares, 5000, 0.02)
    assert all(w.high - w.low > s.high - s.low for w, s in zip(weak, found, strict=True))


def test_class_shares_are_unknown_after_silence_and_allow_for_people_who_came_or_went() -> None:
    assert released([0.9, 0.1], 500, 0.9, sigma=1.0) == []
    assert released([0.9, 0.1], 500, 1.1, sigma=1.0) != []
    found = released([0.9, 0.1], 5000, 100.0, planned=1.05)
    assert found[0].low <= 0.9 <= found[0].high and found[0].value < 0.89


def test_the_interval_of_the_first_step_is_of_centred_noise() -> None:
    """With four equally likely classes and no clipping, only noise remains; centring leaves 3/4 of its variance."""
    found = first_step_shares(np.zeros(4), noise=0.03, lengths=np.ones(9), clip_norm=2.0)
    half = 1.959964 * 0.03 * math.sqrt(0.75)
    expected = pytest.approx((0.25, 0.25 - half - WEIGHED, 0.25 + half + WEIGHED))
    assert [(each.value, each.low, each.high) for each in found] == [expected] * 4


def test_shares_differ_if_their_intervals_are_disjoint() -> None:
    people = ClassShare(0.6, 0.55, 0.65)
    cases = [(0.4, 400), (0.8, 400), (0.4, 20), (0.52, 400)]  # twenty points give 0.22 to 0.61
    assert [differing(people, *case) for case in cases] == [True, True, False, False]
