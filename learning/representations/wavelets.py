"""Oriented wavelets: how much of each direction there is in each part of an image, at two scales.

Gabor filters (Daugman 1985) in pairs of a cosine and a sine. The modulus of a pair tells the strength of lines of one
direction and width wherever exactly they lie; its square root is taken, so that a bold stroke counts little more than a
fine one; then sums over cells, beside sums of the pixels themselves over blocks. Nothing is learned: the filters follow
from the size of the images. All steps are exact in whole numbers (`learning.exact_arithmetic`), in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learning.exact_arithmetic import Floats, power_of_two_below
from learning.representations.encoders import Arrays
from learning.representations.pixels import LEVELS, SIDE, Pixels, square_sums, square_sums_in_graph

if TYPE_CHECKING:
    from learning.exports.graph import Graph

ORIENTATIONS = 8
_PARTS = 7  # cells and blocks along the shorter side, about
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
        self.shape, self._pixels = shape, Pixels(shape)
        side = min(self._pixels.sides)
        self._stride = 2 if side >= 2 * _PARTS else 1
        self._cell = max(1, round(side / self._stride / _PARTS))
        self._block = max(1, side // _PARTS)
        wavelength = max(3.0, min(4.0, 4.0 * side / SIDE))
        plain = _filters((wavelength, 2.0 * wavelength))
        power = power_of_two_below(_WEIGHT / np.abs(plain).sum(axis=(1, 2)).max())
        self._filters = np.rint(plain * power) if filters is None else filters
        moduli, blocks = self._encode_batch(np.zeros((1, *shape)))
        unit_of_root = math.sqrt(_STEP / (LEVELS * power)) / _ROOT
        self.units = np.concatenate(
            [
                np.full(moduli.shape[1], unit_of_root / self._cell**2),
                np.full(blocks.shape[1], 1.0 / (LEVELS * self._block**2)),
            ]
        )
        largest_root = _ROOT * (2.0**0.5 * LEVELS * _WEIGHT / _STEP) ** 0.5
        self.bound = math.ceil(max(largest_root * self._cell**2, LEVELS * self._block**2))

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

        channels, sides = self._pixels.channels, self._pixels.sides
        images = self._pixels.to_graph(graph, points)
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
        maps = -(-sides[0] // self._stride), -(-sides[1] // self._stride)
        cells = square_sums_in_graph(graph, roots, self._cell, len(self._filters) // 2, maps)
        blocks = square_sums_in_graph(graph, images, self._block, channels, sides)
        flat = (graph.node("Flatten", sums, axis=1) for sums in (cells, blocks))
        return graph.as_double(graph.node("Concat", *flat, axis=1))

    def state(self) -> Arrays:
        return {"shape": np.array(self.shape), "filters": self._filters}

    def _encode_batch(self, points: NDArray[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Sums of the roots of moduli over cells, and of pixels over blocks; images laid flat."""
        import torch

        images = self._pixels(points)
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
        cells = square_sums(torch.from_numpy(roots), self._cell)
        return cells.reshape(flat), square_sums(images, self._block).reshape(flat)


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
