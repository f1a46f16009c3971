"""Forecasts of steps, and adjusting models to their noise, which recovers true scores at any noise."""

from functools import cache

import numpy as np
import pytest
from scipy.special import expit

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.exact_arithmetic import Floats
from learning.forecasts import MODEL, few_people
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import INTERCEPT, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.rehearsals import descent_adjustment, forecast_steps, forecast_target, rehearsed
from learning.mechanisms.steps.steps_plan import Steps, plan_steps
from learning.outcomes import CROSS_ENTROPY, Labels, Loss, Numbers, Target, Times

pytestmark = pytest.mark.statistical
TARGETS: list[Target] = [Numbers(0, 100), Times((5, 10, 20, 40, 80), "days"), Labels(("ill", "old"))]
PEOPLE, DIMENSIONS = 1500, 12


def truth(target: Target, x: Floats) -> Floats:
    """Return people's true scores."""
    if isinstance(target, Numbers):
        return np.stack([x[:, 0] / 6, 0.06 + 0.015 * x[:, 1].clip(-3, 3)], axis=1)
    return np.stack([0.8 * x[:, 0] - 0.4, 0.4 * x[:, 1]], axis=1)


def descended(
    state: Descent, sigma: float, x: Floats, codes: Floats, *, cap: float, seed: int, loss: Loss = CROSS_ENTROPY
) -> Descent:
    """Return the descent after its last step, on one record of each person."""
    everyone, noise = np.arange(len(x)), SimulationNoise(seed)
    records, accounts = owned_records(x, codes, everyone, everyone), IndividualAccounts(np.full(len(x), cap))
    while not state.finished:
        sums, _ = step_contributions(
            records, state.weights, clip_norm=state.clip_norm, accounts=accounts, sigma=sigma, loss=loss
        )
        state = state.after(release_sums(sums, sigma, noise))
    return state


@cache
def learned(kind: str, cap: float) -> tuple[Target, Descent, Floats, Floats]:
    """Return the descent, and the true and learned scores of other people."""
    target = next(each for each in TARGETS if each.kind == kind)
    rng = np.random.default_rng(11)
    x = np.rint(rng.normal(0, 30, (3 * PEOPLE, DIMENSIONS)).clip(-127, 127)).astype(np.int8)
    codes = target.drawn(truth(target, x / 30), rng)
    mine, public, others = np.split(np.arange(3 * PEOPLE), 3)
    how = {"dimensions": DIMENSIONS, "n_classes": 2, "share": 1.0, "steps": Steps(steps=20), "loss": target.loss}
    plan = plan_steps([PlannedLevel("ALL", cap, PEOPLE)], **how)
    begin = Descent.begin(plan, x[public], target.outputs, target.loss)
    state = descended(begin, plan.sigma, x[mine], codes[mine], cap=cap, seed=3, loss=target.loss)
    found = x[others].astype(float) @ state.learned[:-1] + 127 * state.learned[-1]
    return target, state, truth(target, x[others] / 30), found


def adjusted(state: Descent, target: Target, scores: Floats) -> Floats:
    scale, offset = descent_adjustment(state, target)
    assert np.array_equal(descent_adjustment(state, target), (scale, offset)), "it follows from the releases"
    return scores * scale + offset


@pytest.mark.parametrize("cap", [0.3, 0.03])
def test_intervals_of_numbers_have_their_stated_coverage(cap: float) -> None:
    target, state, true, found = learned("numbers", cap)
    numbers = target.drawn(true, np.random.default_rng(12))
    held = []
    for scores in (found, adjusted(state, target, found)):
        shares, value = target.predictions(scores), numbers / 2**20 * 100
        held.append(float(((shares[:, 1] <= value) & (value <= shares[:, 2])).mean()))
    assert held[0] < 0.93, "otherwise there was nothing to adjust"
    assert held[1] == pytest.approx(0.95, abs=0.03) and abs(held[1] - 0.95) < abs(held[0] - 0.95)


def test_the_adjustment_finds_how_much_clipping_shrinks_scores() -> None:
    """Few drawn people stand in for a million, whose errors hardly move their mean."""
    target, dimensions = Numbers(0, 100), 100
    rng = np.random.default_rng(5)
    x = np.rint(rng.normal(0, 30, (2000, dimensions)).clip(-127, 127)).astype(np.int8)
    codes = target.drawn_twice(np.stack([x[:, 0] / 600, np.full(2000, 0.12)], axis=1), rng)
    levels = [PlannedLevel("ALL", 0.1, 1e6)]
    plan = plan_steps(levels, dimensions=dimensions, n_classes=2, share=1.0, steps=Steps(steps=10), loss=target.loss)
    state = rehearsed(Descent.begin(plan, x, 2, target.loss), np.tile(x, (2, 1)), codes, None)
    wider = np.polyfit(x.astype(float) @ state.learned[:-1, 0], x[:, 0] / 600, 1)[0]
    (scale, _), _ = descent_adjustment(state, target)
    assert scale == pytest.approx(wider, abs=0.05)


@pytest.mark.parametrize("kind", ["labels", "times"])
def test_probabilities_and_survival_are_nearer_to_the_truth(kind: str) -> None:
    target, state, true, found = learned(kind, 0.03)

    def said(scores: Floats) -> Floats:
        return expit(scores) if kind == "labels" else target.predictions(scores)

    before, after = (float(((said(each) - said(true)) ** 2).mean()) for each in (found, adjusted(state, target, found)))
    assert after < 0.8 * before


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.kind)
def test_a_forecast_matches_the_result_on_other_people(target: Target) -> None:
    """The actual result is measured on points that were not used for learning, with true targets."""
    _target, state, true, found = learned(target.kind, 0.3)
    rng = np.random.default_rng(13)
    x = np.rint(rng.normal(0, 30, (1500, DIMENSIONS)).clip(-127, 127)).astype(np.int8)
    forecast = forecast_target(state.plan, x, target.drawn(truth(target, x / 30), rng), target)
    came = target.evaluated(target.predictions(adjusted(state, target, found)), target.drawn(true, rng)).measures[0]
    assert forecast is not None and came.estimate.value is not None and forecast.value is not None
    assert (forecast.measure, forecast.judged) == (came.label, 500)
    assert forecast.low <= came.estimate.value <= forecast.high
    assert forecast.low < forecast.value < forecast.high and forecast.noiseless > forecast.value - 0.02


def some_points(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, count)
    return np.clip(np.rint(np.eye(20)[truth] * 60 + rng.normal(0, 25, (count, 20))), -127, 127).astype(np.int8), truth


def test_a_forecast_from_labels_is_near_the_outcome() -> None:
    cap = 0.0005
    public, labels = some_points(1, 1500)
    private, truth = some_points(2, 3000)
    plan = plan_steps([PlannedLevel("ALL", cap, 3000.0)], dimensions=20, n_classes=3, share=1.0)
    (made,) = forecast_steps(plan, public, 3, labels=labels)
    state = descended(Descent.begin(plan, public, 3), plan.sigma, private, truth, cap=cap, seed=7)
    right = ((public @ state.learned[:-1] + INTERCEPT * state.learned[-1]).argmax(axis=1) == labels).mean()
    assert made.of == MODEL and made.value == pytest.approx(right, abs=0.06)
    assert made.low <= right <= made.high and made.judged == 500
    assert made.noiseless > 0.88


def test_a_forecast_of_two_classes_matches_the_resulting_area() -> None:
    """One class is rare: always predicting the other is right as often as the model, but ranks nobody."""
    from sklearn.metrics import roc_auc_score

    rng, cap = np.random.default_rng(5), 0.01
    slope = np.linspace(-0.04, 0.04, DIMENSIONS)

    def people(count: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.rint(rng.normal(0, 30, (count, DIMENSIONS)).clip(-127, 127)).astype(np.int8)
        return x, (rng.random(count) < expit(x @ slope - 3)).astype(np.int64)

    (private, truth), (public, labels) = people(3000), people(1500)
    plan = plan_steps([PlannedLevel("ALL", cap, 3000.0)], dimensions=DIMENSIONS, n_classes=2, share=1.0)
    right, made = forecast_steps(plan, public, 2, labels=labels)
    state = descended(Descent.begin(plan, public, 2), plan.sigma, private, truth, cap=cap, seed=7)
    scores = public @ state.learned[:-1] + INTERCEPT * state.learned[-1]
    came = roc_auc_score(labels, scores[:, 1] - scores[:, 0])
    assert right.measure == "" and (made.of, made.measure, made.judged) == (MODEL, "Area under the ROC curve", 500)
    assert made.low <= came <= made.high and made.low < made.value < made.high and made.noiseless > 0.7
    (of_few,) = forecast_steps(plan, public[:60], 2, labels=labels[:60])[1:]
    assert of_few.high - of_few.low > made.high - made.low and of_few.judged == 60


def test_a_forecast_without_labels_warns_of_too_much_noise() -> None:
    public, _ = some_points(1, 900)
    made = {}
    for people in (30.0, 30_000.0):
        plan = plan_steps([PlannedLevel("ALL", 0.01, people)], dimensions=20, n_classes=3, share=1.0)
        (made[people],) = forecast_steps(plan, public, 3)
        assert forecast_steps(plan, public, 3) == (made[people],) and made[people].value is None
    assert made[30_000.0].high > made[30_000.0].noiseless - 0.02 > 0.9
    assert made[30.0].high < 0.7 and made[30.0].judged == 0
    assert few_people([made[30.0]], 3) and not few_people([made[30_000.0]], 3)
