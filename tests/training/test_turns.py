"""Turns of the workers: studies get the same time, and long work makes room for other work."""

from collections import deque
from datetime import timedelta

import pytest
from celery import current_app
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks as Commits

from common.artifacts import arrays_list
from common.jobs.leases import lease
from tests.training.asking import EVERYBODY
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_data, study_with_table
from training import tasks
from training.engine import turns
from training.methods.lessons import checkpoints_folder
from training.models import Run, StudentTraining
from training.services import advance
from training.services.advance import run_advance, step_of
from training.services.trainings import student_ask, student_learn

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


class Broker:
    """Messages in the order in which they came, as brokers give them out."""

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
        raise AssertionError("messages multiply")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Commits) -> Broker:
    made = Broker(django_capture_on_commit_callbacks)
    monkeypatch.setattr(current_app._get_current_object(), "send_task", made.send_task)
    return made


def test_a_small_run_does_not_wait_until_another_studys_large_one_is_done(
    broker: Broker, django_capture_on_commit_callbacks: Commits
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        large = run_start(study_with_table("large"), **TABLE_RUN | {"teachers": 12})
    broker.deliver()
    chunks = large.chunks.count()
    assert len(broker.messages) == chunks > 1, "all of its teachers wait at the broker"
    turns.worker_time_note(large.study_id, 600)
    with django_capture_on_commit_callbacks(execute=True):
        small = run_start(study_with_table("small"), **TABLE_RUN)
    while Run.objects.get(pk=small.pk).status != Run.Status.FINISHED:
        broker.deliver()
    assert large.chunks.filter(state="pending").count() == chunks
    broker.deliver_all()
    assert Run.objects.get(pk=large.pk).status == Run.Status.FINISHED, "no message was lost for its turn"


def test_studies_that_workers_are_at_come_after_others() -> None:
    first, second = (run_start(study_with_table(name), share=0.1, **TABLE_RUN) for name in ("first", "second"))
    named = turns.piece_of("run_advance", second.pk)
    assert named is not None
    assert [piece.run for piece in turns.pieces_due(named)] == [first.pk, second.pk]
    third = run_start(first.study, share=0.1, **TABLE_RUN)
    with lease(Run, third.pk):
        assert [piece.run for piece in turns.pieces_due(named)] == [second.pk, first.pk]


def test_time_is_forgotten_by_and_by() -> None:
    study = study_with_table()
    turns.worker_time_note(study.pk, 60)
    turns.worker_time_note(study.pk, 20)
    assert turns.worker_times()[study.pk] == pytest.approx(80, rel=0.01)
    turns.WorkerTime.objects.update(noted_at=timezone.now() - timedelta(minutes=20))
    assert turns.worker_times()[study.pk] == pytest.approx(20, rel=0.01)


def test_runs_that_wait_for_their_parts_or_for_others_are_not_due(broker: Broker) -> None:
    run = run_start(study_with_table(), **TABLE_RUN)
    named = turns.piece_of("run_advance", run_start(study_with_table("other"), **TABLE_RUN).pk)
    assert named is not None
    Run.objects.filter(pk=run.pk).update(message="Waits.")
    assert [piece.run for piece in turns.pieces_due(named)] == [named.run]
    Run.objects.filter(pk=run.pk).update(message="")
    tasks.run_advance(str(run.pk))
    assert {piece.task for piece in turns.pieces_due(named) if piece.run == run.pk} == {"chunk_train"}


NETWORK = {"student_learner": "consistency", "student_parameters": {"steps": 200, "batch": 8}}


@pytest.mark.parametrize("of_the_run", [True, False])
def test_a_students_training_steps_aside_and_goes_on(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Commits,
    of_the_run: bool,
) -> None:
    """The student of a run, or another version of it, trains; a run of another study is approved meanwhile."""
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
    turns.worker_time_note(study.pk, 600)
    piece = turns.piece_of(task, pk)
    assert piece is not None
    with django_capture_on_commit_callbacks(execute=True), monkeypatch.context() as patched, turns.turn(piece):
        patched.setattr(turns, "TURN", 0.0)
        assert (run_advance if of_the_run else student_learn)(pk), "it went on, as far as its checkpoint"
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
