"""The network of the consistency student: its layers, storage, predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from learning.learners.network import ImageModel

if TYPE_CHECKING:
    from learning.exports.graph import Graph

_HIDDEN = 128
_CONVOLUTIONS = 3
"""Convolutions of a network that is not deep."""
_LARGE = 16
"""Images with a shorter side of at least so many pixels are halved by the first convolution."""
_POOLED = 4
"""Maps with a shorter side of fewer pixels are not pooled."""


def network(shape: tuple[int, ...], classes: int, filters: int, *, deep: bool = False) -> nn.Sequential:
    """Convolutions 5×5, 3×3 and 3×3 with max pool 2, dense 128, each with batch norm and ReLU.

    The first convolution has stride 2 where images are large enough.

    Args:
        shape: of an image.
        classes: how many.
        filters: of the first convolution; the second has twice and the third four times as many.
        deep: whether the second and the third are followed by another one like them.
    """
    height, width, channels = shape if len(shape) == 3 else (*shape, 1)
    stride = 2 if min(height, width) >= _LARGE else 1
    layers: list[nn.Module] = [nn.Conv2d(channels, filters, 5, stride, 2, bias=False)]
    height, width = -(-height // stride), -(-width // stride)
    for before, after in ((filters, 2 * filters), (2 * filters, 4 * filters), (4 * filters, 0)):
        layers += [nn.BatchNorm2d(before), nn.ReLU()]
        if after:
            layers += [nn.Conv2d(before, after, 3, 1, 1, bias=False)]
            if deep:
                layers += [nn.BatchNorm2d(after), nn.ReLU(), nn.Conv2d(after, after, 3, 1, 1, bias=False)]
            if min(height, width) >= _POOLED:
                layers += [nn.MaxPool2d(2)]
                height, width = height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(4 * filters * height * width, _HIDDEN, bias=False)]
    layers += [nn.BatchNorm1d(_HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, classes)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class ConsistencyModel(ImageModel[nn.Sequential]):
    """A trained :func:`network`."""

    @classmethod
    def _network(cls, tensors: Mapping[str, torch.Tensor], shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
        places = sorted(tensors, key=_place)
        classes = len(tensors[places[-1]])
        deep = sum(tensor.ndim == 4 for tensor in tensors.values()) > _CONVOLUTIONS
        return network(shape, classes, len(tensors[places[0]]), deep=deep), classes

    def inner_modules(self) -> tuple[nn.Module, ...]:
        return tuple(self.network)[:-1]

    def to_graph(self, graph: Graph, records: str) -> str:
        from learning.exports.layers import network_probabilities

        return network_probabilities(graph, records, self.shape, self.network)


def initialise(layers: nn.Sequential, generator: torch.Generator) -> None:
    """He-normal weights (He et al. 2015), and 0 in the last layer."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


@torch.no_grad()
def normalise(layers: nn.Sequential, pixels: torch.Tensor) -> None:
    """Take the statistics of batch norm from the images as they are: moved images with holes have others."""
    for layer in layers:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # the mean of all batches
    layers.train()
    for part in pixels.tensor_split(max(1, len(pixels) // 256)):
        layers(part)


def _place(name: str) -> int:
    """Of a layer, in the name of one of its tensors."""
    return int(name.split(".")[0])
