"""Small random rotations and shifts of images, so that a few examples teach more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.sentences import Sentence, gettext_noop
from learning.learners.base import Labels, Records, parameter

_BATCH = 4096


@dataclass(frozen=True)
class Augmenting:
    """The parameters of learners that can train on moved copies of their images."""

    copies: int = parameter(
        0, gettext_noop("rotated and shifted copies of each training image"), minimum=0, maximum=1000
    )
    rotation: float = parameter(7.5, gettext_noop("greatest rotation in degrees"), minimum=0, maximum=180)
    shift: float = parameter(0.07, gettext_noop("greatest shift as a share of the image"), minimum=0, maximum=0.5)

    def shape_check(self, shape: tuple[int, ...]) -> None:
        """See `Parametrised.shape_check`: only images have moved copies."""
        if self.copies and len(shape) not in (2, 3):
            message = gettext_noop(
                "Only images can be rotated and shifted; records of shape %(shape)s are none: want no copies of them."
            )
            raise ValueError(Sentence(message, shape=str(shape)))

    def augmented(self, x: Records, y: Labels, seed: int) -> tuple[Records, Labels]:
        """The training data with its copies, if any are wanted."""
        if not self.copies:
            return x, y
        images = augment(x, copies=self.copies, rotation=self.rotation, shift=self.shift, seed=seed)
        return images, np.tile(y, 1 + self.copies)


def augment(
    images: npt.NDArray[np.floating], *, copies: int, rotation: float, shift: float, seed: int
) -> npt.NDArray[np.float32]:
    """The images, followed by ``copies`` rounds of all of them, each rotated and shifted at random.

    ``images`` is ``(n, height, width)`` or ``(n, height, width, channels)``; the result has ``n * (1 + copies)``.
    Angles are uniform up to ``rotation`` degrees either way, shifts up to ``shift`` of the image's height and width;
    pixels are interpolated linearly, and what comes from outside the image is 0.

    >>> images = np.eye(4)[np.newaxis]
    >>> augmented = augment(images, copies=2, rotation=7.5, shift=0.07, seed=1)
    >>> augmented.shape, bool((augmented[0] == images[0]).all())
    ((3, 4, 4), True)
    """
    images = images.astype(np.float32)
    if images.ndim == 4:
        layers = [
            augment(images[..., channel], copies=copies, rotation=rotation, shift=shift, seed=seed)
            for channel in range(images.shape[3])
        ]
        return np.stack(layers, axis=3)
    count, height, width = images.shape
    total = count * copies
    rng = np.random.default_rng(seed)
    angles = np.deg2rad(rng.uniform(-rotation, rotation, total))
    offsets = rng.uniform(-shift, shift, (total, 2)) * (height, width)
    turned = [images]
    for start in range(0, total, _BATCH):
        batch = slice(start, start + _BATCH)
        sources = np.arange(total)[batch] % count
        turned.append(_move(images, sources, angles[batch], offsets[batch]))
    return np.concatenate(turned)


def _move(
    images: npt.NDArray[np.float32],
    sources: npt.NDArray[np.int64],
    angles: npt.NDArray[np.float64],
    offsets: npt.NDArray[np.float64],
) -> npt.NDArray[np.float32]:
    """One image per source: turned about its middle, then shifted (each pixel asks where it came from)."""
    from scipy.ndimage import map_coordinates

    _, height, width = images.shape
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    rows, columns = np.meshgrid(np.arange(height) - middle_y, np.arange(width) - middle_x, indexing="ij")
    y = rows - offsets[:, :1, np.newaxis]
    x = columns - offsets[:, 1:, np.newaxis]
    cos, sin = np.cos(angles)[:, np.newaxis, np.newaxis], np.sin(angles)[:, np.newaxis, np.newaxis]
    places = np.broadcast_to(sources[:, np.newaxis, np.newaxis], y.shape)
    where = np.stack([places, cos * y - sin * x + middle_y, sin * y + cos * x + middle_x])
    return map_coordinates(images, where, order=1, mode="constant", output=np.float32)
