"""Gradients in whole numbers: near PyTorch's own, exact, and the same wherever a record stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from learning.outcomes import CROSS_ENTROPY, Labels, Loss, Numbers, Outcome, Times
from tests.learning.lazily import Lazy, network_create, nn, torch

if TYPE_CHECKING:
    from learning.mechanisms.sampled_steps.whole_gradients import LayerGradients

SHAPES = {"linear": (203,), "mlp": (6,), "cnn": (17, 18, 2)}
CLASSES, UNIT = 10, 1 / 127
LossOf = Callable[[Any, Any], Any]  # scores and code to loss, tensors
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
    """To multiples of 1/steps, with the slope of what is not rounded."""
    return numbers + ((steps * numbers).round() / steps - numbers).detach()


def class_loss(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores, label[None])


def number_loss(scores: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
    """docs/outcomes.md: the second score follows how far the first, held fixed, is off."""
    off = scores[0, 0] - (code / 2**20 - 0.5)
    return off**2 / 2 + (scores[0, 1] - off.detach().abs()) ** 2 / 2


def labels_loss(scores: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
    bits = (code >> torch.arange(scores.shape[1]) & 1).double()
    return nn.functional.binary_cross_entropy_with_logits(scores[0], bits, reduction="sum")


def times_loss(scores: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
    """Minus the log likelihood of the person-periods."""
    loss, time, event = TIMES.loss, float(code // 2) / 2**20, bool(code % 2)
    logits = torch.tensor(loss.offsets) + scores[0] @ torch.tensor(loss.shapes, dtype=torch.float64).T
    total, start = torch.zeros(()), 0.0
    for end, logit in zip(loss.ends, logits, strict=True):
        if event and start < time <= end:
            total = total - nn.functional.logsigmoid(logit)
        elif time > end or (not event and time >= (start + end) / 2):
            total = total - nn.functional.logsigmoid(-logit)
        start = end
    return total


TIMES, LABELS = Times((10, 30, 60, 100), "days"), Labels(("ill", "old", "tall"))
LOSSES: list[tuple[Outcome, LossOf, int]] = [
    (Numbers(0, 1), number_loss, 2**20),
    (LABELS, labels_loss, 8),
    (TIMES, times_loss, 2**21),
]


def one_gradient(network: nn.Module, record: torch.Tensor, label: torch.Tensor, loss_of: LossOf) -> np.ndarray:
    """By PyTorch's own differentiation, in float64; activations are rounded, which decides about maxima."""
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


@pytest.mark.parametrize(("outcome", "loss_of", "most"), LOSSES, ids=lambda each: getattr(each, "kind", ""))
def test_gradients_of_other_outcomes_are_nearly_pytorchs_own(outcome: Outcome, loss_of: LossOf, most: int) -> None:
    codes = torch.from_numpy(np.random.default_rng(3).integers(0, most, 6))
    network = network_create("mlp", (6,), outcome.outputs)
    assert_near_pytorchs_own(network, (6,), codes=codes, loss=outcome.loss, loss_of=loss_of)


@pytest.mark.parametrize("stretch", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("name", SHAPES)
def test_a_gradient_is_the_same_wherever_its_record_stands(name: str, stretch: float) -> None:
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
    """Against whole numbers of 64 bits, at the largest inputs."""
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
