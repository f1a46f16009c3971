"""A real Celery worker process: killed without warning, and with people withdrawing, while it trains and votes."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from learning.formats import catalogue_load
from tests.training.asking import ASKING_RUN, assert_whole
from tests.training.runs import (
    assert_labels_and_register_agree,
    run_start,
    study_with_data,
    study_with_table,
)
from tests.workers import wait_until, worker
from training.models import Run, TeacherChunk
from training.services.datasets import dataset_import

pytestmark = [pytest.mark.worker, pytest.mark.django_db(transaction=True)]


def kill(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def slow_run() -> Run:
    """A run that takes its time: something can happen to it while it trains and while it votes."""
    study = study_with_data(retain_votes=True)
    splits = catalogue_load("digits")
    many = dataset_import(study=study, name="many", kind="public", rows=splits.public[:30], schema=splits.schema)
    return run_start(
        study,
        public_dataset=many,
        batch_size=1,
        learner_parameters={"copies": 60},
        # So much noise that every point can be put to the vote, one by one.
        aggregator={"name": "confident_gnmax", "sigma": 60.0, "sigma_threshold": 120.0, "threshold": 8.0},
    )


def watch(run: Run) -> Callable[[Callable[[Run], bool]], Callable[[], bool]]:
    """Conditions on the run as the database has it now."""
    return lambda condition: lambda: condition(Run.objects.get(pk=run.pk))


def worker_kill(run: Run, log: Path, *, position: int) -> None:
    """Kill a worker once the run has come as far as a position, and let another one end the run."""
    state = watch(run)
    with worker(log) as process:
        wait_until(state(lambda run: run.position >= position), log)
        kill(process)
    assert Run.objects.get(pk=run.pk).status == Run.Status.ASKING, "the kill came too late"
    with worker(log):
        wait_until(state(lambda run: run.has_ended), log)
    run.refresh_from_db()


@pytest.mark.exhaustive
def test_a_killed_worker_leaves_a_correct_ledger(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    run = slow_run()
    state = watch(run)
    with worker(log) as process:
        wait_until(lambda: run.chunks.filter(state=TeacherChunk.State.DONE).exists(), log)
        kill(process)
    assert Run.objects.get(pk=run.pk).status == Run.Status.PREPARING, "the kill came too late to interrupt training"

    with worker(log) as process:
        wait_until(state(lambda run: run.status == Run.Status.ASKING and run.position > 2), log)
        kill(process)
    interrupted = Run.objects.get(pk=run.pk)
    assert interrupted.status == Run.Status.ASKING, "the kill came too late to interrupt the vote"

    with worker(log):
        wait_until(state(lambda run: run.has_ended), log)
    run.refresh_from_db()
    assert run.status == Run.Status.FINISHED, run.message
    assert run.position > interrupted.position
    assert_labels_and_register_agree(run)


def test_a_worker_killed_while_it_asks_leaves_a_correct_ledger(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    study = study_with_table(holders=12, points=40, retain_votes=True)
    run = run_start(study, share=0.5, **ASKING_RUN)
    worker_kill(run, log, position=8)
    assert run.status == Run.Status.FINISHED, run.message
    assert sorted(run.queries.values_list("row", flat=True)) == list(range(40))
    assert_whole(run)
