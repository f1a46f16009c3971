"""Models that can be teachers or students. Knows nothing of privacy, and imports no Django."""

from training.learners.base import Learner, Model
from training.learners.registry import (
    LEARNERS,
    LearnerField,
    learner_class,
    learner_create,
    learner_fields,
    learner_parameters,
    learner_suggested,
    model_format,
    model_load,
    model_save,
)

__all__ = [
    "LEARNERS",
    "Learner",
    "LearnerField",
    "Model",
    "learner_class",
    "learner_create",
    "learner_fields",
    "learner_parameters",
    "learner_suggested",
    "model_format",
    "model_load",
    "model_save",
]
