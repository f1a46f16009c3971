"""Leases: claims on rows with a heartbeat, so that the work of a dead process can be taken over.

A claim keeps two workers from doing the same work twice; it is not what keeps charges and labels right. That is done
by the transactions of the services, which would hold even if two workers believed that they own a row.
"""

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connection, models
from django.db.models import Q
from django.utils import timezone

from common.worker_heartbeats import worker_name


def stale_before() -> datetime:
    """Time before which a heartbeat belongs to a dead worker."""
    return timezone.now() - timedelta(seconds=settings.HEARTBEAT_TIMEOUT)


def silent() -> Q:
    """Query for rows of which no live worker has been heard."""
    return Q(heartbeat__isnull=True) | Q(heartbeat__lt=stale_before())


def without_worker() -> Q:
    """Query for rows without a live worker."""
    return Q(claimed_by="") | silent()


#: So much of a worker's name fits into a claim, with its process and what makes the claim unique.
_NAMED = 62


def worker_claims(name: str, claim: str) -> bool:
    """Whether the worker of this name, as its heartbeat has it, made a claim."""
    return claimant(claim) == name[-_NAMED:]


def claimant(claim: str) -> str:
    """Name of whoever made a claim: a worker, or a host and a process where a command did; its end, where long."""
    return claim.rpartition(":")[0]


def claiming_process(claim: str) -> int:
    """Id of the process that holds a claim, on its host: of a worker's processes the one that carries out the task."""
    return int(claim.rpartition(":")[2].partition("-")[0])


@contextmanager
def lease(model: type[models.Model], pk: object) -> Iterator[str | None]:
    """Claim a row for the duration of the block.

    Yields:
        The claim's token, or None if another process holds the row.
    """
    owner = worker_name() or f"{socket.gethostname()}:{os.getpid()}"
    token = f"{owner[-_NAMED:]}:{os.getpid()}-{uuid.uuid4().hex[:8]}"
    mine = model._default_manager.filter(pk=pk, claimed_by=token)
    claimed = model._default_manager.filter(without_worker(), pk=pk).update(claimed_by=token, heartbeat=timezone.now())
    if not claimed:
        yield None
        return
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(mine, done), daemon=True, name=f"heartbeat {token}")
    beat.start()
    try:
        yield token
    finally:
        done.set()
        beat.join()
        mine.update(claimed_by="", heartbeat=timezone.now())


def _beat(mine: models.QuerySet, done: threading.Event) -> None:
    try:
        while not done.wait(settings.HEARTBEAT_TIMEOUT / 3):
            try:
                mine.update(heartbeat=timezone.now())
            except DatabaseError:
                connection.close()  # the next beat opens a new one
    finally:
        connection.close()
