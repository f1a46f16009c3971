"""Turns of the workers: what one does when a message says that there is work."""

from collections.abc import Callable
from typing import Any

from training.dispatch import send
from training.engine.turns import piece_of, pieces_due, turn
from training.services import advance, trainings

_WORK: dict[str, Callable[[Any], bool]] = {
    "run_advance": advance.run_advance,
    "chunk_train": advance.chunk_train,
    "shard_ask": advance.shard_ask,
    "student_learn": trainings.student_learn,
}


def turn_take(task: str, pk: str) -> None:
    """Do the work that a message names, or other work that is due before it.

    In the latter case the message is sent again, so that there is one for all that waits. The message of what was done
    in its place finds nothing to do when it comes.
    """
    named = piece_of(task, pk)
    if named is None:
        return
    for piece in pieces_due(named):
        with turn(piece):
            worked = _WORK[piece.task](piece.pk)
        if piece == named:
            return
        if worked:
            send(task, pk)
            return
