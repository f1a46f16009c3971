"""Models that can be teachers or students. Knows nothing of privacy, and imports no Django."""

from learning.learners.learner import Model
from learning.learners.registry import (
    LEARNERS,
    LearnerField,
    learner_create,
    learner_parameters,
    parameter_fields,
    suggested_learner,
)

__all__ = [
    "LEARNERS",
    "LearnerField",
    "Model",
    "learner_create",
    "learner_parameters",
    "parameter_fields",
    "suggested_learner",
]
