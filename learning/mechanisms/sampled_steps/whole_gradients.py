"""Integer gradients of the networks used for private steps.

A record's gradient does not depend on its position in a batch. The inputs of a layer are rounded to integers of at most
127, and weights to integers small enough that every product and partial sum is below 2²⁴, where float32 is exact. The
result therefore does not depend on the order in which a library adds numbers. The same holds for the backward pass,
which scales a record's slopes (the derivatives of its loss) to a public length before rounding. All other operations
are lookups in a table of tanh, or defined to the last bit by IEEE 754. docs/sgd-sampled.md bounds every sum.
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
"""float32 represents every integer up to this one exactly."""
_SLOPES = 2.0**12
_SQUARES = 2.0**52
_SQUARED_AT_A_TIME = 2**16  # number of float64 values that fit into the cache
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
    """Data kept from the forward pass: the layer's inputs at each position, and the origin of each pooled maximum."""

    patches: torch.Tensor
    maps: torch.Tensor | None = None
    origins: torch.Tensor | None = None


class WholeLayer(ABC):
    """Layer in integer arithmetic.

    Images are `(width, height, channels)` in this module, and (channels, height, width) in PyTorch.

    Args:
        layer: PyTorch's layer.
        order: For each input of the layer in the order used here, its position in PyTorch's order.
        places: Number of positions in a record at which the layer's weights are applied.
        overlap: Largest number of places that share an input.

    Attributes:
        unit: Value that the integer 1 represents in the layer's inputs.
        matrix, bias: Weights, `(inputs, outputs)` and `(outputs,)`.
        shapes: Shapes of the weights and of the biases.
        numbers: Number of values per record in the largest array: the inputs or, in a convolution, the gradient.
        length: Norm to which the slopes of every record are scaled.
        pull_scale: Factor that `pull` applies to the slopes of the layer's inputs.
        leaves: Shape of the layer's output for a record.
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
        # rounding may add half a unit to each slope
        self.length = self._longest - 0.5 * math.sqrt(places * self.outputs) - 1
        if self.length < math.sqrt(places * self.outputs):
            raise ValueError("Images of this size are too large for integer gradients: make them smaller.")

    def load(self, weights: Floats, unit: float) -> None:
        """Set weights and biases, in PyTorch's order, for inputs that are multiples of ``unit``."""
        self.unit = unit
        self.matrix = weights[: -self.outputs].reshape(self.outputs, -1)[:, self._order].T
        self.bias = weights[-self.outputs :]
        both = np.vstack([self.matrix * self.unit, self.bias / LARGEST])
        whole, power = whole_matrix(both, LARGEST, _EXACT)
        # multiplied by a power of two, so that sums stay exact and results are in units of the table's step
        steps = _TANH_STEPS / power
        self._weights = torch.from_numpy(whole[:-1] * steps).float()
        self._offset = torch.from_numpy(LARGEST * whole[-1] * steps).float()
        # |Σ slopes · weights| ≤ ‖slopes‖·‖weights‖, and each weight may be rounded up by 0.5
        norm = math.sqrt(self._overlap * float((self.matrix**2).sum(axis=1).max())) or 1.0
        rounding = 0.5 * math.sqrt(self._overlap * self.outputs)
        self.pull_scale = (_EXACT / self._longest - rounding) / norm
        self._back = self._pulling(torch.from_numpy(np.rint(self.matrix.T * self.pull_scale)).float())

    @abstractmethod
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Memory]:
        """Return tanh of the output as integers, and the data for the backward pass."""

    @abstractmethod
    def pull(self, slopes: torch.Tensor) -> torch.Tensor:
        """Return the slopes of the inputs times `pull_scale`, exact and below 2²⁴."""

    def backward(
        self, pulled: torch.Tensor, left: torch.Tensor, memory: Memory, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slopes before tanh as integers of a public norm, and the value that the integer 1 represents.

        Args:
            pulled: Slopes of the layer's output.
            memory: From `forward`.
            scale: `(R,)` value that the integer 1 represents in the pulled slopes.
        """
        # small enough for an exact sum of squares of a record's slopes, as up to four maxima may come from one place
        most = math.sqrt(_SQUARES / (self._places * self.outputs)) / 4 - 1
        factor = min(1.0, most / _EXACT)
        slopes = torch.addcmul(_FULL_SLOPE, left, left, value=-1).mul_(pulled).mul_(factor / LARGEST**2).round_()
        return of_public_length(self._before_pool(slopes, memory), scale / factor, self.length)

    def _pulling(self, back: torch.Tensor) -> torch.Tensor:
        """Return integer weights `(outputs, inputs)` for `pull`."""
        return back

    @abstractmethod
    def _before_pool(self, slopes: torch.Tensor, memory: Memory) -> torch.Tensor:
        """Return the slopes before the pool, if there is one."""

    def in_order(self, products: torch.Tensor) -> torch.Tensor:
        """Return sums of products `(outputs, inputs)` in PyTorch's order, flattened."""
        ordered = torch.empty_like(products)
        ordered[:, self._order] = products
        return ordered.flatten()


class DenseGradients(WholeLayer):
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


class ConvolutionGradients(WholeLayer):
    """Convolution of images `(R, width, height, channels)`, pooled before tanh because tanh is monotone."""

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
        # a block of `stride` pixels gets the slopes of all windows that cover it from a single product
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
        # flipped, because a pixel lies at the end of the first window that covers it
        parts = parts.flip(1, 3).permute(1, 3, 0, 2, 4, 5)
        return parts.reshape(math.prod(self._taps) * self.outputs, -1)

    def _before_pool(self, slopes: torch.Tensor, memory: Memory) -> torch.Tensor:
        before = torch.ops.aten.max_pool2d_with_indices_backward(
            slopes.permute(0, 3, 1, 2), memory.maps, [2, 2], [1, 1], [0, 0], [1, 1], False, memory.origins
        )
        return before.permute(0, 2, 3, 1).reshape(len(slopes), self._places, self.outputs)


def of_public_length(slopes: torch.Tensor, scale: torch.Tensor, length: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale ``slopes`` in place to integers of about this norm; also return the value that the integer 1 represents."""
    lengths = sum_of_squares(slopes).sqrt_()
    factors = torch.where(lengths > 0, length / lengths, 0.0)
    shaped = factors.float().view(-1, *[1] * (slopes.ndim - 1))
    return slopes.mul_(shaped).round_(), scale * lengths / length


def sum_of_squares(numbers: torch.Tensor) -> torch.Tensor:
    """Return float64 sums of squares `(R,)` of integers `(R, …)`, exact below 2⁵³."""
    flat = numbers.flatten(1).numpy()
    sums = np.empty(len(flat))
    rows = max(1, _SQUARED_AT_A_TIME // flat.shape[1])
    for begin in range(0, len(flat), rows):
        part = flat[begin : begin + rows].astype(np.float64)
        np.vecdot(part, part, out=sums[begin : begin + rows])
    return torch.from_numpy(sums)


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """Gradients of a layer for R records, each as a product of integer factors.

    Attributes:
        inputs: `(R, places, inputs)` inputs of the layer, at most 127.
        slopes: `(R, places, outputs)` slopes of the loss with respect to the layer's outputs.
        scale: `(R,)` float64. The gradient of the bias is scale · Σ_places slopes, and the gradient of the weights
            scale · unit · Σ_places slopes ⊗ inputs.
    """

    inputs: torch.Tensor
    slopes: torch.Tensor
    unit: float
    scale: torch.Tensor

    @cached_property
    def products(self) -> torch.Tensor:
        """Exact sums of slopes ⊗ inputs over all places, `(R, outputs, inputs)`."""
        return torch.bmm(self.slopes.transpose(1, 2), self.inputs)

    @cached_property
    def totals(self) -> torch.Tensor:
        """Exact sums of the slopes over all places, `(R, outputs)`."""
        return self.slopes.sum(1)

    @cached_property
    def squared_norms(self) -> torch.Tensor:
        """‖gradient‖² in float64, `(R,)`. No bit of it depends on a record's position in the batch."""
        if self.slopes.shape[1] == 1:  # ‖s ⊗ a‖ = ‖s‖·‖a‖, so the product need not be computed
            squares = sum_of_squares(self.slopes) * sum_of_squares(self.inputs)
        else:
            squares = sum_of_squares(self.products)
        return self.scale**2 * (self.unit**2 * squares + sum_of_squares(self.totals))


class RecordGradients:
    """Gradients of a network's loss, one for each record.

    Args:
        network: One of `networks.NETWORKS`: convolutions, each followed by tanh and a 2×2 max pool of stride 1, then
            dense layers followed by tanh, and a final dense layer.
        shape: Shape of the network's input for a record.

    Attributes:
        layers: Integer layers in the network's order.
        numbers: Number of values per record in the largest array of any layer.

    Raises:
        ValueError: The network has other layers, or images are too large for exact sums.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...], loss: Loss = CROSS_ENTROPY) -> None:
        self._loss = loss
        built: list[WholeLayer] = []
        height, width, channels = (*shape, 1, 1)[:3]
        self._image = height, width, channels
        maps: tuple[int, ...] | None = (width, height, channels)
        for layer in network.children():
            if isinstance(layer, nn.Conv2d) and layer.bias is not None and maps:
                built.append(ConvolutionGradients(layer, maps))
                maps = built[-1].leaves
            elif isinstance(layer, nn.Linear) and layer.bias is not None:
                of_maps = maps if maps and built else (layer.in_features,)
                built.append(DenseGradients(layer, of_maps))
                maps = None
            else:
                raise ValueError(
                    "A network for private steps must consist of convolutions and then dense layers, all with biases."
                )
        *self._hidden, self._output = built
        self.layers = [*self._hidden, self._output]
        self.classes = self._output.outputs
        self.size = sum(layer.size for layer in self.layers)
        self.numbers = max(layer.numbers for layer in self.layers)

    def load(self, weights: ArrayLike, *, unit: float) -> None:
        """Set the weights.

        Args:
            weights: `(d,)`, in the order of the network's parameters.
            unit: Value that the integer 1 represents in a record.

        Raises:
            ValueError: The weights are not finite.
        """
        numbers = np.asarray(weights, np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError("The weights are not finite: use smaller steps.")
        begin = 0
        for layer in self.layers:
            end = begin + layer.size
            layer.load(numbers[begin:end], unit)
            begin, unit = end, 1 / LARGEST
        self._scores = Scores(np.vstack([self._output.matrix * self._output.unit, self._output.bias / LARGEST]))

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> list[LayerGradients]:
        """Return the gradients of each layer, in the network's order.

        Args:
            x: `(R, …)` float32, integers of at most 127.
            y: `(R,)` codes of targets (for classes, their numbers). An invalid code gives the gradient 0.
        """
        if isinstance(self.layers[0], ConvolutionGradients):
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
        """Return the loss's residuals as integers, and the value that the integer 1 represents."""
        features = np.full((len(inputs), inputs.shape[1] + 1), float(LARGEST))
        features[:, :-1] = inputs.numpy()
        residuals = self._loss.residuals(self._scores.of(features), y)
        ones = torch.full((len(inputs),), 1 / RESIDUAL_STEPS, dtype=torch.float64)
        return of_public_length(torch.from_numpy(residuals).float(), ones, self._output.length)


def _tanh(arguments: torch.Tensor) -> torch.Tensor:
    """Look up tanh for arguments in units of the table's step. Overwrites the arguments."""
    end = _TANH_STEPS * _TANH_END
    place = arguments.clamp_(-end, end).round_().add_(end).to(torch.int32)
    return _TANH.index_select(0, place.flatten()).view(place.shape)


def _windows(images: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> torch.Tensor:
    """Return numbers at each kernel position, `(R, across, down, numbers)`, for images `(R, width, height, channels)`.

    The numbers are copied in two steps, first down and then across, so that longer pieces are copied at once.
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
    """Return PyTorch's position of each number of a flattened `(width, height, channels)` array."""
    width, height, channels = shape
    return np.arange(math.prod(shape)).reshape(channels, height, width).transpose(2, 1, 0).ravel()


def _around(more: tuple[int, int]) -> tuple[int, ...]:
    """Return the padding of images, in PyTorch's form."""
    return (0, 0, more[1], more[1], more[0], more[0])


def _pair(sides: Iterable[int]) -> tuple[int, int]:
    """Return the sizes across and down."""
    across, down = sides
    return across, down
