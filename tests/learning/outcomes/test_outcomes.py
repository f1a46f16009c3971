"""Outcomes: losses compared with finite differences, categories with sampled numbers, measures with formulas."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.exact_arithmetic import RESIDUAL_STEPS, Floats, exponentials, logistic
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import CLIP_STEPS, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.steps_plan import plan_steps
from learning.outcomes import Classes, Codes, Labels, Numbers, Outcome, Times
from learning.outcomes.outcome import MOST_CATEGORIES
from learning.outcomes.times import brier_scores, concordance, kaplan_meier
from tests.learning.lazily import graphs, metrics, onnxruntime

NUMBERS = Numbers(-5, 20, "kg")
TIMES = Times((10, 30, 60, 100), "days")
LABELS = Labels(("ill", "old", "tall"))
OUTCOMES: list[Outcome] = [Classes(("a", "b", "c")), NUMBERS, TIMES, LABELS]


@pytest.fixture(params=OUTCOMES, ids=lambda each: each.kind)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return request.param


def codes_of(outcome: Outcome, number: int, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    if isinstance(outcome, Numbers):
        return outcome.coded([rng.uniform(outcome.minimum, outcome.maximum, number)])
    if isinstance(outcome, Times):
        return outcome.coded([rng.uniform(0, 130, number), rng.integers(0, 2, number).astype(float)])
    if isinstance(outcome, Labels):
        return outcome.coded(list(rng.integers(0, 2, (outcome.outputs, number)).astype(float)))
    return rng.integers(0, outcome.outputs, number)


def class_loss(scores: Floats, code: int) -> float:
    return float(np.log(np.exp(scores).sum()) - scores[code])


def number_loss(scores: Floats, code: int) -> float:
    """Return the loss of the first score in docs/outcomes.md."""
    y = code / RESIDUAL_STEPS - 0.5
    return float((scores[0] - y) ** 2 / 2)


def labels_loss(scores: Floats, code: int) -> float:
    bits = [code >> place & 1 for place in range(len(scores))]
    return float(sum(-np.log(expit(s) if bit else expit(-s)) for s, bit in zip(scores, bits, strict=True)))


def times_loss(scores: Floats, code: int) -> float:
    """Return minus the log likelihood of the person-periods, interval by interval."""
    (time,), (event,) = TIMES.times(np.array([code]))
    total, start = 0.0, 0.0
    logits = TIMES.loss.logits(scores[None])[0]
    for end, logit in zip(TIMES.ends, logits, strict=True):
        if event and start < time <= end:
            total -= np.log(expit(logit))
        elif time > end or (not event and time >= (start + end) / 2):
            total -= np.log(expit(-logit))
        start = end
    return float(total)


PLAIN = {"classes": class_loss, "numbers": number_loss, "times": times_loss, "labels": labels_loss}


def test_residuals_are_the_derivatives_of_the_loss(outcome: Outcome) -> None:
    rng = np.random.default_rng(1)
    scores, codes = rng.normal(0, 0.2, (60, outcome.outputs)), codes_of(outcome, 60)
    residuals = outcome.loss.residuals(scores, codes) / RESIDUAL_STEPS
    assert np.abs(residuals).max() <= 1
    loss, step = PLAIN[outcome.kind], 1e-5
    for place in range(60):
        for output in range(1 if outcome.kind == "numbers" else outcome.outputs):
            moved = step * np.eye(outcome.outputs)[output]
            slope = (loss(scores[place] + moved, codes[place]) - loss(scores[place] - moved, codes[place])) / (2 * step)
            assert residuals[place, output] == pytest.approx(np.clip(slope, -1, 1), abs=1e-5)
    if outcome.kind == "numbers":  # the second score estimates the error of the first
        codes = outcome.coded([np.array([12.5, 12.5])])
        found = outcome.loss.residuals(np.array([[0.1, 0.3], [0.4, 0.3]]), codes) / RESIDUAL_STEPS
        assert found == pytest.approx(np.array([[0.6 - 0.7, 0.3 - 0.1], [0.9 - 0.7, 0.3 - 0.2]]), abs=1e-5)


def test_the_curvature_bounds_the_second_derivatives(outcome: Outcome) -> None:
    """Targets are drawn from the model's expectation; for classes, labels and numbers they do not matter."""
    rng = np.random.default_rng(2)
    for scores in rng.normal(0, 0.7, (20, outcome.outputs)):
        bound = np.broadcast_to(outcome.loss.curvature(scores[None])[0], outcome.outputs)
        hessian = expected_hessian(outcome, scores)
        centred = np.eye(outcome.outputs) - (1 / outcome.outputs if outcome.loss.centred else 0)
        least = np.linalg.eigvalsh(centred @ (np.diag(bound) - hessian) @ centred).min()
        assert least > -1e-5


def expected_hessian(outcome: Outcome, scores: Floats) -> Floats:
    if outcome.kind == "numbers":
        return np.eye(2)
    if outcome.kind == "times":
        hazards = expit(TIMES.loss.logits(scores[None])[0])
        shapes, reach = np.array(TIMES.loss.shapes), np.append(1.0, np.cumprod(1 - hazards)[:-1])
        return np.einsum("j,jk,jl->kl", reach * hazards * (1 - hazards), shapes, shapes)
    loss, step = PLAIN[outcome.kind], 1e-3

    def mixed(one: Floats, other: Floats) -> float:
        signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
        return sum(a * b * loss(scores + a * one + b * other, 0) for a, b in signs) / (4 * step**2)

    unit = np.eye(outcome.outputs) * step
    return np.array([[mixed(one, other) for other in unit] for one in unit])


def test_no_score_is_too_large_and_a_code_that_is_no_target_says_nothing(outcome: Outcome) -> None:
    scores = np.array([[1e6], [-1e6]]) * np.ones(outcome.outputs) * [1, *[-1] * (outcome.outputs - 1)]
    with np.errstate(all="raise", under="ignore"):
        found = outcome.loss.residuals(scores, codes_of(outcome, 2)), outcome.loss.curvature(scores)
        assert all(np.isfinite(each).all() for each in (*found, outcome.predictions(scores)))
    scores = np.random.default_rng(3).normal(0, 1, (4, outcome.outputs))
    assert not outcome.loss.residuals(scores, np.array([-1, 2**40, 2**62, -(2**62)])).any()


def test_a_holders_vector_is_bounded_and_does_not_depend_on_others(outcome: Outcome) -> None:
    rng = np.random.default_rng(4)
    x, owners = rng.integers(-127, 128, (100, 12)).astype(np.int8), np.sort(rng.integers(0, 30, 100))
    codes, weights = codes_of(outcome, 100), rng.normal(0, 0.01, (13, outcome.outputs))

    def answer_of(kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        holders, owner = np.unique(owners[kept], return_inverse=True)
        records = owned_records(x[kept], codes[kept], owner, holders)
        accounts = IndividualAccounts(np.full(len(holders), 1e9))
        return step_contributions(records, weights, clip_norm=20.0, accounts=accounts, sigma=1.0, loss=outcome.loss)

    together, charged = answer_of(np.ones(100, bool))
    alone = [answer_of(owners == each) for each in np.unique(owners)]
    assert (together == sum(sums for sums, _ in alone)).all()
    for (sums, (cost,)), all_cost in zip(alone, charged, strict=True):
        norm = np.sqrt((sums.astype(float) ** 2).sum()) / CLIP_STEPS
        assert norm <= 1.0
        assert cost == all_cost == pytest.approx(norm**2)


@pytest.mark.parametrize("outcome", OUTCOMES[1:], ids=lambda each: each.kind)
def test_steps_without_noise_reach_the_least_loss(outcome: Outcome) -> None:
    """The mean of the clipped gradients is 0 there, which needs no independent solver to check."""
    rng = np.random.default_rng(5)
    x = rng.integers(-90, 91, (3000, 3)).astype(np.int8)
    codes = codes_of(outcome, 3000)
    codes = codes[np.argsort(np.argsort(x[:, 0] + rng.normal(0, 50, 3000)))] if outcome.kind == "numbers" else codes
    levels = [PlannedLevel("ALL", 4.0, 3000.0)]
    plan = plan_steps(levels, dimensions=3, n_classes=outcome.outputs, share=1.0, loss=outcome.loss)
    everyone = np.arange(3000)
    records, accounts = owned_records(x, codes, everyone, everyone), IndividualAccounts(np.full(3000, 1e9))
    state = Descent.begin(plan, x[:800], outcome.outputs, outcome.loss)

    def sums_at(weights: Floats) -> np.ndarray:
        how = {"clip_norm": state.clip_norm, "accounts": accounts, "sigma": 1.0, "loss": outcome.loss}
        return step_contributions(records, weights, **how)[0]

    begun = np.abs(sums_at(state.weights)).max()
    while not state.finished:
        state = state.after(release_sums(sums_at(state.weights), 0.0001, SimulationNoise(0)))
    assert np.abs(sums_at(state.learned)).max() < 0.02 * begun


def test_the_logistic_function_is_exact_to_its_steps_and_the_same_everywhere() -> None:
    logits = np.random.default_rng(6).normal(0, 6, 1001)
    found = logistic(logits)
    np.testing.assert_allclose(found / RESIDUAL_STEPS, expit(logits), atol=0.51 / RESIDUAL_STEPS)
    assert all(logistic(logits[place : place + 1])[0] == found[place] for place in range(1001))
    np.testing.assert_allclose(exponentials(-np.abs(logits)), np.exp(-np.abs(logits)), rtol=1e-11)


def test_person_periods_are_those_of_a_table_by_hand() -> None:
    times = [5.0, 5.0, 10.0, 31.0, 21.0, 19.0, 100.0, 101.0, 0.0]
    events = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    at_risk, happened = TIMES.loss.intervals(TIMES.coded([np.array(times), np.array(events)]))
    assert ["".join(map(str, row)) for row in at_risk.astype(int).tolist()] == [
        *("1000", "1000", "1000", "1110", "1100", "1000", "1111", "1111", "1000")
    ]
    assert happened.argmax(axis=1).tolist() == [0, 0, 0, 2, 0, 0, 3, 0, 0]
    assert happened.sum(axis=1).tolist() == [1, 0, 1, 1, 0, 0, 1, 0, 1]
    assert TIMES.loss.clip_norm == 0.7


def test_shares_reproduce_the_predictions(outcome: Outcome) -> None:
    """Bins widen the interval of numbers; the mean is kept if the distribution is within the range."""
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 1, (50, outcome.outputs))
    if isinstance(outcome, Numbers):
        scores = np.stack([rng.uniform(-0.4, 0.4, 50), rng.uniform(0.0, 0.1, 50)], axis=1)
    predictions = outcome.predictions(scores)
    shares = outcome.shares(predictions)
    assert shares.shape == (50, len(outcome.categories))
    assert shares.min() >= -1e-12
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    back = outcome.from_shares(shares)
    if not isinstance(outcome, Numbers):
        np.testing.assert_allclose(back, predictions, atol=1e-9)
        return
    inside = (predictions[:, 1] > -3) & (predictions[:, 2] < 18)
    assert inside.sum() > 10
    np.testing.assert_allclose(back[inside, 0], predictions[inside, 0], atol=0.15)
    assert (back[:, 1] <= back[:, 0]).all() and (back[:, 0] <= back[:, 2]).all()
    assert (np.abs(back - predictions)[inside, 1:] < 2 * 25 / 16).all()


def test_shares_of_a_number_are_those_of_many_drawn_from_its_distribution() -> None:
    """Independently, numbers are drawn from a Laplace distribution and shared between their two nearest bins."""
    value, scale = 7.3, 1.9
    drawn = value + np.random.default_rng(5).laplace(0, scale, 400_000)
    place = ((drawn + 5) / 25 * 16 - 0.5).clip(0, 15)
    low = np.minimum(place.astype(int), 14)
    counted = np.bincount(low, 1 - (place - low), 16) + np.bincount(low + 1, place - low, 16)
    (shares,) = NUMBERS.shares(np.array([[value, value - 3 * scale, value + 3 * scale]]))
    np.testing.assert_allclose(shares, counted / len(drawn), atol=0.003)


def test_an_interval_holds_95_per_cent_of_what_shares_say() -> None:
    shares = np.random.default_rng(6).dirichlet(np.ones(16), 20)
    values = NUMBERS.from_shares(shares)
    edges = np.linspace(-5, 20, 17)
    for row, (value, low, high) in zip(shares, values, strict=True):
        below = [np.interp(end, edges, np.append(0, np.cumsum(row))) for end in (low, high)]
        assert below == pytest.approx([0.025, 0.975], abs=1e-6)
        assert value == pytest.approx(row @ (edges[1:] + edges[:-1]) / 2, abs=1e-6)


def test_onnx_nodes_give_the_same_results(outcome: Outcome) -> None:
    shares = np.random.default_rng(7).dirichlet(np.full(len(outcome.categories), 0.3), 30)
    shares[0] = np.eye(len(outcome.categories))[0]
    graph = graphs.Graph()
    entering = graph.input("shares", graphs.DOUBLE, (len(outcome.categories),))
    values = outcome.shares_to_graph(graph, entering), graphs.DOUBLE, (len(outcome.columns),)
    content = graph.to_bytes({"values": values}, {})
    (found,) = onnxruntime.InferenceSession(content).run(None, {"shares": shares})
    np.testing.assert_allclose(found, outcome.from_shares(shares), atol=1e-9)


def test_a_code_is_of_the_category_that_holds_it() -> None:
    codes = NUMBERS.coded([np.array([-5.0, -3.5, -3.4, 7.5, 20.0, 90.0])])
    assert NUMBERS.categories_of(codes).tolist() == [0, 0, 1, 8, 15, 15]
    times = TIMES.coded([np.array([0.0, 10.0, 11.0, 100.0, 100.0, 300.0, 50.0]), np.array([1.0, 1, 1, 1, 0, 0, 0])])
    assert TIMES.categories_of(times).tolist() == [0, 0, 1, 3, 4, 4, -1]
    assert LABELS.categories_of(np.array([0, 5, 7])).tolist() == [0, 5, 7]
    assert LABELS.categories[5] == "ill, tall"
    for outcome in (NUMBERS, TIMES, LABELS):
        assert (outcome.categories_of(np.array([-1, 2**40, -(2**62)])) == -1).all()
    assert [len(Labels(tuple(names)).categories) for names in ("abcdefg", "abcdefgh")] == [MOST_CATEGORIES, 0]


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
    value = brier_scores(np.full((4, 1), 0.5), np.array([2.0, 2.0, 3.0, 4.0]), events, np.array([2.5]))
    assert value[:, 0] == pytest.approx([0, 0.25, 0.25 / (3 / 4), 0.25 / (3 / 4)]), "lost at the moment of an event"


def test_measures_of_numbers_and_labels_are_their_definitions() -> None:
    rng, target = np.random.default_rng(2), Numbers(0, 10, "kg")
    truth = rng.uniform(1, 9, 200)
    said = truth + rng.normal(0, 1, 200)
    found = target.evaluated(np.stack([said, said - 1, said + 1], axis=1), target.coded([truth]))
    value = {each.name: each.estimate.value for each in found.measures}
    assert value["r2"] == pytest.approx(metrics.r2_score(truth, said), abs=1e-4)
    assert value["mean_absolute_error"] == pytest.approx(np.abs(truth - said).mean(), abs=1e-4)
    assert value["coverage"] == pytest.approx((np.abs(truth - said) < 1).mean())
    assert value["width"] == pytest.approx(2)
    interval = found.measures[0].estimate.interval
    assert interval and interval[0] < value["r2"] < interval[1]
    labels, bits, said = Labels(("ill", "old")), rng.integers(0, 2, (2, 100)), rng.random((100, 2))
    areas = [metrics.roc_auc_score(bits[place], said[:, place]) for place in range(2)]
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
    assert target.answers(said[:1]) == [2.0]
    assert target.answers(np.array([[0.9, 0.8, 0.7]])) == [None]
