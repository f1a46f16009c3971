"""Oriented wavelets: how much of each direction there is in each part of an image, at two scales.

Gabor filters (Daugman 1985) in pairs of a cosine and a sine. The modulus of a pair tells the strength of lines of one
direction and width wherever exactly they lie; its square root is taken, so that a bold stroke counts little more than a
fine one; then sums over cells, beside sums of the pixels themselves over blocks. Nothing is learned: the filters follow
from the size of the images. All steps are exact in whole numbers (`learning.representations.exact`), in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learning.representations.encoders import Arrays, finite
from learning.representations.exact import Floats, power_of_two_below

if TYPE_CHECKING:
    import torch

    from learning.exports.graph import Graph

ORIENTATIONS = 8
SMALLEST_SIDE = 4
_LEVELS = 255  # of a pixel
_PARTS = 7  # cells and blocks along the shorter side, about
_SIDE = 28  # images of twice this side and more are reduced by a whole factor first
_BATCH = 256  # images at a time
_WEIGHT = 2.0**15  # of a filter: its absolute values add up to no more, so responses stay below 2²³
_STEP = 2.0**12  # responses are rounded to multiples of this, so that the squares of a pair add up to less than 2²⁴
_ROOT = 64.0  # steps per unit of the root of a modulus


class WaveletEncoder:
    """Oriented wavelets of images `(height, width)` or `(height, width, channels)` with pixels in [0, 1].

    Directions are those of the mean over the channels, blocks are summed in each of them. filters: as in `state`, None
    to compute them; stored, since the last bit of a cosine may differ on another machine.

    >>> encoder = WaveletEncoder((28, 28))
    >>> len(encoder.units), bool(encoder.encode(np.zeros((1, 28, 28))).any())
    (833, False)
    """

    kind: ClassVar[str] = "wavelets"

    def __init__(self, shape: tuple[int, ...], filters: Floats | None = None) -> None:
        if len(shape) not in (2, 3) or min(shape[:2]) < SMALLEST_SIDE:
            raise ValueError(
                f"Wavelets take images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, not points of shape "
                f"{shape}: choose a representation of columns."
            )
        self.shape = shape
        self._reduction = max(1, min(shape[:2]) // _SIDE)
        side = min(shape[:2]) // self._reduction
        self._stride = 2 if side >= 2 * _PARTS else 1
        self._cell = max(1, round(side / self._stride / _PARTS))
        self._block = max(1, side // _PARTS)
        wavelength = max(3.0, min(4.0, 4.0 * side / _SIDE))
        plain = _filters((wavelength, 2.0 * wavelength))
        power = power_of_two_below(_WEIGHT / np.abs(plain).sum(axis=(1, 2)).max())
        self._filters = np.rint(plain * power) if filters is None else filters
        moduli, blocks = self._encode_batch(np.zeros((1, *shape)))
        unit_of_root = math.sqrt(_STEP / (_LEVELS * power)) / _ROOT
        self.units = np.concatenate(
            [
                np.full(moduli.shape[1], unit_of_root / self._cell**2),
                np.full(blocks.shape[1], 1.0 / (_LEVELS * self._block**2)),
            ]
        )
        largest_root = _ROOT * (2.0**0.5 * _LEVELS * _WEIGHT / _STEP) ** 0.5
        self.bound = math.ceil(max(largest_root * self._cell**2, _LEVELS * self._block**2))

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> WaveletEncoder:
        return cls(tuple(state["shape"].tolist()), state["filters"])

    def encode(self, points: NDArray[np.floating]) -> Floats:
        features = np.empty((len(points), len(self.units)))
        for start in range(0, len(points), _BATCH):
            batch = slice(start, start + _BATCH)
            features[batch] = np.concatenate(self._encode_batch(points[batch]), axis=1)
        return features

    def to_graph(self, graph: Graph, points: str) -> str:
        from learning.exports.graph import FLOAT
        from learning.exports.layers import channels_first

        channels = 1 if len(self.shape) == 2 else self.shape[2]
        sides = [int(side) for side in self.shape[:2]]
        inside = graph.node("Clip", graph.as_double(points), graph.constant(0.0), graph.constant(1.0))
        pixels = graph.node("Round", graph.node("Mul", inside, graph.constant(float(_LEVELS))))
        images = channels_first(graph, graph.cast(pixels, FLOAT), self.shape)
        if self._reduction > 1:
            sums = _sums_in_graph(graph, images, self._reduction, channels, (0, 0))
            images = graph.node("Round", graph.node("Div", sums, graph.constant(np.float32(self._reduction**2))))
            sides = [side // self._reduction for side in sides]
        total = graph.node("ReduceSum", images, graph.constant(np.array([1])), keepdims=1)
        grey = graph.node("Round", graph.node("Div", total, graph.constant(np.float32(channels))))
        kernel, padding = graph.constant(self._filters.astype(np.float32)[:, None]), self._filters.shape[1] // 2
        responses = graph.node("Conv", grey, kernel, strides=[self._stride] * 2, pads=[padding] * 4)
        steps = graph.node("Round", graph.node("Div", responses, graph.constant(np.float32(_STEP))))
        squares = graph.node("Mul", steps, steps)
        even, odd = (
            graph.node("Gather", squares, graph.constant(np.arange(first, len(self._filters), 2)), axis=1)
            for first in (0, 1)
        )
        roots = graph.node("Add", even, odd)
        for _ in range(2):  # by double precision, so that it is rounded once whatever a runtime does in single
            roots = graph.cast(graph.node("Sqrt", graph.as_double(roots)), FLOAT)
        roots = graph.node("Round", graph.node("Mul", roots, graph.constant(np.float32(_ROOT))))
        maps = [-(-side // self._stride) for side in sides]
        cells = _sums_in_graph(graph, roots, self._cell, len(self._filters) // 2, _missing(maps, self._cell))
        blocks = _sums_in_graph(graph, images, self._block, channels, _missing(sides, self._block))
        flat = (graph.node("Flatten", sums, axis=1) for sums in (cells, blocks))
        return graph.as_double(graph.node("Concat", *flat, axis=1))

    def state(self) -> Arrays:
        return {"shape": np.array(self.shape), "filters": self._filters}

    def _encode_batch(self, points: NDArray[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Sums of the roots of moduli over cells, and of pixels over blocks; images laid flat."""
        import torch

        pixels = np.rint(finite(points).clip(0, 1) * _LEVELS).astype(np.float32)
        pixels = pixels.reshape(len(points), *self.shape[:2], -1).transpose(0, 3, 1, 2)
        images = torch.from_numpy(np.ascontiguousarray(pixels))
        if self._reduction > 1:
            images = torch.from_numpy(np.rint(_sums(images, self._reduction, whole=False) / self._reduction**2))
        grey = torch.from_numpy(np.rint(images.sum(dim=1, keepdim=True).numpy() / images.shape[1]))
        responses = torch.nn.functional.conv2d(
            grey,
            torch.from_numpy(self._filters.astype(np.float32))[:, None],
            stride=self._stride,
            padding=self._filters.shape[1] // 2,
        )
        steps = np.rint(responses.numpy() / np.float32(_STEP))
        roots = np.sqrt(np.sqrt(steps[:, 0::2] ** 2 + steps[:, 1::2] ** 2))
        roots = np.rint(roots * np.float32(_ROOT))
        flat = (len(points), -1)
        cells = _sums(torch.from_numpy(roots), self._cell)
        return cells.reshape(flat), _sums(images, self._block).reshape(flat)


def _sums(maps: torch.Tensor, side: int, whole: bool = True) -> NDArray[np.float32]:
    """Sums over squares of `side`; what is left at the right and lower edge is a smaller part, or dropped."""
    from torch.nn.functional import avg_pool2d

    return avg_pool2d(maps, side, ceil_mode=whole, divisor_override=1).numpy()


def _missing(sides: list[int], each: int) -> tuple[int, int]:
    """Pixels that are missing for the last squares to be whole, below and to the right."""
    below, right = (-side % each for side in sides)
    return below, right


def _sums_in_graph(graph: Graph, maps: str, side: int, channels: int, missing: tuple[int, int]) -> str:
    """The same as `_sums`, with zeros where pixels are `missing`; what then is no whole square is dropped."""
    ones = graph.constant(np.ones((channels, 1, side, side), np.float32))
    return graph.node("Conv", maps, ones, strides=[side] * 2, pads=[0, 0, *missing], group=channels)


def _filters(wavelengths: tuple[float, ...]) -> Floats:
    """`(filters, size, size)`: for every wavelength and direction a cosine and a sine under a bell, of norm 1."""
    size = 2 * int(11 / 16 * max(wavelengths)) + 1
    axis = np.arange(size) - size // 2
    y, x = np.meshgrid(axis, axis, indexing="ij")
    filters = []
    for wavelength in wavelengths:
        bell = np.exp(-(x**2 + y**2) / (2.0 * (wavelength / 2.0) ** 2))
        for angle in np.pi * np.arange(ORIENTATIONS) / ORIENTATIONS:
            phase = 2.0 * np.pi * (x * np.cos(angle) + y * np.sin(angle)) / wavelength
            even = bell * np.cos(phase)
            even -= bell * even.sum() / bell.sum()  # an even brightness is no line
            odd = bell * np.sin(phase)
            filters += [even / np.linalg.norm(even), odd / np.linalg.norm(odd)]
    return np.array(filters)
