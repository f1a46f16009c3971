"""Tasks of the workers, and their dispatch after the requesting transaction has committed."""

import logging
from collections.abc import Callable
from typing import Any

from celery import current_app, shared_task
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


def task_of(name: str, service: Callable[..., object], ids: int = 0) -> Any:
    """Return a task with this full name, which calls a service.

    Args:
        name: The name that :func:`send` and the timetable use.
        service: The service to call.
        ids: How many of the sent values the service takes; the task ignores the rest, for rolling updates.
    """

    def call(*sent: str, **_: object) -> None:
        service(*sent[:ids])

    return shared_task(name=name)(call)


def send(task: str, *ids: object) -> None:
    """Queue a task by its full name. If the broker is unavailable, a periodic task does the work later.

    Names are used because the tasks call the services that call this.
    """

    def publish() -> None:
        try:
            current_app.send_task(task, [str(pk) for pk in ids])
        except (OperationalError, OSError):
            logger.exception("The broker did not take the task %s; the sweep will send it again.", task)

    transaction.on_commit(publish)
