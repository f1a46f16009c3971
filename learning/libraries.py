"""Numeric libraries: tells whether PyTorch is installed, and limits each library to one thread.

Workers have PyTorch. Machines that only serve pages, schedule tasks or make backups do not need it. Tasks run in
parallel, one process per core, so each library computes in one thread.
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
                    "something else, or ask your administrator to install requirements/worker.txt here."
                )
            )
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Make every loaded numeric library compute in one thread within the block."""
    with _pools(len(sys.modules)).limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Return the thread pools of this process, searched once per number of imported modules.

    The search reads the list of everything mapped into the process, which takes longer than many small tasks.
    """
    return ThreadpoolController()
