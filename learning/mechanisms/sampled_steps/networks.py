"""Networks trained by private gradient steps, and their storage as safetensors.

Import this module only when needed: PyTorch takes a second to load, which would delay the start of the site.
"""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn
from torch.nn.utils import vector_to_parameters

from learning.learners.learner import Model, Records
from learning.mechanisms.sampled_steps.run_plan import maps_sides
from learning.outcomes import Target, target_from_json
from learning.representations import FittedRepresentation
from learning.representations.storage import representation_load, representation_save

if TYPE_CHECKING:
    from learning.exports.graph import Graph

torch.set_num_threads(1)  # like all learners, because there is one process per core

_SHAPE, _SCALE, _SPACE, _TARGET = "record_shape", "scale", "representation", "target"
_PREDICTION_BATCH = 64


class Linear(nn.Module):
    """Softmax regression on the flattened numbers of a record."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.output = nn.Linear(math.prod(shape), classes)

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        return self.output(records.flatten(1))


class TanhNetwork(nn.Module):
    """Network with tanh layers of 64 and 32 units, for tables; it is small because noise grows with its size."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(math.prod(shape), 64)
        self.second = nn.Linear(64, 32)
        self.output = nn.Linear(32, classes)

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        return self.output(torch.tanh(self.second(torch.tanh(self.first(records.flatten(1))))))


class TanhCNN(nn.Module):
    """Network of Tramèr and Boneh, "Differentially private learning needs better features" (2021), Table 8.

    8×8 convolution with 16 filters, stride 2, padding 2; 4×4 convolution with 32 filters, stride 2; each followed by
    tanh and 2×2 max pooling with stride 1; dense (32), tanh; dense. 26,010 weights for 28×28 images and ten classes.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        height, width = maps_sides(shape)
        self.first = nn.Conv2d(1 if len(shape) == 2 else shape[2], 16, 8, stride=2, padding=2)
        self.second = nn.Conv2d(16, 32, 4, stride=2)
        self.hidden = nn.Linear(32 * height * width, 32)
        self.output = nn.Linear(32, classes)

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        images = records[:, None] if records.ndim == 3 else records.movedim(3, 1)
        maps = _max_pool(torch.tanh(self.first(images)))
        maps = _max_pool(torch.tanh(self.second(maps)))
        return self.output(torch.tanh(self.hidden(maps.flatten(1))))


def in_order(network: nn.Module) -> list[nn.Module]:
    """Return the layers of one of `NETWORKS` in order, for code that cannot call the network."""
    modules: list[nn.Module] = []
    *hidden, output = network.children()
    for layer in hidden:
        if isinstance(layer, nn.Linear):
            modules += [nn.Flatten(), layer, nn.Tanh()]
        else:
            modules += [layer, nn.Tanh(), nn.MaxPool2d(2, stride=1)]
    return [*modules, nn.Flatten(), output]


NETWORKS: dict[str, type[nn.Module]] = {"linear": Linear, "mlp": TanhNetwork, "cnn": TanhCNN}
"""Networks by name, constructed with the shape of a record and the number of classes."""


def network_create(name: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    """Return the network with this name and with initial weights, which are a public function of the arguments.

    Weights and biases are uniform within ±1/√inputs, as in PyTorch.

    Args:
        name: One of `NETWORKS`.
        shape: Shape of a record: (features,), (height, width) or (height, width, channels).
        classes: Number of classes, at least 2.

    Raises:
        ValueError: The name is unknown, or the network does not support records of this shape.

    >>> sum(tensor.numel() for tensor in network_create("cnn", (28, 28), 10).parameters())
    26010
    """
    if name not in NETWORKS:
        raise ValueError(f"There is no network “{name}”; choose one of: {', '.join(NETWORKS)}.")
    if classes < 2:
        raise ValueError(f"classes must be at least 2, not {classes}.")
    network = NETWORKS[name](shape, classes)
    generator = torch.Generator().manual_seed(seed)
    for layer in network.children():
        bound = 1 / math.sqrt(layer.get_parameter("weight")[0].numel())
        for tensor in layer.parameters():
            nn.init.uniform_(tensor, -bound, bound, generator=generator)
    return network


def with_weights(network: nn.Module, weights: npt.ArrayLike) -> nn.Module:
    """Return a copy of the network with these weights `(d,)`, in the order of its parameters."""
    copy = deepcopy(network)
    vector_to_parameters(torch.tensor(np.asarray(weights), dtype=torch.float32), copy.parameters())
    return copy


class NetworkModel(Model):
    """Network with the released weights.

    Args:
        network: Network from `network_create`.
        shape: Shape of a record, before the representation.
        space: Representation whose coordinates are the network's input; None if records are the input.
        scale: Factor applied to coordinates, as in the steps.
        target: Target to learn; None for classes, with one score each.
    """

    def __init__(
        self,
        network: nn.Module,
        outputs: int,
        shape: tuple[int, ...],
        *,
        space: FittedRepresentation | None = None,
        scale: float = 1.0,
        target: Target | None = None,
    ) -> None:
        super().__init__(outputs if target is None else len(target.columns), shape)
        self.network, self.space, self.scale, self.target = network.eval(), space, scale, target

    def to_bytes(self) -> bytes:
        """Return the network as bytes for `network_from_bytes`."""
        tensors = {name: tensor.contiguous() for name, tensor in self.network.state_dict().items()}
        space = b"" if self.space is None else representation_save(self.space)
        about = {
            _SHAPE: torch.tensor(self.shape),
            _SCALE: torch.tensor(self.scale, dtype=torch.float64),
            _SPACE: torch.tensor(list(space), dtype=torch.uint8),
        }
        if self.target is not None:
            about[_TARGET] = torch.tensor(list(json.dumps(self.target.to_json()).encode()), dtype=torch.uint8)
        return save(tensors | about)

    def to_graph(self, graph: Graph, records: str) -> str:
        from learning.exports.graph import FLOAT
        from learning.learners.layers import network_probabilities, network_scores

        entering = records
        if self.space is not None:
            entering = graph.cast(self.space.to_graph(graph, records), FLOAT)
        if self.scale != 1.0:
            entering = graph.node("Mul", entering, graph.constant(np.float32(self.scale)))
        shape = self.shape if self.space is None else (self.space.dimensions,)
        if self.target is None:
            return network_probabilities(graph, entering, shape, in_order(self.network))
        return self.target.to_graph(graph, network_scores(graph, entering, shape, in_order(self.network)))

    @torch.inference_mode()
    def _probabilities(self, x: Records) -> npt.NDArray[np.float64]:
        parts = np.split(x, range(_PREDICTION_BATCH, len(x), _PREDICTION_BATCH))
        scores = torch.cat([self.network(self.inputs(part)).double() for part in parts])
        return scores.softmax(1).numpy() if self.target is None else self.target.predictions(scores.numpy())

    def inputs(self, x: Records) -> torch.Tensor:
        """Return records as input for the network."""
        entering = x if self.space is None else self.space.transform(x).astype(np.float32)
        return torch.from_numpy(entering) * self.scale


def network_from_bytes(name: str, data: bytes) -> NetworkModel:
    """Return a stored network with this name.

    Raises:
        ValueError: The bytes are not such a network.
    """
    try:
        tensors = load(data)
        shape, scale = tuple(tensors.pop(_SHAPE).tolist()), float(tensors.pop(_SCALE))
        stored, outputs = tensors.pop(_SPACE).numpy().tobytes(), len(tensors["output.bias"])
        document = tensors.pop(_TARGET, None)
        target = None if document is None else target_from_json(json.loads(document.numpy().tobytes()))
        space = representation_load(stored) if stored else None
        network = NETWORKS[name](shape if space is None else (space.dimensions,), outputs)
        network.load_state_dict(tensors)
    except (SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError("The stored network cannot be read; train it again.") from error
    return NetworkModel(network, outputs, shape, space=space, scale=scale, target=target)


def _max_pool(maps: torch.Tensor) -> torch.Tensor:
    """Return the maximum of each 2×2 window with stride 1, up to rounding, twice as fast as PyTorch on a CPU."""
    maps = maps[:, :, :-1] + torch.relu(maps[:, :, 1:] - maps[:, :, :-1])
    return maps[..., :-1] + torch.relu(maps[..., 1:] - maps[..., :-1])
