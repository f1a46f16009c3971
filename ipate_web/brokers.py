"""Celery's transports, in which a worker neither finds half a message nor ends when Redis is away.

Kombu's file-system transport (celery/kombu#1551) writes a message under the name by which it is found: a worker that
comes at this moment finds an empty file, and ends. When kombu 5.7 loses the connection to Redis, it gives
unacknowledged messages back over a connection whose settings it has already dropped, and fails with an AttributeError,
which Celery does not know as a lost connection, so the worker's process ends. Counted among the errors of a connection,
it makes the worker connect again, and Redis hands the messages out once more.
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
    """Channel that writes each message under a name that nobody looks for, and then gives it its own."""

    # Kombu's two classes above name the message differently.
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
    """Redis transport for which a half-closed connection is a lost one."""

    connection_errors = (*redis.Transport.connection_errors, AttributeError)
