"""Evaluation of students on the test dataset, rounded as it is published."""

from typing import Any

import numpy as np

from common.artifacts import arrays_load
from learning.learners import Model
from training.accuracy import accuracy_interval, published_accuracy, published_mean
from training.models import Dataset

_LEAST_PROBABILITY = 1e-3
"""Of the true class, in the log loss: one point that was taken for impossible does not decide it."""


def truth_of(dataset: Dataset) -> np.ndarray | None:
    """(n,) the classes of a public dataset's points, where they are known."""
    try:
        return arrays_load(dataset.artifact, "y")["y"]
    except KeyError:
        return None


def evaluation(model: Model, test: Dataset | None) -> dict[str, Any] | None:
    """Accuracy, calibration, and for each class precision and recall; None without a test dataset.

    ``log_loss`` is the mean of -log p of the true class, natural logarithm, p at least 0.001; ``confidence`` the mean
    probability of the likeliest class, which is near the accuracy where probabilities are calibrated. Intervals hold
    95 % of the time.
    """
    if test is None or test.removed_at is not None:
        return None
    arrays = arrays_load(test.artifact)
    truth, probabilities = arrays["y"], model.predict_proba(arrays["x"])
    predicted, points = probabilities.argmax(axis=1), len(truth)
    likely = np.maximum(probabilities[np.arange(points), truth], _LEAST_PROBABILITY)
    accuracy = published_accuracy(int((predicted == truth).sum()), points)
    return {
        "dataset": test.name,
        "points": points,
        "accuracy": accuracy,
        "interval": accuracy_interval(accuracy, points),
        "log_loss": published_mean(float(-np.log(likely).sum()), points),
        "confidence": published_mean(float(probabilities.max(axis=1).sum()), points),
        "classes": [_class(number, name, predicted, truth) for number, name in enumerate(test.classes)],
    }


def _class(number: int, name: str, predicted: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    hits = int(((predicted == number) & (truth == number)).sum())
    called, are = int((predicted == number).sum()), int((truth == number).sum())
    recall = published_accuracy(hits, are)
    return {
        "class": name,
        "points": are,
        "precision": published_accuracy(hits, called),
        "recall": recall,
        "interval": accuracy_interval(recall, are),
    }
