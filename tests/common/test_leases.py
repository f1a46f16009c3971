"""Claims exclude each other, stay alive while work goes on, and expire."""

import os
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from common.jobs import leases
from common.jobs.leases import lease
from tests.training.runs import TABLE_RUN, run_draft, study_with_table
from tests.workers import wait_until
from training.models import Run
from training.selectors import run_is_claimed


@pytest.fixture
def run(db: None) -> Run:
    return run_draft(study_with_table(), **TABLE_RUN)


@pytest.mark.slow
def test_a_claim_excludes_others_and_is_given_back(run: Run) -> None:
    assert not run_is_claimed(run)
    with lease(Run, run.pk) as token:
        assert token
        assert run_is_claimed(run)
        with lease(Run, run.pk) as second:
            assert second is None
        assert Run.objects.get(pk=run.pk).claimed_by == token, "the second did not take the first's away"
    assert Run.objects.get(pk=run.pk).claimed_by == ""
    with lease(Run, run.pk) as third:
        assert third


def test_a_claim_is_given_back_when_the_work_fails(run: Run) -> None:
    with pytest.raises(ZeroDivisionError), lease(Run, run.pk):
        raise ZeroDivisionError
    assert not run_is_claimed(run)


def test_the_claim_of_a_silent_worker_expires(run: Run, settings: Any) -> None:
    settings.HEARTBEAT_TIMEOUT = 30
    Run.objects.filter(pk=run.pk).update(claimed_by="dead", heartbeat=timezone.now() - timedelta(seconds=29))
    with lease(Run, run.pk) as token:
        assert token is None
    Run.objects.filter(pk=run.pk).update(heartbeat=timezone.now() - timedelta(seconds=31))
    with lease(Run, run.pk) as token:
        assert token


def test_a_worker_does_not_release_the_claim_of_its_successor(run: Run) -> None:
    with lease(Run, run.pk):
        Run.objects.filter(pk=run.pk).update(claimed_by="another")
    assert Run.objects.get(pk=run.pk).claimed_by == "another"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_claim_stays_alive_as_long_as_the_work(settings: Any) -> None:
    run = run_draft(study_with_table(), **TABLE_RUN)
    settings.HEARTBEAT_TIMEOUT = 0.6
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
