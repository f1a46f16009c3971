"""Threads of numeric libraries: one, because tasks run side by side, one process for each core."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which every numeric library that is loaded computes in one thread."""
    with _pools(len(sys.modules)).limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Pools of threads of this process, found once for a number of imported modules.

    The search reads the list of everything that is mapped into the process, which takes longer than many a small task.
    """
    return ThreadpoolController()
