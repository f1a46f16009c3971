"""Slots that limit requests with long computations to one per person and a few per machine.

A slot is a lock on a file, so it becomes free when its process ends for any reason.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from django.conf import settings

#: Seconds after which to try again.
WAIT = 5


class NoSlotError(Exception):
    """Raised if all slots are taken, so that nothing was computed. Try again after `WAIT` seconds."""


@contextmanager
def slot(person: object) -> Iterator[None]:
    """Hold one of the machine's `PLANS_AT_ONCE` slots, at most one per person, during the block.

    This never waits for a slot, because a waiting request would tie up one of the site's processes.

    Raises:
        NoSlotError: the person already has a slot, or all slots are taken.
    """
    with ExitStack() as stack:
        _take(stack, [f"person-{person}"])
        _take(stack, [f"machine-{n}" for n in range(settings.PLANS_AT_ONCE)])
        yield


def _take(stack: ExitStack, names: list[str]) -> None:
    """Lock the first free file in ``names`` until ``stack`` closes. Raises NoSlotError if none is free."""
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
