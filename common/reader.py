"""Process that reads a list, document or picture and is controlled through standard input; see `reading`."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from common.confinement import answers, confine


def main() -> None:
    """Read the request, confine this process, and write lines of JSON. The last line marks the end, or an error."""
    output = answers()
    request = json.loads(sys.stdin.buffer.readline())
    if request["ask"] == "picture":
        from PIL import PngImagePlugin  # noqa: F401  # loaded before files are refused
    content = sys.stdin.buffer.read()
    confine(memory=request["memory"], seconds=request["seconds"])
    try:
        for found in _ANSWERS[request["ask"]](content, request):
            output.write(json.dumps(found).encode() + b"\n")
        end: dict[str, Any] = {"end": True}
    except MemoryError:
        end = {"wrong": "it needs too much memory"}
    except Unreadable as error:
        end = {"wrong": str(error)}
    output.write(json.dumps(end).encode() + b"\n")
    output.flush()


class Unreadable(Exception):
    """Raised if the content does not have the declared format. The message is for the sender."""


def _table(content: bytes, request: dict[str, Any]) -> Iterator[Any]:
    reader = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=request["delimiter"], strict=True)
    try:
        for cells in reader:
            yield [reader.line_num, cells]
    except csv.Error as error:
        raise Unreadable(f"line {reader.line_num}: {error}") from error


def _document(content: bytes, request: dict[str, Any]) -> Iterator[Any]:
    try:
        yield [json.loads(content)]
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Unreadable(str(error)) from error
    except RecursionError as error:
        raise Unreadable("it is nested too deeply") from error


def _picture(content: bytes, request: dict[str, Any]) -> Iterator[Any]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            if max(picture.size) > request["most_pixels"]:  # checked before decompression
                raise Unreadable("too large")
            drawn = picture.convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Unreadable("no PNG") from error
    drawn.thumbnail((request["pixels"], request["pixels"]))
    plain = Image.new("RGBA", drawn.size)
    plain.paste(drawn)
    target = io.BytesIO()
    plain.save(target, "PNG", optimize=True)
    yield [target.getvalue().hex()]


_ANSWERS: dict[str, Callable[[bytes, dict[str, Any]], Iterator[Any]]] = {
    "table": _table,
    "document": _document,
    "picture": _picture,
}

if __name__ == "__main__":
    main()
