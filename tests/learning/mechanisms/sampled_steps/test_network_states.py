"""Calibrating networks from the releases of their chunks, compared with automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.special import expit

from common.noise import SimulationNoise
from learning.calibration import Calibration
from learning.exact_arithmetic import RESIDUAL_STEPS
from learning.measures import area, base_loss, calibration, losses
from learning.mechanisms.sampled_steps.rates import SampledMechanism
from learning.mechanisms.sampled_steps.run_plan import SampledPlan
from learning.mechanisms.sampled_steps.training import SampledQuestion, SampledSteps, SimulationSampling
from learning.mechanisms.steps.linear import owned_records
from learning.outcomes import CROSS_ENTROPY, Labels, Loss, Numbers, Outcome, Times
from tests.learning.lazily import Lazy, network_create, networks, nn, torch

PEOPLE = 3000
network_states = Lazy("learning.mechanisms.sampled_steps.network_states")


def question_of(network: str, shape: tuple[int, ...]) -> SampledQuestion:
    """Return a question of 200 steps about two classes, with a tenth of the people in each step."""
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
    """Return points and classes; only the first half of each point depends on its class."""
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
    assert calibration(before, truth)[0].value > 0.15, "otherwise there is nothing to calibrate"
    assert calibration(after, truth)[0].value < (0.035 if network == "linear" else 0.075)
    assert losses(after, truth).mean() < min(losses(before, truth).mean(), base_loss(truth, 2))
    assert area(after, truth).value == pytest.approx(area(before, truth).value)


def test_releases_of_a_chunk_are_read_from_two_states() -> None:
    """Weights and momentum before and after a chunk determine the sum of its gradients, for any steps."""
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


def test_the_convolutional_network_has_the_layers_of_the_paper() -> None:
    """It is written with PyTorch's modules, whose maxima equal those of our own layers."""
    for shape in ((28, 28), (16, 16), (20, 17, 3)):
        network = network_create("cnn", shape, 10, seed=2)
        images = torch.from_numpy(np.random.default_rng(2).random((3, *shape), np.float32))
        pooled = [(layer, nn.Tanh(), nn.MaxPool2d(2, 1)) for layer in (network.first, network.second)]
        layers = nn.Sequential(*pooled[0], *pooled[1], nn.Flatten(), network.hidden, nn.Tanh(), network.output)
        expected = layers(images.movedim(3, 1) if len(shape) == 3 else images[:, None])
        torch.testing.assert_close(network(images), expected, rtol=0, atol=1e-6)


def test_initial_weights_follow_from_the_arguments() -> None:
    first, again, other = (network_create("mlp", (5,), 3, seed).first.weight for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert first.abs().max() <= 5**-0.5


def test_unfit_input_and_bytes_of_something_else_are_refused() -> None:
    small = ("cnn", (15, 28), 2)
    for arguments, message in ((("tree", (5,), 2), "choose one of"), (("mlp", (5,), 1), "classes"), (small, "16×16")):
        with pytest.raises(ValueError, match=message):
            network_create(*arguments)
    stored = networks.NetworkModel(network_create("mlp", (5,), 2), 2, (5,)).to_bytes()
    for name, data in (("linear", stored), ("mlp", b"nothing"), ("mlp", stored[:-8])):
        with pytest.raises(ValueError, match="cannot be read"):
            networks.network_from_bytes(name, data)


if TYPE_CHECKING:
    from learning.mechanisms.sampled_steps.whole_gradients import LayerGradients

SHAPES = {"linear": (203,), "mlp": (6,), "cnn": (17, 18, 2)}
CLASSES, UNIT = 10, 1 / 127
LossOf = Callable[[Any, Any], Any]  # scores and codes → loss, as tensors
RecordGradients = Lazy("learning.mechanisms.sampled_steps.whole_gradients", "RecordGradients")


def some_records(shape: tuple[int, ...], count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.integers(-127, 128, size=(count, *shape)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(rng.integers(CLASSES, size=count))


def of_each(
    network: nn.Module, shape: tuple[int, ...], stretch: float = 1.0, loss: Loss = CROSS_ENTROPY
) -> RecordGradients:
    gradients = RecordGradients(network, shape, loss)
    gradients.load(stretch * nn.utils.parameters_to_vector(network.parameters()).detach().numpy(), unit=UNIT)
    return gradients


def written_out(gradients: RecordGradients, found: list[LayerGradients], record: int) -> np.ndarray:
    parts = []
    for layer, one in zip(gradients.layers, found, strict=True):
        scale = float(one.scale[record])
        parts += [scale * one.unit * layer.in_order(one.products[record]), scale * one.totals[record]]
    return torch.cat(parts).numpy()


def rounded(numbers: torch.Tensor, steps: int) -> torch.Tensor:
    """Round to multiples of 1/steps, with the gradient of the unrounded value."""
    return numbers + ((steps * numbers).round() / steps - numbers).detach()


def class_loss(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores, label[None])


def loss_with(residuals_of: Loss, scores: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
    """Return a loss whose derivatives are the residuals, which `tests/learning/outcomes/test_outcomes.py` checks."""
    residuals = residuals_of.residuals(scores.detach().numpy(), code[None].numpy()) / RESIDUAL_STEPS
    return (scores * torch.from_numpy(residuals)).sum()


TIMES = Times((10, 30, 60, 100), "days")
OUTCOMES = [(Numbers(0, 1), 2**20), (Labels(("ill", "old", "tall")), 8), (TIMES, 2**21)]


def one_gradient(network: nn.Module, record: torch.Tensor, label: torch.Tensor, loss_of: LossOf) -> np.ndarray:
    """Return the gradient by PyTorch's own differentiation in float64, with maxima of the rounded activations."""
    x = record.double()[None] / 127
    *hidden, output = network.double().children()
    if isinstance(hidden[0] if hidden else output, nn.Conv2d):
        x = x[:, None] if x.ndim == 3 else x.movedim(3, 1)
    for layer in hidden:
        x = layer(x if isinstance(layer, nn.Conv2d) else x.flatten(1))
        x = nn.functional.max_pool2d(x, 2, stride=1) if x.ndim == 4 else x
        x = rounded(torch.tanh(rounded(x, 256)), 127)
    loss = loss_of(output(x.flatten(1)), label)
    parts = torch.autograd.grad(loss, list(network.parameters()))
    return torch.cat([part.flatten() for part in parts]).numpy()


def assert_near_pytorchs_own(
    network: nn.Module,
    shape: tuple[int, ...],
    *,
    codes: torch.Tensor | None = None,
    loss: Loss = CROSS_ENTROPY,
    loss_of: LossOf = class_loss,
) -> None:
    for weights in network.parameters():  # times the unit, multiples of a power of two: not rounded
        weights.data.copy_((weights.data.double() * (2**17 * UNIT)).round() / (2**17 * UNIT))
    x, y = some_records(shape, 6)
    gradients, codes = of_each(network, shape, loss=loss), y if codes is None else codes
    found = gradients(x, codes)
    squares = sum(one.squared_norms for one in found)
    for record in range(6):
        own = one_gradient(network, x[record], codes[record], loss_of)
        ours = written_out(gradients, found, record)
        assert np.linalg.norm(ours - own) < 0.03 * np.linalg.norm(own)
        assert float(squares[record]) == pytest.approx(float((ours**2).sum()), rel=1e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_the_gradient_of_every_record_is_nearly_pytorchs_own(name: str) -> None:
    assert_near_pytorchs_own(network_create(name, SHAPES[name], CLASSES), SHAPES[name])


@pytest.mark.parametrize(("outcome", "most"), OUTCOMES, ids=lambda each: getattr(each, "kind", ""))
def test_gradients_of_other_outcomes_are_nearly_pytorchs_own(outcome: Outcome, most: int) -> None:
    codes = torch.from_numpy(np.random.default_rng(3).integers(0, most, 6))
    network = network_create("mlp", (6,), outcome.outputs)
    loss_of = partial(loss_with, outcome.loss)
    assert_near_pytorchs_own(network, (6,), codes=codes, loss=outcome.loss, loss_of=loss_of)


@pytest.mark.parametrize("stretch", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("name", SHAPES)
def test_a_gradient_does_not_depend_on_its_records_position(name: str, stretch: float) -> None:
    shape = SHAPES[name]
    gradients = of_each(network_create(name, shape, CLASSES), shape, stretch)
    x, y = some_records(shape, 45)
    x[5:10] = 127.0
    x[10] = 0.0
    together = gradients(x, y)
    order = torch.from_numpy(np.random.default_rng(1).permutation(45))
    parts = [gradients(x[part], y[part]) for part in (order[:1], order[1:4], order[4:30], order[30:])]
    for layer, one in enumerate(together):
        for what in ("products", "totals", "scale", "squared_norms"):
            again = torch.cat([getattr(part[layer], what) for part in parts])
            assert (again == getattr(one, what)[order]).all()


@pytest.mark.parametrize("name", SHAPES)
def test_sums_are_exact(name: str) -> None:
    """Compared with 64-bit integers, at the largest inputs."""
    shape = SHAPES[name]
    gradients = of_each(network_create(name, shape, CLASSES), shape, 20.0)
    x, y = some_records(shape, 8)
    x[:4] = 127.0 * torch.sign(x[:4])
    x[4] = 127.0
    for one in gradients(x, y):
        slopes, inputs = (part.numpy().astype(np.int64) for part in (one.slopes, one.inputs))
        assert (one.slopes == one.slopes.round()).all()
        assert np.abs(inputs).max() <= 127
        products = np.einsum("rpo,rpi->roi", slopes, inputs)
        assert (products == one.products.numpy()).all()
        totals = slopes.sum(axis=1)
        exact = [int((product.astype(object) ** 2).sum()) for product in products]
        biases = [int((total**2).sum()) for total in totals]
        for record, (weights, bias) in enumerate(zip(exact, biases, strict=True)):
            assert max(weights, bias) < 2**53
            expected = float(one.scale[record]) ** 2 * (one.unit**2 * weights + bias)
            assert float(one.squared_norms[record]) == pytest.approx(expected, rel=1e-14)


def test_a_record_of_no_class_has_no_gradient() -> None:
    gradients = of_each(network_create("mlp", (6,), CLASSES), (6,))
    x, _ = some_records((6,), 3)
    for one in gradients(x, torch.tensor([-1, 3, CLASSES])):
        assert (one.squared_norms > 0).tolist() == [False, True, False]


def test_weights_and_networks_that_cannot_be_exact_are_refused() -> None:
    network = network_create("mlp", (6,), CLASSES)
    with pytest.raises(ValueError, match="not finite"):
        of_each(network, (6,), float("inf"))
    network.add_module("norm", nn.LayerNorm(6))
    with pytest.raises(ValueError, match="dense layers"):
        RecordGradients(network, (6,))
    with pytest.raises(ValueError, match="smaller"):
        RecordGradients(network_create("cnn", (400, 400), CLASSES), (400, 400))
