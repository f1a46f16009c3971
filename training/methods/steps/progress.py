"""Curves of private gradient steps, from the released sums alone: public."""

from functools import lru_cache

import numpy as np
from django.utils.translation import gettext_noop

from common.artifacts import arrays_load
from learning.mechanisms.steps.linear import CLIP_STEPS
from training.models import Run

SIZE = gettext_noop("noisy gradient")
NOISE = gettext_noop("noise alone")


def gradient_curves(run: Run) -> dict[str, list[float]]:
    """The norm of every released noisy sum, and of the noise that it is expected to hold, in clipping norms."""
    sizes, noises = [], []
    # Only rounds of steps have a file.
    batches = run.batches.exclude(round__artifact="").order_by("index")
    for artifact, sigma in batches.values_list("released", "round__sigma"):
        norms, numbers = _norms(artifact)
        sizes += norms
        noises += [float(sigma * np.sqrt(numbers))] * len(norms)
    return {SIZE: sizes, NOISE: noises}


# Files of chunks never change under one name; a page asks for them again every other second.
@lru_cache(maxsize=4096)
def _norms(artifact: str) -> tuple[list[float], int]:
    """Norms of the sums of a chunk, in clipping norms, and how many numbers each sum has."""
    sums = arrays_load(artifact, "sums")["sums"].astype(np.float64)
    return (np.sqrt((sums**2).sum(axis=(1, 2))) / CLIP_STEPS).tolist(), sums[0].size
