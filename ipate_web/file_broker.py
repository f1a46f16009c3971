"""Celery's file-system transport, with messages that appear whole.

Kombu's own (celery/kombu#1551) writes a message under the name by which it is found: a worker that comes at this moment
finds an empty file, and ends.
"""

import os
import uuid
from pathlib import Path
from time import monotonic
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
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


class Transport(filesystem.Transport):
    """Kombu's transport with this channel."""

    Channel = Channel
