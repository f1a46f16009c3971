"""Calibration from releases: too sure, useless and shifted models, and the same in the ONNX file."""

import numpy as np
import onnxruntime
import pytest
from scipy.special import expit, softmax

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.calibration import Calibration, StepCheck, fit_to_sums
from learning.exports.graph import DOUBLE, Graph
from learning.measures import area, base_loss, calibration, losses
from learning.mechanisms.levels import Level
from learning.mechanisms.steps.calibration import descent_calibration
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.planner import plan_steps
from learning.mechanisms.steps.records import INTERCEPT, owned_records
from learning.students import counted, labelled, predicted
from learning.students.calibration import fit_to_releases


def descended(
    points: np.ndarray, classes: np.ndarray, public: np.ndarray, cap: float
) -> tuple[np.ndarray, Calibration]:
    """Weights of all planned steps, and the calibration that their releases lead to."""
    people = np.arange(len(points))
    records = owned_records(points, classes, people, people)
    level = Level("ALL", cap, float(len(points)))
    plan = plan_steps([level], dimensions=points.shape[1], n_classes=2, share=1.0, steps=Steps())
    state, noise, found = Descent.begin(plan, public, 2), SimulationNoise(1), []
    accounts = IndividualAccounts(np.full(len(points), cap))
    while not state.finished:
        sums, _charged = step_contributions(
            records, state.weights, clip_norm=state.clip_norm, accounts=accounts, sigma=plan.sigma
        )
        found.append((state, release_sums(sums, plan.sigma, noise)))
        state = state.after(found[-1][1])
    return state.learned, descent_calibration(found, state, public, records=1.0)


def people_like(number: int, seed: int, noise_only: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of 8 numbers, and classes of which nobody can say more than the half."""
    rng = np.random.default_rng(seed)
    points = np.clip(np.rint(rng.normal(0, 30, (number, 8))), -127, 127).astype(np.int8)
    chance = np.full(number, 0.5) if noise_only else expit(points[:, 0] / 30 + points[:, 1] / 60)
    return points, (rng.random(number) < chance).astype(np.int64)


def said(weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    return softmax(points.astype(float) @ weights[:-1] + INTERCEPT * weights[-1], axis=1)


def test_a_model_of_clipped_steps_is_too_sure_before_and_calibrated_after() -> None:
    points, classes = people_like(8000, 0)
    public, _unknown = people_like(2000, 1)
    test, truth = people_like(4000, 2)
    weights, found = descended(points, classes, public, cap=0.05)
    before, after = said(weights, test), found.applied(said(weights, test))
    assert calibration(before, truth)[0].value > 0.08, "or there is nothing to calibrate"
    assert calibration(after, truth)[0].value < 0.03
    assert losses(after, truth).mean() < losses(before, truth).mean()
    assert losses(after, truth).mean() < base_loss(truth, 2)
    assert area(after, truth).value == pytest.approx(area(before, truth).value)


def test_a_model_that_learned_nothing_but_noise_says_the_base_rate() -> None:
    """The useless run: classes that nobody can tell. Its loss is that of the base rate, and its answers are unsure."""
    points, classes = people_like(400, 0, noise_only=True)
    public, _unknown = people_like(500, 1)
    test, truth = people_like(4000, 2, noise_only=True)
    weights, found = descended(points, classes, public, cap=0.02)
    before, after = losses(said(weights, test), truth).mean(), losses(found.applied(said(weights, test)), truth).mean()
    assert before > 0.8, "or it was not sure of what it learned"
    assert after < 0.75


def test_without_any_check_nothing_changes() -> None:
    kept = fit_to_sums(np.zeros((5, 3)), [], lengths=np.ones(5), clip_norm=1.0, constant=1.0)
    assert kept == Calibration.none(3)
    probabilities = np.array([[0.2, 0.8, 0.0]])
    assert kept.applied(probabilities) is probabilities


def test_a_model_of_hardly_any_weight_is_calibrated_as_well() -> None:
    logits = np.random.default_rng(0).normal(0, 1e-3, (50, 2))
    check = StepCheck(logits, logits, 0.0, np.zeros(2), 1e-3, 1e-3)
    found = fit_to_sums(logits, [check], lengths=np.ones(50), clip_norm=0.25, constant=1.0)
    assert np.isfinite([found.scale, *found.offsets]).all()


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


def test_the_shifted_classes_of_people_are_seen_in_what_they_release() -> None:
    """The shifted run: public points are of both classes alike, of the people nine in ten are of one."""
    rng = np.random.default_rng(4)
    balanced = softmax(rng.normal(0, 0.5, (3000, 2)), axis=1)
    shifted = balanced * [0.9, 0.1]
    shifted /= shifted.sum(axis=1, keepdims=True)
    found = fit_to_releases(balanced, predicted(np.arange(3000), shifted))
    assert found.applied(balanced).mean(axis=0) == pytest.approx(shifted.mean(axis=0), abs=0.01)


def test_few_labels_change_little() -> None:
    found = fit_to_releases(np.array([[0.6, 0.4]] * 4), labelled([0], [0], classes=2))
    assert found.applied(np.array([[0.6, 0.4]]))[0, 0] < 0.95


def test_a_file_holds_the_same_calibration() -> None:
    found, probabilities = Calibration(0.4, (-0.3, 0.1, 0.2)), np.array([[0.7, 0.3, 0.0], [0.1, 0.1, 0.8]])
    graph = Graph()
    result = found.to_graph(graph, graph.input("p", DOUBLE, (3,)))
    content = graph.to_bytes({"calibrated": (result, DOUBLE, (3,))}, {})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"p": probabilities})
    assert answer == pytest.approx(found.applied(probabilities), abs=1e-12)
    assert Calibration.from_json(found.to_json()) == found
    assert (answer > 0).all(), "a class that was taken for impossible is not any more"
