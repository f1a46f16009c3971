"""Progress of the training of a student: in the database, in the log, and as a checkpoint in private storage."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from zipfile import BadZipFile

import numpy as np
from django.db.models import QuerySet

from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.progress import Progress
from learning.students import Checkpoint
from training.engine.turns import StepAside, turn_is_over

logger = logging.getLogger(__name__)

_LOGGED = 4  # times, evenly


@contextmanager
def progress_of(rows: QuerySet, field: str, *, end: float | None) -> Iterator[Progress]:
    """Progress that is noted in a field of rows as a share, 0 to 1, and now and then in the log.

    Args:
        rows: Of the database.
        field: What is written to.
        end: What it says afterwards, also where the training fails.
    """
    last = 0

    def note(done: int, total: int) -> None:
        nonlocal last
        rows.update(**{field: done / total})
        if done * _LOGGED // total > last:
            last = done * _LOGGED // total
            logger.info("The student has taken %d of %d steps.", done, total)

    rows.update(**{field: 0.0})
    try:
        yield note
    finally:
        rows.update(**{field: end})


def checkpoint_at(name: str) -> Checkpoint:
    """The checkpoint of one training, a file in private storage.

    A file that cannot be read, because a worker died while it wrote it, counts as none. One that cannot be written is
    done without. Once it is written the training steps aside where its turn is over.
    """

    def load() -> bytes | None:
        try:
            return arrays_load(name, "state")["state"].tobytes()
        except (OSError, KeyError, ValueError, BadZipFile):
            return None

    def save(state: bytes) -> None:
        with suppress(OSError):
            arrays_save(name, state=np.frombuffer(state, dtype=np.uint8))
            if turn_is_over():
                raise StepAside

    return Checkpoint(load, save)


def checkpoint_drop(name: str) -> None:
    """Delete a checkpoint that nobody needs any more."""
    arrays_delete(name)
