"""Messages on the file system: whole whenever somebody looks, and none left behind."""

from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
from django.conf import settings
from kombu import Connection
from kombu.exceptions import ChannelError

from ipate_web.celery import app
from ipate_web.file_broker import Transport


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("messages", "control"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def connection(folder: Path) -> Iterator[Connection]:
    messages = str(folder / "messages")
    options = {"data_folder_in": messages, "data_folder_out": messages, "control_folder": str(folder / "control")}
    with Connection("filesystem://", transport="ipate_web.file_broker:Transport", transport_options=options) as opened:
        yield opened


@pytest.mark.skipif(not settings.BROKER_URL.startswith("filesystem"), reason="about the broker on the file system")
def test_site_and_workers_use_it() -> None:
    with app.connection_for_write() as connection:
        assert isinstance(connection.transport, Transport)


def test_half_written_message_is_not_found(connection: Connection) -> None:
    writer, reader = connection.channel(), connection.channel()

    class Payload:
        """Looked for while it is turned into text."""

        def __json__(self) -> list[int]:
            with pytest.raises(Empty):
                reader._get("box")
            return [1, 2]

    writer._put("box", Payload())
    assert reader._get("box") == [1, 2]


def test_every_message_comes_once(connection: Connection, folder: Path) -> None:
    numbers = range(3)
    with connection.SimpleQueue("box") as box:
        for number in numbers:
            box.put({"number": number})
        messages = [box.get(timeout=300) for _ in numbers]
        assert sorted(message.payload["number"] for message in messages) == [*numbers]
        for message in messages:
            message.ack()
    assert list((folder / "messages").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_of_the_broker(connection: Connection, folder: Path) -> None:
    (folder / "messages").rmdir()
    with pytest.raises(ChannelError, match="cannot be written"):
        connection.channel()._put("box", {})
