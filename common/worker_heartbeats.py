"""Heartbeats of the workers: one row for each worker, updated while it takes tasks."""

import logging
import os
from datetime import timedelta
from typing import Any

from celery import bootsteps
from celery.signals import worker_init
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone

from common.models import WorkerHeartbeat

logger = logging.getLogger(__name__)

#: How long the row of a dead worker is kept, for people who look for it.
KEPT = timedelta(days=1)


#: Name in the heartbeat of the worker that this process belongs to; empty outside workers.
_own_name = ""


@worker_init.connect
def _own_name_note(sender: Any = None, **_: object) -> None:
    """Store the worker's name before its children, which inherit it, are forked."""
    global _own_name
    _own_name = f"{sender.hostname}:{os.getpid()}"


def worker_name() -> str:
    """Return the name of the worker that this process belongs to; empty outside workers."""
    return _own_name


def live_worker_count() -> int:
    """Return the number of workers heard from within ``HEARTBEAT_TIMEOUT``."""
    alive = timezone.now() - timedelta(seconds=settings.HEARTBEAT_TIMEOUT)
    return WorkerHeartbeat.objects.filter(heard_at__gte=alive).count()


class HeartbeatStep(bootsteps.StartStopStep):
    """Part of a Celery worker that writes its heartbeat while it is connected to the broker and takes tasks.

    It runs in the worker's main process, so that a worker whose children are all busy with long tasks sends heartbeats.
    """

    requires = {"celery.worker.consumer.tasks:Tasks"}

    def start(self, parent: Any) -> None:
        self.name = worker_name() or f"{parent.hostname}:{os.getpid()}"
        self._beat()
        self.timer = parent.timer.call_repeatedly(settings.HEARTBEAT_TIMEOUT / 3, self._beat)

    def stop(self, parent: Any) -> None:
        if hasattr(self, "timer"):
            self.timer.cancel()
            self._write(lambda: WorkerHeartbeat.objects.filter(name=self.name).delete())

    def _beat(self) -> None:
        now = timezone.now()

        def write() -> None:
            WorkerHeartbeat.objects.update_or_create(name=self.name, defaults={"heard_at": now})
            WorkerHeartbeat.objects.filter(heard_at__lt=now - KEPT).delete()

        self._write(write)

    def _write(self, write: Any) -> None:
        try:
            write()
        except DatabaseError:
            logger.exception("The worker's heartbeat could not be written.")
        finally:
            # Children that are forked later must not share the connection.
            connection.close()
