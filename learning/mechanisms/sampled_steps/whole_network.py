"""Gradients of the networks of private steps in whole numbers: the same for a record wherever it stands, bit for bit.

What enters a layer is rounded to whole numbers of at most 127, weights to whole numbers small enough that every product
and partial sum is below 2²⁴, where float32 is exact: whichever way a library orders a sum, it is the same. So is the
way back, in which the slopes of a record are brought to a public length before they are rounded. Between sums stand
single operations that IEEE 754 defines to the last bit, and a table of tanh. docs/sgd-sampled.md bounds every sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from learning.exact_arithmetic import RESIDUAL_STEPS
from learning.mechanisms.sampled_steps.whole_layers import Convolution, Dense, Layer, of_public_length, sum_of_squares
from learning.mechanisms.steps.scores import Scores
from learning.outcomes import CROSS_ENTROPY, Loss
from learning.representations.coordinates import LARGEST


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """Gradients of a layer, one for each of R records, as factors that are whole numbers.

    Attributes:
        inputs: `(R, places, inputs)` what entered, at most 127.
        slopes: `(R, places, outputs)` of the loss by what left.
        unit: of the inputs.
        scale: `(R,)` float64: the gradient of the bias is scale · Σ_places slopes, that of the weights
            scale · unit · Σ_places slopes ⊗ inputs.
    """

    inputs: torch.Tensor
    slopes: torch.Tensor
    unit: float
    scale: torch.Tensor

    @cached_property
    def products(self) -> torch.Tensor:
        """`(R, outputs, inputs)` Σ_places slopes ⊗ inputs, exact."""
        return torch.bmm(self.slopes.transpose(1, 2), self.inputs)

    @cached_property
    def totals(self) -> torch.Tensor:
        """`(R, outputs)` Σ_places slopes, exact."""
        return self.slopes.sum(1)

    @cached_property
    def squared_norms(self) -> torch.Tensor:
        """`(R,)` float64 ‖gradient‖², the same bit for bit wherever the record stands."""
        if self.slopes.shape[1] == 1:  # ‖s ⊗ a‖ = ‖s‖·‖a‖, so that no product has to be written out
            squares = sum_of_squares(self.slopes) * sum_of_squares(self.inputs)
        else:
            squares = sum_of_squares(self.products)
        return self.scale**2 * (self.unit**2 * squares + sum_of_squares(self.totals))


class RecordGradients:
    """Gradients of the loss of a network, one for each record.

    Args:
        network: of `networks.NETWORKS`: convolutions, each followed by tanh and a max pool 2×2 of stride 1, dense
            layers followed by tanh, and a dense layer last.
        shape: of a record as the network takes it.
        loss: of its scores and target.

    Attributes:
        layers: in whole numbers, in the network's order.
        classes: how many scores.
        size: how many parameters.
        numbers: of a record in the largest array that is written out for it.

    Raises:
        ValueError: the network has other layers, or images are too large for sums that are exact.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...], loss: Loss = CROSS_ENTROPY) -> None:
        self._loss = loss
        built: list[Layer] = []
        height, width, channels = (*shape, 1, 1)[:3]
        self._image = height, width, channels
        maps: tuple[int, ...] | None = (width, height, channels)
        for layer in network.children():
            if isinstance(layer, nn.Conv2d) and layer.bias is not None and maps:
                built.append(Convolution(layer, maps))
                maps = built[-1].leaves
            elif isinstance(layer, nn.Linear) and layer.bias is not None:
                of_maps = maps if maps and built else (layer.in_features,)
                built.append(Dense(layer, of_maps))
                maps = None
            else:
                raise ValueError(
                    "A network for private steps has convolutions, then dense layers, all with biases, no others."
                )
        *self._hidden, self._output = built
        self.layers = [*self._hidden, self._output]
        self.classes = self._output.outputs
        self.size = sum(layer.size for layer in self.layers)
        self.numbers = max(layer.numbers for layer in self.layers)

    def load(self, weights: ArrayLike, *, unit: float) -> None:
        """Take these weights.

        Args:
            weights: `(d,)`, in the order of the network's parameters.
            unit: what a 1 in the whole numbers of a record stands for.

        Raises:
            ValueError: they are not finite.
        """
        numbers = np.asarray(weights, np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError("The weights are not finite: the steps are too long.")
        begin = 0
        for layer in self.layers:
            end = begin + layer.size
            layer.load(numbers[begin:end], unit)
            begin, unit = end, 1 / LARGEST
        self._scores = Scores(np.vstack([self._output.matrix * self._output.unit, self._output.bias / LARGEST]))

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> list[LayerGradients]:
        """Of each layer, in the network's order.

        Args:
            x: `(R, …)` float32, whole numbers of at most 127.
            y: `(R,)` codes of targets, of classes their numbers; where a code is none, the gradient is 0.
        """
        if isinstance(self.layers[0], Convolution):
            x = x.view(len(x), *self._image).transpose(1, 2)
        passed = []
        for layer in self._hidden:
            x, memory = layer.forward(x)
            passed.append((x, memory))
        inputs = x.flatten(1)
        slopes, scale = self._residuals(inputs, y.numpy())
        gradients = [LayerGradients(inputs[:, None], slopes[:, None], self._output.unit, scale)]
        above = self._output
        for layer, (left, memory) in zip(reversed(self._hidden), reversed(passed), strict=True):
            pulled = above.pull(slopes).view_as(left)
            slopes, scale = layer.backward(pulled, left, memory, scale / above.pull_scale)
            gradients.append(LayerGradients(memory.patches, slopes, layer.unit, scale))
            above = layer
        return gradients[::-1]

    def _residuals(self, inputs: torch.Tensor, y: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Residuals of the loss, and what a 1 in them stands for."""
        features = np.full((len(inputs), inputs.shape[1] + 1), float(LARGEST))
        features[:, :-1] = inputs.numpy()
        residuals = self._loss.residuals(self._scores.of(features), y)
        ones = torch.full((len(inputs),), 1 / RESIDUAL_STEPS, dtype=torch.float64)
        return of_public_length(torch.from_numpy(residuals).float(), ones, self._output.length)
