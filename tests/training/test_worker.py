"""A real Celery worker process, killed without warning while it trains and while it votes."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from ipate_web.processes import running, worker_command
from tests.training.runs import assert_labels_and_ledger_agree, run_start, study_with_data
from training.models import Run, TeacherChunk

pytestmark = [pytest.mark.worker, pytest.mark.django_db(transaction=True)]


def database_url() -> str:
    """The test's own database, for another process."""
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{given['NAME']}"
    return f"postgres://{given['USER']}:{given['PASSWORD']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"


@contextmanager
def worker(log: Path) -> Iterator[subprocess.Popen]:
    environment = {
        "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
        "DATABASE_URL": database_url(),
        "IPATE_BROKER_URL": settings.BROKER_URL,
        "IPATE_HEARTBEAT_TIMEOUT": "1.5",
        "IPATE_SWEEP_INTERVAL": "0.5",
    }
    with running(worker_command(), log, environment) as process:
        yield process


def wait_until(condition: Callable[[], bool], log: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"Nothing happened within {seconds} s; the worker says:\n{log.read_text()[-5000:]}")
        time.sleep(0.01)


def kill(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_worker_killed_while_training_and_while_voting_leaves_a_correct_ledger(tmp_path: Path) -> None:
    study = study_with_data(retain_votes=True)
    log = tmp_path / "worker.log"
    # So much noise that every point can be put to the vote, one by one: time enough to be killed.
    noise = {"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 80.0, "threshold": 8.0}
    run = run_start(study, batch_size=1, learner_parameters={"copies": 60}, method=Run.Method.EXACT, aggregator=noise)

    def state(condition: Callable[[Run], bool]) -> Callable[[], bool]:
        return lambda: condition(Run.objects.get(pk=run.pk))

    with worker(log) as process:
        wait_until(lambda: run.chunks.filter(state=TeacherChunk.State.DONE).exists(), log)
        kill(process)
    assert Run.objects.get(pk=run.pk).status == Run.Status.TRAINING, "the kill came too late to interrupt training"

    with worker(log) as process:
        wait_until(state(lambda run: run.status == Run.Status.VOTING and run.position > 2), log)
        kill(process)
    interrupted = Run.objects.get(pk=run.pk)
    assert interrupted.status == Run.Status.VOTING, "the kill came too late to interrupt the vote"

    with worker(log):
        wait_until(state(lambda run: run.has_ended), log)
    run.refresh_from_db()
    assert run.status == Run.Status.FINISHED, run.message
    assert run.position > interrupted.position
    assert_labels_and_ledger_agree(run)
