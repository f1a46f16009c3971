"""Snapshot and teachers: who is in which teacher, and what every teacher says of the public points."""

import logging
import math

import numpy as np
from django.db import transaction
from django.utils import timezone

from consent.models import ConsentEvent
from consent.selectors import holders_suspended_since
from consent.services import study_lock
from training.artifacts import arrays_load, arrays_save
from training.ballot import assignment_name, predictions_name
from training.dispatch import send
from training.learners import learner_create
from training.leases import lease, unclaimed
from training.models import Run, TeacherChunk
from training.pate import NO_VOTE, assign
from training.services.planning import plan_to_json, run_plan

logger = logging.getLogger(__name__)

#: Into how many tasks the teachers of a run are cut: enough for many workers and for a bar that moves.
CHUNKS = 20


def run_prepare(run: Run) -> bool:
    """Take the snapshot, share the holders out over teachers, and cut the teachers into chunks."""
    with transaction.atomic():
        study_lock(run.study_id)
        run = Run.objects.select_for_update().get(pk=run.pk)
        if run.status != Run.Status.APPROVED:
            return False
        planned = run_plan(run)
        rng = np.random.default_rng(run.seed)
        holders = np.concatenate([standing.holders for standing in planned.standings])
        group = np.repeat(planned.group_of, [len(standing.holders) for standing in planned.standings])
        position, teacher = assign(planned.plan, group, rng)
        run.consent_sequence = planned.snapshot.sequence
        run.assignment = assignment_name(run)
        arrays_save(
            run.assignment,
            holder=holders[position],
            teacher=teacher,
            group=group[position],
            seeds=rng.integers(2**32, size=planned.plan.teachers, dtype=np.int64),
        )
        run.plan = plan_to_json(planned)
        run.snapshot_at = planned.snapshot.at
        run.status = Run.Status.TRAINING
        run.started_at = timezone.now()
        run.message = ""
        run.save()
        size = math.ceil(planned.plan.teachers / CHUNKS)
        TeacherChunk.objects.bulk_create(
            TeacherChunk(run=run, start=start, stop=min(start + size, planned.plan.teachers))
            for start in range(0, planned.plan.teachers, size)
        )
    logger.info("%d teachers are to be trained on %d holders.", planned.plan.teachers, len(holders))
    return True


def chunks_send(run: Run) -> bool:
    """Queue the chunks that wait; True where there are none left to do."""
    for chunk in run.chunks.filter(unclaimed()).exclude(state=TeacherChunk.State.DONE):
        send("chunk_train", chunk.pk)
    return chunks_done(run)


def chunks_done(run: Run) -> bool:
    return not run.chunks.exclude(state=TeacherChunk.State.DONE).exists()


def chunk_train(chunk: TeacherChunk) -> None:
    """Train the teachers of a chunk, keep what they say of the public points, and forget them."""
    if chunk.state == TeacherChunk.State.DONE:
        return
    with lease(TeacherChunk, chunk.pk) as token:
        if token is None:
            return
        run = Run.objects.select_related("private_dataset", "public_dataset").get(pk=chunk.run_id)
        if run.status != Run.Status.TRAINING:  # looked up under the claim: who ends a run waits for claims to end
            return
        mine = TeacherChunk.objects.filter(pk=chunk.pk, claimed_by=token)
        mine.update(state=TeacherChunk.State.RUNNING)
        artifact = predictions_name(chunk)
        arrays_save(artifact, predictions=_predictions(run, chunk))
        mine.update(state=TeacherChunk.State.DONE, artifact=artifact)
        Run.objects.filter(pk=run.pk).update(heartbeat=timezone.now())


def left_since_snapshot(run: Run) -> np.ndarray:
    """The holders who withdrew after the last consent event that the run counted, even if they have come back since,
    and those who have not answered a form published since the snapshot without which their consent does not count."""
    events = ConsentEvent.objects.filter(
        study_id=run.study_id, sequence__gt=run.consent_sequence, kind=ConsentEvent.Kind.WITHDRAWN
    )
    withdrawn = np.array(list(events.order_by().values_list("holder_id", flat=True).distinct()), dtype=np.int64)
    assert run.snapshot_at is not None, "a run that has holders has a snapshot"
    return np.union1d(withdrawn, holders_suspended_since(run.study, run.snapshot_at))


def _predictions(run: Run, chunk: TeacherChunk) -> np.ndarray:
    """(teachers of the chunk, public points); a teacher all of whose holders withdrew says ``NO_VOTE``."""
    assignment, withdrawn = arrays_load(run.assignment), left_since_snapshot(run)
    private = arrays_load(run.private_dataset.artifact)
    public = arrays_load(run.public_dataset.artifact)["x"]
    learner = learner_create(run.learner, run.learner_parameters)
    order = np.argsort(private["holder"], kind="stable")
    owners = private["holder"][order]
    predictions = np.full((chunk.stop - chunk.start, len(public)), NO_VOTE, dtype=np.int16)
    for teacher in range(chunk.start, chunk.stop):
        holders = np.setdiff1d(assignment["holder"][assignment["teacher"] == teacher], withdrawn)
        first, last = np.searchsorted(owners, holders, "left"), np.searchsorted(owners, holders, "right")
        rows = np.concatenate([order[:0], *(order[a:b] for a, b in zip(first, last, strict=True))])
        if len(rows):
            model = learner.fit(
                private["x"][rows],
                private["y"][rows],
                classes=len(run.private_dataset.classes),
                seed=int(assignment["seeds"][teacher]),
            )
            predictions[teacher - chunk.start] = model.predict(public)
    return predictions
