"""Calibration of networks by what their chunks released, and its parts beside automatic differentiation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from common.noise import SimulationNoise
from learning.calibration import Calibration
from learning.measures import area, base_loss, calibration, losses
from learning.mechanisms.sampled_steps.rates import SampledMechanism
from learning.mechanisms.sampled_steps.run_plan import SampledPlan
from learning.mechanisms.sampled_steps.training import SampledQuestion, SampledSteps, SimulationSampling
from learning.mechanisms.steps.linear import owned_records
from tests.learning.lazily import Lazy, network_create, torch

PEOPLE = 3000
network_states = Lazy("learning.mechanisms.sampled_steps.network_states")


def question_of(network: str, shape: tuple[int, ...]) -> SampledQuestion:
    """A question of 200 steps of two classes; in each step a tenth of the people."""
    mechanism = SampledMechanism(np.array([0.1]), np.array([0.2]), 2.0, 0.2, PEOPLE / 10)
    return SampledQuestion(
        plan=SampledPlan(((mechanism, 200),), np.array([0.1]), 1e-7),
        network=network,
        shape=shape,
        scale=1.0,
        classes=2,
        fitted=None,
        step_size=0.5,
        momentum=0.9,
        begin=network_states.steps_begin(network, shape, 2, seed=0),
        caps=np.array([0.1]),
    )


def people_like(shape: tuple[int, ...], number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of whose classes nobody can say more than their first half tells."""
    rng = np.random.default_rng(seed)
    score = rng.normal(0, 1, number)
    flat = rng.uniform(-1, 1, (number, int(np.prod(shape)))) * 0.3
    flat[:, : flat.shape[1] // 2] += np.clip(score, -2, 2)[:, None] * 0.25
    return flat.reshape(number, *shape).astype(np.float32), (rng.random(number) < expit(score)).astype(np.int64)


def trained(question: SampledQuestion, x: np.ndarray, y: np.ndarray) -> list[SampledSteps]:
    people = np.arange(len(x))
    records, states = owned_records(x, y, people, people), [question.begin]
    noise, sampling = SimulationNoise(1), SimulationSampling(2)
    while states[-1].step < question.plan.steps:
        nobody_left_out = np.zeros(len(x), np.int64)
        states.append(question.advanced(states[-1], records, nobody_left_out, steps=25, noise=noise, sampling=sampling))
    return states


@pytest.mark.parametrize(
    ("network", "shape"), [("linear", (8,)), ("mlp", (8,)), pytest.param("cnn", (16, 16), marks=pytest.mark.exhaustive)]
)
def test_a_network_of_clipped_steps_is_too_sure_before_and_calibrated_after(network, shape) -> None:
    question = question_of(network, shape)
    states = trained(question, *people_like(shape, PEOPLE, 0))
    public, _unknown = people_like(shape, 1000, 1)
    test, truth = people_like(shape, 4000, 2)
    found = network_states.network_calibration(question, states, public, records=1.0)
    before = network_states.network_model(question, states[-1]).predict_proba(test)
    after = found.applied(before)
    assert calibration(before, truth)[0].value > 0.15, "or there is nothing to calibrate"
    assert calibration(after, truth)[0].value < (0.035 if network == "linear" else 0.075)
    assert losses(after, truth).mean() < min(losses(before, truth).mean(), base_loss(truth, 2))
    assert area(after, truth).value == pytest.approx(area(before, truth).value)


def test_releases_of_a_chunk_are_read_from_two_states() -> None:
    """Weights and momentum before and after a chunk tell the sum of its gradients, whatever its steps were."""
    question = question_of("mlp", (8,))
    rng, begin = np.random.default_rng(3), question.begin
    state = replace(begin, velocity=rng.normal(size=begin.weights.shape))
    taken, after = [], state
    for _step in range(7):
        taken.append(rng.normal(size=begin.weights.shape))
        after = after.after(taken[-1], step_size=question.step_size, momentum=question.momentum)
    network = network_states.network_model(question, state)
    features, logits = network_states._entering(network, people_like((8,), 20, 4)[0])
    check = network_states._check(question, state, after, features, logits)
    mean = np.mean(taken, axis=0)
    assert check.intercept == pytest.approx(mean[-2:])
    assert check.along == pytest.approx(float(mean[-66:] @ state.weights[-66:]))
    assert check.direction == pytest.approx(logits, abs=1e-5)
    assert check.noise_intercept == pytest.approx(2.0 * 0.2 / 300 / 7**0.5)


@pytest.mark.parametrize(("network", "shape"), [("linear", (8,)), ("mlp", (8,)), ("cnn", (16, 16))])
def test_lengths_are_those_of_whole_gradients(network: str, shape: tuple[int, ...]) -> None:
    question, points = question_of(network, shape), people_like(shape, 5, 5)[0]
    module = network_create(network, shape, 2)
    whole, unit = network_states._as_in_steps(question, points)
    gradients = network_states.RecordGradients(module, shape)
    gradients.load(question.begin.weights, unit=unit)
    probabilities = network_states.network_model(question, question.begin).predict_proba(points)
    found = network_states._lengths(gradients, whole, probabilities)
    for place, point in enumerate(points):
        for number in range(2):
            module.zero_grad()
            logits = module(torch.from_numpy(point[None]))
            torch.nn.functional.cross_entropy(logits, torch.tensor([number])).backward()
            norm = float(sum(tensor.grad.square().sum() for tensor in module.parameters())) ** 0.5
            residual = probabilities[place] - np.eye(2)[number]
            assert found[place, number] == pytest.approx(norm / np.linalg.norm(residual), rel=0.05)


def test_a_run_without_a_step_is_left_as_it_is() -> None:
    question = question_of("linear", (8,))
    found = network_states.network_calibration(question, [question.begin], people_like((8,), 10, 1)[0], records=1.0)
    assert found == Calibration.none(2)
