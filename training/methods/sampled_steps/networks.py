"""Parts of a run of steps over samples that need PyTorch: its network, the steps of a chunk, the published model.

Imported where it is used: PyTorch takes a second, which the site should not spend to start.
"""

import numpy as np
from torch import nn

from common.noise import Noise
from learning.mechanisms.sampled_steps.contributions import Gradients
from learning.mechanisms.sampled_steps.mechanism import phases_within
from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create, with_weights
from learning.mechanisms.sampled_steps.training import SampledSteps, Sampling, run_chunk
from learning.mechanisms.steps.records import OwnedRecords
from training.methods.sampled_steps.rounds import SampledTask


def weights_number(network: str, shape: tuple[int, ...], classes: int) -> int:
    """Number of weights of a network. Raises ValueError where it takes no records of this shape."""
    return len(SampledSteps.start(network_create(network, shape, classes)).weights)


def steps_begin(network: str, shape: tuple[int, ...], classes: int, seed: int) -> SampledSteps:
    """The state before the first step: weights that follow from a public seed."""
    return SampledSteps.start(network_create(network, shape, classes, seed))


def chunk_run(
    task: SampledTask,
    state: SampledSteps,
    records: OwnedRecords,
    group: np.ndarray,
    *,
    steps: int,
    noise: Noise,
    sampling: Sampling,
) -> SampledSteps:
    """The state some steps later, of holders in these groups ``(H,)`` of the plan."""
    gradients = Gradients(_network(task), task.shape, scale=task.scale)
    for mechanism, count in phases_within(task.plan.phases, state.step, steps):
        state = run_chunk(
            state,
            records,
            group,
            gradients=gradients,
            mechanism=mechanism,
            steps=count,
            step_size=task.step_size,
            momentum=task.momentum,
            noise=noise,
            sampling=sampling,
        )
    return state


def network_model(task: SampledTask, state: SampledSteps) -> NetworkModel:
    """The network with the weights of a state; a function of what was released."""
    shape = task.shape if task.fitted is None else task.fitted.encoder.shape
    return NetworkModel(
        with_weights(_network(task), state.weights), task.classes, shape, space=task.fitted, scale=task.scale
    )


def _network(task: SampledTask) -> nn.Module:
    return network_create(task.network, task.shape, task.classes)
