"""Background work: exclusive claims and slots, errors and retries, and log lines without secrets."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone
from pythonjsonlogger.json import JsonFormatter

from accounting.accounts import balances
from common import jobs
from common.jobs import guarded, lease
from common.logging import RunFilter, logging_run
from common.slots import NoSlotError, slot
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_with_table
from tests.workers import wait_until
from training.methods.pate_plan import plan_from_json
from training.methods.pate_teachers import ballot_load
from training.models import Run
from training.selectors import run_is_claimed
from training.services.runs import run_cancel, run_fail

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(db: None) -> Run:
    return run_draft(study_with_table(), **TABLE_RUN)


def test_a_claim_excludes_others_and_is_given_back_even_when_the_work_fails(run: Run) -> None:
    assert not run_is_claimed(run)
    with lease(Run, run.pk) as token:
        assert token
        assert run_is_claimed(run)
        with lease(Run, run.pk) as second:
            assert second is None
        assert Run.objects.get(pk=run.pk).claimed_by == token, "the second claim did not remove the first"
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


@pytest.mark.django_db(transaction=True)
def test_a_claim_is_renewed_during_the_work(settings: Any) -> None:
    run = run_draft(study_with_table(), **TABLE_RUN)
    settings.HEARTBEAT_TIMEOUT = 2.0
    with lease(Run, run.pk):
        expires = timezone.now() + timedelta(seconds=settings.HEARTBEAT_TIMEOUT)
        wait_until(lambda: Run.objects.get(pk=run.pk).heartbeat > expires)
        assert run_is_claimed(run)
        with lease(Run, run.pk) as second:
            assert second is None


def test_a_claim_names_the_process_that_holds_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker's processes inherit its name, which contains the id of its main process.
    name = f"celery@{'a-host-with-a-long-name.' * 4}org:1"
    monkeypatch.setattr(jobs, "worker_name", lambda: name)
    with jobs.lease(Run, run.pk) as token:
        assert token is not None and len(token) <= Run._meta.get_field("claimed_by").max_length
        assert jobs.claiming_process(token) == os.getpid()
        assert jobs.worker_claims(name, token)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, []),
        (ValueError("Give more teachers."), ["failed: Give more teachers."]),
        (DatabaseError("connection lost"), ["retried"]),
        (OSError("disk full"), ["retried"]),
        (FileNotFoundError("It is gone."), ["failed: It is gone."]),
        (KeyError("p-001"), ["failed: See the logs."]),
    ],
)
def test_each_error_ends_the_work_or_leaves_it_to_the_sweep(error, expected, caplog) -> None:
    heard: list[str] = []
    with (
        caplog.at_level(logging.ERROR),
        guarded(
            "The run",
            expected=(ValueError, FileNotFoundError),
            fail=lambda message: heard.append(f"failed: {message}"),
            unexpected="See the logs.",
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


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Collect everything that is logged in the meantime, in the site's format."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    spec = settings.LOGGING["formatters"]["json"]
    handler.setFormatter(JsonFormatter(spec["format"], rename_fields=spec["rename_fields"]))
    handler.addFilter(RunFilter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.setLevel(level)
    root.removeHandler(handler)


def test_log_lines_name_their_own_run_or_none(lines: io.StringIO) -> None:
    logger = logging.getLogger("here")
    with logging_run("outer"):
        with logging_run("inner"):
            logger.info("one")
        logger.info("two")
    logger.info("three")
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["run"] for line in records] == ["inner", "outer", "-"]


def test_nothing_secret_is_logged_and_every_line_about_a_run_carries_its_id(lines: io.StringIO) -> None:
    study = study_with_table(retain_votes=True)
    run = run_finish(run_start(study, share=0.5, **TABLE_RUN))
    cancelled = run_start(study, share=0.25, **TABLE_RUN)
    run_cancel(run=cancelled, acting_user=user_create("olga"))
    log = lines.getvalue()
    about = [line for line in map(json.loads, log.splitlines()) if line["logger"].startswith("training.services")]
    assert {line["run"] for line in about} == {str(run.pk), str(cancelled.pk)}
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in about)
    secrets = list(map(str, balances(study).spent.tolist()))
    ballot = ballot_load(run.pk)
    plan = plan_from_json(run.plan)
    counts = plan.aggregator.count(ballot.predictions, len(run.classes), plan.teacher_weights())
    secrets += [str(row.tolist()) for row in counts]
    secrets += list(study.holders.values_list("pseudonym", flat=True))
    assert not [secret for secret in secrets if secret in log]


def test_why_a_run_failed_is_logged_under_its_id(lines: io.StringIO) -> None:
    run = run_start(study_with_table(), **TABLE_RUN)
    with logging_run(run.pk):
        run_fail(run.pk, "The data are gone.")
    (record,) = [json.loads(line) for line in lines.getvalue().splitlines() if "The run failed" in line]
    assert (record["level"], record["run"]) == ("WARNING", str(run.pk))
