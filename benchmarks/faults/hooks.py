"""Deaths at chosen moments in a worker or the site. Only the campaign's processes load this, never the product.

An order is an empty file, named after a process and a moment, in the folder of IPATE_FAULT_ORDERS. The process that
reaches the moment marks the order as done and kills itself at once, in a worker only during a step.
"""

import logging
import os
import signal
from pathlib import Path
from typing import Any

from celery.signals import worker_process_init

#: Moments at which a process can be ordered to die.
BEFORE_COMMIT, AFTER_COMMIT, HALF_A_FILE = "before-commit", "after-commit", "half-a-file"
#: Seconds for which a process waits for SQLite's lock; the campaign holds the lock for longer.
LOCK_TIMEOUT = 1.0


def order_path(folder: Path, pid: int, moment: str) -> Path:
    """Return the path of the order to process ``pid`` to die at ``moment``; with ``.done`` once carried out."""
    return folder / f"{pid}.{moment}"


def _taken(moment: str, in_worker: bool) -> bool:
    """Return whether this process was ordered to die now, and mark the order as carried out."""
    if in_worker and not in_step():
        return False
    order = order_path(Path(os.environ["IPATE_FAULT_ORDERS"]), os.getpid(), moment)
    try:
        order.rename(f"{order}.done")
    except FileNotFoundError:
        return False
    return True


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_step() -> bool:
    """Return whether this thread is carrying out a step of a run, about which it logs messages."""
    from common.logging import RunFilter

    record = logging.makeLogRecord({})
    RunFilter().filter(record)
    return record.run != "-"


@worker_process_init.connect
def hooks_install(in_worker: bool = True, **_: object) -> None:
    """Make this process look for orders at every commit and every file that it writes."""
    from django.core.files.base import ContentFile
    from django.core.files.storage import FileSystemStorage
    from django.db import connection
    from django.db.backends.base.base import BaseDatabaseWrapper

    commit, save = BaseDatabaseWrapper._commit, FileSystemStorage._save

    def commit_or_die(self: Any) -> None:
        if _taken(BEFORE_COMMIT, in_worker):
            _die()
        commit(self)
        if _taken(AFTER_COMMIT, in_worker):
            _die()

    def save_or_die(self: Any, name: str, content: Any) -> str:
        if _taken(HALF_A_FILE, in_worker):
            written = content.read()
            save(self, name, ContentFile(written[: len(written) // 2]))
            _die()
        return save(self, name, content)

    BaseDatabaseWrapper._commit = commit_or_die  # type: ignore[method-assign]
    FileSystemStorage._save = save_or_die
    if connection.vendor == "sqlite":
        connection.settings_dict["OPTIONS"]["timeout"] = LOCK_TIMEOUT


def site() -> Any:
    """Return the site for gunicorn, with the hooks installed."""
    from ipate_web.wsgi import application

    hooks_install(in_worker=False)
    return application
