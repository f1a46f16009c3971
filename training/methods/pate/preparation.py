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
from django.db import transaction
from django.utils import timezone

from common.artifacts import arrays_save
from common.counted import counted
from consent.selectors import Promise, consent_snapshot
from consent.services import study_lock
from learning.mechanisms.pate import LEFT_OUT, assign_keyed, teacher_seed
from training.engine.budgets import PlannedPromise
from training.engine.records import owners_of
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
    """Share the holders out over the teachers, without those who have left meanwhile, and cut the teachers into chunks.

    Returns:
        Whether the teachers can be trained now: not where the run was cancelled, or somebody else has prepared it.
    """
    begun = Run.objects.filter(pk=run.pk, status=Run.Status.APPROVED)
    begun.update(status=Run.Status.PREPARING, started_at=timezone.now(), prepared=0.0, message="")
    run.refresh_from_db(fields=["status", "assignment"])
    if run.status != Run.Status.PREPARING or run.assignment:
        return False
    try:
        assignment, sequence = _assignment(run)
    except _Ended:
        return False
    name = assignment_name(run)
    arrays_save(name, **assignment)
    with transaction.atomic():
        study = study_lock(run.study_id)
        run = Run.objects.select_for_update().get(pk=run.pk)
        if run.status != Run.Status.PREPARING or run.assignment:
            return False
        run.assignment, run.consent_sequence = name, sequence
        if not run.rehearsal:
            gone = holders_gone(run, assignment, consent_snapshot(study))
            if len(gone):
                assignment_without(run, assignment, gone)
        run.prepared, run.message = 1.0, ""
        run.save()
        teachers = run.plan["teachers"]
        size = math.ceil(teachers / CHUNKS)
        TeacherChunk.objects.bulk_create(
            TeacherChunk(run=run, start=start, stop=min(start + size, teachers)) for start in range(0, teachers, size)
        )
    logger.info("To be trained: %s.", counted(teachers, "teacher", "teachers"))
    return True


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
