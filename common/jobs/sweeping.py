"""Sweep: the work of dead workers is sent on."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from common.dispatch import send
from common.jobs.leases import silent


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
