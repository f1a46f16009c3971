"""Consistency training with released counts, in PyTorch: image augmentation, the network, and the training loop.

States between steps are stored as safetensors, so reading them runs no code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn
from torch.nn import functional

from common.progress import Progress
from learning.learners.layers import consistency_layers
from learning.learners.learner import Records
from learning.learners.network import ImageModel, as_images
from learning.students.student import UNKEPT, TrainingCheckpoint

if TYPE_CHECKING:
    from learning.exports.graph import Graph

_BENDS = 4  # control points along each side of an image

_CONVOLUTIONS = 3
"""Number of convolutions of a network that is not deep."""
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")

_WEAK = 0.5  # strength of weak augmentation, relative to strong augmentation
_WARM_UP = 0.25
_WEIGHT_DECAY = 0.01
_NOTED = 100
"""Number of steps between two checkpoints, at which progress is also reported."""


@dataclass(frozen=True)
class Moves:
    """Random augmentation of images, with the limit of each transformation; 0 or False disables it.

    Attributes:
        rotation: Largest angle in degrees, in either direction.
        shift: Largest shift as a share of height and width, in either direction.
        stretch: Largest independent change of height and width, as a share.
        bend: Largest shift of one part of the image relative to the others, as a share of height and width.
        mirror: Whether each image is mirrored horizontally with probability ½.
        erase: Side of a square that is blackened, as a share of the shorter side of the image.
    """

    rotation: float
    shift: float
    stretch: float
    bend: float
    mirror: bool
    erase: float

    def weaker(self, factor: float) -> Moves:
        """Return the same augmentation with limits scaled by a factor and without erasing."""
        return Moves(
            self.rotation * factor, self.shift * factor, self.stretch * factor, self.bend * factor, self.mirror, 0.0
        )

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Augment every image of `(n, channels, height, width)` independently; pixels from outside become 0.

        Random numbers are drawn on the generator's device.
        """
        moved = images
        if self.rotation or self.shift or self.stretch or self.bend or self.mirror:
            maps = self._maps(len(images), generator).to(images.device)
            grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
            if self.bend:
                grid = grid + self._bends(images, generator).to(images.device)
            moved = functional.grid_sample(images, grid, align_corners=False)
        return self._erased(moved, generator) if self.erase else moved

    def _maps(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Return affine maps `(count, 2, 3)` from positions in the result to positions in the image, from -1 to 1."""
        uniform = 2 * torch.rand(count, 5, generator=generator, device=generator.device) - 1
        angle = uniform[:, 0] * math.radians(self.rotation)
        width, height = (1 + self.stretch * uniform[:, axis] for axis in (1, 2))
        if self.mirror:
            turned = torch.randint(0, 2, (count,), generator=generator, device=generator.device)
            width = width * (1 - 2 * turned)
        cos, sin = torch.cos(angle), torch.sin(angle)
        first = torch.stack([cos * width, -sin * height, 2 * self.shift * uniform[:, 3]], 1)
        second = torch.stack([sin * width, cos * height, 2 * self.shift * uniform[:, 4]], 1)
        return torch.stack([first, second], 1)

    def _bends(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return smooth shifts `(n, height, width, 2)`, interpolated from 4×4 random shifts (Simard et al. 2003)."""
        uniform = torch.rand(len(images), 2, _BENDS, _BENDS, generator=generator, device=generator.device)
        drawn = 2 * self.bend * (2 * uniform - 1)
        smooth = functional.interpolate(drawn, size=images.shape[2:], mode="bicubic", align_corners=True)
        return smooth.permute(0, 2, 3, 1)

    def _erased(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        inside = []
        count, _, *sides = images.shape
        side = max(1, round(self.erase * min(sides)))
        for length in sides:
            first = torch.randint(0, length - side + 1, (count, 1), generator=generator, device=generator.device)
            places = torch.arange(length, device=generator.device)
            inside.append((places >= first) & (places < first + side))
        square = (inside[0][:, :, None] & inside[1][:, None, :]).to(images.device)
        return images.masked_fill(square[:, None], 0.0)


def network(shape: tuple[int, ...], classes: int, filters: int, *, deep: bool = False) -> nn.Sequential:
    layers = (_module(kind, sizes) for kind, sizes in consistency_layers(shape, filters, classes, deep=deep))
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _module(kind: str, sizes: Mapping[str, Any]) -> nn.Module:
    match kind:
        case "convolution":
            side, stride, padding = sizes["side"], sizes["stride"], sizes["padding"]
            return nn.Conv2d(sizes["inputs"], sizes["outputs"], side, stride, padding, bias=False)
        case "normalisation":
            return (nn.BatchNorm1d if sizes.get("flat") else nn.BatchNorm2d)(sizes["channels"])
        case "dense":
            return nn.Linear(sizes["inputs"], sizes["outputs"], bias=sizes["bias"])
    return {"rectify": nn.ReLU(), "pool": nn.MaxPool2d(2), "flatten": nn.Flatten()}[kind]


class ConsistencyModel(ImageModel[nn.Sequential]):
    """Trained :func:`network`."""

    @classmethod
    def _network(cls, tensors: Mapping[str, torch.Tensor], shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
        places = sorted(tensors, key=_place)
        classes = len(tensors[places[-1]])
        deep = sum(tensor.ndim == 4 for tensor in tensors.values()) > _CONVOLUTIONS
        return network(shape, classes, len(tensors[places[0]]), deep=deep), classes

    def inner_modules(self) -> tuple[nn.Module, ...]:
        return tuple(self.network)[:-1]

    def to_graph(self, graph: Graph, records: str) -> str:
        from learning.learners.layers import network_probabilities

        return network_probabilities(graph, records, self.shape, self.network)


def initialise(layers: nn.Sequential, generator: torch.Generator) -> None:
    """Set He-normal weights (He et al. 2015), and 0 in the last layer."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


@torch.no_grad()
def normalise(layers: nn.Sequential, pixels: torch.Tensor) -> None:
    """Compute batch norm statistics from the original images, because augmented images would distort them."""
    for layer in layers:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # use the mean of all batches
    layers.train()
    for part in pixels.tensor_split(max(1, len(pixels) // 256)):
        layers(part)


def state_save(step: int, layers: nn.Module, optimiser: torch.optim.AdamW, generator: torch.Generator) -> bytes:
    """Return everything that later steps depend on: weights, moments, the random generator's state and ``step``."""
    tensors = {f"layers.{name}": each for name, each in layers.state_dict().items()}
    for place, weights in enumerate(layers.parameters()):
        tensors |= {f"{name}.{place}": optimiser.state[weights][name] for name in _MOMENTS}
    tensors |= {"steps": torch.tensor(step), "generator": generator.get_state()}
    return save({name: each.detach().cpu().contiguous() for name, each in tensors.items()})


@torch.no_grad()
def state_load(state: bytes | None, layers: nn.Module, optimiser: torch.optim.AdamW, generator: torch.Generator) -> int:
    """Restore training to the state stored by `state_save`.

    Returns:
        The number of steps taken; or 0, without any change, if the state cannot be read or is from another network.
    """
    try:
        tensors = load(state or b"")
        parts = {name.removeprefix("layers."): each for name, each in tensors.items() if name.startswith("layers.")}
        moments = [
            {name: tensors[f"{name}.{place}"] for name in _MOMENTS} for place, _ in enumerate(layers.parameters())
        ]
        step, drawn = int(tensors["steps"]), tensors["generator"]
    except (SafetensorError, KeyError):
        return 0
    if {name: each.shape for name, each in parts.items()} != {
        name: each.shape for name, each in layers.state_dict().items()
    }:
        return 0  # the state is from another network
    layers.load_state_dict(parts)
    for weights, moment in zip(layers.parameters(), moments, strict=True):
        # copied to the memory format of the weights, as required by the fused optimiser
        moved = {name: torch.empty_like(weights).copy_(moment[name]) for name in _MOMENTS[1:]}
        optimiser.state[weights] = {"step": moment["step"].to(weights.device), **moved}
    generator.set_state(drawn)
    return step


@dataclass(frozen=True)
class Recipe:
    """Training settings, described in :class:`learning.students.consistency.Consistency`."""

    steps: int
    batch: int
    learning_rate: float
    threshold: float
    filters: int
    deep: bool
    moves: Moves


def train_consistently(
    x: Records,
    likelihood: tuple[np.ndarray, np.ndarray],
    recipe: Recipe,
    *,
    seed: int,
    progress: Progress,
    checkpoint: TrainingCheckpoint = UNKEPT,
) -> ConsistencyModel:
    """Train on strongly augmented images, with posteriors on weakly augmented ones as targets (cross entropy).

    Half of each batch consists of points with informative counts, and the other half of any points. A posterior above
    the threshold is treated as certain; other posteriors are learned unchanged if there are counts, and otherwise
    ignored.

    Args:
        x: Images of the public points.
        likelihood: Likelihood of each class `(points, C)`, and which points have informative counts `(points,)`.
        seed: Seed of initial weights, batches and augmentation.
        progress: Called with the number of steps.
        checkpoint: Storage for the training state.
    """
    counts, informative = (torch.from_numpy(each) for each in likelihood)
    classes = counts.shape[1]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator(device).manual_seed(seed)
    layers = network(x.shape[1:], classes, recipe.filters, deep=recipe.deep).to(device).train()
    initialise(layers, generator)
    pixels = as_images(x, device)
    labelled = torch.arange(len(x)) if not informative.any() else torch.nonzero(informative)[:, 0]
    counts, informative, labelled = counts.to(device).float(), informative.to(device), labelled.to(device)
    strong, weak = recipe.moves, recipe.moves.weaker(_WEAK)
    optimiser = torch.optim.AdamW(layers.parameters(), lr=recipe.learning_rate, weight_decay=_WEIGHT_DECAY, fused=True)
    for step in range(state_load(checkpoint.load(), layers, optimiser, generator), recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * _rate(step / recipe.steps)
        chosen = _drawn(labelled, len(x), recipe.batch, generator)
        images = pixels[chosen]
        with torch.no_grad(), _quick(device):
            logits = layers(weak(images, generator))
        posterior = logits.float().softmax(1) * counts[chosen]
        posterior /= posterior.sum(1, keepdim=True)
        certainty, guesses = posterior.max(1)
        certain = certainty > recipe.threshold
        targets = torch.where(certain[:, None], functional.one_hot(guesses, classes).float(), posterior)
        with _quick(device):
            logits = layers(strong(images, generator))
        losses = functional.cross_entropy(logits.float(), targets, reduction="none")
        optimiser.zero_grad()
        (losses * (certain | informative[chosen])).mean().backward()
        optimiser.step()
        if (step + 1) % _NOTED == 0 or step + 1 == recipe.steps:
            checkpoint.save(state_save(step + 1, layers, optimiser, generator))
            progress(step + 1, recipe.steps)
    normalise(layers, pixels)
    return ConsistencyModel(layers, classes, x.shape[1:])


def _place(name: str) -> int:
    """Return the position of a layer from the name of one of its tensors."""
    return int(name.split(".")[0])


def _quick(device: torch.device) -> torch.autocast:
    """Use bfloat16 for convolutions if the device has instructions for it; weights and losses stay float32."""
    able = torch.cpu.get_capabilities()
    fast = device.type == "cuda" or able.get("avx512_bf16") or able.get("amx_bf16")
    return torch.autocast(device.type, torch.bfloat16, enabled=bool(fast))


def _drawn(labelled: torch.Tensor, points: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return positions of a batch, drawn with replacement."""
    half = count // 2
    first = labelled[torch.randint(0, len(labelled), (half,), generator=generator, device=generator.device)]
    others = torch.randint(0, points, (count - half,), generator=generator, device=generator.device)
    return torch.cat([first, others])


def _rate(done: float) -> float:
    """Return the rate of the 1cycle policy (Smith & Topin 2018), which rises in the first quarter, then falls to 0."""
    if done < _WARM_UP:
        return 0.05 + 0.95 * done / _WARM_UP
    return 0.5 + 0.5 * math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP))
