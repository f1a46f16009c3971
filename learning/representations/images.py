"""Integer features of images: oriented wavelets, or similarities of image parts to patches of public images.

Pixels have 255 levels, and large images are reduced first. All steps are computed exactly in float32
(`learning.exact_arithmetic`).

*Oriented wavelets* measure each direction in each part of an image, at two scales. Gabor filters (Daugman 1985) are
pairs of a cosine and a sine. The modulus of a pair is the strength of lines of one direction and width, independent of
their exact position. Its square root is used, because a bold stroke should count only a little more than a fine one.
Roots are summed over cells, and the pixels themselves over blocks. Nothing is learned: the filters follow from the size
of the images.

*Whitened patches* (Coates, Ng 2011): every patch of an image is normalised to the same mean and contrast, whitened like
public patches, and compared with some public patches. Each comparison gives two numbers: how far the similarity to the
public patch, and to its negative, exceeds a threshold. These numbers are added up within each of three by three regions
of the image. All of this is a convolution: whitening is part of the filters, which add up to 0, so the mean of a patch
cancels out, and the contrast is divided out afterwards. All sums are of integers: products of filters with pixels, and
rounded similarities of a region.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learning.exact_arithmetic import Floats, power_of_two_below, whole_matrix
from learning.representations.coordinates import Arrays, finite
from learning.representations.network import convolve, square_sums

if TYPE_CHECKING:
    from learning.exports.graph import Graph

LEVELS = 255
SMALLEST_SIDE = 4
SIDE = 28
"""Images with sides of at least twice this size are first reduced by an integer factor."""

ORIENTATIONS = 8
_CELLS = 7  # approximate number of cells and blocks along the shorter side
_WAVELET_BATCH = 256  # number of images processed at a time
_WEIGHT = 2.0**15  # largest sum of a filter's absolute values, so that responses stay below 2²³
_STEP = 2.0**12  # unit of rounded responses, so that the sum of a pair's squares stays below 2²⁴
_ROOT = 64.0  # steps per unit of the root of a modulus

_SIDE = 6  # side of a patch; smaller in images of fewer than 8 pixels
_REGIONS = 3  # number of regions along each side of an image
_CONTRAST = 10  # added to the variance of a patch, in squared levels, to avoid magnifying noise in uniform parts
_FLOOR = 0.1  # added to the variances of patches when they are whitened
_DRAWN = 50_000  # patches used for whitening
_LARGEST_SUM = 2.0**23  # bound on the sums in float32; the other half of 2²⁴ is reserved for rounding
_PATCH_BATCH = 16  # number of images processed at a time, so that similarities fit into a processor's cache


class Pixels:
    """First step for images `(height, width)` or `(height, width, channels)` with pixels in [0, 1].

    Attributes:
        channels, sides: Channels and sides of the resulting images, which may be smaller than the input.

    >>> pixels = Pixels((60, 90, 3))
    >>> pixels.sides, tuple(pixels(np.ones((5, 60, 90, 3))).shape)
    ((30, 45), (5, 3, 30, 45))
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        if len(shape) not in (2, 3) or min(shape[:2]) < SMALLEST_SIDE:
            raise ValueError(
                f"Images need at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, but these points have the shape "
                f"{shape}: choose a representation of columns."
            )
        self.shape = shape
        self.channels = 1 if len(shape) == 2 else int(shape[2])
        self._reduction = max(1, min(shape[:2]) // SIDE)
        self.sides = int(shape[0]) // self._reduction, int(shape[1]) // self._reduction

    def __call__(self, points: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return integers `(n, channels, *sides)` up to `LEVELS`."""
        pixels = np.rint(finite(points).clip(0, 1) * LEVELS).astype(np.float32)
        pixels = pixels.reshape(len(points), *self.shape[:2], self.channels).transpose(0, 3, 1, 2)
        images = np.ascontiguousarray(pixels)
        if self._reduction == 1:
            return images
        return np.rint(square_sums(images, self._reduction, whole=False) / self._reduction**2)

    def to_graph(self, graph: Graph, points: str) -> str:
        """Add the same calculation to a graph."""
        from learning.exports.graph import FLOAT
        from learning.learners.layers import channels_first

        inside = graph.node("Clip", graph.as_double(points), graph.constant(0.0), graph.constant(1.0))
        pixels = graph.node("Round", graph.node("Mul", inside, graph.constant(float(LEVELS))))
        images = channels_first(graph, graph.cast(pixels, FLOAT), self.shape)
        if self._reduction == 1:
            return images
        sums = square_sums_in_graph(graph, images, self._reduction, self.channels)
        return graph.node("Round", graph.node("Div", sums, graph.constant(np.float32(self._reduction**2))))


def square_sums_in_graph(
    graph: Graph,
    maps: str,
    side: int | tuple[int, int],
    channels: int,
    sides: tuple[int, int] | None = None,
    stride: int | None = None,
) -> str:
    """Add the nodes of `square_sums`. If the maps' `sides` are given, the rest at each edge forms smaller parts."""
    kernel = [side] * 2 if isinstance(side, int) else list(side)
    missing = [0, 0] if sides is None else [-length % each for length, each in zip(sides, kernel, strict=True)]
    ones = graph.constant(np.ones((channels, 1, *kernel), np.float32))
    strides = kernel if stride is None else [stride] * 2
    return graph.node("Conv", maps, ones, strides=strides, pads=[0, 0, *missing], group=channels)


class WaveletEncoder:
    """Oriented wavelets of images `(height, width)` or `(height, width, channels)` with pixels in [0, 1].

    Directions are computed from the mean over the channels, and blocks for each channel.

    Args:
        filters: As in `state`, or None to compute them. They are stored because the last bit of a cosine may differ on
            another machine.

    >>> encoder = WaveletEncoder((28, 28))
    >>> len(encoder.units), bool(encoder.encode(np.zeros((1, 28, 28))).any())
    (833, False)
    """

    kind: ClassVar[str] = "wavelets"

    def __init__(self, shape: tuple[int, ...], filters: Floats | None = None) -> None:
        self.shape, self._pixels = shape, Pixels(shape)
        side = min(self._pixels.sides)
        self._stride = 2 if side >= 2 * _CELLS else 1
        self._cell = max(1, round(side / self._stride / _CELLS))
        self._block = max(1, side // _CELLS)
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
        for start in range(0, len(points), _WAVELET_BATCH):
            batch = slice(start, start + _WAVELET_BATCH)
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
        for _ in range(2):  # in double precision, so that the result is rounded once on every runtime
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
        """Return sums of the roots of moduli over cells, and of pixels over blocks, of flattened images."""
        images = self._pixels(points)
        grey = np.rint(images.sum(axis=1, keepdims=True) / images.shape[1])
        filters, padding = self._filters.astype(np.float32)[:, None], self._filters.shape[1] // 2
        steps = np.rint(convolve(grey, filters, stride=self._stride, padding=padding) / np.float32(_STEP))
        roots = np.sqrt(np.sqrt(steps[:, 0::2] ** 2 + steps[:, 1::2] ** 2))
        roots = np.rint(roots * np.float32(_ROOT))
        flat = (len(points), -1)
        cells = square_sums(roots, self._cell)
        return cells.reshape(flat), square_sums(images, self._block).reshape(flat)


class PatchEncoder:
    """Whitened patches of images `(height, width)` or `(height, width, channels)` with pixels in [0, 1].

    Encoders are created by `fit`.

    Args:
        filters: `(filters, channels, side, side)` integers that add up to 0 for each filter.
        power: Scale of the filters.
        offsets: `(filters,)` similarities of the mean public patch, which are subtracted.
        threshold: Threshold that is also subtracted, before negative values are set to 0.

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
        # after division by its contrast, a patch has a norm below the square root of its size
        norms = np.sqrt((filters**2).sum(axis=(1, 2, 3))) / power
        largest = float((norms * math.sqrt(self._size) + np.abs(offsets)).max())
        places = math.prod(self._region)
        self._steps = power_of_two_below(_LARGEST_SUM / (places * largest))
        self.bound = float(places * math.ceil(largest * self._steps + 1.0))
        regions = math.ceil(height / self._region[0]) * math.ceil(width / self._region[1])
        self.units = np.full(2 * len(filters) * regions, 1.0 / (self._steps * places))

    @classmethod
    def fit(cls, public: NDArray[np.floating], *, filters: int, threshold: float, seed: int) -> PatchEncoder:
        """Draw patches of public images, without those of uniform brightness, and use them as filters after whitening.

        Args:
            public: `(n, *shape)` images.
            filters: Number of filters; fewer if there are not enough patches.
            threshold: Subtracted from similarities to filters of norm 1.
            seed: Public seed of the draw.
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
            raise ValueError("All public images are uniform: give others.")
        chosen = (flat[uneven[:filters]] - mean) @ whitening
        chosen /= np.linalg.norm(chosen, axis=1, keepdims=True)
        plain = chosen @ whitening
        plain -= plain.mean(axis=1, keepdims=True)
        whole, power = whole_matrix(plain.T, LEVELS, _LARGEST_SUM)
        whole[0] -= whole.sum(axis=0)  # rounding leaves a small sum, which is removed here
        return cls(public.shape[1:], whole.T.reshape(-1, *patches.shape[1:]), power, plain @ mean, threshold)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> PatchEncoder:
        shape = tuple(state["shape"].tolist())
        return cls(shape, state["filters"], float(state["power"]), state["offsets"], float(state["threshold"]))

    def encode(self, points: NDArray[np.floating]) -> Floats:
        features = np.empty((len(points), len(self.units)))
        for start in range(0, len(points), _PATCH_BATCH):
            batch = slice(start, start + _PATCH_BATCH)
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
        """Factor for contrasts.

        A filter's product divided by the scaled contrast is a similarity in units of 1/`_steps`.
        """
        return self._power / (self._steps * self._size)

    @property
    def _subtracted(self) -> NDArray[np.float32]:
        return (self._offsets * self._steps).astype(np.float32)[:, None, None]

    @property
    def _least(self) -> float:
        return float(np.rint(self._threshold * self._steps))

    def _encode_batch(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        sums, squares = (
            square_sums(maps, self._side, whole=False, stride=1).sum(axis=1, keepdims=True, dtype=np.float64)
            for maps in (images, images**2)
        )
        contrast = np.sqrt(self._size * squares - sums**2 + _CONTRAST * self._size**2) * self._step
        whole = convolve(images, self._filters.astype(np.float32))
        whole /= contrast.astype(np.float32)
        whole -= self._subtracted
        np.rint(whole, out=whole)
        beyond = [square_sums(np.maximum(sign - self._least, 0), self._region) for sign in (whole, -whole)]
        return np.concatenate(beyond, axis=1).reshape(len(images), -1)

    def _patch_sums_in_graph(self, graph: Graph, maps: str) -> str:
        """Add nodes for sums over every patch and all channels, exact in double precision."""
        sums = square_sums_in_graph(graph, maps, self._side, self._pixels.channels, stride=1)
        return graph.node("ReduceSum", graph.as_double(sums), graph.constant(np.array([1])), keepdims=1)


def _filters(wavelengths: tuple[float, ...]) -> Floats:
    """Return cosine and sine filters `(filters, size, size)` of norm 1, under a bell curve, in several directions."""
    size = 2 * int(11 / 16 * max(wavelengths)) + 1
    axis = np.arange(size) - size // 2
    y, x = np.meshgrid(axis, axis, indexing="ij")
    filters = []
    for wavelength in wavelengths:
        bell = np.exp(-(x**2 + y**2) / (2.0 * (wavelength / 2.0) ** 2))
        for angle in np.pi * np.arange(ORIENTATIONS) / ORIENTATIONS:
            phase = 2.0 * np.pi * (x * np.cos(angle) + y * np.sin(angle)) / wavelength
            even = bell * np.cos(phase)
            even -= bell * even.sum() / bell.sum()  # removes the response to uniform brightness
            odd = bell * np.sin(phase)
            filters += [even / np.linalg.norm(even), odd / np.linalg.norm(odd)]
    return np.array(filters)


def _patches(public: NDArray[np.floating], rng: np.random.Generator) -> Floats:
    """Return patches `(_DRAWN, channels, side, side)` of public images in random order."""
    pixels = Pixels(public.shape[1:])
    side = min(_SIDE, min(pixels.sides) - _REGIONS + 1)
    image = rng.integers(0, len(public), _DRAWN)
    top, left = (rng.integers(0, length - side + 1, _DRAWN) for length in pixels.sides)
    rows, columns = (start[:, None] + np.arange(side) for start in (top, left))
    patches = np.empty((_DRAWN, pixels.channels, side, side))
    for start in range(0, _DRAWN, _PATCH_BATCH):
        some = slice(start, start + _PATCH_BATCH)
        images = pixels(public[image[some]])
        of = np.arange(len(images))[:, None, None]
        patches[some] = images[of, :, rows[some, :, None], columns[some, None, :]].transpose(0, 3, 1, 2)
    return patches
