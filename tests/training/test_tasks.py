"""Tasks carry ids only and are sent after the commit, even if the broker fails."""

from collections import Counter, deque
from uuid import uuid4

import pytest
from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError
from pytest_django import DjangoCaptureOnCommitCallbacks as Commits

from consent.models import Level
from tests.factories import user_create
from tests.training.asking import ASKING_RUN
from tests.training.runs import TABLE_RUN, run_start, study_with_table
from training import tasks
from training.dispatch import send
from training.models import Run
from training.services import advance, sweep
from training.services.head_counts import head_counts_enter

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Messages for the broker."""
    given: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        current_app._get_current_object(), "send_task", lambda name, ids: given.append((name, list(ids)))
    )
    return given


def test_a_task_is_sent_with_ids_alone_and_exists(
    sent: list[tuple[str, list[str]]], django_capture_on_commit_callbacks: Commits
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        run = run_start(study_with_table(), **TABLE_RUN)
        assert sent == [], "nothing is sent before the approval is committed"
    mails = ("consent.tasks.mails_deliver", [])  # to those who may approve it, and to its proposer
    assert mails in sent
    assert [each for each in sent if each != mails] == [("training.tasks.run_advance", [str(run.pk)])]
    before = len(sent)
    with django_capture_on_commit_callbacks(execute=True):
        advance.run_advance(run.pk)
    chunks = [("training.tasks.chunk_train", [str(chunk.pk)]) for chunk in run.chunks.all()]
    assert sent[before:] == chunks
    current_app.loader.import_default_modules()  # as a worker does
    assert {name for name, _ in sent} <= set(current_app.tasks)


def test_tasks_of_a_rolled_back_block_are_not_sent(
    sent: list[tuple[str, list[str]]], django_capture_on_commit_callbacks: Commits
) -> None:
    with (
        django_capture_on_commit_callbacks(execute=True),
        pytest.raises(ZeroDivisionError),
        transaction.atomic(),
    ):
        send("run_advance", 1)
        raise ZeroDivisionError
    assert sent == []


@pytest.mark.parametrize("trouble", [OperationalError("away"), OSError("disk full")])
def test_an_unreachable_broker_undoes_nothing_and_the_sweep_resends(
    trouble: Exception, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Commits
) -> None:
    def refuse(*_: object) -> None:
        raise trouble

    with monkeypatch.context() as patch, django_capture_on_commit_callbacks(execute=True):
        patch.setattr(current_app._get_current_object(), "send_task", refuse)
        run = run_start(study_with_table(), **TABLE_RUN)
    run.refresh_from_db()
    assert run.status == Run.Status.APPROVED
    Run.objects.update(heartbeat=None)
    assert sweep.runs_sweep() == [str(run.pk)]


@pytest.mark.slow
def test_a_task_that_is_delivered_twice_does_not_multiply(
    sent: list[tuple[str, list[str]]], django_capture_on_commit_callbacks: Commits
) -> None:
    study = study_with_table(points=12, delta=4e-5)
    many = dict.fromkeys(Level.values, 8_000)  # as if public: a batch is asked in several shards
    head_counts_enter(study=study, acting_user=user_create("olga"), counts=many)
    run = run_start(study, share=0.5, **ASKING_RUN | {"batch_size": 2})
    shards, batches = 3, 6
    waiting, handled = deque([("training.tasks.run_advance", [str(run.pk)])] * 2), Counter[str]()
    while waiting and handled.total() < 1_000:
        name, ids = waiting.popleft()
        handled[name] += 1
        if name.startswith("training.tasks."):
            with django_capture_on_commit_callbacks(execute=True):
                getattr(tasks, name.rpartition(".")[2])(*ids)
        waiting += sent
        sent.clear()
    run.refresh_from_db()
    assert (run.status, run.batches.count()) == (Run.Status.FINISHED, batches), run.message
    assert handled["training.tasks.shard_ask"] <= (batches + 1) * shards, "the second delivery asked once more at most"
    assert handled["training.tasks.run_advance"] <= batches + 2


def test_tasks_ignore_arguments_that_they_do_not_know_and_rows_that_are_gone() -> None:
    tasks.run_advance(str(uuid4()), "from a newer version", priority=3)
    tasks.chunk_train("987654321", "from a newer version", priority=3)
    tasks.runs_sweep("from a newer version", priority=3)
