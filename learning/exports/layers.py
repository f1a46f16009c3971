"""Layers of PyTorch networks as nodes of a graph, in single precision like the networks themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from learning.exports.graph import DOUBLE, Graph


def channels_first(graph: Graph, images: str, shape: tuple[int, ...]) -> str:
    """Return images of a shape `(height, width)` or `(height, width, channels)` in the form that convolutions take."""
    if len(shape) == 2:
        return graph.node("Unsqueeze", images, graph.constant(np.array([1], np.int64)))
    return graph.node("Transpose", images, perm=[0, 3, 1, 2])


def network_probabilities(graph: Graph, records: str, shape: tuple[int, ...], modules: Iterable[nn.Module]) -> str:
    """Return class probabilities of layers applied one after the other; the last one gives logits.

    Args:
        graph: To add nodes to.
        records: float `(rows, *shape)`; images get their channels first if a convolution is the first layer.
        shape: Of a record.
        modules: Conv2d, Linear, BatchNorm1d and BatchNorm2d (as in evaluation), ReLU, Tanh, MaxPool2d, Flatten.
    """
    return graph.node("Softmax", network_scores(graph, records, shape, modules), axis=1)


def network_scores(graph: Graph, records: str, shape: tuple[int, ...], modules: Iterable[nn.Module]) -> str:
    """Return the output of the last layer, double `(rows, outputs)`, see `network_probabilities`."""
    layers = list(modules)
    values = channels_first(graph, records, shape) if isinstance(layers[0], nn.Conv2d) else records
    for layer in layers:
        values = _layer(graph, values, layer)
    return graph.cast(values, DOUBLE)


def _layer(graph: Graph, values: str, layer: nn.Module) -> str:
    match layer:
        case nn.Conv2d():
            weights = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
            constants = [_constant(graph, each) for each in weights]
            padding = [int(side) for side in layer.padding]
            return graph.node("Conv", values, *constants, strides=list(layer.stride), pads=padding * 2)
        case nn.Linear():
            product = graph.node("MatMul", values, _constant(graph, layer.weight.T))
            return product if layer.bias is None else graph.node("Add", product, _constant(graph, layer.bias))
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            statistics = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
            constants = [_constant(graph, each) for each in statistics]
            return graph.node("BatchNormalization", values, *constants, epsilon=layer.eps)
        case nn.MaxPool2d():
            size, stride = _pair(layer.kernel_size), _pair(layer.stride)
            return graph.node("MaxPool", values, kernel_shape=size, strides=stride)
        case nn.ReLU():
            return graph.node("Relu", values)
        case nn.Tanh():
            return graph.node("Tanh", values)
        case nn.Flatten():
            return graph.node("Flatten", values, axis=1)
    raise ValueError(f"A layer {type(layer).__name__} cannot be exported: use a network without it.")


def _constant(graph: Graph, tensor: Any) -> str:
    return graph.constant(tensor.detach().cpu().numpy())


def _pair(size: Any) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)
