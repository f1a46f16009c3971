"""Opening of a vote: with the holders whose consent still counts once all teachers are trained."""

import numpy as np

from common.artifacts import arrays_load
from consent.selectors import consent_snapshot
from training.engine.spending import spending, spending_begin
from training.methods.pate.teaching import are_chunks_done, assignment_without, chunks_send, holders_gone
from training.models import Run, TeacherChunk


def vote_open(run: Run) -> bool:
    """Begin the vote once all teachers are trained, with the holders whose consent still counts.

    Their room was looked at when they joined their teachers, and is held for the vote since.
    """
    if not chunks_send(run):
        return False
    with spending(run, Run.Status.PREPARING) as held:
        # While this worker waited for the lock, another may have sent teachers back to learn without somebody.
        if held is None or not are_chunks_done(held):
            return False
        if held.rehearsal:
            spending_begin(held)
            return True
        assignment, snapshot = arrays_load(held.assignment), consent_snapshot(held.study)
        gone = holders_gone(held, assignment, snapshot)
        if len(gone):
            _teach_without(held, assignment, gone)
        else:
            spending_begin(held, at=snapshot.at)
    return True


def _teach_without(run: Run, assignment: dict[str, np.ndarray], gone: np.ndarray) -> None:
    """Take holders out of a run whose teachers have learned, and train anew the teachers that learned from them."""
    affected = assignment_without(run, assignment, gone)
    run.message = ""
    run.save(update_fields=["consent_sequence", "assignment", "message"])
    for chunk in run.chunks.all():
        if ((affected >= chunk.start) & (affected < chunk.stop)).any():
            TeacherChunk.objects.filter(pk=chunk.pk).update(state=TeacherChunk.State.PENDING)
