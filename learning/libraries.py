"""Numeric libraries: checks for PyTorch, and a limit of one thread per library.

PyTorch is installed on workers. Machines that only serve pages, schedule tasks or make backups do not need it. Tasks
run in parallel, with one process per core, so each library should use only one thread.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec

from threadpoolctl import ThreadpoolController

from common.sentences import Sentence, gettext_noop


def has_pytorch() -> bool:
    """Return whether PyTorch is installed, without loading it."""
    return find_spec("torch") is not None


def pytorch_check() -> None:
    """Raise ValueError with a human-readable message if PyTorch is not installed."""
    if not has_pytorch():
        raise ValueError(
            Sentence(
                gettext_noop(
                    "Training this network requires PyTorch, which is not installed on this machine. Choose "
                    "something else, or ask your administrator to install requirements/worker.txt."
                )
            )
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit every loaded numeric library to one thread within the block."""
    with _pools(len(sys.modules)).limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Return the thread pools of this process. The search is repeated only if more modules have been imported.

    The search reads the list of all files mapped into the process, which takes longer than many small tasks.
    """
    return ThreadpoolController()
