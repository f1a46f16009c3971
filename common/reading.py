"""Readers for uploaded lists, documents and pictures, in a confined process without network or files.

Datasets have their own reader (:mod:`learning.formats.isolation`).
"""

import json
from collections.abc import Iterator
from typing import Any

from django.conf import settings

from common.confinement import ConfinedProcess

_MB = 1 << 20
#: Elapsed seconds allowed per second of processor time, because a reader uses no processor time while it waits.
_PATIENCE = 2


class UnreadableError(Exception):
    """Raised if content is not in the declared format, or takes too much time or memory to read.

    The message gives the reason.
    """


def table_read(text: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, each with the number of its last line.

    Raises:
        UnreadableError: the text is not CSV.
    """
    for line, cells in _read("table", text.encode(), delimiter=delimiter):
        yield line, list(cells)


def table_read_named(text: str, *, delimiter: str = ",") -> Iterator[tuple[int, dict[str, str]]]:
    """Yield a CSV file's rows, header first, as dictionaries keyed by the header; missing cells are empty.

    Raises:
        UnreadableError: the text is not CSV.
    """
    names: list[str] | None = None
    for line, cells in table_read(text, delimiter=delimiter):
        if not cells:
            continue
        if names is None:
            names = cells
            yield line, dict(zip(names, names, strict=True))
        else:
            yield line, dict.fromkeys(names, "") | dict(zip(names, cells, strict=False))


def document_parse(content: bytes | str) -> Any:
    """Return the content of a JSON file.

    Raises:
        UnreadableError: the content is not JSON.
    """
    ((document,),) = _read("document", content.encode() if isinstance(content, str) else content)
    return document


def picture_redraw(content: bytes, *, most_pixels: int, pixels: int) -> bytes:
    """Return a new PNG with the pixels of another PNG but none of its other content.

    Args:
        content: Content of a PNG file.
        most_pixels: Maximum width and height of the given PNG.
        pixels: Maximum width and height of the result.

    Raises:
        UnreadableError: the content is not a PNG, or too large.
    """
    ((drawn,),) = _read("picture", content, most_pixels=most_pixels, pixels=pixels)
    return bytes.fromhex(drawn)


def _read(ask: str, content: bytes, **about: Any) -> Iterator[list[Any]]:
    seconds = min(settings.READER_SECONDS, 60)
    request = {"ask": ask, "memory": settings.READER_MEMORY * _MB, "seconds": seconds} | about
    with ConfinedProcess("common.reader") as process, process.within(_PATIENCE * seconds):
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n" + content)
            process.stdin.close()
        except BrokenPipeError:
            pass  # the exit status says more than this error
        for line in process.stdout:
            answer = json.loads(line)
            if isinstance(answer, list):
                yield answer
            elif "end" in answer:
                return
            else:
                raise UnreadableError(answer["wrong"])
    raise UnreadableError("reading it takes too long, or failed")
