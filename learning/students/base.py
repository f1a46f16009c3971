"""Students: parameters fixed at construction, ``learn`` from releases, a model that predicts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.progress import Progress, silent
from common.threads import one_thread
from learning.learners.learner import Learner, Model, Parametrised, Records, records_check, seed_check
from learning.students.checkpoints import UNKEPT, Checkpoint
from learning.students.releases import Releases


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
        checkpoint: Checkpoint = UNKEPT,
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
        self, x: Records, releases: Releases, *, seed: int, progress: Progress, checkpoint: Checkpoint
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
