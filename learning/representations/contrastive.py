"""Network trained on public points without labels to move neighbours closer together and all other points apart.

The network learns to distinguish pairs (a point and one of its nearest public neighbours, both randomly changed) from
all other points of a batch (InfoNCE: van den Oord et al. 2018, Chen et al. 2020; with neighbours as pairs: Dwibedi et
al. 2021). Images are rotated and shifted. In rows of tables, some columns are replaced by those of another row (Bahri
et al. 2022). Neighbours are determined in the usual representation. On a CPU with one thread, the same points and seed
give the same network.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import nn

from learning.learners.learner import augment
from learning.representations.network import Layer, layers_of

torch.set_num_threads(1)  # like all learners, because there is one process per core

_BATCH = 256
_MOST = 10_000  # largest number of public points, evenly sampled, because finding neighbours takes quadratic time
_TEMPERATURE, _LEARNING_RATE = 0.2, 0.004
_CHANNELS, _WIDTH, _PROJECTED = (16, 32), 128, 64
_ROTATION, _SHIFT = 12.0, 0.1  # in degrees, and as a share of the image's sides
_CORRUPTED = 0.3  # share of the columns of a row

Changed = Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.float32]]


def contrastive_layers(
    public: NDArray[np.floating], coordinates: NDArray[np.int8], *, steps: int, neighbours: int, seed: int
) -> tuple[Layer, ...]:
    """Return the layers of a network trained on public points.

    Args:
        public: `(n, *shape)` points, at least two: images with two or three axes, or rows of a table.
        coordinates: `(n, d)` coordinates, which define neighbours.
        steps: Number of batches, of up to 256 pairs each.
        neighbours: Number of nearest points; a point's partner is one of them.
        seed: Seed of weights, pairs and changes.
    """
    chosen = np.linspace(0, len(public) - 1, min(len(public), _MOST)).astype(np.int64)
    points, place = np.asarray(public, np.float32)[chosen], coordinates[chosen].astype(np.float32)
    near = _nearest(place, min(neighbours, len(points) - 1))
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    network, changed = (_images(points.shape[1:]), _moved) if points.ndim > 2 else (_table(points.shape[1]), _corrupted)
    head = nn.Linear(_WIDTH, _PROJECTED)
    whole = nn.Sequential(network, head)
    _initialise(whole, generator)
    optimiser = torch.optim.Adam(whole.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _LEARNING_RATE, total_steps=steps + 1)
    for _ in range(steps):
        one = rng.permutation(len(points))[:_BATCH]
        other = near[one, rng.integers(0, near.shape[1], len(one))]
        loss = _contrast(whole(_tensor(changed(points[np.concatenate([one, other])], rng))))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return layers_of(network.eval())


def _nearest(place: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return the nearest other points, `(n, count)`."""
    index = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(place)
    return np.asarray(index.kneighbors(return_distance=False), np.int64)


def _contrast(projected: torch.Tensor) -> torch.Tensor:
    """Return the InfoNCE loss of outputs `(2m, d)`, in which rows i and m + i form a pair."""
    directions = nn.functional.normalize(projected)
    likeness = directions @ directions.T / _TEMPERATURE
    likeness = likeness.masked_fill(torch.eye(len(likeness), dtype=torch.bool), -torch.inf)
    return nn.functional.cross_entropy(likeness, torch.arange(len(likeness)).roll(len(likeness) // 2))


def _images(shape: tuple[int, ...]) -> nn.Sequential:
    """Return two 3×3 convolutions, each followed by 2×2 max pooling, then a dense layer."""
    channels = shape[2] if len(shape) == 3 else 1
    layers: list[nn.Module] = []
    rows, columns = shape[:2]
    for wider in _CHANNELS:
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
        channels, rows, columns = wider, rows // 2, columns // 2
    return nn.Sequential(*layers, nn.Flatten(), *_dense(channels * rows * columns))


def _table(columns: int) -> nn.Sequential:
    return nn.Sequential(*_dense(columns), *_dense(_WIDTH))


def _dense(inputs: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.ReLU()


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Set He-uniform weights (He et al. 2015) that depend only on the seed."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


def _moved(images: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    seed = int(rng.integers(2**31))
    return augment(images, copies=1, rotation=_ROTATION, shift=_SHIFT, seed=seed)[len(images) :]


def _corrupted(rows: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    others = rng.permuted(rows, axis=0)  # each column separately
    return np.where(rng.random(rows.shape) < _CORRUPTED, others, rows)


def _tensor(points: NDArray[np.float32]) -> torch.Tensor:
    if points.ndim == 2:
        return torch.from_numpy(points)
    return torch.from_numpy(points if points.ndim == 4 else points[..., np.newaxis]).permute(0, 3, 1, 2).contiguous()
