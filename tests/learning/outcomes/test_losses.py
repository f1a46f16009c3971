"""Losses: residuals against finite differences of the loss, curvature against its second derivatives, bounded norms."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.mechanisms.levels import Level
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import CLIP_STEPS, release_sums, step_contributions
from learning.mechanisms.steps.planner import plan_steps
from learning.mechanisms.steps.records import owned_records
from learning.outcomes import Classes, Codes, Labels, Numbers, Outcome, Times
from learning.outcomes.exact import RESIDUAL_STEPS, Floats, exponentials, logistic

TIMES = Times((10, 30, 60, 100), "days")
LABELS = Labels(("ill", "old", "tall"))
OUTCOMES: list[Outcome] = [Classes(("a", "b", "c")), Numbers(-5, 20, "kg"), TIMES, LABELS]
ids = [each.kind for each in OUTCOMES]


def codes_of(outcome: Outcome, number: int, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    match outcome:
        case Numbers():
            return outcome.coded([rng.uniform(outcome.minimum, outcome.maximum, number)])
        case Times():
            return outcome.coded([rng.uniform(0, 130, number), rng.integers(0, 2, number).astype(float)])
        case Labels():
            return outcome.coded(list(rng.integers(0, 2, (outcome.outputs, number)).astype(float)))
    return rng.integers(0, outcome.outputs, number)


def class_loss(scores: Floats, code: int) -> float:
    return float(np.log(np.exp(scores).sum()) - scores[code])


def number_loss(scores: Floats, code: int) -> float:
    """As docs/outcomes.md writes it; how far the first score is off is held fixed where the second learns it."""
    y = code / RESIDUAL_STEPS - 0.5
    return float((scores[0] - y) ** 2 / 2)


def labels_loss(scores: Floats, code: int) -> float:
    bits = [code >> place & 1 for place in range(len(scores))]
    return float(sum(-np.log(expit(s) if bit else expit(-s)) for s, bit in zip(scores, bits, strict=True)))


def times_loss(scores: Floats, code: int) -> float:
    """Minus the log likelihood of the person-periods, interval after interval."""
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


PLAIN: dict[str, Callable[[Floats, int], float]] = {
    "classes": class_loss,
    "numbers": number_loss,
    "times": times_loss,
    "labels": labels_loss,
}


@pytest.mark.parametrize("outcome", OUTCOMES, ids=ids)
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
    if outcome.kind == "numbers":  # the second score follows how far the first is off
        found = outcome.loss.residuals(np.array([[0.1, 0.3]]), outcome.coded([np.array([12.5])])) / RESIDUAL_STEPS
        assert found == pytest.approx(np.array([[0.6 - 0.7, 0.3 - 0.1]]), abs=1e-5)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=ids)
def test_the_curvature_bounds_the_second_derivatives(outcome: Outcome) -> None:
    """Where targets are drawn as the model expects them; of classes, labels and numbers they do not matter."""
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


@pytest.mark.parametrize("outcome", OUTCOMES, ids=ids)
def test_no_score_is_too_large_and_a_code_that_is_no_target_says_nothing(outcome: Outcome) -> None:
    scores = np.array([[1e6], [-1e6]]) * np.ones(outcome.outputs) * [1, *[-1] * (outcome.outputs - 1)]
    with np.errstate(all="raise", under="ignore"):
        for found in (
            outcome.loss.residuals(scores, codes_of(outcome, 2)),
            outcome.loss.curvature(scores),
            outcome.predictions(scores),
        ):
            assert np.isfinite(found).all()
    scores = np.random.default_rng(3).normal(0, 1, (4, outcome.outputs))
    assert not outcome.loss.residuals(scores, np.array([-1, 2**40, 2**62, -(2**62)])).any()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=ids)
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


@pytest.mark.parametrize("outcome", OUTCOMES[1:], ids=ids[1:])
def test_steps_without_noise_reach_the_least_loss(outcome: Outcome) -> None:
    """The mean gradient, clipped as it was, is 0 there: nobody's own solver is needed to see that."""
    rng = np.random.default_rng(5)
    x = rng.integers(-90, 91, (3000, 3)).astype(np.int8)
    codes = codes_of(outcome, 3000)
    codes = codes[np.argsort(np.argsort(x[:, 0] + rng.normal(0, 50, 3000)))] if outcome.kind == "numbers" else codes
    plan = plan_steps(
        [Level("ALL", 4.0, 3000.0)], dimensions=3, n_classes=outcome.outputs, share=1.0, loss=outcome.loss
    )
    everyone = np.arange(3000)
    records, accounts = owned_records(x, codes, everyone, everyone), IndividualAccounts(np.full(3000, 1e9))
    state = Descent.begin(plan, x[:800], outcome.outputs, outcome.loss)

    def sums_at(weights: Floats) -> np.ndarray:
        return step_contributions(
            records, weights, clip_norm=state.clip_norm, accounts=accounts, sigma=1.0, loss=outcome.loss
        )[0]

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
