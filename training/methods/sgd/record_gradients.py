"""The gradient of every record of a block by itself."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.nn.utils import vector_to_parameters


class RecordGradients:
    """Gradients of the cross entropy of a network of `Linear` and `Conv2d` layers, one for each record.

    One pass forward and one backward through the activations give, for each layer, its input and the gradient of its
    output; their outer product, summed over the places of an image, is the gradient of the weights (Goodfellow 2015).
    Opacus does the same for more kinds of layers; `torch.func.vmap` of `grad`, which knows all, turns convolutions into
    grouped ones and takes a third longer (docs/sgd-sampled.md).

    Raises:
        ValueError: the network has parameters outside such layers.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = deepcopy(network).requires_grad_(False)
        self._passed: list[tuple[nn.Module, torch.Tensor, torch.Tensor]] = []
        layers = [layer for layer in self._network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
        known = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
        if [id(tensor) for tensor in known] != [id(tensor) for tensor in self._network.parameters()]:
            raise ValueError("A network for private steps has dense and convolutional layers alone, with biases.")
        for layer in layers:
            layer.register_forward_hook(self._remember)

    def load(self, weights: ArrayLike) -> None:
        """Take these weights `(d,)`, in the order of the network's parameters."""
        vector_to_parameters(torch.tensor(np.asarray(weights), dtype=torch.float32), self._network.parameters())

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Gradients `(B, d)` of records `(B, …)` with class numbers `(B,)`."""
        self._passed.clear()
        loss = nn.functional.cross_entropy(self._network(x), y, reduction="sum")
        slopes = torch.autograd.grad(loss, [output for _, _, output in self._passed])
        parts = []
        for (layer, entered, _), slope in zip(self._passed, slopes, strict=True):
            if isinstance(layer, nn.Conv2d):
                kernel: dict[str, Any] = {"padding": layer.padding, "stride": layer.stride}
                patches = nn.functional.unfold(entered, layer.kernel_size, **kernel)
                slope = slope.flatten(2)
                parts += [torch.bmm(slope, patches.transpose(1, 2)).flatten(1), slope.sum(2)]
            else:
                parts += [(slope[:, :, None] * entered[:, None, :]).flatten(1), slope]
        return torch.cat(parts, dim=1)

    def _remember(self, layer: nn.Module, entered: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        output.requires_grad_()
        self._passed.append((layer, entered[0].detach(), output))
