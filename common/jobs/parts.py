"""Parts of a job: each is a row, done in one task by one worker at a time, and done anew where that worker dies."""

from collections.abc import Callable
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from common.artifacts import arrays_delete
from common.dispatch import send
from common.jobs.leases import lease, without_worker

#: How many workers may die over one part before it is given up: more than accidents explain.
DEATHS = 20


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
