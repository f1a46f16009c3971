"""Folder beside the installation's own state for what is not encrypted yet, or not any more."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from ipate_web.backups import BackupError
from ipate_web.backups.databases import beside_remove
from ipate_web.backups.files import leftovers_remove


@contextmanager
def workspace() -> Iterator[Path]:
    """Empty folder that is deleted in the end, for one backup or restoration at a time.

    What a restoration has brought into the storages and what never came to belong to the database is taken away again:
    in the end, or by the next one where it was killed.
    """
    folder = Path(settings.VAR_DIR, "backup")
    with open(folder.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError("Another backup or restoration is under way. Wait for its end.") from None
        _clear(folder)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _clear(folder)


def _clear(folder: Path) -> None:
    beside_remove()
    leftovers_remove(folder)
    if folder.exists():
        shutil.rmtree(folder)
