"""Queue and workers: the waiting runs in order, the runs of each worker, and the expected end of each run.

Everything is computed from heartbeats, claims, and the stages shown to everyone who may see a run. The queue does not
reveal how long individual shards or teachers take, because that depends on private records.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from common.jobs import claimant, live_worker_count, worker_claims
from common.models import WorkerHeartbeat
from consent.models import Study
from consent.permissions import studies_with_permission
from training.engine.scheduling import claims, worker_times
from training.models import Run
from training.selectors import Progress, run_progress

#: Number of earlier runs from which the duration of a run is estimated.
_EARLIER = 20


@dataclass(frozen=True)
class QueuedRun:
    """Run that is in progress or waiting to begin.

    Attributes:
        run: the run; None if the reader may not see its study's runs.
        status: its :class:`training.models.Run.Status`.
        place: its place among the runs that have not begun, starting at 1; None once it has begun.
        progress: its progress; None if the reader may not see it.
        workers: names of the workers that have claimed it or a part of it.
        starts: when it is expected to begin; None if unknown, or if it has begun.
        ends: when it is expected to end; None if unknown.
        takes: how long earlier runs of the study with the same method took; None if there were none.
    """

    run: Run | None
    status: str
    place: int | None = None
    progress: Progress | None = None
    workers: tuple[str, ...] = ()
    starts: datetime | None = None
    ends: datetime | None = None
    takes: timedelta | None = None

    @property
    def is_next(self) -> bool:
        """Whether the run is only waiting for a free worker."""
        return _is_now(self.starts)


@dataclass(frozen=True)
class Worker:
    """Worker that was active within the last day: its visible ``runs``, and the number of others (``elsewhere``)."""

    name: str
    heard_at: datetime
    is_alive: bool
    runs: tuple[Run, ...] = ()
    elsewhere: int = 0


@dataclass(frozen=True)
class Queue:
    """Runs in progress (``under_way``), waiting runs in order, and the workers."""

    under_way: list[QueuedRun]
    waiting: list[QueuedRun]
    workers: list[Worker]

    @property
    def alive(self) -> int:
        """Number of workers that accept tasks."""
        return sum(worker.is_alive for worker in self.workers)


def _is_now(starts: datetime | None) -> bool:
    return starts is not None and starts <= timezone.now()


def _unbegun() -> list[UUID]:
    """Return approved runs that no worker has begun, in the order in which they will begin.

    Studies take turns: the next run is the first one of the study that has used the least worker time
    (:mod:`training.engine.scheduling`), assuming that all runs ahead have the same length.
    """
    waiting = Run.objects.filter(status=Run.Status.APPROVED, started_at=None).order_by("approved_at", "pk")
    had = worker_times()
    order, number = [], Counter[int]()
    for place, (pk, study) in enumerate(waiting.values_list("pk", "study_id")):
        order.append((number[study], had[study], place, pk))
        number[study] += 1
    return [pk for *_, pk in sorted(order)]


@dataclass(frozen=True)
class Wait:
    """Place of a run among those that have not begun, starting at 1, and its expected start; None if unknown."""

    place: int
    starts: datetime | None

    @property
    def is_next(self) -> bool:
        """Whether the run is only waiting for a free worker."""
        return _is_now(self.starts)


def run_wait(run: Run) -> Wait | None:
    """Return the wait of a run that has not begun; None if it has begun or is about to begin."""
    if run.status != Run.Status.APPROVED or run.started_at is not None:
        return None
    order = _unbegun()
    if run.pk not in order:
        return None
    ahead = Run.objects.filter(
        study_id=run.study_id, status__in=Run.ACTIVE, approved_at__lte=run.approved_at
    ).select_related("joint")
    return Wait(order.index(run.pk) + 1, _starts(list(ahead.order_by("approved_at", "pk"))).get(run.pk))


def _starts(runs: list[Run]) -> dict[UUID, datetime | None]:
    """Return the expected start of each run that has not begun.

    Studies share the workers, so a run begins as soon as earlier runs of the same study have spent their shares. The
    start of a run is unknown until its sites have approved it.

    Args:
        runs: All active runs of the studies, in the order of their approval.
    """
    now, durations = timezone.now(), expected_durations(runs)
    free: dict[int, datetime | None] = defaultdict(lambda: now if live_worker_count() else None)
    starts: dict[UUID, datetime | None] = {}
    for run in sorted(runs, key=_is_unbegun):
        takes, before = durations.get((run.study_id, run.method)), free[run.study_id]
        if _is_unbegun(run):
            if run.alliance_id and run.joint.missing:  # other runs begin in the meantime
                starts[run.pk] = None
                continue
            starts[run.pk] = now if run.rehearsal and before else before
            ends = before + takes if before and takes else None
        elif run.status == Run.Status.LEARNING:
            continue
        else:
            ends = _expected_end(run, run_progress(run), takes, now)
        if not run.rehearsal:
            free[run.study_id] = max(ends, before) if ends and before else None
    return starts


def _is_unbegun(run: Run) -> bool:
    return run.status in (Run.Status.PLANNING, Run.Status.APPROVED) and run.started_at is None


def queue_watchable(user: Any) -> bool:
    """Return whether ``user`` may see the queue: an operator of any study or an administrator of the installation."""
    if user.has_perm("consent.manage_accounts"):
        return True
    return studies_with_permission(user, "training.approve_run").exists()


def runs_under_way(study: Study) -> list[QueuedRun]:
    """Return a study's runs that are in progress or waiting to begin, in the order of their approval."""
    runs = study.runs.filter(status__in=Run.ACTIVE).select_related("public_dataset", "alliance", "joint")
    return [QueuedRun(run, run.status, progress=run_progress(run)) for run in runs.order_by("approved_at", "pk")]


def queue_for(user: Any) -> Queue:
    """Return the queue of the whole installation, without details of runs that ``user`` may not see."""
    visible = set(studies_with_permission(user, "training.view_run").values_list("pk", flat=True))
    runs = list(
        Run.objects.filter(status__in=Run.ACTIVE)
        .select_related("study", "alliance", "joint")
        .order_by("approved_at", "pk")
    )
    places = {pk: place for place, pk in enumerate(_unbegun(), start=1)}
    starts = _starts([run for run in runs if run.study_id in visible])
    holding = claims()
    durations = expected_durations(run for run in runs if run.study_id in visible)
    now = timezone.now()

    def queued(run: Run) -> QueuedRun:
        place = places.get(run.pk)
        if run.study_id not in visible:
            return QueuedRun(None, run.status, place)
        progress = run_progress(run)
        takes = durations.get((run.study_id, run.method))
        names = tuple(sorted(claimant(claim) for claim, pk in holding if pk == run.pk))
        ends = _expected_end(run, progress, takes, now)
        return QueuedRun(run, run.status, place, progress, names, starts.get(run.pk), ends, takes)

    rows = [queued(run) for run in runs]
    return Queue(
        [row for row in rows if row.place is None],
        sorted((row for row in rows if row.place is not None), key=lambda row: row.place or 0),
        _workers({run.pk: run for run in runs}, visible, holding),
    )


def _expected_end(run: Run, progress: Progress, takes: timedelta | None, now: datetime) -> datetime | None:
    if progress.left is not None:
        return now + progress.left
    ends = run.started_at + takes if run.started_at and takes else None
    return ends if ends and ends > now else None


def expected_durations(runs: Iterable[Run]) -> dict[tuple[int, str], timedelta]:
    """Return the median duration of recently finished runs, for each study and method that occurs in ``runs``."""
    pairs = {(run.study_id, run.method) for run in runs}
    finished = Run.objects.filter(
        study__in={study for study, _method in pairs}, status=Run.Status.FINISHED, started_at__isnull=False
    ).order_by("-ended_at")
    took: dict[tuple[int, str], list[timedelta]] = defaultdict(list)
    for study, method, started, ended in finished.values_list("study", "method", "started_at", "ended_at"):
        assert started is not None and ended is not None, "a finished run has both times"
        if (study, method) in pairs and len(took[study, method]) < _EARLIER:
            took[study, method].append(ended - started)
    return {key: timedelta(seconds=median(each.total_seconds() for each in all_)) for key, all_ in took.items()}


def _workers(runs: dict[UUID, Run], visible: set[int], holding: set[tuple[str, UUID]]) -> list[Worker]:
    alive = timezone.now() - timedelta(seconds=settings.HEARTBEAT_TIMEOUT)
    workers = []
    for name, heard_at in WorkerHeartbeat.objects.order_by("name").values_list("name", "heard_at"):
        pks = {pk for claim, pk in holding if worker_claims(name, claim)}
        mine = [run for pk, run in runs.items() if pk in pks]
        seen = tuple(run for run in mine if run.study_id in visible)
        workers.append(Worker(name, heard_at, heard_at >= alive, seen, len(pks) - len(seen)))
    return workers
