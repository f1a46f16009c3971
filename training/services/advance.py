"""State machine of a run: draft → planning → approved → preparing → asking → learning → finished, failed or cancelled.

The database row is authoritative. Every step can be repeated after a crash and resumes where it stopped. A worker that
receives a message does more urgent work first, and a sweep queues runs left behind by dead workers.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.utils.translation import gettext_noop

from common.jobs import PartDied, guarded, lease, send_on, stale_before
from common.logging import logging_run
from common.progress import counted
from learning.formats import DataError
from learning.mechanisms.protocol import PlanError
from training.alliances import runs as joint_runs
from training.engine import asking
from training.engine.scheduling import WorkYielded, send, should_yield, time_slice, work_item_of, work_items_due
from training.errors import RunError
from training.methods import MethodOutcome, Step, method_of, pate_teachers
from training.models import Run, Shard, StudentTraining, TeacherChunk
from training.services import publication, students
from training.services.approvals import approval_fail, run_plan
from training.services.encoders import encoding_is_awaited, encodings_sweep
from training.services.imports import imports_sweep
from training.services.runs import run_fail, run_forget

logger = logging.getLogger(__name__)

_NO_ANSWER = gettext_noop(
    "The database or the storage did not respond, so the run will be retried. If the problem continues, check the logs."
)
_UNEXPECTED = gettext_noop(
    "An unexpected error occurred. You can find the details in the worker's logs under this run's id."
)


#: Last step of a run, by its outcome.
_PUBLISH: dict[MethodOutcome, Step] = {
    MethodOutcome.MODEL: students.student_train,
    MethodOutcome.TABLE: publication.result_publish,
}


def step_of(run: Run) -> Step | None:
    """Return the step for a run's status; None if there is nothing to do."""
    if run.status == Run.Status.PLANNING:
        return run_plan
    method = method_of(run)
    if run.status == Run.Status.LEARNING and joint_runs.is_trained_by_hub(run):
        return joint_runs.model_take
    return _PUBLISH[method.outcome] if run.status == Run.Status.LEARNING else method.steps.get(run.status)


@contextmanager
def _guarded(run_id: str | UUID) -> Iterator[None]:
    """End the run if it cannot continue; leave it to the sweep if the database or storage does not respond."""

    def fail(message: str) -> None:
        if not approval_fail(run_id, message):
            run_fail(run_id, message)

    def retry() -> None:
        Run.objects.filter(pk=run_id, status__in=Run.ACTIVE).update(message=_NO_ANSWER)

    with guarded(
        "The run", expected=(RunError, PartDied, PlanError, DataError), fail=fail, unexpected=_UNEXPECTED, retry=retry
    ):
        yield


def run_advance(run_id: str | UUID) -> bool:
    """Advance a run until it ends, has to wait, or yields to other work.

    Returns:
        Whether it advanced.
    """
    before, aside = _progress_of(run_id), False
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
                    if should_yield():
                        raise WorkYielded
                except WorkYielded:
                    logger.info("The run yields to other work.")
                    aside = True
                    break
        run = Run.objects.select_related("study").get(pk=run_id)
        if run.has_ended:
            run_forget(run)
        # If the awaited event happened while this worker held the claim, nothing else would resume the run.
        elif aside or run.status == Run.Status.PLANNING or method_of(run).can_continue(run):
            send("run_advance", run_id)
    return aside or _progress_of(run_id) != before


def _progress_of(run_id: str | UUID) -> tuple[Any, ...] | None:
    """Return values that change whenever a run advances."""
    return Run.objects.filter(pk=run_id).values_list("status", "started_at", "position", "prepared").first()


def chunk_train(chunk_id: str | int) -> bool:
    """Train a chunk of teachers, and continue the run after the last chunk; return whether this call trained it.

    Only the call that trained the chunk continues the run; otherwise duplicate tasks would multiply with every step.
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
    """Ask a shard of holders, and continue the run after the last shard; see :func:`chunk_train`."""
    shard = Shard.objects.select_related("run").filter(pk=shard_id).first()
    if shard is None or shard.run.status != Run.Status.ASKING:
        return False
    is_answered = False
    with logging_run(shard.run_id), _guarded(shard.run_id):
        is_answered = asking.shard_ask(shard, method_of(shard.run).asking.questions)
        if is_answered and asking.are_shards_done(shard.run):
            send("run_advance", shard.run_id)
    return is_answered


# --- Worker tasks -----------------------------------------------------------------------------------------------------


_WORK: dict[str, Callable[[Any], bool]] = {
    "run_advance": run_advance,
    "chunk_train": chunk_train,
    "shard_ask": shard_ask,
    "student_learn": students.student_learn,
}


def task_do(task: str, pk: str) -> None:
    """Carry out the work that a message refers to, or more urgent work that is waiting.

    In the second case, the message is sent again so that its work is done later. The more urgent work's own message
    then has no effect.
    """
    named = work_item_of(task, pk)
    if named is None:
        return
    for item in work_items_due(named):
        with time_slice(item):
            worked = _WORK[item.task](item.pk)
        if item == named:
            return
        if worked:
            send(task, pk)
            return


# --- Sweep ------------------------------------------------------------------------------------------------------------


def runs_sweep() -> list[str]:
    """Queue every run that no live worker is working on, and clean up after ended runs; return the queued runs' ids."""
    alive = stale_before()
    busy = Run.objects.filter(
        Q(chunks__heartbeat__gte=alive, chunks__state="running")
        | Q(shards__heartbeat__gte=alive, shards__state="running")
    )
    waiting = Run.objects.filter(status__in=Run.ACTIVE).exclude(pk__in=busy.values("pk"))
    ids = send_on(waiting, "training.tasks.run_advance")
    if ids:
        number = counted(len(ids), "run", "runs")
        logger.info("Resumed %s that no worker was processing (timeout %gs).", number, settings.HEARTBEAT_TIMEOUT)
    send_on(StudentTraining.objects.exclude(state=StudentTraining.State.DONE), "training.tasks.student_learn")
    imports_sweep()
    encodings_sweep()
    retains = Q(status=Run.Status.FINISHED, study__retain_votes=True)
    for run in Run.objects.filter(~retains, status__in=Run.ENDED, forgotten_at=None).select_related("study"):
        run_forget(run)
    return [str(pk) for pk in ids]
