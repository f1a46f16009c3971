"""Durations of the stages of runs, and silence of those under way, for whoever watches the installation."""

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count, Min, Q, Sum
from django.utils import timezone

from common.jobs.parts import Part
from training.models import Run, Shard, StudentTraining, TeacherChunk

#: Between which moments of its row a run waits for a worker, prepares (trains teachers), and releases and teaches.
STAGES = {
    "waiting": ("approved_at", "started_at"),
    "preparing": ("started_at", "spending_began_at"),
    "releasing": ("spending_began_at", "ended_at"),
}
_PARTS: tuple[type[Part], ...] = (TeacherChunk, Shard, StudentTraining)


def stage_durations() -> Iterator[tuple[str, timedelta]]:
    """Stage and duration of every stage that a run has been through, over all studies."""
    moments = {name for stage in STAGES.values() for name in stage}
    for run in Run.objects.filter(approved_at__isnull=False).values(*moments).order_by().iterator():
        for stage, (start, end) in STAGES.items():
            if run[start] and run[end]:
                yield stage, run[end] - run[start]


def runs_by_status() -> dict[str, int]:
    """Number of runs of each status, over all studies."""
    counted = dict(Run.objects.order_by().values_list("status").annotate(Count("pk")))
    return {status: counted.get(status, 0) for status in Run.Status.values}


def longest_silence() -> timedelta:
    """Time since a worker or the sweep last looked at the run under way that was left alone longest; 0 without runs."""
    busy = Q(chunks__state=Part.State.RUNNING) | Q(shards__state=Part.State.RUNNING)
    last = Run.objects.filter(status__in=Run.ACTIVE).exclude(busy).aggregate(last=Min("heartbeat"))["last"]
    return timezone.now() - last if last else timedelta(0)


def worker_deaths() -> int:
    """Number of workers that died over parts of runs which are still on record."""
    return sum(part._default_manager.aggregate(deaths=Sum("deaths"))["deaths"] or 0 for part in _PARTS)
