"""State machine of a run: draft → approved → preparing → asking → learning → finished, or failed or cancelled.

The row is the truth. Every step can be repeated after a crash and goes on where it stopped. A worker that gets a
message does what is due first, and a sweep sends on what dead workers left behind.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.utils.translation import gettext_noop

from common.counted import counted
from common.jobs import PartDied, guarded, lease, send_on, stale_before
from common.logging import logging_run
from learning.formats import DataError
from learning.mechanisms.protocol import PlanError
from training.alliances import runs as joint_runs
from training.engine import asking
from training.engine.turns import StepAside, piece_of, pieces_due, send, turn, turn_is_over
from training.errors import RunError
from training.methods import MethodOutcome, Step, method_of, pate_teachers
from training.models import Run, Shard, StudentTraining, TeacherChunk
from training.services import results, students, trainings
from training.services.encoders import encoding_is_awaited, encodings_sweep
from training.services.imports import imports_sweep
from training.services.runs import run_fail, run_forget

logger = logging.getLogger(__name__)

_NO_ANSWER = gettext_noop("Database or storage did not answer; the run is tried again. If it stays so, see the logs.")
_UNEXPECTED = gettext_noop("An unexpected error; the logs of the worker tell it under this run's id.")


#: The last step of a run, by what it leads to.
_PUBLISH: dict[MethodOutcome, Step] = {
    MethodOutcome.MODEL: students.student_train,
    MethodOutcome.TABLE: results.result_publish,
}


def step_of(run: Run) -> Step | None:
    """Step of a run in its status; None where there is nothing to do."""
    method = method_of(run)
    if run.status == Run.Status.LEARNING and joint_runs.is_taught_elsewhere(run):
        return joint_runs.model_take
    return _PUBLISH[method.outcome] if run.status == Run.Status.LEARNING else method.steps.get(run.status)


@contextmanager
def _guarded(run_id: str | UUID) -> Iterator[None]:
    """End the run where it cannot go on; leave it to the sweep where database or storage do not answer."""

    def fail(message: str) -> None:
        run_fail(run_id, message)

    def retry() -> None:
        Run.objects.filter(pk=run_id, status__in=Run.ACTIVE).update(message=_NO_ANSWER)

    with guarded(
        "The run", expected=(RunError, PartDied, PlanError, DataError), fail=fail, unexpected=_UNEXPECTED, retry=retry
    ):
        yield


def run_advance(run_id: str | UUID) -> bool:
    """Take a run as far as it goes: until it ends, waits for teachers or another run's vote, or steps aside.

    Returns:
        Whether it went on.
    """
    before, aside = _standing(run_id), False
    with logging_run(run_id), _guarded(run_id):
        with lease(Run, run_id) as token:
            if token is None:
                return False
            while True:
                run = Run.objects.select_related("study").get(pk=run_id)
                step = step_of(run)
                if step is None:
                    break
                try:
                    if encoding_is_awaited(run) or not step(run):
                        break
                    if turn_is_over():
                        raise StepAside
                except StepAside:
                    logger.info("The run steps aside for other work.")
                    aside = True
                    break
        run = Run.objects.select_related("study").get(pk=run_id)
        if run.has_ended:
            run_forget(run)
        # What it waited for may have come while this worker held the run: nobody else would go on then.
        elif aside or method_of(run).may_go_on(run):
            send("run_advance", run_id)
    return aside or _standing(run_id) != before


def _standing(run_id: str | UUID) -> tuple[Any, ...] | None:
    """How far a run is."""
    return Run.objects.filter(pk=run_id).values_list("status", "started_at", "position", "prepared").first()


def chunk_train(chunk_id: str | int) -> bool:
    """Train a chunk of teachers, and go on with the run after the last one; whether this call has trained it.

    Only whoever has trained it goes on: tasks that were sent twice would multiply with every step of the run.
    """
    chunk = TeacherChunk.objects.select_related("run").filter(pk=chunk_id).first()
    if chunk is None or chunk.run.status != Run.Status.PREPARING:
        return False
    trained = False
    with logging_run(chunk.run_id), _guarded(chunk.run_id):
        trained = pate_teachers.chunk_train(chunk)
        if trained and pate_teachers.are_chunks_done(chunk.run):
            send("run_advance", chunk.run_id)
    return trained


def shard_ask(shard_id: str | int) -> bool:
    """Ask a shard of holders, and go on with the run after the last one, as :func:`chunk_train` does."""
    shard = Shard.objects.select_related("run").filter(pk=shard_id).first()
    if shard is None or shard.run.status != Run.Status.ASKING:
        return False
    is_answered = False
    with logging_run(shard.run_id), _guarded(shard.run_id):
        is_answered = asking.shard_ask(shard, method_of(shard.run).asking.questions)
        if is_answered and asking.are_shards_done(shard.run):
            send("run_advance", shard.run_id)
    return is_answered


# --- Work of a worker -------------------------------------------------------------------------------------------------


_WORK: dict[str, Callable[[Any], bool]] = {
    "run_advance": run_advance,
    "chunk_train": chunk_train,
    "shard_ask": shard_ask,
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


# --- Sweep ------------------------------------------------------------------------------------------------------------


def runs_sweep() -> list[str]:
    """Send on every run that nobody alive works on, and forget what ended runs left behind; returns the ids sent."""
    alive = stale_before()
    busy = Run.objects.filter(
        Q(chunks__heartbeat__gte=alive, chunks__state="running")
        | Q(shards__heartbeat__gte=alive, shards__state="running")
    )
    waiting = Run.objects.filter(status__in=Run.ACTIVE).exclude(pk__in=busy.values("pk"))
    ids = send_on(waiting, "training.tasks.run_advance")
    if ids:
        number = counted(len(ids), "run", "runs")
        logger.info("Sent on %s that nobody was working on (timeout %gs).", number, settings.HEARTBEAT_TIMEOUT)
    send_on(StudentTraining.objects.exclude(state=StudentTraining.State.DONE), "training.tasks.student_learn")
    imports_sweep()
    encodings_sweep()
    retains = Q(status=Run.Status.FINISHED, study__retain_votes=True)
    for run in Run.objects.filter(~retains, status__in=Run.ENDED, forgotten_at=None).select_related("study"):
        run_forget(run)
    return [str(pk) for pk in ids]
