"""Preparation of a run of teachers: outside the request, with progress, whole or not at all."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import storages
from django.urls import reverse

from accounting.book import balances
from accounting.verification import study_faults
from common.artifacts import arrays_load
from consent import services
from consent.models import ConsentForm, Study
from consent.selectors import consent_snapshot
from learning.mechanisms.base import PlanError
from tests.factories import user_create
from tests.pages import as_
from tests.training.runs import TABLE_RUN, run_finish, run_prepared, run_start, study_with_table
from tests.workers import wait_until, worker
from training.engine.files import run_folder
from training.methods.pate import preparation
from training.models import Run
from training.selectors import run_progress
from training.services import advance, sweep
from training.services.runs import run_cancel

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
def study() -> Study:
    return study_with_table(levels="HAL-")


def members(run: Run) -> set[int]:
    return set(arrays_load(run.assignment)["holder"].tolist())


def shares_seen(patch: pytest.MonkeyPatch, run: Run, at: float = 2.0, then: Any = None) -> list[float]:
    """Share that was done each time that it was noted; ``then`` is called once it is at least ``at``."""
    note, seen = preparation._note, []

    def noted(run: Run, done: int, total: int) -> None:
        note(run, done, total)
        seen.append(Run.objects.get(pk=run.pk).prepared)
        if seen[-1] >= at:
            then()

    patch.setattr(preparation, "_note", noted)
    return seen


def test_an_approval_leaves_the_people_to_a_worker(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*given: object, **named: object) -> None:
        raise AssertionError("the request looks at everybody")

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "consent_snapshot", unwanted)
        patch.setattr(preparation, "owners_of", unwanted)
        run = run_start(study, **TABLE_RUN)
    assert (run.status, run.assignment, run_progress(run).stages[0].share) == ("approved", "", 0.0)
    run = run_prepared(run)
    assert (run.status, run_progress(run).stages[0].share) == ("preparing", 1.0)
    assert members(run) == set(consent_snapshot(study).holders.tolist())


def test_the_consents_of_the_moment_of_the_approval_count(study: Study) -> None:
    run = run_start(study, **TABLE_RUN)
    before = set(consent_snapshot(study).holders.tolist())
    late = study.holders.filter(consent_events=None).earliest("pk")
    gone = study.holders.get(pk=min(before))
    services.consent_give(holder=late, level="HIGH", form=ConsentForm.objects.get(study=study), acting_user=None)
    services.consent_withdraw(holder=gone, acting_user=None)
    assert members(run_prepared(run)) == before - {gone.pk}


def test_the_progress_moves_in_tenths_and_pages_and_the_api_tell_it(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, result = run_start(study, **TABLE_RUN), []
    client = as_("olga")

    def look() -> None:
        page = client.get(reverse("staff:run", args=[study.slug, run.pk])).content.decode()
        result.append("Preparing the people" in page and "40 %" in page)
        result.append(client.get(f"/api/v1/runs/{run.pk}").json()["progress"]["stages"][0])
        result.append(client.get(f"/api/v1/runs/{run.pk}").json()["status"])

    shares_seen(monkeypatch, run, 0.4, lambda: look() if not result else None)
    run_prepared(run)
    assert result == [True, {"stage": "people", "share": 0.4}, "preparing"]


@pytest.mark.parametrize("people", [0, 1, 3, 9, 15])
def test_progress_steps_are_independent_of_the_number_of_people(
    study: Study, people: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for holder in study.holders.exclude(consent_events=None).order_by("pk")[people:]:
        services.consent_withdraw(holder=holder, acting_user=None)
    run = run_start(study, **TABLE_RUN)
    seen = shares_seen(monkeypatch, run)
    assert len(members(run_prepared(run))) == people
    assert seen == [tenth / 10 for tenth in range(10)]


def test_a_preparation_can_be_cancelled(
    study: Study, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    run = run_start(study, **TABLE_RUN)

    def cancel() -> None:
        with django_capture_on_commit_callbacks(execute=True):
            run_cancel(run=run, acting_user=user_create("olga"))

    seen = shares_seen(monkeypatch, run, 0.5, cancel)
    advance.run_advance(run.pk)
    run.refresh_from_db()
    assert (run.status, run.assignment, run.chunks.count()) == (Run.Status.CANCELLED, "", 0)
    assert max(seen) < 1, "it stopped at the next tenth"
    assert not storages["private"].exists(run_folder(run)) or not storages["private"].listdir(run_folder(run))[1]


def test_a_cancellation_at_the_last_moment_counts(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_start(study, **TABLE_RUN)
    save = preparation.arrays_save

    def cancelled(name: str, **arrays: Any) -> str:
        run_cancel(run=run, acting_user=user_create("olga"))
        return save(name, **arrays)

    monkeypatch.setattr(preparation, "arrays_save", cancelled)
    assert not preparation.run_prepare(run)
    run.refresh_from_db()
    assert (run.status, run.assignment, run.chunks.count()) == (Run.Status.CANCELLED, "", 0)


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (PlanError("There are fewer people than planned. Propose it anew."), "There are fewer people than planned."),
        (RuntimeError("P-0001 is odd"), "An unexpected error; the logs of the worker tell it under this run's id."),
    ],
)
def test_a_failed_preparation_has_a_message(
    study: Study, monkeypatch: pytest.MonkeyPatch, trouble: Exception, message: str
) -> None:
    run = run_start(study, **TABLE_RUN)

    def fails(*given: object) -> None:
        raise trouble

    monkeypatch.setattr(preparation, "assign_keyed", fails)
    advance.run_advance(run.pk)
    run.refresh_from_db()
    assert run.status == Run.Status.FAILED and run.message.startswith(message)
    assert "odd" not in run.message


def test_storage_that_does_not_answer_is_tried_again(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_start(study, **TABLE_RUN)

    def full(name: str, **arrays: Any) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "arrays_save", full)
        advance.run_advance(run.pk)
    run.refresh_from_db()
    assert run.status == Run.Status.PREPARING and "it is tried again" in run.message.replace("the run", "it")
    Run.objects.filter(pk=run.pk).update(heartbeat=None)
    assert sweep.runs_sweep() == [str(run.pk)]
    assert run_finish(run).status == Run.Status.FINISHED


@pytest.mark.worker
@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_while_it_prepares_leaves_nothing_half_done(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    study = study_with_table(levels="HAL")
    run = run_start(study, **TABLE_RUN)
    records = Path(storages["private"].path(run.private_dataset.artifact))
    kept = records.rename(tmp_path / "records.npz")
    os.mkfifo(records)  # whoever opens it waits

    def state() -> Run:
        return Run.objects.get(pk=run.pk)

    with worker(log) as process:
        wait_until(lambda: state().status != Run.Status.APPROVED, log)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    killed = state()
    assert (killed.status, killed.assignment, killed.chunks.count()) == (Run.Status.PREPARING, "", 0)
    records.unlink()
    kept.rename(records)
    with worker(log):
        wait_until(lambda: state().status not in (Run.Status.APPROVED, Run.Status.PREPARING), log)
        wait_until(lambda: state().has_ended, log)
    assert state().status == Run.Status.FINISHED, state().message
    assert len(balances(study).holders) == 30
    assert list(study_faults(study)) == []
