"""Models that can be teachers or students. Knows nothing of privacy, and imports no Django."""

from learning.learners.base import Learner, Model
from learning.learners.registry import (
    LEARNERS,
    LearnerField,
    learner_class,
    learner_create,
    learner_parameters,
    learner_suggested,
    parameter_fields,
)

__all__ = [
    "LEARNERS",
    "Learner",
    "LearnerField",
    "Model",
    "learner_class",
    "learner_create",
    "learner_parameters",
    "learner_suggested",
    "parameter_fields",
]
