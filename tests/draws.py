"""Repeatable streams for values that otherwise come from the operating system's generator, and noise of 0."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np


@contextmanager
def repeatable_draws(name: str) -> Iterator[None]:
    """Draw noise, inclusion, runs' seeds and the key of teachers' parts from a stream of this name inside the block.

    This affects only this process; workers still use the system's generator.
    """
    stream = np.random.default_rng(list(name.encode())).bytes
    with ExitStack() as replaced:
        for place in ("common.noise.urandom", "learning.mechanisms.sampled_steps.training.urandom"):
            replaced.enter_context(patch(place, stream))
        replaced.enter_context(patch("training.methods.pate_teachers.token_bytes", stream))
        replaced.enter_context(patch("training.services.runs.randbits", lambda bits: int.from_bytes(stream(bits // 8))))
        yield


class NoNoise:
    """Noise of 0, so that releases equal the exact sums."""

    def __init__(self, seed: int = 0) -> None:
        pass

    def normal(self, scale: float, shape: Any) -> np.ndarray:
        return np.zeros(shape)

    def rounded_normal(self, scale: float, shape: Any) -> np.ndarray:
        return np.zeros(shape, np.int64)
