"""Work in the background: claims on rows, parts of it done once, guards against errors, and the sweep.

A claim, a lease with a heartbeat, keeps two workers from doing the same work twice, and lets the work of a dead process
be taken over. It is not what keeps charges and labels right. That is done by the transactions of the services, which
would hold even if two workers believed that they own a row.
"""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, models
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.artifacts import arrays_delete
from common.dispatch import send
from common.sentences import said_by
from common.worker_heartbeats import worker_name

#: So much of a worker's name fits into a claim, with its process and what makes the claim unique.
_NAMED = 62
#: How many workers may die over one part before it is given up: more than accidents explain.
DEATHS = 20
logger = logging.getLogger(__name__)


def stale_before() -> datetime:
    """Time before which a heartbeat belongs to a dead worker."""
    return timezone.now() - timedelta(seconds=settings.HEARTBEAT_TIMEOUT)


def silent() -> Q:
    """Query for rows of which no live worker has been heard."""
    return Q(heartbeat__isnull=True) | Q(heartbeat__lt=stale_before())


def without_worker() -> Q:
    """Query for rows without a live worker."""
    return Q(claimed_by="") | silent()


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


class PartDied(Exception):
    """Too many workers died over a part. The message is for staff and says what to do."""


class Part(models.Model):
    """Work that is done in one task, on any worker."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        RUNNING = "running", _("running")
        DONE = "done", _("done")

    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    artifact = models.CharField(max_length=200, blank=True, help_text="What came of it, in private storage.")
    claimed_by = models.CharField(max_length=80, blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True)
    deaths = models.PositiveIntegerField(default=0, help_text="How many workers died over it.")

    class Meta:
        abstract = True


def parts_send(parts: models.QuerySet, task: str) -> None:
    """Queue a task for each part that waits."""
    for pk in parts.filter(without_worker()).exclude(state=Part.State.DONE).values_list("pk", flat=True):
        send(task, pk)


def part_do(part: Any, *, is_due: Callable[[Any], bool], work: Callable[[Any], str], died: str) -> bool:
    """Do a part once.

    Args:
        part: The row, a :class:`Part`.
        is_due: Whether the row, looked up anew under the claim, is to be done.
        work: Computes what comes of the part and returns the name of the file; empty where it leaves none.
        died: What is said where workers died over it again and again.

    Returns:
        Whether this call has done it.

    Raises:
        PartDied: Too many workers died over it.
    """
    if part.state == Part.State.DONE:
        return False
    rows = type(part)._default_manager.filter(pk=part.pk)
    with lease(type(part), part.pk) as token:
        if token is None:
            return False
        # Looked up under the claim: who ends a job waits for claims to end.
        row = rows.first()
        if row is None or row.state == Part.State.DONE or not is_due(row):
            return False
        mine = rows.filter(claimed_by=token)
        if row.state == Part.State.RUNNING:  # but nobody's: who was at it died
            mine.update(deaths=row.deaths + 1)
            if row.deaths + 1 >= DEATHS:
                raise PartDied(died)
        mine.update(state=Part.State.RUNNING)
        try:
            artifact = work(row)
        except BaseException:
            mine.update(state=Part.State.PENDING)
            raise
        if not mine.update(state=Part.State.DONE, artifact=artifact):
            if artifact:
                arrays_delete(artifact)  # it was done anew by somebody else, or nobody waits for it any more
            return False
    return True


@contextmanager
def guarded(
    work: str,
    *,
    expected: tuple[type[Exception], ...],
    fail: Callable[[str], None],
    unexpected: str,
    retry: Callable[[], object] | None = None,
) -> Iterator[None]:
    """End work that cannot go on; leave it to the sweep where database or storage do not answer.

    Args:
        work: What it is, for the log.
        expected: Errors whose messages say what to do, and hold nothing of private data.
        fail: Ends the work with a message for staff.
        unexpected: The message of all other errors.
        retry: Called where it will be tried again.
    """
    try:
        yield
    except expected as error:
        fail(said_by(error))
    except (DatabaseError, OSError):
        logger.exception("%s could not go on; it is tried again.", work)
        if retry is not None:
            retry()
    except Exception:
        logger.exception("%s failed unexpectedly.", work)
        fail(unexpected)


def send_on(rows: QuerySet, task: str) -> list[Any]:
    """Queue a task for each row that nobody alive works on; returns their keys.

    The heartbeat then says that the row was just sent, so that no other sweep sends it again; the dead worker's claim
    goes, because a fresh heartbeat would make it look alive.
    """
    waiting, sent = rows.filter(silent()), []
    for pk in waiting.values_list("pk", flat=True):
        if waiting.filter(pk=pk).update(heartbeat=timezone.now(), claimed_by=""):
            send(task, pk)
            sent.append(pk)
    return sent
