"""Published models by the learner that reads them: the students, and the linear model of gradient steps."""

from common.sentences import gettext_noop
from training.learners import Model
from training.representations import LinearModel
from training.students import STUDENTS, student_class

LINEAR = "linear"
LABEL = gettext_noop("linear model that the gradient steps led to")


def published_load(learner: str, data: bytes) -> Model:
    """The model that was published, from `Model.to_bytes`; reading it runs no code.

    Raises:
        ValueError: The bytes are no model of this learner, or nobody knows it.
    """
    return LinearModel.from_bytes(data) if learner == LINEAR else student_class(learner).model_from_bytes(data)


def published_format(learner: str) -> str:
    """The format of the file, which is its suffix.

    >>> published_format("linear"), published_format("random_forest")
    ('safetensors', 'skops')
    """
    return "safetensors" if learner == LINEAR else student_class(learner).model_format


def published_label(learner: str) -> str:
    """The name of the learner on pages, English, marked for translation; its own where nobody knows it any more."""
    if learner == LINEAR:
        return LABEL
    return STUDENTS[learner].label if learner in STUDENTS else learner
