"""The Celery application, which passes ids between the site and workers without keeping state, and its transports."""

import os
import uuid
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from celery import Celery
from celery.beat import Scheduler
from celery.signals import setup_logging, worker_init
from kombu.exceptions import ChannelError
from kombu.transport import filesystem, redis
from kombu.utils.json import dumps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipate_web.settings")

app = Celery("ipate_web")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@app.on_after_finalize.connect
def _let_workers_be_heard(**_: object) -> None:
    """Add the heartbeat to every worker, once the models that it writes to have been loaded."""
    from common.jobs import HeartbeatStep

    app.steps["consumer"].add(HeartbeatStep)


@worker_init.connect
def worker_check(**_: object) -> None:
    """Refuse to start a worker that cannot train. Raises SystemExit."""
    from learning.libraries import has_pytorch

    if not has_pytorch():
        raise SystemExit("Workers need PyTorch, which is not installed. Run `make install`.")


@setup_logging.connect
def _use_django_logging(**_: object) -> None:
    """Keep Django's logging configuration in the worker."""
    from logging.config import dictConfig

    from django.conf import settings

    dictConfig(settings.LOGGING)


class SteadyScheduler(Scheduler):
    """Scheduler that keeps sending periodic tasks if the system clock is set back.

    Celery's scheduler waits until the clock shows the planned time again, so after a correction by an hour it sends
    nothing for an hour.
    """

    _seen: datetime | None = None

    def tick(self, *arguments: Any, **options: Any) -> float:
        now = self.app.now()
        if self._seen is not None and now < self._seen:
            for entry in self.schedule.values():
                entry.last_run_at = min(entry.last_run_at, now)
            self.populate_heap()
        self._seen = now
        return super().tick(*arguments, **options)


class FileChannel(filesystem.Channel):
    """Channel that writes each message under a temporary name and then renames it.

    Kombu's own channel (celery/kombu#1551) writes a message directly under its final name, so a worker that reads it
    too soon finds an empty file and exits.
    """

    # Kombu's two base classes have different names for the message.
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # Messages are delivered in the order of their names.
        name = f"{round(monotonic() * 1000)}_{uuid.uuid4()}"
        folder = Path(self.data_folder_out)
        begun = folder / f"{name}.begun"
        try:
            begun.write_text(dumps(payload), "utf-8")
            os.replace(begun, folder / f"{name}.{queue}.msg")
        except OSError as error:
            begun.unlink(missing_ok=True)
            raise ChannelError(f"The message cannot be written to {folder}: {error}") from error


class FileTransport(filesystem.Transport):
    """Kombu's file-system transport, using :class:`FileChannel`."""

    Channel = FileChannel


class RedisTransport(redis.Transport):
    """Redis transport that treats a half-closed connection as lost.

    When kombu 5.7 loses the connection, it returns unacknowledged messages over a connection whose settings it has
    already dropped. This raises an AttributeError, which Celery does not recognise as a lost connection, so the worker
    exits. Treated as a connection error, it makes the worker reconnect, and Redis delivers the messages again.
    """

    connection_errors = (*redis.Transport.connection_errors, AttributeError)
