"""Gradients of the networks of private steps in whole numbers: the same for a record wherever it stands, bit for bit.

What enters a layer is rounded to whole numbers of at most 127, weights to whole numbers small enough that every product
and partial sum is below 2²⁴, where float32 is exact: whichever way a library orders a sum, it is the same. So is the
way back, in which the slopes of a record are brought to a public length before they are rounded. Between sums stand
single operations that IEEE 754 defines to the last bit, and a table of tanh. docs/sgd-sampled.md bounds every sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from training.methods.sgd.softmax import PROBABILITY_STEPS, Softmax
from training.representations.coordinates import LARGEST
from training.representations.exact import whole_matrix

Floats = NDArray[np.float64]

_EXACT = 2.0**24
"""Up to here float32 holds every whole number."""
_SLOPES = 2.0**12
_SQUARES = 2.0**52
_TANH_STEPS, _TANH_END = 256, 6
_FULL_SLOPE = LARGEST**2
_TANH = torch.tensor(
    [
        round(LARGEST * math.tanh(step / _TANH_STEPS))
        for step in range(-_TANH_STEPS * _TANH_END, _TANH_STEPS * _TANH_END + 1)
    ],
    dtype=torch.float32,
)


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
            squares = _sum_of_squares(self.slopes) * _sum_of_squares(self.inputs)
        else:
            squares = _sum_of_squares(self.products)
        return self.scale**2 * (self.unit**2 * squares + _sum_of_squares(self.totals))


class RecordGradients:
    """Gradients of the cross entropy of a network, one for each record.

    Args:
        network: of `networks.NETWORKS`: convolutions, each followed by tanh and a max pool 2×2 of stride 1, dense
            layers followed by tanh, and a dense layer last.
        shape: of a record as the network takes it.

    Raises:
        ValueError: the network has other layers, or images are too large for sums that are exact.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        built: list[_Layer] = []
        maps: tuple[int, ...] | None = shape
        for layer in network.children():
            if isinstance(layer, nn.Conv2d) and layer.bias is not None and maps:
                built.append(_Convolution(layer, maps))
                maps = built[-1].leaves
            elif isinstance(layer, nn.Linear) and layer.bias is not None:
                of_maps = maps if maps and built else (layer.in_features,)
                built.append(_Dense(layer, of_maps))
                maps = None
            else:
                raise ValueError(
                    "A network for private steps has convolutions, then dense layers, all with biases, no others."
                )
        *self._hidden, self._output = built
        self.layers = [*self._hidden, self._output]
        self.classes = self._output.outputs

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
        self._softmax = Softmax(np.vstack([self._output.matrix * self._output.unit, self._output.bias / LARGEST]))

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> list[LayerGradients]:
        """Of each layer, in the network's order.

        Args:
            x: `(R, …)` float32, whole numbers of at most 127.
            y: `(R,)` class numbers; where there is no such class, the gradient is 0.
        """
        passed = []
        for layer in self._hidden:
            x, memory = layer.forward(x)
            passed.append((x, memory))
        inputs = x.flatten(1)
        slopes, scale = self._residuals(inputs, y.numpy())
        found = [LayerGradients(inputs[:, None], slopes[:, None], self._output.unit, scale)]
        above = self._output
        for layer, (left, memory) in zip(reversed(self._hidden), reversed(passed), strict=True):
            pulled = above.pull(slopes).view_as(left)
            slopes, scale = layer.backward(pulled, left, memory, scale / above.pull_scale)
            found.append(LayerGradients(memory.patches, slopes, layer.unit, scale))
            above = layer
        return found[::-1]

    def _residuals(self, inputs: torch.Tensor, y: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """p - e_y, and what a 1 in it stands for."""
        features = np.full((len(inputs), inputs.shape[1] + 1), float(LARGEST))
        features[:, :-1] = inputs.numpy()
        residuals = self._softmax.probabilities(features)
        good = (y >= 0) & (y < self.classes)
        residuals[np.flatnonzero(good), y[good]] -= PROBABILITY_STEPS
        residuals[~good] = 0.0
        ones = torch.full((len(inputs),), 1 / PROBABILITY_STEPS, dtype=torch.float64)
        return _of_public_length(torch.from_numpy(residuals).float(), ones, self._output.length)


@dataclass(frozen=True, eq=False)
class _Memory:
    """Of the way forward: what entered each place, and where each maximum came from."""

    patches: torch.Tensor
    gates: tuple[torch.Tensor, ...] = ()


class _Layer(ABC):
    """A layer in whole numbers.

    Here channels are the last dimension, in PyTorch the first.

    Args:
        layer: PyTorch's.
        window: shape of what its weights are multiplied with.
        places: of a record that they are multiplied with.
        overlap: in how many places an input stands at most.

    Attributes:
        unit: what a 1 in its inputs stands for.
        matrix, bias: its weights, `(inputs, outputs)` and `(outputs,)`.
        size: how many parameters.
        length: of the slopes of every record.
        pull_scale: what slopes of its inputs are multiplied by.
        leaves: shape of what leaves it, by record.
    """

    leaves: tuple[int, ...]

    def __init__(
        self, layer: nn.Linear | nn.Conv2d, window: tuple[int, ...], *, places: int = 1, overlap: int = 1
    ) -> None:
        outputs, inputs = layer.weight.shape[0], layer.weight[0].numel()
        last_first = np.arange(inputs).reshape(window[-1], *window[:-1])
        self._order = np.moveaxis(last_first, 0, -1).ravel()
        self.outputs, self._inputs, self._places, self._overlap = outputs, inputs, places, overlap
        self.size = layer.weight.numel() + outputs
        self._longest = _SLOPES
        if places > 1:
            products = _EXACT / (LARGEST * math.sqrt(places))
            squares = math.sqrt(_SQUARES / (places * inputs)) / LARGEST
            self._longest = min(_SLOPES, products, squares)
        # rounding may add half a unit for each slope
        self.length = self._longest - 0.5 * math.sqrt(places * outputs) - 1
        if self.length < math.sqrt(places * outputs):
            raise ValueError("Images of this size cannot be learned from in whole numbers: make them smaller.")

    def load(self, weights: Floats, unit: float) -> None:
        """Weights and biases, in PyTorch's order, for inputs in this unit."""
        self.unit = unit
        self.matrix = weights[: -self.outputs].reshape(self.outputs, -1)[:, self._order].T
        self.bias = weights[-self.outputs :]
        both = np.vstack([self.matrix * self.unit, self.bias / LARGEST])
        whole, self._power = whole_matrix(both, LARGEST, _EXACT)
        self._weights = torch.from_numpy(whole[:-1]).float()
        self._offset = torch.from_numpy(LARGEST * whole[-1]).float()
        # |Σ slopes · weights| ≤ ‖slopes‖·‖weights‖, and each weight may be rounded up by a half
        norm = math.sqrt(self._overlap * float((self.matrix**2).sum(axis=1).max())) or 1.0
        rounding = 0.5 * math.sqrt(self._overlap * self.outputs)
        self.pull_scale = (_EXACT / self._longest - rounding) / norm
        self._back = torch.from_numpy(np.rint(self.matrix.T * self.pull_scale)).float()

    @abstractmethod
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, _Memory]:
        """tanh of what leaves, whole numbers; and what the way back needs."""

    def pull(self, slopes: torch.Tensor) -> torch.Tensor:
        """The slopes of what entered, times `pull_scale`, below 2²⁴, exact."""
        return slopes @ self._back

    def backward(
        self, pulled: torch.Tensor, left: torch.Tensor, memory: _Memory, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Slopes before tanh, of public length, and what a 1 in them stands for.

        Args:
            pulled: slopes of what left the layer.
            left: what left it.
            memory: from `forward`.
            scale: `(R,)` what a 1 in the pulled slopes stands for.
        """
        # small enough that the squares of all slopes of a record have an exact sum; four maxima may come from one place
        most = math.sqrt(_SQUARES / (self._places * self.outputs)) / 4 - 1
        factor = min(1.0, most / _EXACT)
        slopes = (left * left).neg_().add_(_FULL_SLOPE).mul_(pulled).mul_(factor / _FULL_SLOPE).round_()
        return _of_public_length(self._before_pool(slopes, memory), scale / factor, self.length)

    @abstractmethod
    def _before_pool(self, slopes: torch.Tensor, memory: _Memory) -> torch.Tensor:
        """Slopes before the pool, if there is one."""

    def _tanh(self, whole: torch.Tensor) -> torch.Tensor:
        index = (whole * (_TANH_STEPS / self._power)).round_()
        end = _TANH_STEPS * _TANH_END
        place = index.clamp_(-end, end).add_(end).to(torch.int32)
        return _TANH.index_select(0, place.flatten()).view_as(whole)

    def in_order(self, products: torch.Tensor) -> torch.Tensor:
        """Sums of products `(outputs, inputs)` in PyTorch's order, laid flat."""
        found = torch.empty_like(products)
        found[:, self._order] = products
        return found.flatten()


class _Dense(_Layer):
    def __init__(self, layer: nn.Linear, maps: tuple[int, ...]) -> None:
        super().__init__(layer, maps)
        self.leaves = (layer.out_features,)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, _Memory]:
        entered = x.flatten(1)
        return self._tanh(entered @ self._weights + self._offset), _Memory(entered[:, None])

    def _before_pool(self, slopes: torch.Tensor, memory: _Memory) -> torch.Tensor:
        return slopes[:, None]


class _Convolution(_Layer):
    """Over images `(R, height, width, channels)`; as tanh rises, the maximum may be taken before it."""

    def __init__(self, layer: nn.Conv2d, size: tuple[int, ...]) -> None:
        self._kernel, self._stride = layer.kernel_size, layer.stride
        self._padding = [int(side) for side in layer.padding]
        height, width, self._channels = size if len(size) == 3 else (*size, 1)
        self._padded = height + 2 * self._padding[0], width + 2 * self._padding[1]
        self._grid = tuple(
            (side - kernel) // stride + 1
            for side, kernel, stride in zip(self._padded, self._kernel, self._stride, strict=True)
        )
        overlap = math.prod(-(-kernel // stride) for kernel, stride in zip(self._kernel, self._stride, strict=True))
        super().__init__(layer, (*self._kernel, self._channels), places=math.prod(self._grid), overlap=overlap)
        self.leaves = (self._grid[0] - 1, self._grid[1] - 1, self.outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, _Memory]:
        images = x.view(len(x), -1, x.shape[2], self._channels)
        above, beside = self._padding
        if above or beside:
            images = nn.functional.pad(images, (0, 0, beside, beside, above, above))
        windows = images.unfold(1, self._kernel[0], self._stride[0]).unfold(2, self._kernel[1], self._stride[1])
        patches = windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, self._inputs)
        maps = (patches @ self._weights + self._offset).view(-1, *self._grid, self.outputs)
        down = maps[:, 1:] > maps[:, :-1]
        maps = torch.maximum(maps[:, 1:], maps[:, :-1])
        right = maps[:, :, 1:] > maps[:, :, :-1]
        maps = torch.maximum(maps[:, :, 1:], maps[:, :, :-1])
        return self._tanh(maps), _Memory(patches.view(len(x), -1, self._inputs), (down, right))

    def pull(self, slopes: torch.Tensor) -> torch.Tensor:
        height, width = self._grid
        parts = super().pull(slopes).view(-1, height, width, *self._kernel, self._channels)
        images = torch.zeros(len(parts), *self._padded, self._channels)
        for i in range(self._kernel[0]):
            for j in range(self._kernel[1]):
                rows = slice(i, i + (height - 1) * self._stride[0] + 1, self._stride[0])
                columns = slice(j, j + (width - 1) * self._stride[1] + 1, self._stride[1])
                images[:, rows, columns] += parts[:, :, :, i, j]
        above, beside = self._padding
        return images[:, above : self._padded[0] - above, beside : self._padded[1] - beside].contiguous()

    def _before_pool(self, slopes: torch.Tensor, memory: _Memory) -> torch.Tensor:
        down, right = memory.gates
        slopes = _to_maxima(slopes, right, 2)
        return _to_maxima(slopes, down, 1).flatten(1, 2)


def _to_maxima(slopes: torch.Tensor, second: torch.Tensor, dim: int) -> torch.Tensor:
    """Back through the larger of two neighbours: to the second where `second` says so, else to the first."""
    count = slopes.shape[dim]
    shape = list(slopes.shape)
    shape[dim] = count + 1
    found, later = torch.zeros(shape), slopes * second
    found.narrow(dim, 1, count).copy_(later)
    found.narrow(dim, 0, count).add_(slopes.sub_(later))
    return found


def _of_public_length(slopes: torch.Tensor, scale: torch.Tensor, length: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole slopes `(R, …)` of about this length, and what a 1 in them stands for; 0 stays 0."""
    lengths = _sum_of_squares(slopes).sqrt_()
    factors = torch.where(lengths > 0, length / lengths, 0.0)
    shaped = factors.float().view(-1, *[1] * (slopes.ndim - 1))
    return (slopes * shaped).round_(), scale * lengths / length


def _sum_of_squares(numbers: torch.Tensor) -> torch.Tensor:
    """`(R,)` float64 of whole numbers `(R, …)`, exact below 2⁵³."""
    return numbers.flatten(1).double().square_().sum(1)
