"""Opening of a vote: with the holders whose consent and room still stand once all teachers are trained."""

import numpy as np

from accounting.accounts import accounts_stand
from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.services import ROUNDING
from accounting.shares import openings_lock, share_limit
from common.artifacts import arrays_load
from consent.selectors import Snapshot, consent_snapshot
from training.engine.budgets import budgets_from_json
from training.engine.spending import WAITS, message_set, spending, spending_begin, spending_may_begin
from training.methods.pate.teaching import are_chunks_done, assignment_without, chunks_send, holders_gone
from training.models import Run, TeacherChunk


def vote_open(run: Run) -> bool:
    """Begin the vote once all teachers are trained, with the holders whose consent and room still stand."""
    if not chunks_send(run):
        return False
    with spending(run, Run.Status.PREPARING) as held:
        # While this worker waited for the lock, another may have sent teachers back to learn without somebody.
        if held is None or not are_chunks_done(held):
            return False
        if not spending_may_begin(held):
            message_set(held, WAITS)
            return False
        if held.rehearsal:
            spending_begin(held)
            return True
        openings_lock()  # what other studies have opened must not change between the look and this one's opening
        assignment, snapshot = arrays_load(held.assignment), consent_snapshot(held.study)
        limit = share_limit(held.study, held.pk)
        gone = np.union1d(holders_gone(held, assignment, snapshot), _without_room(held, assignment, snapshot, limit))
        if len(gone):
            _teach_without(held, assignment, gone)
        else:
            # Only now: while teachers learn anew another run may vote, up to whose share this one's is added.
            spending_begin(held, at=snapshot.at)
    return True


def _without_room(run: Run, assignment: dict[str, np.ndarray], snapshot: Snapshot, limit: float) -> np.ndarray:
    """Holders without room for what the run may charge their group: nobody may fall silent in the middle of a vote.

    A holder joins a teacher only with room for the whole share (condition 3); this depends on their own account alone.
    """
    allowed = np.array([budget.allowed for budget in budgets_from_json(run.plan)])
    members, first = np.unique(assignment["holder"], return_index=True)
    epsilons = np.zeros(len(members))
    present = np.isin(members, snapshot.holders)
    epsilons[present] = snapshot.epsilons[np.searchsorted(snapshot.holders, members[present])]
    caps = np.where(present, caps_of(np.where(present, epsilons, 1.0), run.study.delta), 0.0)
    needed = accounts_stand(run.study, members) + allowed[assignment["group"][first]]
    return members[needed > np.minimum(limit * caps, rooms(run.study, members)) * (1 + ROUNDING)]


def _teach_without(run: Run, assignment: dict[str, np.ndarray], gone: np.ndarray) -> None:
    """Take holders out of a run whose teachers have learned, and train anew the teachers that learned from them."""
    affected = assignment_without(run, assignment, gone)
    run.message = ""
    run.save(update_fields=["consent_sequence", "assignment", "message"])
    for chunk in run.chunks.all():
        if ((affected >= chunk.start) & (affected < chunk.stop)).any():
            TeacherChunk.objects.filter(pk=chunk.pk).update(state=TeacherChunk.State.PENDING)
