"""Published models by the learner that reads them: those of the registry, and the linear model of gradient steps."""

from common.sentences import gettext_noop
from training.learners import LEARNERS, Model, model_format, model_load
from training.representations import LinearModel

LINEAR = "linear"
LABEL = gettext_noop("linear model that the gradient steps led to")


def published_load(learner: str, data: bytes) -> Model:
    """The model that was published. Raises ValueError where the bytes are no model of this learner."""
    return LinearModel.from_bytes(data) if learner == LINEAR else model_load(learner, data)


def published_format(learner: str) -> str:
    """The format of the file, which is its suffix.

    >>> published_format("linear"), published_format("random_forest")
    ('safetensors', 'skops')
    """
    return "safetensors" if learner == LINEAR else model_format(learner)


def published_label(learner: str) -> str:
    """The name of the learner on pages, English, marked for translation; its own where nobody knows it any more."""
    if learner == LINEAR:
        return LABEL
    return LEARNERS[learner].label if learner in LEARNERS else learner
