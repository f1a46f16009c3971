"""A real Celery worker process that is killed without warning while it asks people."""

import os
import signal
from pathlib import Path

import pytest

from tests.training.asking import ASKING_RUN, assert_whole
from tests.training.runs import run_start, study_with_table
from tests.workers import wait_until, worker
from training.models import Run


@pytest.mark.exhaustive
@pytest.mark.worker
@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_while_it_asks_leaves_a_correct_ledger(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    study = study_with_table(holders=12, points=40, retain_votes=True)
    run = run_start(study, share=0.5, **ASKING_RUN)
    with worker(log) as process:
        wait_until(lambda: Run.objects.get(pk=run.pk).position >= 8, log)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert Run.objects.get(pk=run.pk).status == Run.Status.ASKING, "the kill came too late"
    with worker(log):
        wait_until(lambda: Run.objects.get(pk=run.pk).has_ended, log)
    run.refresh_from_db()
    assert run.status == Run.Status.FINISHED, run.message
    assert sorted(run.queries.values_list("row", flat=True)) == list(range(40))
    assert_whole(run)
