"""Students: parameters fixed at construction, ``learn`` from releases, a model that predicts.

A checkpoint keeps how far a training has come, so that it goes on after a crash where it was. Students of outcomes
other than classes learn how likely each category is, and say what follows from it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from common.progress import Progress, silent
from common.threads import one_thread
from learning.exact_arithmetic import Floats
from learning.learners.learner import Learner, Model, Parametrised, Records, records_check, seed_check
from learning.outcomes import Outcome, Target
from learning.students.releases import Releases

if TYPE_CHECKING:
    from learning.exports.graph import Graph


@dataclass(frozen=True)
class TrainingCheckpoint:
    """Place where one training keeps how far it is; the same training finds it there again.

    Attributes:
        load: What was saved last, None if nothing was. What cannot be read counts as nothing: training starts over.
        save: Keep this in place of what was kept before.
    """

    load: Callable[[], bytes | None]
    save: Callable[[bytes], None]


def _none() -> None:
    return None


def _forget(_state: bytes) -> None:
    pass


UNKEPT = TrainingCheckpoint(_none, _forget)
"""Of those whose training is not worth keeping half done."""


@dataclass(frozen=True)
class Student(Parametrised):
    """A way to learn from releases. Subclasses are frozen dataclasses whose fields are made by ``parameter``."""

    def learn(
        self,
        points: npt.NDArray[np.floating],
        releases: Releases,
        *,
        seed: int,
        progress: Progress | None = None,
        checkpoint: TrainingCheckpoint = UNKEPT,
    ) -> Model:
        """Learn from all public points ``(P, …)`` and what was released about some of them.

        The same arguments give the same model on the same machine, also where it goes on from a checkpoint. Nothing
        private is looked at, so learning again costs nothing. Raises ValueError where nothing was released or the
        arrays do not fit together.
        """
        seed_check(seed)
        x = records_check(points)
        self.shape_check(x.shape[1:])
        if len(releases) == 0:
            raise ValueError("There is nothing to learn from: nothing was released.")
        if releases.rows.min() < 0 or releases.rows.max() >= len(x):
            raise ValueError(f"Releases are about points 0 to {releases.rows.max()}, and there are {len(x)} points.")
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
    """Let a learner of labels learn: the largest counts are the labels, those below the noise are left out."""
    believed = releases.among(releases.weights > 0) if (releases.weights > 0).any() else releases
    return learner.fit(points[believed.rows], believed.labels, classes=releases.classes, seed=seed, progress=progress)


class CategoriesModel(Model):
    """A model of the categories of a target, which says what the target's own models say.

    Its file is that of the model; what the target is, the run knows.
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


def said(model: Model, outcome: Outcome) -> Model:
    """A student's model as it is published: of classes itself."""
    return CategoriesModel(model, outcome) if isinstance(outcome, Target) else model
