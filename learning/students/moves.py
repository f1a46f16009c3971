"""Small random changes of images after which they show the same thing, in PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

_BENDS = 4


@dataclass(frozen=True)
class Moves:
    """Limits of the moves of images; 0 or False switches a kind off.

    Attributes:
        rotation: Greatest angle in degrees, either way.
        shift: Greatest shift as a share of height and width, either way.
        stretch: Greatest change of height and width, each by itself, as a share.
        bend: Greatest shift of a part of the image against the others, as a share of height and width, either way.
        mirror: Whether every second image is mirrored left to right.
        erase: Side of a square that is blackened, as a share of the shorter side of the image.
    """

    rotation: float
    shift: float
    stretch: float
    bend: float
    mirror: bool
    erase: float

    def weaker(self, factor: float) -> Moves:
        """The same by a factor, and nothing erased."""
        return Moves(
            self.rotation * factor, self.shift * factor, self.stretch * factor, self.bend * factor, self.mirror, 0.0
        )

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Every image of `(n, channels, height, width)` moved at random by itself; what comes from outside is 0.

        Moves are drawn where the generator is.
        """
        moved = images
        if self.rotation or self.shift or self.stretch or self.bend or self.mirror:
            maps = self._maps(len(images), generator).to(images.device)
            grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
            if self.bend:
                grid = grid + self._bends(images, generator).to(images.device)
            moved = functional.grid_sample(images, grid, align_corners=False)
        return self._erased(moved, generator) if self.erase else moved

    def _maps(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """`(count, 2, 3)` affine maps from places in the result to places in the image, both from -1 to 1."""
        uniform = 2 * torch.rand(count, 5, generator=generator, device=generator.device) - 1
        angle = uniform[:, 0] * math.radians(self.rotation)
        width, height = (1 + self.stretch * uniform[:, axis] for axis in (1, 2))
        if self.mirror:
            turned = torch.randint(0, 2, (count,), generator=generator, device=generator.device)
            width = width * (1 - 2 * turned)
        cos, sin = torch.cos(angle), torch.sin(angle)
        first = torch.stack([cos * width, -sin * height, 2 * self.shift * uniform[:, 3]], 1)
        second = torch.stack([sin * width, cos * height, 2 * self.shift * uniform[:, 4]], 1)
        return torch.stack([first, second], 1)

    def _bends(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """`(n, height, width, 2)` shifts of places, smooth between 4×4 that are drawn (after Simard et al. 2003)."""
        uniform = torch.rand(len(images), 2, _BENDS, _BENDS, generator=generator, device=generator.device)
        drawn = 2 * self.bend * (2 * uniform - 1)
        smooth = functional.interpolate(drawn, size=images.shape[2:], mode="bicubic", align_corners=True)
        return smooth.permute(0, 2, 3, 1)

    def _erased(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        inside = []
        count, _, *sides = images.shape
        side = max(1, round(self.erase * min(sides)))
        for length in sides:
            first = torch.randint(0, length - side + 1, (count, 1), generator=generator, device=generator.device)
            places = torch.arange(length, device=generator.device)
            inside.append((places >= first) & (places < first + side))
        square = (inside[0][:, :, None] & inside[1][:, None, :]).to(images.device)
        return images.masked_fill(square[:, None], 0.0)
