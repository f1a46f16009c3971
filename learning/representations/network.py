"""Inner layer of a trained network, evaluated in integers so that every point is encoded independently.

In floating point, the last bits of a network's output for a point depend on the point's batch, so its neighbours would
also depend on the batch. Weights and activations are therefore rounded to integers at a scale set by the public points.
Every layer is then exact in float64 (`learning.exact_arithmetic`), and its result is rounded and clipped element by
element. With 15 bits for activations and more for weights, the loss is negligible.

Convolutions use PyTorch if it is installed and NumPy otherwise; the results are identical to the last bit. PyTorch is
up to twice as fast on workers; machines that only serve pages do not need it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from learning.exact_arithmetic import Floats, power_of_two_below, whole_matrix
from learning.learners.layers import (
    Activation,
    Convolution,
    Dense,
    Flatten,
    MaxPool,
    Normalisation,
    PlainLayer,
    plain_layers,
)
from learning.libraries import has_pytorch
from learning.representations.coordinates import Arrays, finite

if TYPE_CHECKING:
    from torch import nn

    from learning.exports.graph import Graph
    from learning.learners.learner import Model


Number = TypeVar("Number", bound=np.floating)

_NUMBERS = 2**22
"""Largest number of values in patches that NumPy lays out at a time."""


@cache
def _torch() -> Any:
    """Return PyTorch, or None if it is not installed. It is loaded only when needed, because that takes a second."""
    return import_module("torch") if has_pytorch() else None


def convolve(maps: NDArray[Number], filters: NDArray[Number], *, stride: int = 1, padding: int = 0) -> NDArray[Number]:
    """Return products `(n, filters, height, width)` of filters with the patches of maps.

    Args:
        maps: `(n, channels, height, width)`.
        filters: `(filters, channels, *sides)`, of the same type.
        stride: Distance between patches, in both directions.
        padding: Number of rows and columns of 0 on each side.

    >>> convolve(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), stride=2, padding=1)
    array([[[[1., 2.],
             [2., 4.]]]])
    """
    if torch := _torch():
        tensors = torch.from_numpy(maps), torch.from_numpy(filters)
        return torch.nn.functional.conv2d(*tensors, stride=stride, padding=padding).numpy()
    padded = np.pad(maps, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    patches = _windows(padded, filters.shape[2:], stride)
    flat = filters.reshape(len(filters), -1).T
    result = np.empty((len(maps), len(filters), *patches.shape[2:4]), maps.dtype)
    together = max(1, _NUMBERS // (flat.shape[0] * patches.shape[2] * patches.shape[3]))
    for start in range(0, len(maps), together):
        part = patches[start : start + together].transpose(0, 2, 3, 1, 4, 5)
        product = part.reshape(-1, len(flat)) @ flat
        result[start : start + together] = product.reshape(*part.shape[:3], -1).transpose(0, 3, 1, 2)
    return result


def square_sums(
    maps: NDArray[Number], side: int | tuple[int, int], whole: bool = True, stride: int | None = None
) -> NDArray[Number]:
    """Return sums over squares of `side`.

    Partial squares at the right and lower edges are summed if `whole`, and dropped otherwise.

    >>> square_sums(np.arange(9.0).reshape(1, 1, 3, 3), 2)
    array([[[[ 8.,  7.],
             [13.,  8.]]]])
    """
    if torch := _torch():
        pooled = torch.nn.functional.avg_pool2d(
            torch.from_numpy(maps), side, stride, ceil_mode=whole, divisor_override=1
        )
        return pooled.numpy()
    sides = (side, side) if isinstance(side, int) else side
    if whole:
        missing = [(0, -length % each) for length, each in zip(maps.shape[2:], sides, strict=True)]
        maps = np.pad(maps, ((0, 0), (0, 0), *missing))
    return _windows(maps, sides, stride or sides).sum(axis=(4, 5))


def max_pool(maps: NDArray[Number], side: int) -> NDArray[Number]:
    """Return the largest number in each square of `side`; the rest at the right and lower edges is dropped."""
    if torch := _torch():
        return torch.nn.functional.max_pool2d(torch.from_numpy(maps), side).numpy()
    return _windows(maps, (side, side), side).max(axis=(4, 5))


def _windows(maps: NDArray[Number], sides: tuple[int, ...], stride: int | tuple[int, int]) -> NDArray[Number]:
    """Return windows `(n, channels, rows, columns, *sides)` of maps."""
    down, right = (stride, stride) if isinstance(stride, int) else stride
    return sliding_window_view(maps, sides, axis=(2, 3))[:, :, ::down, ::right]


_ACTIVATION = 2.0**15  # number of steps from 0 to twice the largest public activation, above which values are clipped
_BATCH = 256

CONVOLUTION, DENSE, AFFINE, RECTIFY, MAX_POOL, FLATTEN = (
    "convolution",
    "dense",
    "affine",
    "rectify",
    "max_pool",
    "flatten",
)


@dataclass(frozen=True, eq=False)
class Layer:
    """One step of a network.

    Attributes:
        kind: "convolution" (weight `(out, in, h, w)`), "dense" (weight `(out, in)`) and "affine" (a factor per channel)
            have a weight and a bias; "rectify", "max_pool" and "flatten" have neither.
        stride, padding: Those of a convolution. The stride of a pooling layer is its size.
        divisor: Factor that converts the exact integers of this layer back to activations.
    """

    kind: str
    weight: Floats | None = None
    bias: Floats | None = None
    stride: int = 1
    padding: int = 0
    divisor: float = 1.0


def layers_of(modules: Iterable[nn.Module | PlainLayer]) -> tuple[Layer, ...]:
    """Return the layers of a sequence of modules, up to the requested inner layer.

    Args:
        modules: See `plain_layers`; without Tanh.

    Raises:
        ValueError: A module is of another kind, or uses groups, dilation or unequal strides.
    """
    layers = []
    for module in plain_layers(modules):
        match module:
            case Convolution() | Dense():
                weight = module.weight.astype(np.float64)
                bias = np.zeros(len(weight)) if module.bias is None else module.bias.astype(np.float64)
                if isinstance(module, Dense):
                    layers.append(Layer(DENSE, weight, bias))
                else:
                    layers.append(Layer(CONVOLUTION, weight, bias, _equal(module.stride), _equal(module.padding)))
            case Normalisation():
                factor = module.weight.astype(np.float64) / np.sqrt(module.variance.astype(np.float64) + module.epsilon)
                offset = module.bias.astype(np.float64) - module.mean.astype(np.float64) * factor
                layers.append(Layer(AFFINE, factor, offset))
            case MaxPool():
                layers.append(Layer(MAX_POOL, stride=_equal(module.size)))
            case Flatten():
                layers.append(Layer(FLATTEN))
            case Activation(operator="Relu"):
                layers.append(Layer(RECTIFY))
            case _:
                raise ValueError(f"A layer {module} cannot be evaluated exactly: use a network without it.")
    return tuple(layers)


def layers_of_model(model: Model) -> tuple[Layer, ...]:
    """Return the layers of a student up to its last inner layer, for `StudentLayer`; empty if it is not a network.

    >>> from learning.learners import learner_create
    >>> points, labels = np.random.default_rng(0).random((20, 6, 6)), np.arange(20) % 2
    >>> students = [learner_create(name).fit(points, labels, classes=2, seed=1) for name in ("cnn", "random_forest")]
    >>> [len(layers_of_model(student)) for student in students]
    [8, 0]
    """
    return layers_of(model.inner_modules())


class NetworkEncoder:
    """Network up to an inner layer, in integer arithmetic. `fit` creates it from trained layers."""

    kind: ClassVar[str] = "network"

    def __init__(self, shape: tuple[int, ...], layers: Sequence[Layer], first: float, last: float) -> None:
        self.shape, self._layers, self._first, self._last = shape, tuple(layers), first, last
        self.bound = _ACTIVATION
        width = self._run(np.zeros((1, *shape)), self._layers).shape[1]
        self.units = np.full(width, last)

    @classmethod
    def fit(cls, layers: Sequence[Layer], public: NDArray[np.floating]) -> NetworkEncoder:
        """Round the weights, and set the scale of every activation according to the public points.

        Args:
            layers: From `layers_of`, for points `(height, width)`, `(height, width, channels)` or `(width,)`.
            public: `(n, *shape)` points.
        """
        shape = public.shape[1:]
        first = 2.0 * float(np.abs(public).max() or 1.0) / _ACTIVATION
        unit, exact = first, []
        values = _laid_out(np.clip(np.rint(finite(public) / first), -_ACTIVATION, _ACTIVATION), shape)
        for layer in layers:
            if layer.weight is not None and layer.bias is not None:
                rows = layer.weight.reshape(len(layer.weight), -1).T if layer.kind != AFFINE else layer.weight[None]
                whole, power = whole_matrix(rows, _ACTIVATION)
                weight = whole.T.reshape(layer.weight.shape)
                bias = np.clip(np.rint(layer.bias * (power / unit)), -(2.0**52), 2.0**52)
                layer = Layer(layer.kind, weight, bias, layer.stride, layer.padding)
                largest = max(float(np.abs(part).max()) for part in _parts(layer, values))
                divisor = max(1.0, 2.0 * power_of_two_below(2.0 * max(largest, 1.0) / _ACTIVATION))
                layer = Layer(layer.kind, weight, bias, layer.stride, layer.padding, divisor)
                unit *= divisor / power
            values = np.concatenate(list(_parts(layer, values)))
            exact.append(layer)
        return cls(shape, exact, first, unit)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> NetworkEncoder:
        layers = []
        for place, kind in enumerate(state["kinds"].tolist()):
            stride, padding, divisor = state[f"{place}.numbers"].tolist()
            weight, bias = state.get(f"{place}.weight"), state.get(f"{place}.bias")
            layers.append(Layer(kind, weight, bias, int(stride), int(padding), divisor))
        return cls(tuple(state["shape"].tolist()), layers, float(state["first"]), float(state["last"]))

    def encode(self, points: NDArray[np.floating]) -> Floats:
        features = np.empty((len(points), len(self.units)))
        for start in range(0, len(points), _BATCH):
            features[start : start + _BATCH] = self._run(points[start : start + _BATCH], self._layers)
        return features

    def to_graph(self, graph: Graph, points: str) -> str:
        from learning.learners.layers import channels_first

        steps = graph.node("Div", graph.as_double(points), graph.constant(self._first))
        values = graph.rounded(steps, _ACTIVATION)
        shape = self.shape
        if len(shape) > 1:
            values = channels_first(graph, values, shape)
            shape = (1 if len(shape) == 2 else shape[2], *shape[:2])
        for layer in self._layers:
            values, shape = _layer_in_graph(graph, layer, values, shape)
        return graph.node("Flatten", values, axis=1)

    def state(self) -> Arrays:
        stored: Arrays = {
            "shape": np.array(self.shape),
            "first": np.array(self._first),
            "last": np.array(self._last),
            "kinds": np.array([layer.kind for layer in self._layers]),
        }
        for place, layer in enumerate(self._layers):
            stored[f"{place}.numbers"] = np.array([layer.stride, layer.padding, layer.divisor])
            if layer.weight is not None and layer.bias is not None:
                stored |= {f"{place}.weight": layer.weight, f"{place}.bias": layer.bias}
        return stored

    def _run(self, points: NDArray[np.floating], layers: Iterable[Layer]) -> Floats:
        steps = np.clip(np.rint(finite(points) / self._first), -_ACTIVATION, _ACTIVATION)
        values = _laid_out(steps, self.shape)
        for layer in layers:
            values = _apply(layer, values)
        return values.reshape(len(points), -1)


def _parts(layer: Layer, values: Floats) -> Iterable[Floats]:
    for start in range(0, len(values), _BATCH):
        yield _apply(layer, values[start : start + _BATCH])


def _apply(layer: Layer, values: Floats) -> Floats:
    """Apply one layer to activations `(n, channels, height, width)` or `(n, width)`."""
    if layer.kind == RECTIFY:
        return np.maximum(values, 0.0)
    if layer.kind == FLATTEN:
        return values.reshape(len(values), -1)
    if layer.kind == MAX_POOL:
        return max_pool(values, layer.stride)
    assert layer.weight is not None and layer.bias is not None
    channels = (1, -1, *([1] * (values.ndim - 2)))
    if layer.kind == CONVOLUTION:
        result = convolve(values, layer.weight, stride=layer.stride, padding=layer.padding)
    elif layer.kind == DENSE:
        result = values @ layer.weight.T
    else:
        result = values * layer.weight.reshape(channels)
    result = np.rint((result + layer.bias.reshape(channels)) / layer.divisor)
    return result if layer.divisor == 1.0 else np.clip(result, -_ACTIVATION, _ACTIVATION)


def _layer_in_graph(graph: Graph, layer: Layer, values: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Add the nodes of `_apply`, and return the shape `(channels, height, width)` or `(width,)` of the result."""
    if layer.kind == RECTIFY:
        return graph.node("Relu", values), shape
    if layer.kind == FLATTEN:
        return graph.node("Flatten", values, axis=1), (math.prod(shape),)
    if layer.kind == MAX_POOL:
        pooled = graph.node("MaxPool", values, kernel_shape=[layer.stride] * 2, strides=[layer.stride] * 2)
        return pooled, (shape[0], *(side // layer.stride for side in shape[1:]))
    assert layer.weight is not None and layer.bias is not None
    weight, bias = layer.weight, layer.bias
    if layer.kind == CONVOLUTION:
        values, shape = _convolution_in_graph(graph, layer, values, shape)
    elif layer.kind == DENSE:
        values, shape = graph.node("MatMul", values, graph.constant(weight.T)), (len(weight),)
    else:
        values = graph.node("Mul", values, graph.constant(weight.reshape(-1, *[1] * (len(shape) - 1))))
    whole = graph.node("Add", values, graph.constant(bias.reshape(-1, *[1] * (len(shape) - 1))))
    divided = graph.node("Div", whole, graph.constant(layer.divisor))
    largest = np.inf if layer.divisor == 1.0 else _ACTIVATION
    return graph.rounded(divided, largest), shape


def _convolution_in_graph(
    graph: Graph, layer: Layer, values: str, shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """Add a convolution as a matrix product of patches, because runtimes have no convolutions in double precision."""
    assert layer.weight is not None
    filters, channels, *kernel = layer.weight.shape
    padded = tuple(side + 2 * layer.padding for side in shape[1:])
    if layer.padding:
        pads = np.array([0, 0, *[layer.padding] * 2] * 2)
        values = graph.node("Pad", values, graph.constant(pads))
    places = np.lib.stride_tricks.sliding_window_view(
        np.arange(channels * math.prod(padded)).reshape(channels, *padded), tuple(kernel), axis=(1, 2)
    )[:, :: layer.stride, :: layer.stride]
    size = places.shape[1:3]
    patches = places.transpose(1, 2, 0, 3, 4).reshape(math.prod(size), -1)
    gathered = graph.node("Gather", graph.node("Flatten", values, axis=1), graph.constant(patches), axis=1)
    product = graph.node("MatMul", gathered, graph.constant(layer.weight.reshape(filters, -1).T))
    laid = graph.node("Transpose", product, perm=[0, 2, 1])
    return graph.node("Reshape", laid, graph.constant(np.array([-1, filters, *size]))), (filters, *size)


def _laid_out(points: Floats, shape: tuple[int, ...]) -> Floats:
    """Return images with channels first, as the layers require."""
    if len(shape) == 1:
        return points
    return np.ascontiguousarray(points.reshape(len(points), *shape[:2], -1).transpose(0, 3, 1, 2))


def _equal(sizes: Any) -> int:
    """Return the single number in `n` or `(n, n)`."""
    numbers = {sizes} if isinstance(sizes, int) else set(sizes)
    if len(numbers) != 1:
        raise ValueError(f"Sizes of {sizes} cannot be evaluated exactly: use the same in both directions.")
    return int(numbers.pop())
