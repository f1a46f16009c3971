"""Scheduling: choosing the work that a free worker does next.

A broker message refers to one work item; the database shows which other work is waiting. Plans come first, because a
person is waiting for each. After plans, the study whose runs occupy the fewest processes comes first or, if several do,
the one that has recently used the least worker time. Within a study, earlier approvals come first, and training
students comes last.

Long work that can resume later at no cost yields after `TIME_SLICE` seconds if other work is due.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError, models, transaction
from django.db.models import Exists, Min, OuterRef
from django.utils import timezone

from common import jobs
from common.jobs import stale_before, without_worker
from training.models import Run, Shard, StudentTraining, TeacherChunk, WorkerTime

#: Seconds after which long work checks whether other work is due.
TIME_SLICE = 20.0
#: Half-life of the recorded worker time of a study.
_HALF = timedelta(minutes=10)

_PARTS: dict[str, tuple[type[models.Model], str]] = {
    "chunk_train": (TeacherChunk, Run.Status.PREPARING),
    "shard_ask": (Shard, Run.Status.ASKING),
    "student_learn": (StudentTraining, Run.Status.FINISHED),
}


class WorkYielded(Exception):
    """Raised when work yields to other work. The work's progress was stored, so that it can resume from there."""


@dataclass(frozen=True)
class WorkItem:
    """Unit of work: the ``task`` of :mod:`training.tasks`, the row's key, and the values that set its priority."""

    task: str
    pk: UUID | int
    run: UUID
    study: int
    is_long: bool
    since: datetime | None
    is_planned: bool = False


def claims() -> set[tuple[str, UUID]]:
    """Return the claims of live processes, each with the id of its run."""
    alive = {"heartbeat__gte": stale_before()}
    found = set(Run.objects.filter(**alive).exclude(claimed_by="").values_list("claimed_by", "pk"))
    for part, _status in _PARTS.values():
        held = part._default_manager.filter(**alive).exclude(claimed_by="")
        found |= {(claim, run) for claim, run in held.values_list("claimed_by", "run_id")}
    return found


def work_item_of(task: str, pk: Any) -> WorkItem | None:
    """Return the work item that a message refers to, or None if it no longer exists."""
    if task == "run_advance":
        return next(_advances(Run.objects.filter(pk=pk)), None)
    part, _status = _PARTS[task]
    row = part._default_manager.filter(pk=pk).values_list("run_id", "run__study_id", "run__approved_at").first()
    return row and WorkItem(task, int(pk), row[0], row[1], task == "student_learn", row[2])


def work_items_due(named: WorkItem) -> list[WorkItem]:
    """Return the waiting work in order of priority, one item per run, including ``named``."""
    return _ordered(named, worker_times(), [run for _claim, run in claims()])


def _ordered(named: WorkItem, had: dict[int, float], held: list[UUID]) -> list[WorkItem]:
    items = {item.run: item for item in [*_parts_due(), *_runs_due()]} | {named.run: named}
    studies = dict(Run.objects.filter(pk__in=held).values_list("pk", "study_id"))
    busy = Counter(studies[run] for run in held)

    def order(item: WorkItem) -> tuple[Any, ...]:
        approved = item.since.timestamp() if item.since else 0.0
        return not item.is_planned, busy[item.study], had[item.study], item.is_long, approved, str(item.run)

    return sorted(items.values(), key=order)


def _parts_due() -> Iterator[WorkItem]:
    for task, (part, status) in _PARTS.items():
        due = part._default_manager.filter(without_worker(), run__status=status).exclude(state="done")
        fields = due.values_list("run_id", "run__study_id", "run__approved_at").annotate(first=Min("pk"))
        for run, study, since, pk in fields:
            yield WorkItem(task, pk, run, study, task == "student_learn", since)


def _runs_due() -> Iterator[WorkItem]:
    """Yield runs that a worker can advance now, because they are not waiting for parts, other runs, or a hub."""
    runs = Run.objects.filter(without_worker(), status__in=Run.ACTIVE, message="", alliance=None)
    for part in (TeacherChunk, Shard):
        runs = runs.exclude(Exists(part._default_manager.filter(run=OuterRef("pk")).exclude(state="done")))
    yield from _advances(runs)


def _advances(runs: models.QuerySet[Run]) -> Iterator[WorkItem]:
    for pk, study, status, since in runs.values_list("pk", "study_id", "status", "approved_at"):
        is_planned = status == Run.Status.PLANNING
        yield WorkItem("run_advance", pk, pk, study, status == Run.Status.LEARNING, since, is_planned)


def worker_times() -> dict[int, float]:
    """Return the seconds of worker time that each study has recently used; studies without any are missing."""
    now = timezone.now()
    times: dict[int, float] = defaultdict(float)
    for study, seconds, noted_at in WorkerTime.objects.values_list("study_id", "seconds", "noted_at"):
        times[study] = seconds * _left(now - noted_at)
    return times


def _left(age: timedelta) -> float:
    return 0.5 ** (max(age, timedelta()) / _HALF)


@transaction.atomic
def worker_time_note(study: int, seconds: float) -> None:
    """Record that a worker spent this many seconds on a study's work."""
    now = timezone.now()
    WorkerTime.objects.get_or_create(study_id=study, defaults={"seconds": 0.0, "noted_at": now})
    row = WorkerTime.objects.select_for_update().get(study_id=study)
    row.seconds, row.noted_at = row.seconds * _left(now - row.noted_at) + seconds, now
    row.save()


@dataclass(frozen=True)
class _TimeSlice:
    item: WorkItem
    began: float


_time_slice: ContextVar[_TimeSlice | None] = ContextVar("time_slice", default=None)


@contextmanager
def time_slice(item: WorkItem) -> Iterator[None]:
    """Measure the time that a worker spends on a work item within the block, and record it for the study."""
    began = time.monotonic()
    token = _time_slice.set(_TimeSlice(item, began))
    try:
        yield
    finally:
        _time_slice.reset(token)
        with suppress(DatabaseError):  # if the database is unavailable, the work itself will report it
            worker_time_note(item.study, time.monotonic() - began)


def should_yield() -> bool:
    """Return whether the current time slice is over and other work comes first; always False outside a time slice."""
    begun = _time_slice.get()
    if begun is None or (lasted := time.monotonic() - begun.began) < TIME_SLICE:
        return False
    mine = work_item_of(begun.item.task, begun.item.pk)
    if mine is None:
        return False
    had, held = worker_times(), [run for _claim, run in claims()]
    had[mine.study] += lasted
    if mine.run in held:
        held.remove(mine.run)  # the caller's own claim
    return _ordered(mine, had, held)[0] != mine


# --- Dispatch ---------------------------------------------------------------------------------------------------------


def send(task: str, *ids: object) -> None:
    """Queue a task of :mod:`training.tasks` by name after the transaction has committed."""
    jobs.send(f"training.tasks.{task}", *ids)
