"""Many workers and operators at the same time: nothing is promised, started or voted on twice."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from celery import current_app
from django.core.exceptions import ValidationError
from django.core.files.storage import storages
from django.db import connection

from accounting.shares import share_free, shares
from accounting.verification import study_faults
from learning.mechanisms.protocol import PlanError
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_approve, run_draft, study_with_table
from training.engine.questions import run_folder
from training.models import Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both]

#: Message for delivering emails, which is also sent when a run is approved or ends.
MAIL = ("mails_deliver",)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the messages sent to the broker, as task and id."""
    given: list[tuple[str, str]] = []
    monkeypatch.setattr(
        current_app._get_current_object(), "send_task", lambda name, ids: given.append((name.split(".")[-1], *ids))
    )
    return given


def at_once(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Start all ``jobs`` at the same moment, each in a thread, and return what each returned or raised."""
    outcomes: list[Any] = [None] * len(jobs)
    start = threading.Barrier(len(jobs))

    def work(place: int) -> None:
        try:
            start.wait()
            outcomes[place] = jobs[place]()
        except Exception as trouble:
            outcomes[place] = trouble
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.exhaustive
@pytest.mark.parametrize(("share", "fit"), [(0.15, 6), (1.0, 1)])
def test_only_runs_that_fit_are_approved_of_twenty_at_once(sent: list[tuple[str, str]], share: float, fit: int) -> None:
    study, people = study_with_table(holders=12, delta=1e-5), [user_create(f"olga-{n}") for n in range(20)]
    drafts = [run_draft(study, **TABLE_RUN | {"teachers": 3}) for _ in range(20)]
    outcomes = at_once(
        [
            lambda run=run, olga=olga: run_approve(run=run, acting_user=olga, share=share)
            for run, olga in zip(drafts, people, strict=True)
        ]
    )

    approved = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    refused = [(run, outcome) for run, outcome in zip(drafts, outcomes, strict=True) if not isinstance(outcome, Run)]
    assert {type(error) for _, error in refused} <= {PlanError, ValidationError}
    assert len(approved) == fit
    advances = sorted(message for message in sent if message != MAIL)
    assert advances == sorted(("run_advance", str(run.pk)) for run in approved)
    for draft, error in refused:
        draft.refresh_from_db()
        assert "reserved for other runs" in str(error)
        assert (draft.status, draft.plan, draft.assignment, draft.snapshot_at) == (Run.Status.DRAFT, {}, "", None)
        assert not storages["private"].exists(run_folder(draft))
    assert {subject: each.granted for subject, each in shares(study).items()} == {run.pk: share for run in approved}
    assert share_free(study) == pytest.approx(1 - fit * share)
    assert list(study_faults(study)) == []
