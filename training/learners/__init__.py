"""What can be a teacher or a student. Knows nothing of privacy, and imports no Django."""

from training.learners.base import Learner, Model
from training.learners.registry import LEARNERS, LearnerField, learner_create, learner_fields, learner_parameters
from training.learners.storage import model_format, model_load, model_save

__all__ = [
    "LEARNERS",
    "Learner",
    "LearnerField",
    "Model",
    "learner_create",
    "learner_fields",
    "learner_parameters",
    "model_format",
    "model_load",
    "model_save",
]
