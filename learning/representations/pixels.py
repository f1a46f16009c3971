"""Images as whole numbers: pixels in 255 levels, large images reduced, and sums over squares of them.

All of it is exact in float32 (`learning.exact_arithmetic`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from learning.representations.encoders import finite

if TYPE_CHECKING:
    import torch

    from learning.exports.graph import Graph

LEVELS = 255
SMALLEST_SIDE = 4
SIDE = 28
"""Images of twice this side and more are reduced by a whole factor first."""


class Pixels:
    """What is done to images `(height, width)` or `(height, width, channels)` with pixels in [0, 1] before all else.

    channels, sides: of the images that come of it; sides may be fewer pixels than given.

    >>> pixels = Pixels((60, 90, 3))
    >>> pixels.sides, tuple(pixels(np.ones((5, 60, 90, 3))).shape)
    ((30, 45), (5, 3, 30, 45))
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        if len(shape) not in (2, 3) or min(shape[:2]) < SMALLEST_SIDE:
            raise ValueError(
                f"Images need at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, and these points have the shape "
                f"{shape}: choose a representation of columns."
            )
        self.shape = shape
        self.channels = 1 if len(shape) == 2 else int(shape[2])
        self._reduction = max(1, min(shape[:2]) // SIDE)
        self.sides = int(shape[0]) // self._reduction, int(shape[1]) // self._reduction

    def __call__(self, points: NDArray[np.floating]) -> torch.Tensor:
        """`(n, channels, *sides)` whole numbers up to `LEVELS`, in float32."""
        import torch

        pixels = np.rint(finite(points).clip(0, 1) * LEVELS).astype(np.float32)
        pixels = pixels.reshape(len(points), *self.shape[:2], self.channels).transpose(0, 3, 1, 2)
        images = torch.from_numpy(np.ascontiguousarray(pixels))
        if self._reduction == 1:
            return images
        return torch.from_numpy(np.rint(square_sums(images, self._reduction, whole=False) / self._reduction**2))

    def to_graph(self, graph: Graph, points: str) -> str:
        """The same as nodes."""
        from learning.exports.graph import FLOAT
        from learning.exports.layers import channels_first

        inside = graph.node("Clip", graph.as_double(points), graph.constant(0.0), graph.constant(1.0))
        pixels = graph.node("Round", graph.node("Mul", inside, graph.constant(float(LEVELS))))
        images = channels_first(graph, graph.cast(pixels, FLOAT), self.shape)
        if self._reduction == 1:
            return images
        sums = square_sums_in_graph(graph, images, self._reduction, self.channels)
        return graph.node("Round", graph.node("Div", sums, graph.constant(np.float32(self._reduction**2))))


def square_sums(
    maps: torch.Tensor, side: int | tuple[int, int], whole: bool = True, stride: int | None = None
) -> NDArray[np.float32]:
    """Sums over squares of `side`; what is left at the right and lower edge is a smaller part, or dropped."""
    from torch.nn.functional import avg_pool2d

    return avg_pool2d(maps, side, stride, ceil_mode=whole, divisor_override=1).numpy()


def square_sums_in_graph(
    graph: Graph,
    maps: str,
    side: int | tuple[int, int],
    channels: int,
    sides: tuple[int, int] | None = None,
    stride: int | None = None,
) -> str:
    """The same as `square_sums`; with the `sides` of the maps, what is left at the edge is a smaller part."""
    kernel = [side] * 2 if isinstance(side, int) else list(side)
    missing = [0, 0] if sides is None else [-length % each for length, each in zip(sides, kernel, strict=True)]
    ones = graph.constant(np.ones((channels, 1, *kernel), np.float32))
    strides = kernel if stride is None else [stride] * 2
    return graph.node("Conv", maps, ones, strides=strides, pads=[0, 0, *missing], group=channels)
