"""Sweep: the work of dead workers is sent on, and what ended runs left behind is deleted."""

import logging

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from common.counted import counted
from training.dispatch import send
from training.leases import stale_before
from training.models import Run, StudentTraining
from training.services.ending import run_forget
from training.services.imports import imports_sweep

logger = logging.getLogger(__name__)


def runs_sweep() -> list[str]:
    """Send on every run that nobody alive works on, and forget what ended runs left behind; returns the ids sent."""
    silent = Q(heartbeat__isnull=True) | Q(heartbeat__lt=stale_before())
    quiet = Run.objects.filter(silent, status__in=Run.ACTIVE)
    alive = stale_before()
    busy = quiet.filter(
        Q(chunks__heartbeat__gte=alive, chunks__state="running")
        | Q(shards__heartbeat__gte=alive, shards__state="running")
    )
    ids = []
    for pk in quiet.exclude(pk__in=busy.values("pk")).values_list("pk", flat=True):
        # The heartbeat says that the run was just sent, so that no other sweep sends it again; the dead worker's claim
        # goes, because a fresh heartbeat would make it look alive.
        if Run.objects.filter(silent, pk=pk, status__in=Run.ACTIVE).update(heartbeat=timezone.now(), claimed_by=""):
            send("run_advance", pk)
            ids.append(pk)
    if ids:
        found = counted(len(ids), "run", "runs")
        logger.info("Sent on %s that nobody was working on (timeout %gs).", found, settings.HEARTBEAT_TIMEOUT)
    _trainings_send(silent)
    imports_sweep()
    kept = Q(status=Run.Status.FINISHED, study__retain_votes=True)
    for run in Run.objects.filter(~kept, status__in=Run.ENDED, forgotten_at=None).select_related("study"):
        run_forget(run)
    return [str(pk) for pk in ids]


def _trainings_send(silent: Q) -> None:
    """Send on the trainings of students that nobody alive is at."""
    waiting = StudentTraining.objects.filter(silent).exclude(state=StudentTraining.State.DONE)
    for pk in waiting.values_list("pk", flat=True):
        if waiting.filter(pk=pk).update(heartbeat=timezone.now(), claimed_by=""):
            send("student_learn", pk)
