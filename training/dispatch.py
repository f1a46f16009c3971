"""Send work to the workers, once the transaction that asks for it has committed."""

import logging

from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


def send(task: str, *ids: object) -> None:
    """Queue ``training.tasks.<task>`` with ``ids``. Where the broker is away, the sweep sends it again."""

    def publish() -> None:
        from training import tasks  # the tasks call the services that call this

        try:
            getattr(tasks, task).delay(*(str(pk) for pk in ids))
        except (OperationalError, OSError):
            logger.exception("The broker did not take the task %s; the sweep will send it again.", task)

    transaction.on_commit(publish)
