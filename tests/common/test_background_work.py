"""Background work: its claims and slots exclude each other and end with it, and guards say what is tried again."""

import logging
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone

from common.jobs import leases
from common.jobs.guards import guarded
from common.jobs.leases import lease
from common.slots import NoSlotError, slot
from tests.training.runs import TABLE_RUN, run_draft, study_with_table
from tests.workers import wait_until
from training.models import Run
from training.selectors import run_is_claimed


@pytest.fixture
def run(db: None) -> Run:
    return run_draft(study_with_table(), **TABLE_RUN)


@pytest.mark.slow
def test_a_claim_excludes_others_and_is_given_back_even_when_the_work_fails(run: Run) -> None:
    assert not run_is_claimed(run)
    with lease(Run, run.pk) as token:
        assert token
        assert run_is_claimed(run)
        with lease(Run, run.pk) as second:
            assert second is None
        assert Run.objects.get(pk=run.pk).claimed_by == token, "the second did not take the first's away"
    assert Run.objects.get(pk=run.pk).claimed_by == ""
    with pytest.raises(ZeroDivisionError), lease(Run, run.pk):
        raise ZeroDivisionError
    assert not run_is_claimed(run)


def test_the_claim_of_a_silent_worker_expires_and_it_does_not_release_its_successors(run: Run, settings: Any) -> None:
    settings.HEARTBEAT_TIMEOUT = 30
    Run.objects.filter(pk=run.pk).update(claimed_by="dead", heartbeat=timezone.now() - timedelta(seconds=20))
    with lease(Run, run.pk) as token:
        assert token is None
    Run.objects.filter(pk=run.pk).update(heartbeat=timezone.now() - timedelta(seconds=31))
    with lease(Run, run.pk) as token:
        assert token
        Run.objects.filter(pk=run.pk).update(claimed_by="another")
    assert Run.objects.get(pk=run.pk).claimed_by == "another"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_claim_stays_alive_as_long_as_the_work(settings: Any) -> None:
    run = run_draft(study_with_table(), **TABLE_RUN)
    settings.HEARTBEAT_TIMEOUT = 2.0
    with lease(Run, run.pk):
        expires = timezone.now() + timedelta(seconds=settings.HEARTBEAT_TIMEOUT)
        wait_until(lambda: Run.objects.get(pk=run.pk).heartbeat > expires)
        assert run_is_claimed(run)
        with lease(Run, run.pk) as second:
            assert second is None


def test_a_claim_names_the_process_that_holds_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker's processes inherit its name, which has the id of its main process.
    name = f"celery@{'a-host-with-a-long-name.' * 4}org:1"
    monkeypatch.setattr(leases, "worker_name", lambda: name)
    with leases.lease(Run, run.pk) as token:
        assert token is not None and len(token) <= Run._meta.get_field("claimed_by").max_length
        assert leases.claiming_process(token) == os.getpid()
        assert leases.worker_claims(name, token)


UNEXPECTED = "An unexpected error; see the logs."


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, []),
        (ValueError("Give more teachers."), ["failed: Give more teachers."]),
        (DatabaseError("connection lost"), ["retried"]),
        (OSError("disk full"), ["retried"]),
        (FileNotFoundError("It is gone."), ["failed: It is gone."]),
        (KeyError("p-001"), [f"failed: {UNEXPECTED}"]),
    ],
)
def test_each_error_ends_the_work_or_leaves_it_to_the_sweep(
    error: Exception | None, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    with (
        caplog.at_level(logging.ERROR),
        guarded(
            "The run",
            expected=(ValueError, FileNotFoundError),
            fail=lambda message: heard.append(f"failed: {message}"),
            unexpected=UNEXPECTED,
            retry=lambda: heard.append("retried"),
        ),
    ):
        if error is not None:
            raise error
    assert heard == expected
    assert bool(caplog.records) == (error is not None and not isinstance(error, ValueError | FileNotFoundError))


HOLDS = """
import sys
from django.conf import settings
settings.configure(VAR_DIR=sys.argv[1], PLANS_AT_ONCE=2)
from common.slots import slot
with slot(7):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_slot_is_free_again_when_the_process_that_had_it_is_killed(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR, settings.PLANS_AT_ONCE = tmp_path, 2
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(NoSlotError), slot(7):
            raise AssertionError
        with slot(8), pytest.raises(NoSlotError), slot(9):  # the machine's second, and none is left
            raise AssertionError
        other.kill()
        other.wait()
        with slot(7), slot(9):
            pass
