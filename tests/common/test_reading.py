"""What strangers and other processes send is read as it was written, or not at all, in a process of its own."""

import io
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from common.frames import frame_read, frame_write
from common.reading import UnreadableError, document_parse, picture_redraw, table_read, table_read_named


def test_a_table_is_read_row_by_row_with_its_lines() -> None:
    assert list(table_read('a,b\n"x\ny",2\n')) == [(1, ["a", "b"]), (3, ["x\ny", "2"])]
    named = list(table_read_named("\na;b\n1;2\n\n3\n4;5;6\n", delimiter=";"))
    assert [tuple(row.values()) for _line, row in named] == [("a", "b"), ("1", "2"), ("3", ""), ("4", "5")]
    assert [line for line, _row in named] == [2, 3, 5, 6] and list(named[0][1]) == ["a", "b"]
    assert list(table_read_named("")) == []


def test_a_document_is_what_json_says() -> None:
    assert document_parse('{"a": [1, null, "ü"]}') == {"a": [1, None, "ü"]}
    for content, reason in ((b"{", "line 1 column 2"), (b"\xff\xfe\xff", "decode"), (b"[" * 200_000, "too deep")):
        with pytest.raises(UnreadableError, match=reason):
            document_parse(content)


@pytest.mark.slow
def test_excessive_content_ends_its_own_process_alone(settings: Any) -> None:
    settings.READER_MEMORY = 50
    with pytest.raises(UnreadableError, match="memory"):
        document_parse("[" + "[]," * 3_000_000 + "[]]")
    settings.READER_MEMORY, settings.READER_SECONDS = 4000, 1
    with pytest.raises(UnreadableError, match="too long"):
        document_parse("[" + "[]," * 12_000_000 + "[]]")


def test_a_picture_that_unpacks_to_more_than_it_says_is_refused() -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 6, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10_000_000)))
    with pytest.raises(UnreadableError):
        picture_redraw(bomb, most_pixels=1_600, pixels=600)


def test_a_message_is_read_as_written() -> None:
    stream = io.BytesIO()
    frame_write(stream, np.arange(6, dtype=np.float32).reshape(2, 3), word="x")
    frame_write(stream, width=3)
    stream.seek(0)
    result, array = frame_read(stream, most=24)
    assert result["word"] == "x" and array is not None and array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert frame_read(stream) == ({"width": 3}, None)
    with pytest.raises(EOFError):
        frame_read(stream)


@pytest.mark.parametrize("shape", [[7], [1 << 40], [-1, 6], [-1, -1]])
def test_an_unexpected_array_is_not_read(shape: list[int]) -> None:
    line = json.dumps({"shape": shape, "type": "float32"}).encode() + b"\n"
    with pytest.raises((ValueError, EOFError)):
        frame_read(io.BytesIO(line + bytes(28)), most=24 if shape != [-1, -1] else 0)
    stream = io.BytesIO(b"x" * (1 << 20))
    with pytest.raises(EOFError):
        frame_read(stream)
    assert stream.tell() < 1 << 17
