"""Small random rotations and shifts of images, which allow learning from few examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from common.sentences import Sentence, gettext_noop
from learning.learners.learner import Labels, Records, parameter
from learning.pytorch import pytorch_check

if TYPE_CHECKING:
    import torch

_BATCH = 4096


@dataclass(frozen=True)
class Augmenting:
    """Parameters of learners that can train on moved copies of their images."""

    copies: int = parameter(
        0, gettext_noop("rotated and shifted copies of each training image"), minimum=0, maximum=1000
    )
    rotation: float = parameter(7.5, gettext_noop("largest rotation in degrees"), minimum=0, maximum=180)
    shift: float = parameter(0.07, gettext_noop("largest shift as a share of the image"), minimum=0, maximum=0.5)

    def shape_check(self, shape: tuple[int, ...]) -> None:
        """See `Parametrised.shape_check`: only images have moved copies."""
        if self.copies and len(shape) not in (2, 3):
            message = gettext_noop(
                "Only images can be rotated and shifted, not records of shape %(shape)s. Turn these copies off."
            )
            raise ValueError(Sentence(message, shape=str(shape)))

    def augmented(self, x: Records, y: Labels, seed: int) -> tuple[Records, Labels]:
        """Return the training data with its copies, if any are wanted."""
        if not self.copies:
            return x, y
        images = augment(x, copies=self.copies, rotation=self.rotation, shift=self.shift, seed=seed)
        return images, np.tile(y, 1 + self.copies)


def augment(
    images: npt.NDArray[np.floating], *, copies: int, rotation: float, shift: float, seed: int
) -> npt.NDArray[np.float32]:
    """Return the images, followed by ``copies`` rounds of all of them, each rotated and shifted at random.

    ``images`` is ``(n, height, width)`` or ``(n, height, width, channels)``; the result has ``n * (1 + copies)``.
    Angles are uniform up to ``rotation`` degrees either way, shifts up to ``shift`` of the image's height and width;
    pixels are interpolated linearly, and pixels from outside the image are 0.

    >>> images = np.eye(4)[np.newaxis]
    >>> augmented = augment(images, copies=2, rotation=7.5, shift=0.07, seed=1)
    >>> augmented.shape, bool((augmented[0] == images[0]).all())
    ((3, 4, 4), True)
    """
    pytorch_check()
    import torch

    height, width = images.shape[1:3]
    total = len(images) * copies
    rng = np.random.default_rng(seed)
    angles = torch.from_numpy(np.deg2rad(rng.uniform(-rotation, rotation, total)).astype(np.float32))
    offsets = torch.from_numpy((rng.uniform(-shift, shift, (total, 2)) * (height, width)).astype(np.float32))
    originals = torch.from_numpy(images.astype(np.float32).reshape(*images.shape[:3], -1)).permute(0, 3, 1, 2)
    turned = [originals]
    for start in range(0, total, _BATCH):
        batch = slice(start, start + _BATCH)
        sources = torch.arange(total)[batch] % len(images)
        turned.append(_move(originals[sources], angles[batch], offsets[batch]))
    return torch.cat(turned).permute(0, 2, 3, 1).reshape(-1, *images.shape[1:]).numpy()


def _move(images: torch.Tensor, angles: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Turn every image of `(n, channels, height, width)` about its middle, then shift it.

    The result takes each pixel from its origin, in places from -1 to 1.
    """
    import torch
    from torch.nn import functional

    height, width = images.shape[2:]
    cos, sin, (down, right) = torch.cos(angles), torch.sin(angles), offsets.T
    across = [cos, sin * height / width, -(sin * down + cos * right) * 2 / width]
    up = [-sin * width / height, cos, -(cos * down - sin * right) * 2 / height]
    maps = torch.stack([torch.stack(across, 1), torch.stack(up, 1)], 1)
    return functional.grid_sample(
        images, functional.affine_grid(maps, list(images.shape), align_corners=False), align_corners=False
    )
