"""Evaluation of students on the test dataset, rounded as it is published."""

from typing import Any

import numpy as np

from common.artifacts import arrays_load
from learning.learners import Model
from learning.outcomes import Target
from training.measures import evaluated, target_evaluated
from training.models import Dataset


def truth_of(dataset: Dataset) -> np.ndarray | None:
    """(n,) the classes of a public dataset's points, where they are known."""
    try:
        return arrays_load(dataset.artifact, "y")["y"]
    except KeyError:
        return None


def evaluation(model: Model, test: Dataset | None) -> dict[str, Any] | None:
    """Evaluation of a model's probabilities and likeliest classes, or of another outcome; None without test data."""
    if test is None or test.removed_at is not None:
        return None
    arrays = arrays_load(test.artifact)
    predictions, outcome = model.predict_proba(arrays["x"]), test.outcome
    if isinstance(outcome, Target):
        return target_evaluated(outcome, predictions, arrays["y"]) | {"dataset": test.name}
    return evaluated(predictions, arrays["y"], test.classes) | {"dataset": test.name}
