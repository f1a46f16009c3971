"""Slots for requests with long computations: one at a time for each person, and few at once on a machine.

A slot is a lock on a file, so it is free again when its process ends, however it ends.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from django.conf import settings

#: Seconds after which to ask again.
WAIT = 5


class NoSlotError(Exception):
    """All slots are taken: nothing was computed. It is worth asking again after `WAIT` seconds."""


@contextmanager
def slot(person: object) -> Iterator[None]:
    """Hold one of the machine's `PLANS_AT_ONCE` slots, and the only one of this person, during the block.

    It never waits for one: a waiting request would keep a process of the site from other people.

    Raises:
        NoSlotError: the person has one, or all are taken.
    """
    with ExitStack() as stack:
        _take(stack, [f"person-{person}"])
        _take(stack, [f"machine-{n}" for n in range(settings.PLANS_AT_ONCE)])
        yield


def _take(stack: ExitStack, names: list[str]) -> None:
    """Lock the first unlocked one of these files."""
    folder = Path(settings.VAR_DIR, "slots")
    folder.mkdir(exist_ok=True, mode=0o700)
    for name in names:
        file = (folder / name).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            stack.enter_context(file)
            return
    raise NoSlotError
