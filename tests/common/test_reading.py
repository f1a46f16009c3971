"""Lists, documents and pictures of strangers are read in a process of its own."""

import struct
import zlib
from typing import Any

import pytest

from common.reading import UnreadableError, document_parse, picture_redraw, table_read, table_read_named


def test_a_table_is_read_row_by_row_with_its_lines() -> None:
    assert list(table_read('a,b\n"x\ny",2\n')) == [(1, ["a", "b"]), (3, ["x\ny", "2"])]
    named = list(table_read_named("\na;b\n1;2\n\n3\n4;5;6\n", delimiter=";"))
    assert [row for _line, row in named] == [
        {"a": "a", "b": "b"},
        {"a": "1", "b": "2"},
        {"a": "3", "b": ""},
        {"a": "4", "b": "5"},
    ]
    assert [line for line, _row in named] == [2, 3, 5, 6]
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
