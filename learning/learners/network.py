"""Network of the learner ``CNN``: layers, training and predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from common.progress import Progress
from learning.learners.learner import Labels, Model, Records

if TYPE_CHECKING:
    from learning.exports.graph import Graph

torch.set_num_threads(1)  # like all learners, because there is one process per core

Layers = TypeVar("Layers", bound=nn.Module)

_SHAPE = "record_shape"
_FILTERS, _HIDDEN = 32, 100
# With batches this small, activations stay in a core's cache; training is four times as fast as with batches of 1,000.
_PREDICTION_BATCH = 64


class Network(nn.Module):
    """3×3 convolution with 32 filters, ReLU, batch norm, 2×2 max pool; dense (100), ReLU, batch norm; dense.

    Channels come last everywhere, in memory and when flattened, which saves a third of the time on a CPU.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        height, width, channels = shape if len(shape) == 3 else (*shape, 1)
        pooled = ((height - 2) // 2) * ((width - 2) // 2)
        self.convolution = nn.Conv2d(channels, _FILTERS, 3)
        self.convolution_norm = nn.BatchNorm2d(_FILTERS)
        self.hidden = nn.Linear(_FILTERS * pooled, _HIDDEN)
        self.hidden_norm = nn.BatchNorm1d(_HIDDEN)
        self.output = nn.Linear(_HIDDEN, classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initialise(self, generator: torch.Generator) -> None:
        """Draw He-uniform weights (He et al. 2015); for the last layer, Glorot-uniform (Glorot & Bengio 2010)."""
        for layer in (self.convolution, self.hidden):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        nn.init.xavier_uniform_(self.output.weight, generator=generator)
        nn.init.zeros_(self.output.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.convolution_norm(torch.relu(self.convolution(images)))
        flat = nn.functional.max_pool2d(maps, 2).permute(0, 2, 3, 1).flatten(1)
        return self.output(self.hidden_norm(torch.relu(self.hidden(flat))))


class ImageModel(Model, Generic[Layers]):
    """Trained network for images, which stays on the device on which it was trained."""

    def __init__(self, network: Layers, classes: int, shape: tuple[int, ...]) -> None:
        super().__init__(classes, shape)
        self.network = network.eval()

    def to_bytes(self) -> bytes:
        tensors = {name: tensor.contiguous() for name, tensor in self.network.state_dict().items()}
        return save({**tensors, _SHAPE: torch.tensor(self.shape)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the model stored by `to_bytes`; see `Learner.model_from_bytes` and `Student.model_from_bytes`."""
        try:
            tensors = load(data)
            shape = tuple(tensors.pop(_SHAPE).tolist())
            network, classes = cls._network(tensors, shape)
            network.load_state_dict(tensors)
        except (SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError("The stored network cannot be read; train it again.") from error
        return cls(network, classes, shape)

    @classmethod
    @abstractmethod
    def _network(cls, tensors: Mapping[str, torch.Tensor], shape: tuple[int, ...]) -> tuple[Layers, int]:
        """Return a network for these tensors, and its number of classes."""

    @torch.inference_mode()
    def _probabilities(self, x: Records) -> npt.NDArray[np.float64]:
        device = next(self.network.parameters()).device
        batches = [as_images(part, device) for part in np.split(x, range(_PREDICTION_BATCH, len(x), _PREDICTION_BATCH))]
        return torch.cat([self.network(part).double().softmax(1).cpu() for part in batches]).numpy()


class CNNModel(ImageModel[Network]):
    """Trained :class:`Network`."""

    @classmethod
    def _network(cls, tensors: Mapping[str, torch.Tensor], shape: tuple[int, ...]) -> tuple[Network, int]:
        classes = len(tensors["output.bias"])
        return Network(shape, classes), classes

    def inner_modules(self) -> tuple[nn.Module, ...]:
        """Return the modules up to the dense layer of 100 units, with weights reordered for channels-first input."""
        network = self.network
        height, width = ((side - 2) // 2 for side in self.shape[:2])
        hidden = nn.Linear(network.hidden.in_features, network.hidden.out_features)
        weight = network.hidden.weight.detach().cpu().view(-1, height, width, _FILTERS)
        hidden.weight.data = weight.permute(0, 3, 1, 2).flatten(1)
        hidden.bias.data = network.hidden.bias.detach().cpu()
        convolution = (network.convolution, nn.ReLU(), network.convolution_norm, nn.MaxPool2d(2), nn.Flatten())
        return (*convolution, hidden, nn.ReLU(), network.hidden_norm)

    def to_graph(self, graph: Graph, records: str) -> str:
        from learning.learners.layers import network_probabilities

        return network_probabilities(graph, records, self.shape, (*self.inner_modules(), self.network.output))


def train_network(
    x: Records, y: Labels, *, classes: int, seed: int, epochs: int, batch: int, learning_rate: float, progress: Progress
) -> CNNModel:
    """Return a network trained with Adam to minimise the cross entropy, on the GPU if there is one.

    Classes missing from ``y`` get probability 0, because their outputs were never trained.
    """
    if len(x) == 1:  # batch norm needs two records
        x, y = np.repeat(x, 2, axis=0), np.repeat(y, 2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(seed)
    network = Network(x.shape[1:], classes)
    network.initialise(generator)
    network.to(device)
    images, labels = as_images(x, device), torch.from_numpy(y).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)
    steps = max(1, len(images) // batch)
    for epoch in range(1, epochs + 1):
        # Batches of nearly equal size, so that none is too small for batch norm.
        for chosen in torch.randperm(len(images), generator=generator).to(device).tensor_split(steps):
            loss = nn.functional.cross_entropy(network(images[chosen]), labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        progress(epoch, epochs)
    unseen = np.setdiff1d(np.arange(classes), y)
    network.output.bias.data[unseen] = -torch.inf
    return CNNModel(network, classes, x.shape[1:])


def as_images(x: Records, device: torch.device) -> torch.Tensor:
    """Return ``(n, channels, height, width)`` with channels last in memory."""
    images = torch.from_numpy(x if x.ndim == 4 else x[..., np.newaxis]).permute(0, 3, 1, 2)
    return images.to(device=device, memory_format=torch.channels_last)
