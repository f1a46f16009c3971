"""What the operating system's generator decides, drawn from streams that repeat themselves."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np


@contextmanager
def repeatable_draws(name: str) -> Iterator[None]:
    """Within it noise, inclusion, runs' seeds and the key of teachers' parts are those of a stream of this name.

    Only in this process: what workers draw stays the system's.
    """
    stream = np.random.default_rng(list(name.encode())).bytes
    with ExitStack() as replaced:
        for place in ("common.noise.urandom", "learning.mechanisms.sampled_steps.training.urandom"):
            replaced.enter_context(patch(place, stream))
        replaced.enter_context(patch("training.methods.pate_teachers.token_bytes", stream))
        replaced.enter_context(patch("training.services.runs.randbits", lambda bits: int.from_bytes(stream(bits // 8))))
        yield
