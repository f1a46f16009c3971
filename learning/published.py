"""Published models by the learner that reads them: the students, and the models of gradient steps."""

from common.sentences import gettext_noop
from learning.learners import Model
from learning.pytorch import has_pytorch
from learning.representations import LinearModel
from learning.students import STUDENTS, student_class

LINEAR = "linear"
_NETWORK = "network_"
LABELS = {
    LINEAR: gettext_noop("linear model from gradient steps"),
    f"{_NETWORK}linear": gettext_noop("linear model from steps over samples"),
    f"{_NETWORK}mlp": gettext_noop("small network, trained in steps over samples of people"),
    f"{_NETWORK}cnn": gettext_noop("convolutional network from steps over samples"),
}
"""Learners of models that are published directly from the steps."""


def network_learner(network: str) -> str:
    """Return the learner that reads a network of this name.

    >>> network_learner("mlp")
    'network_mlp'
    """
    return f"{_NETWORK}{network}"


def released_itself(learner: str) -> bool:
    """Return whether the learner reads results of private steps, without a student.

    >>> released_itself("linear"), released_itself("consistency")
    (True, False)
    """
    return learner in LABELS


def published_load(learner: str, data: bytes) -> Model:
    """Return the published model from `Model.to_bytes`; reading it runs no code.

    Raises:
        ValueError: The bytes are not a model of this learner, or it is unknown.
    """
    if learner == LINEAR:
        return LinearModel.from_bytes(data)
    if published_format(learner) == "safetensors" and not has_pytorch():
        from learning.stored_networks import stored_network

        return stored_network(learner, data)
    if released_itself(learner):
        from learning.mechanisms.sampled_steps.networks import network_from_bytes  # PyTorch takes a second to import

        return network_from_bytes(learner.removeprefix(_NETWORK), data)
    return student_class(learner).model_from_bytes(data)


def published_format(learner: str) -> str:
    """Return the format of the file, which is its suffix.

    >>> published_format("linear"), published_format("random_forest")
    ('safetensors', 'skops')
    """
    return "safetensors" if released_itself(learner) else student_class(learner).model_format


def published_label(learner: str) -> str:
    """Return the name of the learner on pages, English, marked for translation; its key if it is unknown."""
    if released_itself(learner):
        return LABELS[learner]
    return STUDENTS[learner].label if learner in STUDENTS else learner
