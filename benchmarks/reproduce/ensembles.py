"""Votes of teachers as in Individualized PATE, on the public records of its divisions.

    IPATE_DATA_DIR=… python -m benchmarks.reproduce.ensembles {mnist,mnist-weaker,adult} [--teachers 250]

Writes benchmarks/data/votes-….npz: the number of teachers for each class of each public record, and its true class.
Adult has three divisions with 250 random forests each (`teachers.py`). MNIST has one division and two ensembles.
`TOGETHER` teachers of MNIST are trained in parallel. The predictions of every such group are cached, so that an
interrupted run resumes there. Fewer than 250 teachers give the same shares of votes, less exactly; rehearsals draw from
them.

MNIST's network is taken from Table 3, with the defaults of TensorFlow 2.4.1: batches of 32, Glorot-uniform weights,
Adam and batch norm with its constants. Images are rotated by up to 7.5 degrees and shifted by up to 7 %, differently in
each pass. The paper does not state their number. Doubling `PASSES` adds less than a tenth of a percentage point on
other teachers' images, which the teacher has not seen; public and test images are not used for this.

These teachers are more often right than the paper's (90.2 %). The teachers of `mnist-weaker` are 89.0 % right: the
learner `cnn`, which is the same network, sees their images and `COPIES` moved copies `WEAKER_PASSES` times. The stored
votes are from the first 110.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from benchmarks.reproduce.folders import CLASSES, DIVISIONS, WEAKER, votes_file
from learning.learners import learner_create
from learning.students.consistency_training import Moves

TEACHERS = 250
PASSES = 80
TOGETHER = {"cuda": TEACHERS, "cpu": 10}
_FILTERS, _HIDDEN, _BATCH, _AT_ONCE = 32, 100, 32, 50
MOVES = Moves(rotation=7.5, shift=0.07, stretch=0.0, bend=0.0, mirror=False, erase=0.0)
COPIES, WEAKER_PASSES = 7, 2
_NOTED = 5
"""Number of passes after which held-out images are judged, then after twice as many, and so on."""
_JUDGES = 4
"""Number of teachers whose images judge a teacher."""


Teaching = Callable[[int, "Ensemble"], None]


class _Norm(nn.Module):
    """Batch norm of each teacher's columns, `(teachers, rows, columns)`, with TensorFlow's constants."""

    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self, teachers: int, columns: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(teachers, 1, columns))
        self.shift = nn.Parameter(torch.zeros(teachers, 1, columns))
        self.register_buffer("mean", torch.zeros(teachers, 1, columns))
        self.register_buffer("variance", torch.ones(teachers, 1, columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
            self.mean.lerp_(mean.detach(), 0.01)
            self.variance.lerp_(variance.detach(), 0.01)
        slope = self.scale * torch.rsqrt(variance + 1e-3)
        return x * slope + (self.shift - mean * slope)


class Ensemble(nn.Module):
    """Ensemble of networks as in Table 3, one per teacher, with layers as products of stacked matrices.

    Convolution 3×3 with 32 filters, ReLU, batch norm, max pool 2; dense 100, ReLU, batch norm; dense.
    """

    def __init__(self, teachers: int, side: int, generator: torch.Generator) -> None:
        super().__init__()
        self.inner = side - 2
        flat = _FILTERS * (self.inner // 2) ** 2
        weights, biases = [], []
        for rows, columns, fans in (
            (9, _FILTERS, 9 + 9 * _FILTERS),
            (flat, _HIDDEN, flat + _HIDDEN),
            (_HIDDEN, CLASSES, _HIDDEN + CLASSES),
        ):
            uniform = torch.rand(teachers, rows, columns, generator=generator, device=generator.device)
            weights.append(nn.Parameter((2 * uniform - 1) * math.sqrt(6 / fans)))
            biases.append(nn.Parameter(torch.zeros(teachers, 1, columns)))
        self.weights, self.biases = nn.ParameterList(weights), nn.ParameterList(biases)
        self.norms = nn.ModuleList([_Norm(teachers, _FILTERS), _Norm(teachers, _HIDDEN)])
        self.to(generator.device)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits `(teachers, n, classes)` of images `(teachers, n, side, side)`."""
        teachers, count, side, _ = images.shape
        patches = functional.unfold(images.reshape(-1, 1, side, side), 3).view(teachers, count, 9, -1)
        maps = torch.relu(self._layer(0, patches.transpose(2, 3).reshape(teachers, -1, 9)))
        half = self.inner // 2
        pooled = self.norms[0](maps).view(teachers, count, half, 2, half, 2, _FILTERS).amax((3, 5))
        hidden = torch.relu(self._layer(1, pooled.view(teachers, count, -1)))
        return self._layer(2, self.norms[1](hidden))

    def _layer(self, number: int, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.biases[number], x, self.weights[number])

    @torch.inference_mode()
    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """Return classes `(teachers, n)` of images `(n, side, side)` shared by all, or `(teachers, n, side, side)`."""
        self.eval()
        shared = images.expand(len(self.weights[0]), *images.shape[-3:])
        said = [self(part).argmax(2) for part in shared.split(_AT_ONCE, dim=1)]
        self.train()
        return torch.cat(said, dim=1)


def trained(
    images: torch.Tensor, labels: torch.Tensor, *, passes: int, generator: torch.Generator, after: Teaching
) -> Ensemble:
    """Return teachers of `(teachers, n, side, side)` images and `(teachers, n)` labels; call `after` every pass."""
    teachers, count, side, _ = images.shape
    ensemble = Ensemble(teachers, side, generator)
    optimiser = torch.optim.Adam(ensemble.parameters(), lr=0.001, eps=1e-7, fused=True)
    everyone = torch.arange(teachers, device=images.device)[:, None]
    for number in range(1, passes + 1):
        drawn = torch.rand(teachers, count, generator=generator, device=generator.device)
        for chosen in drawn.argsort(1).split(_BATCH, dim=1):
            moved = MOVES(images[everyone, chosen].view(-1, 1, side, side), generator)
            logits = ensemble(moved.view(teachers, -1, side, side))
            losses = functional.cross_entropy(logits.flatten(0, 1), labels[everyone, chosen].flatten(), reduction="sum")
            optimiser.zero_grad()
            (losses / chosen.shape[1]).backward()
            optimiser.step()
        after(number, ensemble)
    return ensemble


def held_out(ensemble: Ensemble, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of the next `_JUDGES` teachers' images that each teacher classifies correctly."""
    right = [
        (ensemble.predict(images.roll(-after, 0)) == labels.roll(-after, 0)).float().mean()
        for after in range(1, _JUDGES + 1)
    ]
    return float(torch.stack(right).mean())


def predictions(teachers: int, passes: int) -> NDArray[np.int8]:
    """Return classes `(teachers, public)` by the first of 250 teachers, each trained on 240 private images."""
    from benchmarks.reproduce.divided import divided
    from benchmarks.reproduce.folders import kept_array, progress

    data = divided("mnist")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    together = min(TOGETHER[device], teachers)
    size = len(data.private.y) // TEACHERS
    about = {"name": "printed-mnist", "passes": passes, "together": together, "device": device, "division": 0}

    def group(first: int) -> NDArray[np.int8]:
        mine = slice(first * size, (first + together) * size)
        x = torch.from_numpy(data.private.x[mine]).to(device).view(together, size, *data.private.x.shape[1:])
        y = torch.from_numpy(data.private.y[mine]).to(device).view(together, size)
        clock = time.perf_counter()

        def after(number: int, ensemble: Ensemble) -> None:
            bar.update(together)
            if number == passes or (number % _NOTED == 0 and (number // _NOTED).bit_count() == 1):
                right = 100 * held_out(ensemble, x, y)
                print(f"{number} passes, {time.perf_counter() - clock:.0f} s: {right:.2f} % of others' images right")

        generator = torch.Generator(device).manual_seed(first)
        ensemble = trained(x, y, passes=passes, generator=generator, after=after)
        public = torch.from_numpy(data.public.x).to(device)
        return ensemble.predict(public).cpu().numpy().astype(np.int8)

    with progress(teachers * passes, "teachers of MNIST, passes") as bar:
        groups = [
            kept_array(about | {"first": first}, lambda first=first: group(first))  # type: ignore[misc]
            for first in range(0, teachers, together)
        ]
    return np.concatenate(groups)


def weaker_predictions(teachers: int) -> NDArray[np.int8]:
    """Return classes `(teachers, public)` by teachers trained on the same images for a shorter time."""
    from benchmarks.reproduce.divided import divided
    from benchmarks.reproduce.folders import kept_array, progress

    data, learner = divided("mnist"), learner_create("cnn", {"epochs": WEAKER_PASSES})
    parts = np.arange(len(data.private.y)).reshape(TEACHERS, -1)
    about = {"name": WEAKER, "passes": WEAKER_PASSES, "copies": COPIES, "division": 0}

    def group(first: int) -> NDArray[np.int8]:
        said = []
        for teacher in range(first, min(first + TOGETHER["cpu"], teachers)):
            x, y = with_copies(data.private.x[parts[teacher]], data.private.y[parts[teacher]], seed=teacher)
            said.append(learner.fit(x, y, classes=CLASSES, seed=teacher).predict(data.public.x).astype(np.int8))
            bar.update()
        return np.stack(said)

    with progress(teachers, "weaker teachers of MNIST") as bar:
        groups = [
            kept_array(about | {"first": first}, lambda first=first: group(first))  # type: ignore[misc]
            for first in range(0, teachers, TOGETHER["cpu"])
        ]
    return np.concatenate(groups)


def with_copies(
    images: NDArray[np.float32], labels: NDArray[np.integer], *, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """Return the images and copies that are each rotated and shifted differently, with the classes of all of them."""
    copies = torch.from_numpy(images)[:, None].repeat(COPIES, 1, 1, 1)
    moved = MOVES(copies, torch.Generator().manual_seed(seed)).numpy()[:, 0]
    return np.concatenate([images, moved]), np.tile(labels, 1 + COPIES)


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.reproduce.divided import divided
    from benchmarks.reproduce.teachers import one_group
    from benchmarks.reproduce.votes import votes_of

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=tuple(DIVISIONS))
    parser.add_argument("--teachers", type=int, default=TEACHERS, help="of MNIST")
    parser.add_argument("--passes", type=int, default=PASSES, help="of MNIST")
    options = parser.parse_args()
    for division in range(DIVISIONS[options.data]):
        data = divided("adult" if options.data == "adult" else "mnist", division)
        if options.data == "mnist":
            said = predictions(options.teachers, options.passes)
        elif options.data == WEAKER:
            said = weaker_predictions(options.teachers)
        else:
            said = one_group(options.data, data.private, data.public.x, seed=division)
        votes = votes_of(options.data, said, data.public.y)
        np.savez_compressed(
            votes_file(options.data, division), counts=votes.counts.astype(np.uint8), truth=votes.truth.astype(np.uint8)
        )
        right = 100 * float((said == votes.truth).mean()), 100 * float((votes.counts.argmax(1) == votes.truth).mean())
        print(f"Division {division}, {len(said)} teachers: {right[0]:.2f} % right, votes {right[1]:.2f} %")


if __name__ == "__main__":
    main()
