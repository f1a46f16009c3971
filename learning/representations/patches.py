"""Whitened patches: how like the parts of an image are to some patches of public images (Coates, Ng 2011).

Every patch of an image is brought to the same mean and contrast, whitened as public patches are, and compared with some
of these. By how much it exceeds a threshold in the likeness to one, and in the likeness to its negative, are two
numbers; they are added up in three by three regions of the image. All of it comes down to a convolution: whitening is
part of the filters, which add up to 0, so that the mean of a patch drops out, and its contrast is divided by
afterwards. Sums are of whole numbers (`learning.exact_arithmetic`) in float32: the products of filters with
pixels, and the rounded likenesses of a region.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learning.exact_arithmetic import Floats, power_of_two_below, whole_matrix
from learning.representations.encoders import Arrays
from learning.representations.pixels import LEVELS, Pixels, square_sums, square_sums_in_graph

if TYPE_CHECKING:
    import torch

    from learning.exports.graph import Graph

_SIDE = 6  # of a patch; less in images of fewer than 8 pixels
_REGIONS = 3  # along each side of an image
_CONTRAST = 10  # added to the variance of a patch, in squares of levels, so that noise in even parts is not blown up
_FLOOR = 0.1  # added to the variances of patches when they are whitened
_DRAWN = 50_000  # patches to whiten by
_LARGEST = 2.0**23  # of the sums in float32; as much again is left for what rounding adds
_BATCH = 16  # images at a time, whose likenesses fit a processor's cache


class PatchEncoder:
    """Whitened patches of images `(height, width)` or `(height, width, channels)` with pixels in [0, 1].

    Made by `fit`. filters: `(filters, channels, side, side)` whole numbers, adding up to 0 for each filter.  power:
    what brings them to their size.  offsets: `(filters,)`, likenesses of the mean public patch, which are subtracted.
    threshold: what is subtracted besides, before anything below 0 is left out.

    >>> images = np.random.default_rng(0).random((20, 16, 12, 3))
    >>> PatchEncoder.fit(images, filters=10, threshold=0.25, seed=1).encode(images).shape
    (20, 180)
    """

    kind: ClassVar[str] = "patches"

    def __init__(
        self, shape: tuple[int, ...], filters: Floats, power: float, offsets: Floats, threshold: float
    ) -> None:
        self.shape, self._pixels = shape, Pixels(shape)
        self._filters, self._power, self._offsets, self._threshold = filters, power, offsets, threshold
        self._side, self._size = filters.shape[-1], math.prod(filters.shape[1:])
        height, width = (side - self._side + 1 for side in self._pixels.sides)
        self._map, self._region = (height, width), (-(-height // _REGIONS), -(-width // _REGIONS))
        # a patch of this contrast has a norm below the root of its size
        norms = np.sqrt((filters**2).sum(axis=(1, 2, 3))) / power
        largest = float((norms * math.sqrt(self._size) + np.abs(offsets)).max())
        places = math.prod(self._region)
        self._steps = power_of_two_below(_LARGEST / (places * largest))
        self.bound = float(places * math.ceil(largest * self._steps + 1.0))
        regions = math.ceil(height / self._region[0]) * math.ceil(width / self._region[1])
        self.units = np.full(2 * len(filters) * regions, 1.0 / (self._steps * places))

    @classmethod
    def fit(cls, public: NDArray[np.floating], *, filters: int, threshold: float, seed: int) -> PatchEncoder:
        """Draw patches of public images, and take so many of those that are not even, whitened, as filters.

        Args:
            public: `(n, *shape)` images.
            filters: How many; fewer where there are no more.
            threshold: What is left off a likeness, in likenesses to filters of length 1.
            seed: Public, of what is drawn.
        """
        rng = np.random.default_rng(seed)
        patches = _patches(public, rng)
        flat = patches.reshape(len(patches), -1)
        flat -= flat.mean(axis=1, keepdims=True)
        flat /= np.sqrt(flat.var(axis=1, keepdims=True) + _CONTRAST)
        mean = flat.mean(axis=0)
        variances, directions = np.linalg.eigh(np.cov(flat, rowvar=False))
        whitening = directions / np.sqrt(np.maximum(variances, 0.0) + _FLOOR) @ directions.T
        uneven = np.flatnonzero(flat.any(axis=1))
        if len(uneven) == 0:
            raise ValueError("All public images are even: give others.")
        chosen = (flat[uneven[:filters]] - mean) @ whitening
        chosen /= np.linalg.norm(chosen, axis=1, keepdims=True)
        plain = chosen @ whitening
        plain -= plain.mean(axis=1, keepdims=True)
        whole, power = whole_matrix(plain.T, LEVELS, _LARGEST)
        whole[0] -= whole.sum(axis=0)  # what rounding left
        return cls(public.shape[1:], whole.T.reshape(-1, *patches.shape[1:]), power, plain @ mean, threshold)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> PatchEncoder:
        shape = tuple(state["shape"].tolist())
        return cls(shape, state["filters"], float(state["power"]), state["offsets"], float(state["threshold"]))

    def encode(self, points: NDArray[np.floating]) -> Floats:
        features = np.empty((len(points), len(self.units)))
        for start in range(0, len(points), _BATCH):
            batch = slice(start, start + _BATCH)
            features[batch] = self._encode_batch(self._pixels(points[batch]))
        return features

    def to_graph(self, graph: Graph, points: str) -> str:
        from learning.exports.graph import FLOAT

        images = self._pixels.to_graph(graph, points)
        sums, squares = (self._patch_sums_in_graph(graph, maps) for maps in (images, graph.node("Mul", images, images)))
        scaled = graph.node("Mul", squares, graph.constant(float(self._size)))
        centred = graph.node("Sub", scaled, graph.node("Mul", sums, sums))
        variance = graph.node("Add", centred, graph.constant(float(_CONTRAST * self._size**2)))
        contrast = graph.node("Mul", graph.node("Sqrt", variance), graph.constant(self._step))
        products = graph.node("Conv", images, graph.constant(self._filters.astype(np.float32)))
        likeness = graph.node("Div", products, graph.cast(contrast, FLOAT))
        whole = graph.node("Round", graph.node("Sub", likeness, graph.constant(self._subtracted)))
        beyond = []
        for sign in (whole, graph.node("Neg", whole)):
            left = graph.node("Relu", graph.node("Sub", sign, graph.constant(np.float32(self._least))))
            beyond.append(square_sums_in_graph(graph, left, self._region, len(self._filters), self._map))
        return graph.as_double(graph.node("Flatten", graph.node("Concat", *beyond, axis=1), axis=1))

    def state(self) -> Arrays:
        return {
            "shape": np.array(self.shape),
            "filters": self._filters,
            "power": np.array(self._power),
            "offsets": self._offsets,
            "threshold": np.array(self._threshold),
        }

    @property
    def _step(self) -> float:
        """What the whole number for a contrast is multiplied by, so that likenesses are in steps."""
        return self._power / (self._steps * self._size)

    @property
    def _subtracted(self) -> NDArray[np.float32]:
        return (self._offsets * self._steps).astype(np.float32)[:, None, None]

    @property
    def _least(self) -> float:
        return float(np.rint(self._threshold * self._steps))

    def _encode_batch(self, images: torch.Tensor) -> NDArray[np.float32]:
        import torch

        sums, squares = (
            square_sums(maps, self._side, whole=False, stride=1).sum(axis=1, keepdims=True, dtype=np.float64)
            for maps in (images, images**2)
        )
        contrast = np.sqrt(self._size * squares - sums**2 + _CONTRAST * self._size**2) * self._step
        whole = torch.nn.functional.conv2d(images, torch.from_numpy(self._filters.astype(np.float32)))
        whole.div_(torch.from_numpy(contrast.astype(np.float32))).sub_(torch.from_numpy(self._subtracted)).round_()
        beyond = [square_sums((sign - self._least).clamp_(min=0), self._region) for sign in (whole, -whole)]
        return np.concatenate(beyond, axis=1).reshape(len(images), -1)

    def _patch_sums_in_graph(self, graph: Graph, maps: str) -> str:
        """Sums over every patch and all channels, exact in double precision."""
        sums = square_sums_in_graph(graph, maps, self._side, self._pixels.channels, stride=1)
        return graph.node("ReduceSum", graph.as_double(sums), graph.constant(np.array([1])), keepdims=1)


def _patches(public: NDArray[np.floating], rng: np.random.Generator) -> Floats:
    """`(_DRAWN, channels, side, side)` patches of public images, in a random order."""
    pixels = Pixels(public.shape[1:])
    side = min(_SIDE, min(pixels.sides) - _REGIONS + 1)
    image = rng.integers(0, len(public), _DRAWN)
    top, left = (rng.integers(0, length - side + 1, _DRAWN) for length in pixels.sides)
    rows, columns = (start[:, None] + np.arange(side) for start in (top, left))
    patches = np.empty((_DRAWN, pixels.channels, side, side))
    for start in range(0, _DRAWN, _BATCH):
        some = slice(start, start + _BATCH)
        images = pixels(public[image[some]]).numpy()
        of = np.arange(len(images))[:, None, None]
        patches[some] = images[of, :, rows[some, :, None], columns[some, None, :]].transpose(0, 3, 1, 2)
    return patches
