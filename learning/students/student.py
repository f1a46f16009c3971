"""Students: parameters fixed at construction, a ``learn`` method that reads releases, and a model that predicts.

A checkpoint stores the progress of training, so that it can continue after a crash. Students of outcomes other than
classes learn each category's probability and derive their predictions from it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from common.progress import Progress, silent
from learning.exact_arithmetic import Floats
from learning.learners.learner import Learner, Model, Parametrised, Records, records_check, seed_check
from learning.libraries import one_thread
from learning.outcomes import Outcome, Target
from learning.students.releases import Releases

if TYPE_CHECKING:
    from learning.exports.graph import Graph


@dataclass(frozen=True)
class TrainingCheckpoint:
    """Storage for the progress of training, so that training can resume if it is repeated.

    Attributes:
        load: Return the last saved state, or None. If it cannot be read, it is ignored and training starts again.
        save: Replace the stored state.
    """

    load: Callable[[], bytes | None]
    save: Callable[[bytes], None]


def _none() -> None:
    return None


def _forget(_state: bytes) -> None:
    pass


UNKEPT = TrainingCheckpoint(_none, _forget)
"""Storage that keeps nothing, for training that is too short to need resuming."""


@dataclass(frozen=True)
class Student(Parametrised):
    """Method of learning from releases. Subclasses are frozen dataclasses whose fields are made by ``parameter``."""

    def learn(
        self,
        points: npt.NDArray[np.floating],
        releases: Releases,
        *,
        seed: int,
        progress: Progress | None = None,
        checkpoint: TrainingCheckpoint = UNKEPT,
    ) -> Model:
        """Learn from all public points ``(P, …)`` and the releases about some of them.

        The same arguments give the same model on the same machine, even after resuming from a checkpoint. No private
        data is used, so learning again costs nothing. Raises ValueError if nothing was released or arrays do not match.
        """
        seed_check(seed)
        x = records_check(points)
        self.shape_check(x.shape[1:])
        if len(releases) == 0:
            raise ValueError("There is nothing to learn from, because nothing was released.")
        if releases.rows.min() < 0 or releases.rows.max() >= len(x):
            raise ValueError(
                f"The releases refer to points 0 to {releases.rows.max()}, but there are only {len(x)} points."
            )
        with one_thread():
            return self._learn(x, releases, seed=seed, progress=progress or silent, checkpoint=checkpoint)

    @abstractmethod
    def _learn(
        self, x: Records, releases: Releases, *, seed: int, progress: Progress, checkpoint: TrainingCheckpoint
    ) -> Model: ...


def learn_labels(
    learner: Learner,
    points: npt.NDArray[np.floating],
    releases: Releases,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Model:
    """Train a learner on the class with the largest count of each point, leaving out points with too much noise."""
    believed = releases.among(releases.weights > 0) if (releases.weights > 0).any() else releases
    return learner.fit(points[believed.rows], believed.labels, classes=releases.classes, seed=seed, progress=progress)


class CategoriesModel(Model):
    """Model of a target's categories, with predictions like those of the target's own models.

    Its file is the wrapped model's file; the target is stored with the run.
    """

    def __init__(self, model: Model, target: Target) -> None:
        super().__init__(len(target.columns), model.shape)
        self.model, self.target, self.chosen = model, target, model.chosen

    def to_bytes(self) -> bytes:
        return self.model.to_bytes()

    def to_graph(self, graph: Graph, records: str) -> str:
        return self.target.shares_to_graph(graph, self.model.to_graph(graph, records))

    def inner_modules(self) -> tuple[Any, ...]:
        return self.model.inner_modules()

    def _probabilities(self, x: Records) -> Floats:
        return self.target.from_shares(self.model.predict_proba(x))


def published_form(model: Model, outcome: Outcome) -> Model:
    """Return a student's model in its published form, which for classes is the model itself."""
    return CategoriesModel(model, outcome) if isinstance(outcome, Target) else model
