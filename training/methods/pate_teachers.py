"""Teachers of a run: their members, their training, and their predictions until the vote opens. Everything is secret.

After the approval, a worker assigns people to teachers; with many people, this takes too long for a request. The
consents at the moment of approval apply no matter when the worker starts, because consent events never change. No
intermediate state is visible: a single transaction completes the preparation. A worker that dies before this
transaction leaves behind an unreferenced file.

Files in use are never overwritten. The database row names the current file, so a crash before the row is updated, or a
delayed worker, leaves behind a file that is never read.
"""

import logging
import math
from collections.abc import Collection
from functools import lru_cache, partial
from secrets import token_bytes
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounting.accounts import account_balances
from accounting.caps import caps_of
from accounting.ceilings import ceiling_limits
from accounting.services import ROUNDING
from accounting.shares import openings_lock, share_open
from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.jobs import parts_send
from common.progress import counted
from consent.models import ConsentEvent, Disposal
from consent.selectors import Promise, Snapshot, consent_snapshot, holders_lapsed_since
from consent.services import study_lock
from learning.learners import learner_create
from learning.mechanisms.choices import HolderChoices
from learning.mechanisms.pate import LEFT_OUT, NO_VOTE, assign, assign_keyed, teacher_seed
from learning.mechanisms.pate.ballots import Ballot
from learning.mechanisms.pate.teachers import PublicGraph, Teachers, teacher_classes
from training.engine.asking import run_part_do
from training.engine.budgets import PlannedPromise, budgets_from_json
from training.engine.commits import WAITS, message_set, spending, spending_begin, spending_may_begin
from training.engine.questions import run_folder
from training.engine.records import owners_of, records_load, space_first
from training.methods.pate_plan import plan_from_json
from training.models import Dataset, Run, TeacherChunk

logger = logging.getLogger(__name__)

#: Number of tasks into which a run's teachers are divided: enough for many workers and a moving progress bar.
CHUNKS = 20


class _Ended(Exception):
    """Raised if the run was cancelled during its preparation."""


def run_prepare(run: Run) -> bool:
    """Assign holders to teachers once the run may spend, and divide the teachers into chunks.

    The share is opened in the same transaction that checks which accounts have enough budget left for it, so accounts
    never influence when or in which order runs spend. Holders who have left in the meantime and holders without enough
    budget are excluded.

    Returns:
        Whether the teachers can be trained now. False if the run has to wait, was cancelled, or was prepared by another
        worker.
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
            openings_lock()  # no other study may open a share between the check and this opening
            limit, snapshot = share_open(study=held.study, subject=held.pk), consent_snapshot(held.study)
            gone = holders_who_left(held, assignment, snapshot)
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
    logger.info("Training %s.", counted(teachers, "teacher", "teachers"))
    return True


def _begin(run: Run) -> bool:
    """Start preparing an approved run if it may spend now; return whether people must still be assigned to teachers."""
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
    """Return holders whose remaining budget does not cover the largest charge to their group.

    A holder joins a teacher only if their budget suffices for the whole share (condition 3 in
    docs/gaussian-accounts.md), which depends only on their own account.
    """
    allowed = np.array([budget.allowed for budget in budgets_from_json(run.plan)])
    members, first = np.unique(assignment["holder"], return_index=True)
    epsilons = np.zeros(len(members))
    present = np.isin(members, snapshot.holders)
    epsilons[present] = snapshot.epsilons[np.searchsorted(snapshot.holders, members[present])]
    caps = np.where(present, caps_of(np.where(present, epsilons, 1.0), run.study.delta), 0.0)
    needed = account_balances(run.study, members) + allowed[assignment["group"][first]]
    limits = np.minimum(limit * caps, ceiling_limits(run.study, members, subject=run.pk))
    return members[needed > limits * (1 + ROUNDING)]


def _assignment(run: Run) -> tuple[dict[str, np.ndarray], int | None]:
    """Return the assignment of holders to teachers, and the last consent event included (None in a rehearsal).

    Outside rehearsals, a keyed hash of the holder determines their teacher, regardless of other participants. Holders
    whose promises are not in the plan do not take part.
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
    """Record the progress of the preparation, in steps that do not depend on the number of people.

    Raises:
        _Ended: the run was cancelled.
    """
    under_way = Run.objects.filter(pk=run.pk, status=Run.Status.PREPARING, assignment="")
    if not under_way.update(prepared=done / total):
        raise _Ended


# --- Rehearsals -------------------------------------------------------------------------------------------------------


def rehearsal_assignment(run: Run, plan: Any, promises: list[Any]) -> dict[str, np.ndarray]:
    """Return each owner's teachers (``holder``, ``teacher``, ``group``), and the teachers' ``seeds``."""
    rng = np.random.default_rng(run.seed)
    owners = rng.permutation(owners_of(run.private_dataset))
    group_of = np.repeat([promise.group for promise in promises], [promise.holders for promise in promises])
    position, teacher = assign(plan, group_of, rng)
    return {
        "holder": owners[position],
        "teacher": teacher,
        "group": group_of[position],
        "seeds": rng.integers(2**32, size=plan.teachers, dtype=np.int64),
    }


# --- Training ---------------------------------------------------------------------------------------------------------


_DIED = gettext_noop(
    "Workers repeatedly crashed while training the same teachers, probably because they ran out of memory. Propose "
    "the run again with more teachers (which learn from fewer records each) or a smaller learner, or give the "
    "workers more memory."
)


def holders_who_left(run: Run, assignment: dict[str, np.ndarray], snapshot: Snapshot) -> np.ndarray:
    """Return the holders who must leave a run according to the consents in a new ``snapshot``.

    These are people who withdrew, even if they have consented again, people whose consent has lapsed, and people whose
    ε is now smaller than the one on which their teacher's charge is based.
    """
    if run.rehearsal:
        return np.empty(0, dtype=np.int64)
    pairs = assignment["holder"]
    needed = np.array([group["epsilon"] for group in run.plan["groups"]])[assignment["group"]]
    present = np.isin(pairs, snapshot.holders)
    stricter = np.zeros(len(pairs), dtype=bool)
    stricter[present] = snapshot.epsilons[np.searchsorted(snapshot.holders, pairs[present])] < needed[present]
    return np.intersect1d(pairs, np.union1d(withdrawn_since_snapshot(run), pairs[~present | stricter]))


def assignment_without(run: Run, assignment: dict[str, np.ndarray], gone: np.ndarray) -> np.ndarray:
    """Remove holders from a run before its vote; return the teachers they belonged to. The caller saves the run."""
    of_gone = np.isin(assignment["holder"], gone)
    pairs = {name: assignment[name][~of_gone] for name in ("holder", "teacher", "group")}
    run.consent_sequence = ConsentEvent.objects.filter(study_id=run.study_id).latest("sequence").sequence
    run.assignment = assignment_name(run)
    arrays_save(run.assignment, **pairs, seeds=assignment["seeds"])
    return np.unique(assignment["teacher"][of_gone])


def chunks_send(run: Run) -> bool:
    """Queue the waiting chunks; return whether all are done."""
    parts_send(run.chunks.all(), "training.tasks.chunk_train")
    return are_chunks_done(run)


def are_chunks_done(run: Run) -> bool:
    return not run.chunks.exclude(state=TeacherChunk.State.DONE).exists()


def chunk_train(chunk: TeacherChunk) -> bool:
    """Train the teachers of a chunk and store their predictions for public points; return whether this call did so."""

    def work(chunk: TeacherChunk) -> str:
        artifact = predictions_name(chunk)
        arrays_save(artifact, predictions=_predictions(chunk.run, chunk))
        return artifact

    return run_part_do(chunk, status=Run.Status.PREPARING, work=work, died=_DIED)


def public_graph(public: Dataset) -> PublicGraph:
    """Return the cached graph of public points, in the default representation, that teachers learn from."""
    return _graph(public.pk, public.artifact)


# A changed dataset file would have a new name.
@lru_cache(maxsize=2)
def _graph(public_id: int, _artifact: str) -> PublicGraph:
    space = space_first(Dataset.objects.get(pk=public_id), HolderChoices())
    return PublicGraph.of(space.fitted, space.public)


def withdrawn_since_snapshot(run: Run) -> np.ndarray:
    """Return the holders whose consent ended after the run's snapshot.

    These are people who withdrew after the last consent event in the snapshot, even if they have consented again, and
    people whose consent has since lapsed without a withdrawal (:class:`consent.people.circumstances.Lapse`).
    """
    events = ConsentEvent.objects.filter(
        study_id=run.study_id, sequence__gt=run.consent_sequence, kind=ConsentEvent.Kind.WITHDRAWN
    )
    withdrawn = np.array(list(events.order_by().values_list("holder_id", flat=True).distinct()), dtype=np.int64)
    assert run.snapshot_at is not None, "a run with holders has a snapshot"
    return np.union1d(withdrawn, holders_lapsed_since(run.study, run.snapshot_at))


def _predictions(run: Run, chunk: TeacherChunk) -> np.ndarray:
    """Return predictions (teachers of the chunk, public points); ``NO_VOTE`` for teachers that have no holders left."""
    assignment = arrays_load(run.assignment)
    withdrawn = np.empty(0, dtype=np.int64) if run.rehearsal else withdrawn_since_snapshot(run)
    of_chunk = (assignment["teacher"] >= chunk.start) & (assignment["teacher"] < chunk.stop)
    private = records_load(run.private_dataset, holders=assignment["holder"][of_chunk])
    public = arrays_load(run.public_points.artifact)["x"]
    chosen = Teachers.from_json(run.choices)
    learner = learner_create(chosen.learner, chosen.learner_parameters)
    graph = public_graph(run.public_points) if chosen.learns_unlabelled(run.public_points.schema["kind"]) else None
    order = np.argsort(private["holder"], kind="stable")
    owners = private["holder"][order]
    predictions = np.full((chunk.stop - chunk.start, len(public)), NO_VOTE, dtype=np.int16)
    for teacher in range(chunk.start, chunk.stop):
        holders = np.setdiff1d(assignment["holder"][assignment["teacher"] == teacher], withdrawn)
        first, last = np.searchsorted(owners, holders, "left"), np.searchsorted(owners, holders, "right")
        rows = np.concatenate([order[:0], *(order[a:b] for a, b in zip(first, last, strict=True))])
        if not len(rows):
            continue
        try:
            predictions[teacher - chunk.start] = teacher_classes(
                learner,
                private["x"][rows],
                private["y"][rows],
                public,
                graph,
                classes=len(run.private_dataset.classes),
                seed=int(assignment["seeds"][teacher]),
            )
        except (OSError, ImportError):  # caused by the machine, not by the records, so a retry may succeed
            raise
        except Exception:  # noqa: S112
            # The failure of a teacher depends on its members' records, so it casts no vote and no one is notified.
            continue
    return predictions


# --- Opening of the vote ----------------------------------------------------------------------------------------------


def vote_open(run: Run) -> bool:
    """Begin the vote once all teachers are trained, with the holders whose consent is still valid.

    Their remaining budget was checked when they joined their teachers, and has been reserved since.
    """
    if not chunks_send(run):
        return False
    with spending(run, Run.Status.PREPARING) as held:
        # While this worker waited for the lock, another worker may have requested that teachers be trained again
        # without a member.
        if held is None or not are_chunks_done(held):
            return False
        if held.rehearsal:
            spending_begin(held)
            return True
        assignment, snapshot = arrays_load(held.assignment), consent_snapshot(held.study)
        gone = holders_who_left(held, assignment, snapshot)
        if len(gone):
            _teach_without(held, assignment, gone)
        else:
            spending_begin(held, at=snapshot.at)
    return True


def _teach_without(run: Run, assignment: dict[str, np.ndarray], gone: np.ndarray) -> None:
    """Remove holders from a run whose teachers have been trained, and train the affected teachers again."""
    affected = assignment_without(run, assignment, gone)
    run.message = ""
    run.save(update_fields=["consent_sequence", "assignment", "message"])
    for chunk in run.chunks.all():
        if ((affected >= chunk.start) & (affected < chunk.stop)).any():
            TeacherChunk.objects.filter(pk=chunk.pk).update(state=TeacherChunk.State.PENDING)


# --- Erasure ----------------------------------------------------------------------------------------------------------


def predictions_forget(run: Run, holders: Collection[int]) -> None:
    """Delete the predictions of all teachers of a finished run that learned from one of ``holders``.

    Predictions exist only in studies that keep them for auditors. Afterwards, charges are recomputed without the
    deleted predictions.
    """
    chunks = list(run.chunks.exclude(artifact=""))
    if not chunks or run.forgotten_at is not None or not run.assignment:
        return
    assignment = arrays_load(run.assignment, "holder", "teacher")
    teachers = np.unique(assignment["teacher"][np.isin(assignment["holder"], list(holders))])
    for chunk in chunks:
        theirs = teachers[(teachers >= chunk.start) & (teachers < chunk.stop)] - chunk.start
        predictions = arrays_load(chunk.artifact)["predictions"]
        if not len(theirs) or (predictions[theirs] == NO_VOTE).all():
            continue
        predictions[theirs] = NO_VOTE
        before, artifact = chunk.artifact, predictions_name(chunk)
        arrays_save(artifact, predictions=predictions)
        TeacherChunk.objects.filter(pk=chunk.pk).update(artifact=artifact)
        transaction.on_commit(lambda before=before: arrays_delete(before))  # type: ignore[misc]


def predictions_forget_erased(run: Run) -> None:
    """Apply :func:`predictions_forget` to everyone whose records were erased during the run."""
    erased = Disposal.objects.filter(study=run.study_id, kind=Disposal.Kind.ERASED)
    if erased.exists():
        with transaction.atomic():
            study_lock(run.study_id)
            predictions_forget(Run.objects.get(pk=run.pk), set(erased.values_list("holder_id", flat=True)))


# --- Files ------------------------------------------------------------------------------------------------------------


def assignment_name(run: Run) -> str:
    """Return a new file name for ``holder``, ``teacher``, ``group`` (index in the plan), and ``seeds`` (teachers,)."""
    return f"{run_folder(run)}/assignment-{uuid4().hex[:12]}.npz"


def predictions_name(chunk: TeacherChunk) -> str:
    """Return a new file name for ``predictions`` (teachers of the chunk, public points): classes or ``NO_VOTE``."""
    return f"{run_folder(chunk.run)}/predictions-{chunk.start}-{uuid4().hex[:12]}.npz"


def predictions_load(run: Run) -> np.ndarray:
    """Return the predictions of all teachers for all public points, ``(teachers, points)``."""
    return np.concatenate([arrays_load(chunk.artifact)["predictions"] for chunk in run.chunks.all()])


@lru_cache(maxsize=2)
def ballot_load(run_id: UUID) -> Ballot:
    """Return the ballot of a run whose vote has begun and whose files have not been deleted."""
    run = Run.objects.get(pk=run_id)
    predictions, pairs = predictions_load(run), arrays_load(run.assignment)
    return Ballot(predictions, pairs["holder"], pairs["teacher"], pairs["group"])
