"""Parts of a run of steps over samples that need PyTorch: its network, the steps of a chunk, the published model.

Imported where it is used: PyTorch takes a second, which the site should not spend to start.
"""

import numpy as np
from torch import nn

from common.noise import Noise
from learning.mechanisms.sampled_steps.contributions import Gradients
from learning.mechanisms.sampled_steps.mechanism import phases_within
from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create, with_weights
from learning.mechanisms.sampled_steps.question import SampledQuestion
from learning.mechanisms.sampled_steps.training import SampledSteps, Sampling, run_chunk
from learning.mechanisms.steps.records import OwnedRecords


def weights_number(network: str, shape: tuple[int, ...], classes: int) -> int:
    """Number of weights of a network. Raises ValueError where it takes no records of this shape."""
    return len(SampledSteps.start(network_create(network, shape, classes)).weights)


def steps_begin(network: str, shape: tuple[int, ...], classes: int, seed: int) -> SampledSteps:
    """The state before the first step: weights that follow from a public seed."""
    return SampledSteps.start(network_create(network, shape, classes, seed))


def chunk_run(
    question: SampledQuestion,
    state: SampledSteps,
    records: OwnedRecords,
    group: np.ndarray,
    *,
    steps: int,
    noise: Noise,
    sampling: Sampling,
) -> SampledSteps:
    """The state some steps later, of holders in these groups ``(H,)`` of the plan."""
    gradients = Gradients(_network(question), question.shape, scale=question.scale)
    for mechanism, count in phases_within(question.plan.phases, state.step, steps):
        state = run_chunk(
            state,
            records,
            group,
            gradients=gradients,
            mechanism=mechanism,
            steps=count,
            step_size=question.step_size,
            momentum=question.momentum,
            noise=noise,
            sampling=sampling,
        )
    return state


def network_model(question: SampledQuestion, state: SampledSteps) -> NetworkModel:
    """The network with the weights of a state; a function of what was released."""
    shape = question.shape if question.fitted is None else question.fitted.encoder.shape
    return NetworkModel(
        with_weights(_network(question), state.weights),
        question.classes,
        shape,
        space=question.fitted,
        scale=question.scale,
    )


def _network(question: SampledQuestion) -> nn.Module:
    return network_create(question.network, question.shape, question.classes)
