"""Folders for copies of private files that a reader needs at a path; leftovers of killed processes are swept."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "ipate-scratch-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Provide a folder for this process for the duration of the block; no other user may read it."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        yield Path(folder)


def scratch_sweep(seconds: float) -> None:
    """Delete folders on this machine that are older than this, because their processes were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            is_old = folder.stat().st_mtime < time.time() - seconds
        except FileNotFoundError:
            continue
        if is_old:
            shutil.rmtree(folder, ignore_errors=True)
