"""Celery transports whose workers never read half-written messages and survive the loss of Redis.

Kombu's file-system transport (celery/kombu#1551) writes a message directly under its final name, so a worker that reads
it at this moment finds an empty file and exits. When kombu 5.7 loses the connection to Redis, it returns unacknowledged
messages over a connection whose settings it has already dropped. This raises an AttributeError, which Celery does not
recognise as a lost connection, so the worker exits. If the error counts as a connection error, the worker reconnects,
and Redis delivers the messages again.
"""

import os
import uuid
from pathlib import Path
from time import monotonic
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem, redis
from kombu.utils.json import dumps


class FileChannel(filesystem.Channel):
    """Channel that writes each message under a temporary name and then renames it."""

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
    """Kombu's transport with this channel."""

    Channel = FileChannel


class RedisTransport(redis.Transport):
    """Redis transport that treats a half-closed connection as lost."""

    connection_errors = (*redis.Transport.connection_errors, AttributeError)
