"""Layers of networks as nodes of a graph, in single precision like the networks themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from learning.exports.graph import DOUBLE, Graph
from learning.learners.layers import (
    Activation,
    Array,
    Convolution,
    Dense,
    Flatten,
    MaxPool,
    Normalisation,
    PlainLayer,
    plain_layers,
)

if TYPE_CHECKING:
    from torch import nn

Modules = Iterable["nn.Module | PlainLayer"]


def channels_first(graph: Graph, images: str, shape: tuple[int, ...]) -> str:
    """Return images of a shape `(height, width)` or `(height, width, channels)` in the form that convolutions take."""
    if len(shape) == 2:
        return graph.node("Unsqueeze", images, graph.constant(np.array([1], np.int64)))
    return graph.node("Transpose", images, perm=[0, 3, 1, 2])


def network_probabilities(graph: Graph, records: str, shape: tuple[int, ...], modules: Modules) -> str:
    """Return class probabilities of layers applied one after the other; the last one gives logits.

    Args:
        graph: To add nodes to.
        records: float `(rows, *shape)`; images get their channels first if a convolution is the first layer.
        modules: See `plain_layers`.
    """
    return graph.node("Softmax", network_scores(graph, records, shape, modules), axis=1)


def network_scores(graph: Graph, records: str, shape: tuple[int, ...], modules: Modules) -> str:
    """Return the output of the last layer, double `(rows, outputs)`, see `network_probabilities`."""
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
