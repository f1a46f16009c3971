"""Convolutional network of the Individualized PATE paper (Boenisch et al., PoPETs 2023), as a learner.

PyTorch is loaded for training and predictions, but not to show the parameters in forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from common.progress import Progress
from common.sentences import Sentence, gettext_noop
from learning.learners.learner import Augmenting, Labels, Learner, Records, parameter
from learning.libraries import pytorch_check

if TYPE_CHECKING:
    from learning.learners.network import CNNModel

_SMALLEST_SIDE = 4
"""Smallest side of an image for which a 3×3 convolution and 2×2 pooling leave at least one pixel."""


def convolved_check(shape: tuple[int, ...]) -> None:
    """Raise ValueError if records of this shape are not images, or are too small for convolutions."""
    if len(shape) not in (2, 3) or min(shape[:2]) < _SMALLEST_SIDE:
        message = gettext_noop(
            "A convolutional network needs images of at least %(side)d×%(side)d pixels, not records of shape "
            "%(shape)s. Choose another learner."
        )
        raise ValueError(Sentence(message, side=_SMALLEST_SIDE, shape=str(shape)))


@dataclass(frozen=True)
class CNN(Augmenting, Learner):
    """Small convolutional network for images, trained with Adam (Kingma & Ba 2015).

    >>> import numpy as np
    >>> images = np.zeros((20, 6, 6)); images[10:, 2:4, 2:4] = 1.0
    >>> model = CNN(epochs=3).fit(images, np.repeat([0, 1], 10), classes=2, seed=1)
    >>> model.predict_proba(images).shape
    (20, 2)
    """

    name: ClassVar[str] = "cnn"
    label: ClassVar[str] = gettext_noop("Convolutional network")
    help: ClassVar[str] = gettext_noop("For many images of at least 4 × 4 pixels.")
    model_format: ClassVar[str] = "safetensors"
    epochs: int = parameter(10, gettext_noop("number of passes over the images"), minimum=1, maximum=10_000)
    batch: int = parameter(32, gettext_noop("images per step"), minimum=2, maximum=100_000)
    learning_rate: float = parameter(0.001, gettext_noop("step size of Adam"), minimum=1e-7, maximum=1.0)

    @classmethod
    def model_from_bytes(cls, data: bytes) -> CNNModel:
        from learning.learners.network import CNNModel

        return CNNModel.from_bytes(data)

    def shape_check(self, shape: tuple[int, ...]) -> None:
        convolved_check(shape)

    def quick(self) -> Learner:
        from learning.learners.scikit import NearestNeighbour

        return NearestNeighbour()

    def _fit(self, x: Records, y: Labels, *, classes: int, seed: int, progress: Progress) -> CNNModel:
        pytorch_check()
        from learning.learners.network import train_network

        x, y = self.augmented(x, y, seed)
        return train_network(
            x,
            y,
            classes=classes,
            seed=seed,
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            progress=progress,
        )
