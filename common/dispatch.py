"""Dispatch of tasks to the workers, after the requesting transaction has committed."""

import logging

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


def send(task: str, *ids: object) -> None:
    """Queue a task by its full name. If the broker is unavailable, a periodic task does the work later.

    By name, because the tasks call the services that call this.
    """

    def publish() -> None:
        try:
            current_app.send_task(task, [str(pk) for pk in ids])
        except (OperationalError, OSError):
            logger.exception("The broker did not take the task %s; the sweep will send it again.", task)

    transaction.on_commit(publish)
