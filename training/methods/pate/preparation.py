"""Preparation of a run of teachers by a worker, after its approval: people are shared out over the teachers.

With many people that takes longer than a request may. The consents of the moment of the approval count, whenever the
worker comes to it: consent events are never changed. Nothing is half done: one transaction takes the run from its
preparation to its teachers, and a worker that dies before it leaves a file that nothing names.
"""

import logging
import math
from functools import partial
from secrets import token_bytes

import numpy as np
from django.utils import timezone

from accounting.accounts import accounts_stand
from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.services import ROUNDING
from accounting.shares import openings_lock, share_open
from common.artifacts import arrays_save
from common.counted import counted
from consent.selectors import Promise, Snapshot, consent_snapshot
from learning.mechanisms.pate import LEFT_OUT, assign_keyed, teacher_seed
from training.engine.budgets import PlannedPromise, budgets_from_json
from training.engine.records import owners_of
from training.engine.spending import WAITS, message_set, spending, spending_may_begin
from training.methods.pate.ballot import assignment_name
from training.methods.pate.planning import plan_from_json
from training.methods.pate.rehearsals import rehearsal_assignment
from training.methods.pate.teaching import assignment_without, holders_gone
from training.models import Run, TeacherChunk

logger = logging.getLogger(__name__)

#: Into how many tasks the teachers of a run are cut: enough for many workers and for a bar that moves.
CHUNKS = 20


class _Ended(Exception):
    """The run is not under preparation any more: it was cancelled."""


def run_prepare(run: Run) -> bool:
    """Share the holders out over the teachers once it is the run's turn, and cut the teachers into chunks.

    The share is opened in the transaction that looks who has room for it: nobody's account decides when, or in which
    order, runs spend. Left out are holders who have left meanwhile, and those without room.

    Returns:
        Whether the teachers can be trained now: not where the run waits or was cancelled, or somebody else has
        prepared it.
    """
    if not _begin(run):
        return False
    try:
        assignment, sequence = _assignment(run)
    except _Ended:
        return False
    name = assignment_name(run)
    arrays_save(name, **assignment)
    with spending(run, Run.Status.PREPARING) as held:
        if held is None or held.assignment:
            return False
        held.assignment, held.consent_sequence = name, sequence
        if not held.rehearsal:
            openings_lock()  # what other studies have opened must not change between the look and this one's opening
            limit, snapshot = share_open(study=held.study, subject=held.pk), consent_snapshot(held.study)
            gone = holders_gone(held, assignment, snapshot)
            gone = np.union1d(gone, _without_room(held, assignment, snapshot, limit))
            if len(gone):
                assignment_without(held, assignment, gone)
        held.prepared, held.message = 1.0, ""
        held.save()
        teachers = held.plan["teachers"]
        size = math.ceil(teachers / CHUNKS)
        TeacherChunk.objects.bulk_create(
            TeacherChunk(run=held, start=start, stop=min(start + size, teachers)) for start in range(0, teachers, size)
        )
    logger.info("To be trained: %s.", counted(teachers, "teacher", "teachers"))
    return True


def _begin(run: Run) -> bool:
    """Take an approved run to its preparation, if it is its turn; return whether it is to be prepared."""
    with spending(run, Run.Status.APPROVED) as held:
        if held is not None and not spending_may_begin(held):
            message_set(held, WAITS)
        elif held is not None:
            Run.objects.filter(pk=held.pk).update(
                status=Run.Status.PREPARING, started_at=timezone.now(), prepared=0.0, message=""
            )
    run.refresh_from_db(fields=["status", "assignment"])
    return run.status == Run.Status.PREPARING and not run.assignment


def _without_room(run: Run, assignment: dict[str, np.ndarray], snapshot: Snapshot, limit: float) -> np.ndarray:
    """Return holders without room for what the run may charge their group: nobody may fall silent in mid-vote.

    A holder joins a teacher only with room for the whole share (condition 3); this depends on their own account alone.
    """
    allowed = np.array([budget.allowed for budget in budgets_from_json(run.plan)])
    members, first = np.unique(assignment["holder"], return_index=True)
    epsilons = np.zeros(len(members))
    present = np.isin(members, snapshot.holders)
    epsilons[present] = snapshot.epsilons[np.searchsorted(snapshot.holders, members[present])]
    caps = np.where(present, caps_of(np.where(present, epsilons, 1.0), run.study.delta), 0.0)
    needed = accounts_stand(run.study, members) + allowed[assignment["group"][first]]
    limits = np.minimum(limit * caps, rooms(run.study, members, subject=run.pk))
    return members[needed > limits * (1 + ROUNDING)]


def _assignment(run: Run) -> tuple[dict[str, np.ndarray], int | None]:
    """Assignment of holders to teachers, and the last consent event that counted; none in a rehearsal.

    In a real run a holder's teacher follows from a keyed hash of the holder alone, whoever else takes part; a holder
    whose promise the plan does not know takes no part.
    """
    plan = plan_from_json(run.plan)
    promises = [PlannedPromise(**promise) for promise in run.plan["promises"]]
    if run.rehearsal:
        return rehearsal_assignment(run, plan, promises), None
    snapshot = consent_snapshot(run.study, run.snapshot_at)
    sequence, snapshot = snapshot.sequence, snapshot.of(owners_of(run.private_dataset))
    group = np.full(len(snapshot), LEFT_OUT)
    for promise in promises:
        group[snapshot.have(Promise(promise.level, promise.epsilon, True))] = promise.group
    key = token_bytes(32)
    position, teacher = assign_keyed(plan, snapshot.holders, group, key, partial(_note, run))
    assignment = {
        "holder": snapshot.holders[position],
        "teacher": teacher,
        "group": group[position],
        "seeds": np.array([teacher_seed(key, number) for number in range(plan.teachers)], dtype=np.int64),
    }
    return assignment, sequence


def _note(run: Run, done: int, total: int) -> None:
    """Note how far the preparation is: the same shares, in the same order, however many people there are.

    Raises:
        _Ended: the run was cancelled.
    """
    under_way = Run.objects.filter(pk=run.pk, status=Run.Status.PREPARING, assignment="")
    if not under_way.update(prepared=done / total):
        raise _Ended
