"""Threads of numeric libraries: one, because tasks run in parallel, one process for each core."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Make every loaded numeric library compute in one thread within the block."""
    with _pools(len(sys.modules)).limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Return the thread pools of this process, found once for a number of imported modules.

    The search reads the list of everything that is mapped into the process, which takes longer than many small tasks.
    """
    return ThreadpoolController()
