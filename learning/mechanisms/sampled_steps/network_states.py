"""States of a network that need PyTorch: before the first step, and as the model that is published.

Imported where it is used: PyTorch takes a second, which the site should not spend to start.
"""

from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create, with_weights
from learning.mechanisms.sampled_steps.question import SampledQuestion
from learning.mechanisms.sampled_steps.training import SampledSteps


def weights_number(network: str, shape: tuple[int, ...], classes: int) -> int:
    """Number of weights of a network. Raises ValueError where it takes no records of this shape."""
    return len(SampledSteps.start(network_create(network, shape, classes)).weights)


def steps_begin(network: str, shape: tuple[int, ...], classes: int, seed: int) -> SampledSteps:
    """The state before the first step: weights that follow from a public seed."""
    return SampledSteps.start(network_create(network, shape, classes, seed))


def network_model(question: SampledQuestion, state: SampledSteps) -> NetworkModel:
    """The network with the weights of a state; a function of what was released."""
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
