"""Line and word differences between two versions of a form, as they are read: without the marks of Markdown."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from consent.rendering import ReadLine, read_lines

Change = Literal["same", "added", "removed"]

#: A line that shares less than this with another is a different line, not a changed one.
_ALIKE = 0.5


@dataclass(frozen=True)
class Part:
    """Part of a line: in both versions, only in the newer, or only in the older."""

    change: Change
    text: str


@dataclass(frozen=True)
class Line:
    """Line of text with its change as a whole: ``same``, ``added``, ``removed`` or ``changed``, and its kind."""

    change: str
    parts: list[Part]
    kind: str = "text"


def line_differences(older: str, newer: str) -> list[Line]:
    r"""Lines of both versions in reading order; a reworded line appears once, with its changed words marked.

    Args:
        older: Markdown of the older version.
        newer: Markdown of the newer version.

    >>> [(line.change, [(part.change, part.text) for part in line.parts]) for line in line_differences(
    ...     "We ask **you**.\n\nThank you.", "We ask all of you.\n\nThank you.")]
    [('changed', [('same', 'We ask '), ('added', 'all of '), ('same', 'you.')]), ('same', [('same', 'Thank you.')])]
    """
    return list(_lines(read_lines(older), read_lines(newer)))


def sentence_differences(older: str, newer: str) -> list[Line]:
    """Differences between two sentences without Markdown; none where they are the same."""
    return [] if older == newer else list(_reworded(ReadLine("text", older), ReadLine("text", newer)))


def _lines(older: list[ReadLine], newer: list[ReadLine]) -> Iterator[Line]:
    for tag, a, b, c, d in SequenceMatcher(None, older, newer, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (_whole("same", line) for line in older[a:b])
            continue
        removed, added = older[a:b], newer[c:d]
        for old, new in zip(removed, added, strict=False):
            yield from _reworded(old, new)
        paired = min(len(removed), len(added))
        yield from (_whole("removed", line) for line in removed[paired:])
        yield from (_whole("added", line) for line in added[paired:])


def _whole(change: Change, line: ReadLine) -> Line:
    return Line(change, [Part(change, line.text)], line.kind)


def _reworded(old: ReadLine, new: ReadLine) -> Iterator[Line]:
    a, b = (re.findall(r"\w+|\s+|[^\w\s]", line.text) for line in (old, new))
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if old.kind != new.kind or matcher.ratio() < _ALIKE:
        yield _whole("removed", old)
        yield _whole("added", new)
        return
    parts = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            parts.append(Part("same", "".join(a[i:j])))
            continue
        if i < j:
            parts.append(Part("removed", "".join(a[i:j])))
        if k < m:
            parts.append(Part("added", "".join(b[k:m])))
    yield Line("changed", parts, new.kind)
