"""A real Celery worker process: killed without warning, and with people withdrawing, while it trains and votes."""

import hashlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from accounting.book import balances
from accounting.verification import study_faults
from common.artifacts import arrays_list
from common.progress import silent
from learning.formats import catalogue_load
from tests.training.asking import ASKING_RUN, EVERYBODY, SAMPLED_RUN, assert_whole
from tests.training.runs import (
    assert_labels_and_register_agree,
    run_finish,
    run_start,
    study_with_data,
    study_with_table,
)
from tests.workers import wait_until, worker
from training.methods import lesson_of
from training.methods.lessons import StudentRecipe, checkpoints_folder, student_fit
from training.models import Run, TeacherChunk
from training.selectors import run_versions
from training.services.datasets import dataset_import
from training.services.trainings import student_ask
from training.verification import release_faults

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


@pytest.mark.exhaustive
def test_a_worker_killed_during_a_sampled_chunk_loses_that_chunk_alone(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    study = study_with_table(holders=12, retain_votes=True)
    run = run_start(study, share=0.5, **SAMPLED_RUN | {"choices": {"steps": 24, "expected": 1e6, "network": "mlp"}})
    state, charged = watch(run), None
    for chunks in (0, 2, 5):
        with worker(log) as process:
            begun = state(lambda run, least=2 * chunks: run.position >= least and run.batches.exists())  # type: ignore[misc]
            wait_until(begun, log)
            wait_until(lambda: run.shards.filter(state="running").exists(), log)
            kill(process)
        interrupted = Run.objects.get(pk=run.pk)
        assert interrupted.status == Run.Status.ASKING, "the kill came too late"
        # What was charged before the first step is all that is ever charged.
        assert charged in (None, balances(study).spent.tolist())
        charged = balances(study).spent.tolist()
    with worker(log):
        wait_until(state(lambda run: run.has_ended), log)
    run.refresh_from_db()
    assert (run.status, run.position) == (Run.Status.FINISHED, 24), run.message
    assert list(run.batches.values_list("start", "size")) == [(0, 0), *((start, 2) for start in range(0, 24, 2))]
    assert balances(study).spent.tolist() == charged
    assert_whole(run)


@pytest.mark.exhaustive
def test_a_worker_killed_while_a_student_learns_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    run = run_finish(run_start(study_with_data(levels="LLLL"), **EVERYBODY, choices={"rounds": 1}, batch_size=300))
    network = {"steps": 400, "batch": 16}
    student_ask(run=run, student_learner="consistency", student_parameters=network, acting_user=None)
    with worker(log) as process:
        wait_until(lambda: bool(arrays_list(checkpoints_folder(run))), log)
        kill(process)
    assert run.students.count() == 1, "the kill came too late, or left half a model"
    with worker(log):
        wait_until(lambda: run.students.count() == 2, log)
        wait_until(lambda: not run_versions(run).busy, log)
    expected = student_fit(run, lesson_of(run), StudentRecipe("consistency", network, 0), progress=silent)
    second = run.students.get(version=2)
    assert second.digest == hashlib.sha256(expected.to_bytes()).hexdigest(), "as if nobody had died"
    assert second.score is not None and second.reference is not None
    assert [*study_faults(run.study), *release_faults(run)] == []
