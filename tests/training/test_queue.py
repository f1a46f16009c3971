"""Queue and tasks: places, claims, expected ends, and messages for workers."""

from collections import Counter, deque
from datetime import timedelta
from unittest.mock import Mock
from uuid import uuid4

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from ipate_client.documents import Run as FetchedRun
from kombu.exceptions import OperationalError
from pytest_django import DjangoCaptureOnCommitCallbacks as Commits

from common.artifacts import arrays_list
from common.jobs import lease
from common.models import WorkerHeartbeat
from consent.models import Level, Study
from consent.services.accounts import administrator_set
from tests import factories
from tests.factories import user_create
from tests.pages import as_
from tests.training.asking import ASKING_RUN, EVERYBODY
from tests.training.runs import (
    TABLE_RUN,
    run_draft,
    run_finish,
    run_start,
    run_teach,
    study_with_data,
    study_with_table,
)
from training import tasks
from training.engine import scheduling
from training.engine.scheduling import send, worker_time_note
from training.methods import pate_teachers
from training.methods.student_training import checkpoints_folder
from training.models import Run, StudentTraining
from training.queue import queue_for, run_wait
from training.services import advance
from training.services.advance import run_advance, step_of
from training.services.drawings import head_counts_enter
from training.services.students import student_ask, student_learn

pytestmark = pytest.mark.django_db

WORKER = "celery@here:1"


@pytest.fixture
def study() -> Study:
    return study_with_table()


@pytest.fixture
def operator(study: Study) -> User:
    return factories.member(study, "otto", "operator")


def place(run: Run) -> int | None:
    wait = run_wait(run)
    return wait and wait.place


def test_runs_wait_in_the_order_in_which_they_were_approved(study: Study, operator: User) -> None:
    first, second = (run_start(study, share=0.1, title=title, **TABLE_RUN) for title in ("First", "Second"))
    draft = run_draft(study, **TABLE_RUN)
    assert [place(run) for run in (first, second, draft)] == [1, 2, None]
    queue = queue_for(operator)
    assert [(row.run, row.place) for row in queue.waiting] == [(first, 1), (second, 2)] and queue.under_way == []
    page = as_(operator).get(f"/studies/table/runs/{second.pk}/").text
    assert "1 run is ahead of this one in the queue." in page
    assert as_(operator).get(f"/api/v1/runs/{second.pk}").json()["place"] == 2
    Run.objects.filter(pk=first.pk).update(started_at=timezone.now())
    assert first.started_at is None and place(first) is None, "a worker has begun it in the meantime"
    run_teach(first)
    first.refresh_from_db()
    assert (place(first), place(second)) == (None, 1)
    assert [row.run for row in queue_for(operator).under_way] == [first]


def test_when_a_run_is_expected_to_begin_and_to_end(study: Study, operator: User) -> None:
    """Studies share the workers, and a run waits for the other runs of its study."""
    earlier, now = run_finish(run_start(study, share=0.2, **TABLE_RUN)), timezone.now()
    Run.objects.filter(pk=earlier.pk).update(started_at=now - timedelta(minutes=10), ended_at=now)
    other = run_start(study_with_table("other"), **TABLE_RUN)
    first, second = (run_start(study, share=0.2, **TABLE_RUN) for _ in range(2))
    assert [(wait.place, wait.starts) for run in (first, second) if (wait := run_wait(run))] == [(2, None), (3, None)]
    WorkerHeartbeat.objects.create(name=WORKER, heard_at=now)
    waits = [run_wait(run) for run in (other, first, second)]
    assert [wait.is_next for wait in waits if wait] == [True, True, False]
    starts = waits[2].starts if waits[2] else None
    assert starts is not None and timedelta(minutes=10) <= starts - now < timedelta(minutes=11)
    document = as_(operator).get(f"/api/v1/runs/{second.pk}").json()
    fetched = FetchedRun(document["id"], document["study"], document["title"], document["status"], document)
    assert "place 3 in the queue, expected to begin at" in fetched.status_text
    for run, words in ((second, "Expected start:"), (first, "The run will start as soon as a worker is free.")):
        assert words in as_(operator).get(f"/studies/table/runs/{run.pk}/").text
    waiting = next(row for row in queue_for(operator).waiting if row.run == first)
    assert (waiting.takes, waiting.ends) == (timedelta(minutes=10), None)
    run_teach(first)
    for minutes, ends in ((4, now + timedelta(minutes=6)), (40, None)):
        Run.objects.filter(pk=first.pk).update(started_at=now - timedelta(minutes=minutes))
        assert queue_for(operator).under_way[0].ends == ends, "the end of a late run is unknown"


def test_studies_take_turns_in_the_queue_and_time_is_forgotten_by_and_by() -> None:
    studies = [study_with_table(name) for name in ("busy", "quiet")]
    first, second = (run_start(studies[0], share=0.1, **TABLE_RUN) for _ in range(2))
    third = run_start(studies[1], **TABLE_RUN)
    assert [place(run) for run in (first, second, third)] == [1, 3, 2]
    worker_time_note(studies[0].pk, 60)
    worker_time_note(studies[0].pk, 20)
    assert [place(run) for run in (first, second, third)] == [2, 3, 1]
    assert scheduling.worker_times()[studies[0].pk] == pytest.approx(80, rel=0.01)
    scheduling.WorkerTime.objects.update(noted_at=timezone.now() - timedelta(minutes=20))
    assert scheduling.worker_times()[studies[0].pk] == pytest.approx(20, rel=0.01)


def test_the_queue_shows_only_the_number_of_runs_of_other_studies(study: Study, operator: User) -> None:
    foreign = run_start(study_with_table("foreign"), title="Nobody's business", **TABLE_RUN)
    mine = run_start(study, title="Mine", **TABLE_RUN)
    foreign.study.memberships.filter(user=operator).delete()
    rows = queue_for(operator).waiting
    assert [(row.run, row.place, row.workers) for row in rows] == [(None, 1, ()), (mine, 2, ())]
    page = as_(operator).get("/queue/").content.decode()
    assert "Mine" in page
    assert "A run in another study" in page
    assert "Nobody&#x27;s business" not in page
    assert "foreign" not in page
    boss = factories.user_create("boss")
    administrator_set(user=boss, appointed=True, acting_user=None)
    page = as_(boss).get("/queue/live/").content.decode()
    assert page.count("A run in another study") == 2
    assert "Mine" not in page


class Broker:
    """Messages in the order in which they arrived, as brokers deliver them."""

    def __init__(self, commits: Commits) -> None:
        self.messages: deque[tuple[str, str]] = deque()
        self._commits = commits

    def send_task(self, name: str, ids: list[str]) -> None:
        if name.startswith("training."):
            self.messages.append((name.rpartition(".")[2], ids[0]))

    def deliver(self) -> None:
        """Let a worker handle the first message."""
        task, pk = self.messages.popleft()
        with self._commits(execute=True):
            getattr(tasks, task)(pk)

    def deliver_all(self) -> None:
        for _ in range(1_000):
            if not self.messages:
                return
            self.deliver()
        raise AssertionError("messages keep increasing")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Commits) -> Broker:
    made = Broker(django_capture_on_commit_callbacks)
    monkeypatch.setattr(pate_teachers, "CHUNKS", 3)
    monkeypatch.setattr(current_app._get_current_object(), "send_task", made.send_task)
    return made


@pytest.mark.exhaustive
def test_a_small_run_does_not_wait_for_another_studys_large_one(broker, django_capture_on_commit_callbacks) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        large = run_start(study_with_table("large"), **TABLE_RUN | {"teachers": 12})
    broker.deliver()
    chunks = large.chunks.count()
    assert len(broker.messages) == chunks > 1, "all of its teachers are queued at the broker"
    scheduling.worker_time_note(large.study_id, 600)
    with django_capture_on_commit_callbacks(execute=True):
        small = run_start(study_with_table("small"), **TABLE_RUN)
    while Run.objects.get(pk=small.pk).status != Run.Status.FINISHED:
        broker.deliver()
    assert large.chunks.filter(state="pending").count() == chunks
    broker.deliver_all()
    assert Run.objects.get(pk=large.pk).status == Run.Status.FINISHED, "no message was lost while it waited"


def test_studies_in_progress_come_after_others_and_waiting_runs_are_not_due(broker: Broker) -> None:
    first, second = (run_start(study_with_table(name), share=0.1, **TABLE_RUN) for name in ("first", "second"))
    named = scheduling.work_item_of("run_advance", second.pk)
    assert named is not None
    assert [item.run for item in scheduling.work_items_due(named)] == [first.pk, second.pk]
    third = run_start(first.study, share=0.1, **TABLE_RUN)
    with lease(Run, third.pk):
        assert [item.run for item in scheduling.work_items_due(named)] == [second.pk, first.pk]
    Run.objects.filter(study=first.study).update(message="Waits.")
    assert [item.run for item in scheduling.work_items_due(named)] == [second.pk]
    Run.objects.filter(pk=first.pk).update(message="")
    tasks.run_advance(str(first.pk))
    assert {item.task for item in scheduling.work_items_due(named) if item.run == first.pk} == {"chunk_train"}


NETWORK = {"student_learner": "consistency", "student_parameters": {"steps": 200, "batch": 8, "filters": 4}}


@pytest.mark.exhaustive
@pytest.mark.parametrize("of_the_run", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_training_a_student_yields_to_other_work(
    broker, monkeypatch, django_capture_on_commit_callbacks, of_the_run
) -> None:
    """While a student or another version is trained, a run of another study is approved."""
    study = study_with_data(levels="LLLL")
    run = run_start(study, **EVERYBODY, choices={"rounds": 1}, batch_size=300, **NETWORK)
    if of_the_run:
        with monkeypatch.context() as patched:
            patched.setattr(advance, "step_of", lambda run: None if run.status == Run.Status.LEARNING else step_of(run))
            run_finish(run)
        task, pk = "run_advance", str(run.pk)
    else:
        run_finish(run)
        task, pk = "student_learn", str(student_ask(run=run, acting_user=None, **NETWORK).pk)
    with django_capture_on_commit_callbacks(execute=True):
        quick = run_start(study_with_table("quick"), **TABLE_RUN)
    scheduling.worker_time_note(study.pk, 600)
    item = scheduling.work_item_of(task, pk)
    assert item is not None
    commits = django_capture_on_commit_callbacks(execute=True)
    with commits, monkeypatch.context() as patched, scheduling.time_slice(item):
        patched.setattr(scheduling, "TIME_SLICE", 0.0)
        assert (run_advance if of_the_run else student_learn)(pk), "it continued up to its checkpoint"
    assert len(arrays_list(checkpoints_folder(run))) == 1
    assert broker.messages[-1] == (task, pk)
    while Run.objects.get(pk=quick.pk).status != Run.Status.FINISHED:
        broker.deliver()
        assert not finished(run, of_the_run), "the quick run comes first"
    broker.deliver_all()
    assert finished(run, of_the_run)
    assert arrays_list(checkpoints_folder(run)) == []


def finished(run: Run, of_the_run: bool) -> bool:
    if of_the_run:
        return Run.objects.get(pk=run.pk).status == Run.Status.FINISHED
    return StudentTraining.objects.get(run=run, version=None).state == "done"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Return the messages for the broker."""
    given: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        current_app._get_current_object(), "send_task", lambda name, ids: given.append((name, list(ids)))
    )
    return given


def test_a_task_is_sent_with_ids_alone_after_the_commit_and_exists(sent, django_capture_on_commit_callbacks) -> None:
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(ZeroDivisionError), transaction.atomic():
        send("run_advance", 1)
        raise ZeroDivisionError
    with django_capture_on_commit_callbacks(execute=True):
        run = run_start(study_with_table(), **TABLE_RUN)
        assert sent == []
    mails = ("consent.tasks.mails_deliver", [])  # to those who may approve it, and to its proposer
    assert mails in sent
    assert [each for each in sent if each != mails] == [("training.tasks.run_advance", [str(run.pk)])]
    before = len(sent)
    with django_capture_on_commit_callbacks(execute=True):
        advance.run_advance(run.pk)
    assert sent[before:] == [("training.tasks.chunk_train", [str(chunk.pk)]) for chunk in run.chunks.all()]
    current_app.loader.import_default_modules()  # as a worker does
    assert {name for name, _ in sent} <= set(current_app.tasks)


@pytest.mark.parametrize("trouble", [OperationalError("away"), OSError("disk full")])
def test_an_unreachable_broker_undoes_nothing(trouble, monkeypatch, django_capture_on_commit_callbacks) -> None:
    with monkeypatch.context() as patch, django_capture_on_commit_callbacks(execute=True):
        patch.setattr(current_app._get_current_object(), "send_task", Mock(side_effect=trouble))
        run = run_start(study_with_table(), **TABLE_RUN)
    run.refresh_from_db()
    assert run.status == Run.Status.APPROVED
    Run.objects.update(heartbeat=None)
    assert advance.runs_sweep() == [str(run.pk)]


def test_a_task_that_is_delivered_twice_does_not_multiply(sent, django_capture_on_commit_callbacks) -> None:
    study = study_with_table(points=12, delta=4e-5)
    many = dict.fromkeys(Level.values, 8_000)  # as if public, so that a batch is asked in several shards
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
    assert handled["training.tasks.shard_ask"] <= (batches + 1) * shards, "the second delivery asked at most once more"
    assert handled["training.tasks.run_advance"] <= batches + 2


def test_tasks_ignore_arguments_that_they_do_not_know_and_rows_that_are_gone() -> None:
    tasks.run_advance(str(uuid4()), "from a newer version", priority=3)
    tasks.chunk_train("987654321", "from a newer version", priority=3)
    tasks.runs_sweep("from a newer version", priority=3)
