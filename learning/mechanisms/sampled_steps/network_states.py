"""States of a network trained by private steps: the first state, the published model, and its calibration.

The calibration uses public points and the gradients released by chunks of steps. Import this module only when needed:
PyTorch takes a second to load, which would delay the start of the site.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from learning.calibration import Calibration, StepCheck, fit_to_sums
from learning.learners.learner import Records
from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create, with_weights
from learning.mechanisms.sampled_steps.rates import phases_within
from learning.mechanisms.sampled_steps.training import SampledQuestion, SampledSteps
from learning.mechanisms.sampled_steps.whole_gradients import RecordGradients
from learning.representations.coordinates import LARGEST

_LAST = 0.5
"""Share of the steps used for calibration. These are the last steps, when the network is close to the published one."""
_GRADIENTS = 10_000
"""Limit on the number of gradient norms, which are computed for each public point and class."""
_POINTS = 3000

Floats = NDArray[np.float64]


def steps_begin(network: str, shape: tuple[int, ...], classes: int, seed: int) -> SampledSteps:
    """Return the state before the first step, whose weights are derived from a public seed."""
    return SampledSteps.start(network_create(network, shape, classes, seed))


def network_model(question: SampledQuestion, state: SampledSteps) -> NetworkModel:
    """Return the network with the weights of a state, which depend only on releases."""
    network = network_create(question.network, question.shape, question.classes)
    shape = question.shape if question.fitted is None else question.fitted.encoder.shape
    return NetworkModel(
        with_weights(network, state.weights),
        question.classes,
        shape,
        space=question.fitted,
        scale=question.scale,
        target=question.target,
    )


def network_calibration(
    question: SampledQuestion, states: Sequence[SampledSteps], public: ArrayLike, *, records: float
) -> Calibration:
    """Return the calibration of the network in the last state.

    The gradients of the output layer are those of a linear model on the layer's inputs, except that they are clipped
    together with all other gradients. The theory of `fit_to_sums` for linear models therefore also applies to networks,
    with the norms of whole gradients.

    Args:
        states: State before the first step, and after each chunk.
        public: `(P, …)` public points, as records; sampled if there are many.
        records: Average number of records per holder, see `fit_to_sums`.
    """
    final = states[-1]
    later = [pair for pair in pairwise(states) if pair[1].step > final.step * _LAST]
    if not later:
        return Calibration.none(question.classes)
    points = np.asarray(public, np.float32)
    most = min(len(points), max(1, _GRADIENTS // question.classes), _POINTS)
    points = points[np.linspace(0, len(points) - 1, most).astype(np.int64)]
    network = network_create(question.network, question.shape, question.classes)
    whole, unit = _as_in_steps(question, points)
    gradients, checks, lengths = RecordGradients(network, question.shape), [], []
    for before, after in later:
        # on average, the weights at which a chunk's gradients were computed contain half of the chunk's noise
        halfway = SampledSteps((before.weights + after.weights) / 2, before.velocity, before.step)
        model = network_model(question, halfway)
        features, logits = _entering(model, points)
        checks.append(_check(question, before, after, features, logits))
        gradients.load(halfway.weights, unit=unit)
        lengths.append(_lengths(gradients, whole, softmax(logits, axis=1)))
    _features, logits = _entering(network_model(question, final), points)
    mechanism = question.plan.mechanism
    return fit_to_sums(
        logits,
        checks,
        lengths=np.mean(lengths, axis=0),
        # without noise, the norms are so large that nothing is clipped
        clip_norm=max(mechanism.clip_norm, float(mechanism.norms.min())),
        constant=1.0,
        records=records,
        people=mechanism.expected / float(mechanism.rates.max()),
    )


def _check(
    question: SampledQuestion, before: SampledSteps, after: SampledSteps, features: Floats, logits: Floats
) -> StepCheck:
    """Return the check of the output layer after a chunk; `features` `(P, d + 1)` are the layer's inputs and 1."""
    steps, momentum = after.step - before.step, question.momentum
    # v_j = momentum·v_(j-1) + g_j and w_j = w_(j-1) - step_size·v_j, added up over the chunk
    velocities = (before.weights - after.weights) / question.step_size
    sums = (1 - momentum) * velocities + momentum * (after.velocity - before.velocity)
    inputs = features.shape[1]
    gradient = _output(sums / steps, question.classes, inputs)
    weights = _output(before.weights, question.classes, inputs)
    ((mechanism, _count), *_others) = phases_within(question.plan.phases, before.step, steps)
    noise = mechanism.noise_multiplier * mechanism.clip_norm / mechanism.expected / steps**0.5
    return StepCheck(
        logits=logits,
        direction=features @ weights,
        along=float((weights * gradient).sum()),
        intercept=gradient[-1],
        noise_along=noise * float(np.sqrt((weights**2).sum())),
        noise_intercept=noise,
    )


def _output(values: Floats, classes: int, inputs: int) -> Floats:
    """Return the last layer's part of some values in the order of the parameters, `(d + 1, C)`."""
    last = values[-classes * inputs :]
    return np.vstack([last[:-classes].reshape(classes, inputs - 1).T, last[-classes:]])


@torch.inference_mode()
def _entering(model: NetworkModel, points: Records) -> tuple[Floats, Floats]:
    """Return the output layer's inputs for the points, each followed by 1, `(P, d + 1)`, and the logits `(P, C)`."""
    entering: list[torch.Tensor] = []
    output = model.network.get_submodule("output")
    watching = output.register_forward_pre_hook(lambda _layer, given: entering.append(given[0]))
    logits = model.network(model.inputs(points)).double().numpy()
    watching.remove()
    return np.column_stack([entering[0].double().numpy(), np.ones(len(points))]), logits


def _as_in_steps(question: SampledQuestion, points: Records) -> tuple[torch.Tensor, float]:
    """Return the points as integers, in the form used in steps, and the value that the integer 1 represents."""
    if question.fitted is not None:
        return torch.from_numpy(question.fitted.transform(points)).float(), question.scale
    values = np.asarray(points, np.float32).reshape(-1, *question.shape)
    return torch.from_numpy(np.rint(np.clip(values, -1, 1) * np.float32(LARGEST))), question.scale / LARGEST


@torch.inference_mode()
def _lengths(gradients: RecordGradients, points: torch.Tensor, probabilities: Floats) -> Floats:
    """Return norms `(P, C)` of the points' gradients for each class, divided by the norms of p - e_y."""
    count, classes = probabilities.shape
    block = max(1, 2**22 // gradients.numbers)
    residuals = probabilities[:, None, :] - np.eye(classes)
    lengths = np.empty((count, classes))
    for number in range(classes):
        for start in range(0, count, block):
            part = points[start : start + block]
            layers = gradients(part, torch.full((len(part),), number))
            squares = sum(layer.squared_norms for layer in layers)
            lengths[start : start + block, number] = np.sqrt(torch.as_tensor(squares).numpy())
    return lengths / np.maximum(np.sqrt((residuals**2).sum(axis=2)), 1e-6)
