"""Sweep: the work of dead workers is sent on, and what ended runs left behind is deleted."""

import logging

from django.conf import settings
from django.db.models import Q

from common.counted import counted
from common.jobs.leases import stale_before
from common.jobs.sweeping import send_on
from training.models import Run, StudentTraining
from training.services.encodings import encodings_sweep
from training.services.ending import run_forget
from training.services.imports import imports_sweep

logger = logging.getLogger(__name__)


def runs_sweep() -> list[str]:
    """Send on every run that nobody alive works on, and forget what ended runs left behind; returns the ids sent."""
    alive = stale_before()
    busy = Run.objects.filter(
        Q(chunks__heartbeat__gte=alive, chunks__state="running")
        | Q(shards__heartbeat__gte=alive, shards__state="running")
    )
    waiting = Run.objects.filter(status__in=Run.ACTIVE).exclude(pk__in=busy.values("pk"))
    ids = send_on(waiting, "training.tasks.run_advance")
    if ids:
        number = counted(len(ids), "run", "runs")
        logger.info("Sent on %s that nobody was working on (timeout %gs).", number, settings.HEARTBEAT_TIMEOUT)
    send_on(StudentTraining.objects.exclude(state=StudentTraining.State.DONE), "training.tasks.student_learn")
    imports_sweep()
    encodings_sweep()
    retains = Q(status=Run.Status.FINISHED, study__retain_votes=True)
    for run in Run.objects.filter(~retains, status__in=Run.ENDED, forgotten_at=None).select_related("study"):
        run_forget(run)
    return [str(pk) for pk in ids]
