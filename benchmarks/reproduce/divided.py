"""MNIST as Individualized PATE and the thesis divide it: all images at random into private, public and test ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.sgd.study import splits_load

SIZES = (60_000, 9_000, 1_000)
"""Private, public and test images, as printed."""


@dataclass(frozen=True, eq=False)
class Part:
    """Images `(n, 28, 28)` and their classes `(n,)`."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Divided:
    """Private, public and test images of one division."""

    private: Part
    public: Part
    test: Part


@cache
def divided(seed: int = 0) -> Divided:
    """One division of all 70,000 images."""
    splits = splits_load("mnist")
    parts = (splits.private, splits.public, splits.test)
    x, y = (np.concatenate([getattr(part, of) for part in parts]) for of in ("x", "y"))
    order = np.random.default_rng(seed).permutation(len(x))
    return Divided(*(Part(x[rows], y[rows]) for rows in np.split(order, np.cumsum(SIZES)[:2])))
