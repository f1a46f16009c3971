"""Reading of uploaded lists, documents and pictures in a process of its own, with limits and without network or files.

Datasets have a reader of their own (:mod:`learning.formats.apart`).
"""

import json
from collections.abc import Iterator
from typing import Any

from django.conf import settings

from common.confinement import ConfinedProcess

_MB = 1 << 20
#: A reader that waits takes no processor time.
_PATIENCE = 2


class UnreadableError(Exception):
    """The content is not what it was said to be, or takes too much to be read. The message says which."""


def table_read(text: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file, each with the number of its last line.

    Raises:
        UnreadableError: it is no CSV.
    """
    for line, cells in _read("table", text.encode(), delimiter=delimiter):
        yield line, list(cells)


def table_read_named(text: str, *, delimiter: str = ",") -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file by the names in its first line; a cell that is missing is empty. The first yields the names.

    Raises:
        UnreadableError: it is no CSV.
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
    """Content of a JSON file.

    Raises:
        UnreadableError: it is no JSON.
    """
    ((document,),) = _read("document", content.encode() if isinstance(content, str) else content)
    return document


def picture_redraw(content: bytes, *, most_pixels: int, pixels: int) -> bytes:
    """A PNG drawn anew from the pixels of another, so that nothing else of it stays.

    Args:
        content: Of a PNG file.
        most_pixels: How wide and high it may be.
        pixels: How wide and high what is drawn may be.

    Raises:
        UnreadableError: it is no PNG, or too large.
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
            pass  # how it ended says more
        for line in process.stdout:
            answer = json.loads(line)
            if isinstance(answer, list):
                yield answer
            elif "end" in answer:
                return
            else:
                raise UnreadableError(answer["wrong"])
    raise UnreadableError("reading it takes too long, or failed")
