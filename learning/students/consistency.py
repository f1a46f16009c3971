"""The student for images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from common.progress import Progress
from common.sentences import gettext_noop
from learning.learners.cnn import convolved_check
from learning.learners.learner import Records, parameter
from learning.libraries import pytorch_check
from learning.students.releases import Releases
from learning.students.student import Student, TrainingCheckpoint

if TYPE_CHECKING:
    from learning.students.consistency_training import ConsistencyModel


_LONGER, _FURTHER = 3, 1.5
"""Factors for the number of steps and the strength of augmentation in thorough training; see docs/students.md."""


@dataclass(frozen=True)
class Consistency(Student):
    """Convolutional network that learns from all public images, with or without releases.

    The target of an image is the posterior of its class by Bayes' rule: the prior is the prediction for a weakly
    augmented copy, and the likelihood comes from the released counts. The network learns this posterior on a strongly
    augmented copy (Sohn et al. 2020, "FixMatch", for images without releases), so it can correct doubtful labels.
    """

    name: ClassVar[str] = "consistency"
    label: ClassVar[str] = gettext_noop("Convolutional network with consistency training")
    help: ClassVar[str] = gettext_noop(
        "For images of at least 4 × 4 pixels. Learns from all public images, including those without a label."
    )
    model_format: ClassVar[str] = "safetensors"
    thorough: bool = parameter(
        False,
        gettext_noop(
            "thorough, for important runs: two more convolutions, three times as many steps, and image shifts and "
            "rotations 1.5 times as large; takes minutes"
        ),
    )
    steps: int = parameter(900, gettext_noop("number of steps"), minimum=1, maximum=100_000)
    filters: int = parameter(
        32,
        gettext_noop("number of filters in the first convolution (the next two have twice and four times as many)"),
        minimum=1,
        maximum=256,
    )
    batch: int = parameter(128, gettext_noop("images per step"), minimum=8, maximum=100_000)
    learning_rate: float = parameter(
        0.004,
        gettext_noop("maximum step size of AdamW, reached after a quarter of the steps"),
        minimum=1e-7,
        maximum=1.0,
    )
    doubt: float = parameter(
        0.3, gettext_noop("share of labels that may be wrong for reasons other than noise"), minimum=0, maximum=1
    )
    threshold: float = parameter(
        0.95, gettext_noop("lowest probability at which a class is treated as certain"), minimum=0, maximum=1
    )
    rotation: float = parameter(10.0, gettext_noop("maximum rotation in degrees"), minimum=0, maximum=180)
    shift: float = parameter(0.07, gettext_noop("maximum shift as a share of the image"), minimum=0, maximum=0.5)
    stretch: float = parameter(
        0.1, gettext_noop("maximum change in height and width, as a share"), minimum=0, maximum=0.5
    )
    bend: float = parameter(
        0.05,
        gettext_noop("maximum shift of one part of the image relative to the others, as a share"),
        minimum=0,
        maximum=0.5,
    )
    mirror: bool = parameter(False, gettext_noop("mirror images left to right, if that does not change their class"))
    erase: float = parameter(
        0.0,
        gettext_noop("side length of an erased square, as a share of the image (0 for none)"),
        minimum=0,
        maximum=0.9,
    )

    @classmethod
    def model_from_bytes(cls, data: bytes) -> ConsistencyModel:
        from learning.students.consistency_training import ConsistencyModel

        return ConsistencyModel.from_bytes(data)

    def shape_check(self, shape: tuple[int, ...]) -> None:
        convolved_check(shape)

    def _learn(
        self, x: Records, releases: Releases, *, seed: int, progress: Progress, checkpoint: TrainingCheckpoint
    ) -> ConsistencyModel:
        pytorch_check()
        from learning.students.consistency_training import Moves, Recipe, train_consistently

        longer, further = (_LONGER, _FURTHER) if self.thorough else (1, 1.0)
        moves = Moves(
            rotation=self.rotation * further,
            shift=self.shift * further,
            stretch=self.stretch * further,
            bend=self.bend * further,
            mirror=self.mirror,
            erase=self.erase,
        )
        recipe = Recipe(
            self.steps * longer,
            self.batch,
            self.learning_rate,
            self.threshold,
            self.filters,
            deep=self.thorough,
            moves=moves,
        )
        likelihood = self.likelihood(len(x), releases)
        return train_consistently(x, likelihood, recipe, seed=seed, progress=progress, checkpoint=checkpoint)

    def likelihood(self, points: int, releases: Releases) -> tuple[np.ndarray, np.ndarray]:
        """Return class likelihoods `(points, C)` given the counts, and whether each point has counts, `(points,)`."""
        flat = 1.0 / releases.classes
        likelihood, informative = np.full((points, releases.classes), flat), np.zeros(points, np.bool_)
        believed = releases.among(releases.weights > 0)
        likelihood[believed.rows] = (1 - self.doubt) * believed.leading + self.doubt * flat
        informative[believed.rows] = True
        return likelihood, informative
