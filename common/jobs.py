"""Background work: claims on rows, parts of jobs that are done once, error handling, and the sweep of lost work.

A claim is a lease with a heartbeat. It prevents two workers from doing the same work, and lets a worker take over work
from a dead process. Charges and labels do not rely on claims: the services' transactions keep them correct even if two
workers believe that they have claimed a row.
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

from celery import bootsteps, current_app, shared_task
from celery.signals import worker_init
from django.conf import settings
from django.db import DatabaseError, connection, models, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from kombu.exceptions import OperationalError

from common.artifacts import arrays_delete
from common.models import WorkerHeartbeat
from common.sentences import message_of

logger = logging.getLogger(__name__)


def task_of(name: str, service: Callable[..., object], ids: int = 0) -> Any:
    """Return a task with this full name that calls a service.

    Args:
        name: The name used by :func:`send` and the timetable.
        ids: Number of sent values that the service takes. The task ignores any others, to allow rolling updates.
    """

    def call(*sent: str, **_: object) -> None:
        service(*sent[:ids])

    return shared_task(name=name)(call)


def send(task: str, *ids: object) -> None:
    """Queue a task by its full name. If the broker is unavailable, a periodic task does the work later.

    Tasks are identified by name to avoid circular imports: they call the services that call this function.
    """

    def publish() -> None:
        try:
            current_app.send_task(task, [str(pk) for pk in ids])
        except (OperationalError, OSError):
            logger.exception("The broker did not take the task %s; the sweep will send it again.", task)

    transaction.on_commit(publish)


#: Length of the worker's name in a claim. A claim also contains the worker's process and a unique suffix.
_NAMED = 62
#: A part is abandoned after this many workers have died while working on it, because it probably caused their deaths.
DEATHS = 20


def stale_before() -> datetime:
    """Return the time before which a worker's last heartbeat means that the worker is dead."""
    return timezone.now() - timedelta(seconds=settings.HEARTBEAT_TIMEOUT)


def silent() -> Q:
    """Return a query for rows without a heartbeat from a live worker."""
    return Q(heartbeat__isnull=True) | Q(heartbeat__lt=stale_before())


def without_worker() -> Q:
    """Return a query for rows without a live worker."""
    return Q(claimed_by="") | silent()


def worker_claims(name: str, claim: str) -> bool:
    """Return whether a claim was made by the worker whose heartbeat has this name."""
    return claimant(claim) == name[-_NAMED:]


def claimant(claim: str) -> str:
    """Return the claim's worker (only the end of a long name), or the host and process if a command made the claim."""
    return claim.rpartition(":")[0]


def claiming_process(claim: str) -> int:
    """Return the process id, on its host, of a claim's process; in a worker, this is the one executing the task."""
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
                connection.close()  # the next heartbeat will open a new connection
    finally:
        connection.close()


class PartDied(Exception):
    """Raised if too many workers have died on a part. The message is for staff and contains the remedy."""


class Part(models.Model):
    """Part of a job that one task carries out, on any worker."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        RUNNING = "running", _("running")
        DONE = "done", _("done")

    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    artifact = models.CharField(max_length=200, blank=True, help_text="Result file in private storage.")
    claimed_by = models.CharField(max_length=80, blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True)
    deaths = models.PositiveIntegerField(default=0, help_text="Number of workers that died while processing this part.")

    class Meta:
        abstract = True


def parts_send(parts: models.QuerySet, task: str) -> None:
    """Queue a task for each waiting part."""
    for pk in parts.filter(without_worker()).exclude(state=Part.State.DONE).values_list("pk", flat=True):
        send(task, pk)


def part_do(part: Any, *, is_due: Callable[[Any], bool], work: Callable[[Any], str], died: str) -> bool:
    """Carry out a part unless it is already done.

    Args:
        part: The row, a :class:`Part`.
        is_due: Returns whether the part, read again under the claim, should be done now.
        work: Computes the part's result and returns the name of its file, or an empty name if there is none.
        died: Message if workers repeatedly died on the part.

    Returns:
        Whether this call did the part.

    Raises:
        PartDied: Too many workers died on the part.
    """
    if part.state == Part.State.DONE:
        return False
    rows = type(part)._default_manager.filter(pk=part.pk)
    with lease(type(part), part.pk) as token:
        if token is None:
            return False
        # Read the row only after claiming it, because the process that ends a job waits for all claims to end.
        row = rows.first()
        if row is None or row.state == Part.State.DONE or not is_due(row):
            return False
        mine = rows.filter(claimed_by=token)
        if row.state == Part.State.RUNNING:  # begun but not claimed, so its worker has died
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
                arrays_delete(artifact)  # another worker has redone the part, or it is no longer needed
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
    """End work that fails with an error, or let the sweep retry it if the database or storage does not respond.

    Args:
        work: Name of the work, for the log.
        expected: Errors whose messages say what to do and contain no private data.
        fail: Ends the work with a message for staff.
        unexpected: The message for all other errors.
        retry: Called if the work will be tried again.
    """
    try:
        yield
    except expected as error:
        fail(message_of(error))
    except (DatabaseError, OSError):
        logger.exception("%s was interrupted and will be retried.", work)
        if retry is not None:
            retry()
    except Exception:
        logger.exception("%s failed unexpectedly.", work)
        fail(unexpected)


def send_on(rows: QuerySet, task: str) -> list[Any]:
    """Queue a task for each row that no live worker is working on; return their keys.

    The heartbeat is set so that no other sweep sends the row again, and the dead worker's claim is removed, because the
    fresh heartbeat would make it look alive.
    """
    waiting, sent = rows.filter(silent()), []
    for pk in waiting.values_list("pk", flat=True):
        if waiting.filter(pk=pk).update(heartbeat=timezone.now(), claimed_by=""):
            send(task, pk)
            sent.append(pk)
    return sent


#: How long the row of a dead worker is kept, so that staff can look it up.
KEPT = timedelta(days=1)


#: Name of the worker that this process belongs to, as in the heartbeat; empty outside workers.
_own_name = ""


@worker_init.connect
def _own_name_note(sender: Any = None, **_: object) -> None:
    """Store the worker's name before its children, which inherit the name, are forked."""
    global _own_name
    _own_name = f"{sender.hostname}:{os.getpid()}"


def worker_name() -> str:
    """Return the name of the worker that this process belongs to; empty outside workers."""
    return _own_name


def live_worker_count() -> int:
    """Return the number of workers with a heartbeat within ``HEARTBEAT_TIMEOUT``."""
    alive = timezone.now() - timedelta(seconds=settings.HEARTBEAT_TIMEOUT)
    return WorkerHeartbeat.objects.filter(heard_at__gte=alive).count()


class HeartbeatStep(bootsteps.StartStopStep):
    """Celery bootstep that writes a worker's heartbeat while the worker is connected to the broker and accepts tasks.

    It runs in the worker's main process, so that a worker still sends heartbeats if all its children are busy with long
    tasks.
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
