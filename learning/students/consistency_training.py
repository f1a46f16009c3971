"""Consistency training with released counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from common.progress import Progress
from learning.learners.learner import Records
from learning.learners.network import as_images
from learning.students.checkpoints import UNKEPT, Checkpoint
from learning.students.descent_states import state_load, state_save
from learning.students.moves import Moves
from learning.students.network import ConsistencyModel, initialise, network, normalise

_WEAK = 0.5
_WARM_UP = 0.25
_WEIGHT_DECAY = 0.01
_NOTED = 100
"""Steps between two reports and checkpoints of the training."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the training: :class:`learning.students.consistency.Consistency` describes them."""

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
    checkpoint: Checkpoint = UNKEPT,
) -> ConsistencyModel:
    """Minimise the cross entropy of predictions on strongly moved images against posteriors on weakly moved ones.

    Half of each batch are points with informative counts, half are any points. A posterior above the threshold counts
    as certain; an uncertain one is learned as it is where there are counts, and not at all where not.

    Args:
        x: Images of the public points.
        likelihood: Of each class `(points, C)`, and which points have informative counts `(points,)`.
        recipe: Settings.
        seed: Of initial weights, batches and moves.
        progress: Is called with the number of steps.
        checkpoint: Keeps the state of the training.
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


def _quick(device: torch.device) -> torch.autocast:
    """Convolutions in bfloat16 where the device has instructions for it; weights and losses stay float32."""
    able = torch.cpu.get_capabilities()
    fast = device.type == "cuda" or able.get("avx512_bf16") or able.get("amx_bf16")
    return torch.autocast(device.type, torch.bfloat16, enabled=bool(fast))


def _drawn(labelled: torch.Tensor, points: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Positions of a batch, with replacement."""
    half = count // 2
    first = labelled[torch.randint(0, len(labelled), (half,), generator=generator, device=generator.device)]
    others = torch.randint(0, points, (count - half,), generator=generator, device=generator.device)
    return torch.cat([first, others])


def _rate(done: float) -> float:
    """One cycle (Smith & Topin 2018): linear to 1 in the first quarter, then half a cosine to 0."""
    if done < _WARM_UP:
        return 0.05 + 0.95 * done / _WARM_UP
    return 0.5 + 0.5 * math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP))
