"""Gradients of the networks of private steps in whole numbers: the same for a record wherever it stands, bit for bit.

What enters a layer is rounded to whole numbers of at most 127, weights to whole numbers small enough that every product
and partial sum is below 2²⁴, where float32 is exact: whichever way a library orders a sum, it is the same. So is the
way back, in which the slopes of a record are brought to a public length before they are rounded. Between sums stand
single operations that IEEE 754 defines to the last bit, and a table of tanh. docs/sgd-sampled.md bounds every sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from learning.exact_arithmetic import RESIDUAL_STEPS, whole_matrix
from learning.mechanisms.steps.linear import Scores
from learning.outcomes import CROSS_ENTROPY, Loss
from learning.representations.coordinates import LARGEST

Floats = NDArray[np.float64]

_EXACT = 2.0**24
"""Up to here float32 holds every whole number."""
_SLOPES = 2.0**12
_SQUARES = 2.0**52
_SQUARED_AT_A_TIME = 2**16  # numbers in float64, which stay in the cache
_TANH_STEPS, _TANH_END = 256, 6
_FULL_SLOPE = torch.tensor(float(LARGEST**2))
_TANH = torch.tensor(
    [
        round(LARGEST * math.tanh(step / _TANH_STEPS))
        for step in range(-_TANH_STEPS * _TANH_END, _TANH_STEPS * _TANH_END + 1)
    ],
    dtype=torch.float32,
)


@dataclass(frozen=True, eq=False)
class Memory:
    """Of the way forward: what entered each place, and where each maximum came from."""

    patches: torch.Tensor
    maps: torch.Tensor | None = None
    origins: torch.Tensor | None = None


class WholeLayer(ABC):
    """A layer in whole numbers.

    Here an image is `(width, height, channels)`, in PyTorch (channels, height, width).

    Args:
        layer: PyTorch's.
        order: position in PyTorch of each of its inputs, as they come here.
        places: of a record that its weights are multiplied with.
        overlap: in how many places an input stands at most.

    Attributes:
        unit: what a 1 in its inputs stands for.
        matrix, bias: its weights, `(inputs, outputs)` and `(outputs,)`.
        size: how many parameters.
        shapes: of its weights and of its biases.
        numbers: of a record in what enters, or in the gradients where they are written out.
        length: of the slopes of every record.
        pull_scale: what slopes of its inputs are multiplied by.
        leaves: shape of what leaves it, by record.
    """

    leaves: tuple[int, ...]

    def __init__(
        self, layer: nn.Linear | nn.Conv2d, order: NDArray[np.int64], *, places: int = 1, overlap: int = 1
    ) -> None:
        self._order, self.outputs, self._inputs = order, layer.weight.shape[0], len(order)
        self._places, self._overlap = places, overlap
        self.size = layer.weight.numel() + self.outputs
        self.shapes = (self.outputs, self._inputs), (self.outputs,)
        self.numbers = places * self._inputs if places == 1 else max(places, self.outputs) * self._inputs
        self._longest = _SLOPES
        if places > 1:
            products = _EXACT / (LARGEST * math.sqrt(places))
            squares = math.sqrt(_SQUARES / (places * self._inputs)) / LARGEST
            self._longest = min(_SLOPES, products, squares)
        # rounding may add half a unit for each slope
        self.length = self._longest - 0.5 * math.sqrt(places * self.outputs) - 1
        if self.length < math.sqrt(places * self.outputs):
            raise ValueError("Images of this size cannot be learned from in whole numbers: make them smaller.")

    def load(self, weights: Floats, unit: float) -> None:
        """Weights and biases, in PyTorch's order, for inputs in this unit."""
        self.unit = unit
        self.matrix = weights[: -self.outputs].reshape(self.outputs, -1)[:, self._order].T
        self.bias = weights[-self.outputs :]
        both = np.vstack([self.matrix * self.unit, self.bias / LARGEST])
        whole, power = whole_matrix(both, LARGEST, _EXACT)
        # times a power of two, so that sums are as exact, and come out in steps of the table
        steps = _TANH_STEPS / power
        self._weights = torch.from_numpy(whole[:-1] * steps).float()
        self._offset = torch.from_numpy(LARGEST * whole[-1] * steps).float()
        # |Σ slopes · weights| ≤ ‖slopes‖·‖weights‖, and each weight may be rounded up by a half
        norm = math.sqrt(self._overlap * float((self.matrix**2).sum(axis=1).max())) or 1.0
        rounding = 0.5 * math.sqrt(self._overlap * self.outputs)
        self.pull_scale = (_EXACT / self._longest - rounding) / norm
        self._back = self._pulling(torch.from_numpy(np.rint(self.matrix.T * self.pull_scale)).float())

    @abstractmethod
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Memory]:
        """tanh of what leaves, whole numbers; and what the way back needs."""

    @abstractmethod
    def pull(self, slopes: torch.Tensor) -> torch.Tensor:
        """The slopes of what entered, times `pull_scale`, below 2²⁴, exact."""

    def backward(
        self, pulled: torch.Tensor, left: torch.Tensor, memory: Memory, scale: torch.Tensor
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
        slopes = torch.addcmul(_FULL_SLOPE, left, left, value=-1).mul_(pulled).mul_(factor / LARGEST**2).round_()
        return of_public_length(self._before_pool(slopes, memory), scale / factor, self.length)

    def _pulling(self, back: torch.Tensor) -> torch.Tensor:
        """Whole weights `(outputs, inputs)`, as `pull` takes them."""
        return back

    @abstractmethod
    def _before_pool(self, slopes: torch.Tensor, memory: Memory) -> torch.Tensor:
        """Slopes before the pool, if there is one."""

    def in_order(self, products: torch.Tensor) -> torch.Tensor:
        """Sums of products `(outputs, inputs)` in PyTorch's order, laid flat."""
        ordered = torch.empty_like(products)
        ordered[:, self._order] = products
        return ordered.flatten()


class Dense(WholeLayer):
    def __init__(self, layer: nn.Linear, maps: tuple[int, ...]) -> None:
        super().__init__(layer, _channels_last(maps) if len(maps) == 3 else np.arange(layer.in_features))
        self.leaves = (layer.out_features,)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Memory]:
        entered = x.flatten(1)
        return _tanh(torch.addmm(self._offset, entered, self._weights)), Memory(entered[:, None])

    def pull(self, slopes: torch.Tensor) -> torch.Tensor:
        return slopes.flatten(1) @ self._back

    def _before_pool(self, slopes: torch.Tensor, memory: Memory) -> torch.Tensor:
        return slopes[:, None]


class Convolution(WholeLayer):
    """Over images `(R, width, height, channels)`; as tanh rises, the maximum may be taken before it."""

    def __init__(self, layer: nn.Conv2d, size: tuple[int, ...]) -> None:
        # PyTorch has the height first
        self._kernel, self._stride = _pair(layer.kernel_size[::-1]), _pair(layer.stride[::-1])
        self._padding = _pair([int(side) for side in layer.padding][::-1])
        self._size, channels = _pair(size[:2]), size[2]
        self._grid = _pair(
            (side + 2 * more - kernel) // stride + 1
            for side, more, kernel, stride in zip(self._size, self._padding, self._kernel, self._stride, strict=True)
        )
        self._taps = _pair(-(-kernel // stride) for kernel, stride in zip(self._kernel, self._stride, strict=True))
        super().__init__(
            layer,
            _channels_last((*self._kernel, channels)),
            places=math.prod(self._grid),
            overlap=math.prod(self._taps),
        )
        self.leaves = (self._grid[0] - 1, self._grid[1] - 1, self.outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Memory]:
        images = nn.functional.pad(x, _around(self._padding)) if any(self._padding) else x
        patches = _windows(images.contiguous(), self._kernel, self._stride)
        maps = torch.addmm(self._offset, patches.view(-1, self._inputs), self._weights)
        maps = maps.view(-1, *self._grid, self.outputs).permute(0, 3, 1, 2)
        largest, origins = nn.functional.max_pool2d(maps, 2, stride=1, return_indices=True)
        return _tanh(largest.permute(0, 2, 3, 1)), Memory(patches.flatten(1, 2), maps, origins)

    def pull(self, slopes: torch.Tensor) -> torch.Tensor:
        # each stretch of `stride` pixels hears from the places that reach it: one product, whose sums are those wanted
        reach = _pair(tap - 1 for tap in self._taps)
        around = nn.functional.pad(slopes.view(-1, *self._grid, self.outputs), _around(reach))
        stretches = _windows(around, self._taps, (1, 1))
        count = stretches.shape[1:3]
        pulled = stretches.view(-1, self._back.shape[0]) @ self._back
        pulled = pulled.view(-1, *count, *self._stride, self._back.shape[1] // math.prod(self._stride)).transpose(2, 3)
        images = pulled.reshape(len(slopes), count[0] * self._stride[0], count[1] * self._stride[1], -1)
        first = self._padding
        beyond = _pair(
            side + more - have for side, more, have in zip(self._size, first, images.shape[1:3], strict=True)
        )
        if any(first) or any(beyond):
            return nn.functional.pad(images, (0, 0, -first[1], beyond[1], -first[0], beyond[0]))
        return images

    def _pulling(self, back: torch.Tensor) -> torch.Tensor:
        whole = _pair(tap * stride for tap, stride in zip(self._taps, self._stride, strict=True))
        missing = _pair(side - kernel for side, kernel in zip(whole, self._kernel, strict=True))
        kernels = back.view(self.outputs, *self._kernel, -1)
        kernels = nn.functional.pad(kernels, (0, 0, 0, missing[1], 0, missing[0]))
        parts = kernels.view(self.outputs, self._taps[0], self._stride[0], self._taps[1], self._stride[1], -1)
        # the first window that reaches a pixel has it at its end
        parts = parts.flip(1, 3).permute(1, 3, 0, 2, 4, 5)
        return parts.reshape(math.prod(self._taps) * self.outputs, -1)

    def _before_pool(self, slopes: torch.Tensor, memory: Memory) -> torch.Tensor:
        before = torch.ops.aten.max_pool2d_with_indices_backward(
            slopes.permute(0, 3, 1, 2), memory.maps, [2, 2], [1, 1], [0, 0], [1, 1], False, memory.origins
        )
        return before.permute(0, 2, 3, 1).reshape(len(slopes), self._places, self.outputs)


def of_public_length(slopes: torch.Tensor, scale: torch.Tensor, length: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole slopes `(R, …)` of about this length, and what a 1 in them stands for; 0 stays 0. They are overwritten."""
    lengths = sum_of_squares(slopes).sqrt_()
    factors = torch.where(lengths > 0, length / lengths, 0.0)
    shaped = factors.float().view(-1, *[1] * (slopes.ndim - 1))
    return slopes.mul_(shaped).round_(), scale * lengths / length


def sum_of_squares(numbers: torch.Tensor) -> torch.Tensor:
    """`(R,)` float64 of whole numbers `(R, …)`, exact below 2⁵³."""
    flat = numbers.flatten(1).numpy()
    sums = np.empty(len(flat))
    rows = max(1, _SQUARED_AT_A_TIME // flat.shape[1])
    for begin in range(0, len(flat), rows):
        part = flat[begin : begin + rows].astype(np.float64)
        np.vecdot(part, part, out=sums[begin : begin + rows])
    return torch.from_numpy(sums)


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
        built: list[WholeLayer] = []
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


def _tanh(arguments: torch.Tensor) -> torch.Tensor:
    """From the table, of arguments in its steps, which are overwritten."""
    end = _TANH_STEPS * _TANH_END
    place = arguments.clamp_(-end, end).round_().add_(end).to(torch.int32)
    return _TANH.index_select(0, place.flatten()).view(place.shape)


def _windows(images: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> torch.Tensor:
    """Numbers under a kernel at each place, `(R, across, down, numbers)`, of images `(R, width, height, channels)`.

    In two steps, as what is copied at a time is longer in this way: first down, then across.
    """
    records, width, height, channels = images.shape
    across, down = _pair(
        (side - size) // step + 1 for side, size, step in zip((width, height), kernel, stride, strict=True)
    )
    run = kernel[1] * channels
    columns = images.as_strided(
        (records, down, width, run), (width * height * channels, stride[1] * channels, height * channels, 1)
    ).contiguous()
    return columns.as_strided(
        (records, across, down, kernel[0] * run), (down * width * run, stride[0] * run, width * run, 1)
    ).contiguous()


def _channels_last(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Of `(width, height, channels)` laid flat, the position that PyTorch has each number in."""
    width, height, channels = shape
    return np.arange(math.prod(shape)).reshape(channels, height, width).transpose(2, 1, 0).ravel()


def _around(more: tuple[int, int]) -> tuple[int, ...]:
    """The margins of images, as PyTorch takes them."""
    return (0, 0, more[1], more[1], more[0], more[0])


def _pair(sides: Iterable[int]) -> tuple[int, int]:
    """Across and down."""
    across, down = sides
    return across, down
