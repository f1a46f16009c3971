"""Folders for copies of private files that a reader needs at a path; what killed processes leave is swept."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "ipate-scratch-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Folder of this process's own for as long as the block lasts; nobody else may read it."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        yield Path(folder)


def scratch_sweep(seconds: float) -> None:
    """Delete the folders on this machine that were made longer ago than this, their processes having been killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            is_old = folder.stat().st_mtime < time.time() - seconds
        except FileNotFoundError:
            continue
        if is_old:
            shutil.rmtree(folder, ignore_errors=True)
