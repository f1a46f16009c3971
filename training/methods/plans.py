"""What the plans of all methods have in common."""

import abc
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from common.artifacts import arrays_load
from common.sentences import Sentence
from learning.forecasts import Forecast
from learning.mechanisms.pate.budgets import VoteBudget
from training.accuracy import published_accuracy
from training.engine.budgets import Budget, PlannedPromise
from training.models import Run

Planned = TypeVar("Planned", bound="MethodPlan")


def beside_majority(plan: Planned, run: Run) -> Planned:
    """Return the plan with forecasts of right ones beside the share of the most frequent class in the test data."""
    majority = _majority(run.test_dataset.artifact) if run.test_dataset and run.classes else None
    forecasts = tuple(each if each.measure else replace(each, majority=majority) for each in plan.forecasts)
    return replace(plan, forecasts=forecasts)


@lru_cache(maxsize=64)  # files of datasets never change under one name
def _majority(artifact: str) -> float | None:
    classes = arrays_load(artifact, "y")["y"]
    return published_accuracy(int(np.bincount(classes).max()), len(classes)) if len(classes) else None


@dataclass(frozen=True)
class MethodPlan(abc.ABC):
    """Plan of a run with what it rests on. Everything in it is public.

    Attributes:
        promises: what it rests on, with public or noisy numbers of holders.
        budgets: what each promise, or group of promises, may be charged.
        forecasts: of what the run leads to, in the one form that all methods have; none where nothing can be told.
        notes: choices that were made, and warnings.
    """

    promises: list[PlannedPromise]
    budgets: Sequence[Budget | VoteBudget]
    forecasts: tuple[Forecast, ...]
    notes: tuple[Sentence, ...]

    @property
    def labels(self) -> int | None:
        """Labels that are released at least before accounts end the run; None where they do not end it."""
        return None

    @abc.abstractmethod
    def details(self) -> dict[str, Any]:
        """JSON of what the plan of this method has beside: at least its ``rounds``, with what each may use."""

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of its plan."""
        return {
            "promises": [asdict(promise) for promise in self.promises],
            "budgets": [asdict(budget) for budget in self.budgets],
            "forecasts": [each.to_json() for each in self.forecasts],
            "notes": [note.to_json() for note in self.notes],
            **self.details(),
        }
