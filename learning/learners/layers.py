"""Layers of trained networks as plain arrays, stored and read without PyTorch, and as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

    from learning.exports.graph import Graph

Array = NDArray[np.floating]
Pair = tuple[int, int]
EPSILON = 1e-5
"""Constant that PyTorch's batch normalisation adds to variances."""


@dataclass(frozen=True, eq=False)
class Convolution:
    """Convolution: weight `(filters, channels, height, width)`, bias `(filters,)`, with zero padding on each side."""

    weight: Array
    bias: Array | None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)


@dataclass(frozen=True, eq=False)
class Dense:
    """Dense layer: weight `(outputs, inputs)`, bias `(outputs,)`."""

    weight: Array
    bias: Array | None


@dataclass(frozen=True, eq=False)
class Normalisation:
    """Batch normalisation in evaluation mode: weight, bias, mean and variance of each channel."""

    weight: Array
    bias: Array
    mean: Array
    variance: Array
    epsilon: float = field(default=EPSILON, kw_only=True)


@dataclass(frozen=True)
class MaxPool:
    size: Pair
    stride: Pair


@dataclass(frozen=True)
class Activation:
    """ONNX operator "Relu" or "Tanh"."""

    operator: str


@dataclass(frozen=True)
class Flatten:
    """Layer that flattens each record to one row."""


PlainLayer = Convolution | Dense | Normalisation | MaxPool | Activation | Flatten


Sizes = dict[str, Any]
_HIDDEN = 128  # size of the last hidden layer
_LARGE = 16
"""The first convolution has stride 2 if the shorter side of the images has at least this many pixels."""
_POOLED = 4
"""Feature maps are not pooled if their shorter side has fewer pixels than this."""


def consistency_layers(
    shape: tuple[int, ...], filters: int, classes: int = 0, *, deep: bool = False
) -> Iterator[tuple[str, Sizes]]:
    """Yield the layers of the student `consistency`, each with its sizes.

    The layers are 5×5, 3×3 and 3×3 convolutions with 2×2 max pooling, and a dense layer of 128 units, each with batch
    norm and ReLU. The first convolution has stride 2 if images are large enough.

    Args:
        filters: Number of filters of the first convolution; the second has twice as many, and the third four times as
            many.
        deep: Whether the second and the third convolution are each followed by another one of the same kind.
    """
    height, width, channels = shape if len(shape) == 3 else (*shape, 1)
    stride = 2 if min(height, width) >= _LARGE else 1

    def convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> tuple[str, Sizes]:
        sizes = {"inputs": inputs, "outputs": outputs, "side": side, "stride": stride, "padding": side // 2}
        return "convolution", sizes

    yield convolution(channels, filters, 5, stride)
    height, width = -(-height // stride), -(-width // stride)
    for before, after in ((filters, 2 * filters), (2 * filters, 4 * filters), (4 * filters, 0)):
        yield from (("normalisation", {"channels": before}), ("rectify", {}))
        if after:
            yield convolution(before, after, 3)
            if deep:
                yield from (("normalisation", {"channels": after}), ("rectify", {}), convolution(after, after, 3))
            if min(height, width) >= _POOLED:
                yield "pool", {}
                height, width = height // 2, width // 2
    yield "flatten", {}
    yield "dense", {"inputs": 4 * filters * height * width, "outputs": _HIDDEN, "bias": False}
    yield from (("normalisation", {"channels": _HIDDEN, "flat": True}), ("rectify", {}))
    yield "dense", {"inputs": _HIDDEN, "outputs": classes, "bias": True}


def plain_layers(modules: Iterable[nn.Module | PlainLayer]) -> list[PlainLayer]:
    """Return a sequence of PyTorch layers as plain arrays.

    Args:
        modules: Conv2d, Linear, BatchNorm1d and BatchNorm2d (in evaluation mode), ReLU, Tanh, MaxPool2d and Flatten, in
            order. Plain layers, and modules without effect in evaluation (Dropout, Identity), may be included.

    Raises:
        ValueError: A module is of another kind, or uses groups, dilation or named padding.
    """
    return [layer for module in modules for layer in _plain(module)]


def _plain(module: Any) -> list[PlainLayer]:
    """Return the layer in a list, or an empty list if the layer has no effect.

    Its kind is recognised by name, without PyTorch.
    """
    if isinstance(module, PlainLayer):
        return [module]
    match type(module).__name__:
        case "Conv2d":
            if module.groups != 1 or tuple(module.dilation) != (1, 1) or isinstance(module.padding, str):
                raise ValueError(f"{module} cannot be evaluated exactly: use plain convolutions with numeric padding.")
            return [Convolution(*_weights(module), _pair(module.stride), _pair(module.padding))]
        case "Linear":
            return [Dense(*_weights(module))]
        case "BatchNorm1d" | "BatchNorm2d":
            if module.running_mean is None or module.running_var is None:
                raise ValueError("Batch normalisation without running statistics depends on the batch. Track them.")
            statistics = (module.weight, module.bias, module.running_mean, module.running_var)
            return [Normalisation(*map(_array, statistics), epsilon=module.eps)]
        case "MaxPool2d":
            return [MaxPool(_pair(module.kernel_size), _pair(module.stride))]
        case "ReLU":
            return [Activation("Relu")]
        case "Tanh":
            return [Activation("Tanh")]
        case "Flatten":
            return [Flatten()]
        case "Dropout" | "Identity":
            return []
    raise ValueError(f"A layer {type(module).__name__} cannot be evaluated or exported: use a network without it.")


def _weights(module: Any) -> tuple[Array, Array | None]:
    return _array(module.weight), None if module.bias is None else _array(module.bias)


def _array(tensor: Any) -> Array:
    return tensor.detach().cpu().numpy()


def _pair(size: Any) -> Pair:
    return (size, size) if isinstance(size, int) else tuple(size)


def channels_first(graph: Graph, images: str, shape: tuple[int, ...]) -> str:
    """Return images `(height, width)` or `(height, width, channels)` in the form used by convolutions."""
    if len(shape) == 2:
        return graph.node("Unsqueeze", images, graph.constant(np.array([1], np.int64)))
    return graph.node("Transpose", images, perm=[0, 3, 1, 2])


def network_probabilities(
    graph: Graph, records: str, shape: tuple[int, ...], modules: Iterable[nn.Module | PlainLayer]
) -> str:
    """Return class probabilities from a sequence of layers; the last layer returns logits.

    Args:
        graph: Graph to which nodes are added.
        records: float `(rows, *shape)`; channels of images are moved to the front if the first layer is a convolution.
        modules: See `plain_layers`.
    """
    return graph.node("Softmax", network_scores(graph, records, shape, modules), axis=1)


def network_scores(
    graph: Graph, records: str, shape: tuple[int, ...], modules: Iterable[nn.Module | PlainLayer]
) -> str:
    """Return the output of the last layer, double `(rows, outputs)`; see `network_probabilities`."""
    from learning.exports.graph import DOUBLE  # onnx takes a second to import

    layers = plain_layers(modules)
    values = channels_first(graph, records, shape) if isinstance(layers[0], Convolution) else records
    for layer in layers:
        values = _layer(graph, values, layer)
    return graph.cast(values, DOUBLE)


def _layer(graph: Graph, values: str, layer: PlainLayer) -> str:
    match layer:
        case Convolution():
            weights = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
            constants = [graph.constant(each) for each in weights]
            return graph.node("Conv", values, *constants, strides=list(layer.stride), pads=list(layer.padding) * 2)
        case Dense():
            product = graph.node("MatMul", values, graph.constant(layer.weight.T))
            return product if layer.bias is None else graph.node("Add", product, graph.constant(layer.bias))
        case Normalisation():
            statistics: list[Array] = [layer.weight, layer.bias, layer.mean, layer.variance]
            constants = [graph.constant(each) for each in statistics]
            return graph.node("BatchNormalization", values, *constants, epsilon=layer.epsilon)
        case MaxPool():
            return graph.node("MaxPool", values, kernel_shape=list(layer.size), strides=list(layer.stride))
        case Activation():
            return graph.node(layer.operator, values)
        case Flatten():
            return graph.node("Flatten", values, axis=1)
