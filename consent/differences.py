"""Line and word differences between two versions of a text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

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
    """Line of text with its change as a whole: ``same``, ``added``, ``removed`` or ``changed``."""

    change: str
    parts: list[Part]


def line_differences(older: str, newer: str) -> list[Line]:
    """Lines of both versions in reading order; a reworded line appears once, with its changed words marked.

    >>> [(line.change, [(part.change, part.text) for part in line.parts]) for line in line_differences(
    ...     "We ask you.\\nThank you.", "We ask all of you.\\nThank you.")]
    [('changed', [('same', 'We ask '), ('added', 'all of '), ('same', 'you.')]), ('same', [('same', 'Thank you.')])]
    """
    return list(_lines(_filled_lines(older), _filled_lines(newer)))


def _filled_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _lines(older: list[str], newer: list[str]) -> Iterator[Line]:
    for tag, a, b, c, d in SequenceMatcher(None, older, newer, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (Line("same", [Part("same", line)]) for line in older[a:b])
            continue
        removed, added = older[a:b], newer[c:d]
        for old, new in zip(removed, added, strict=False):
            yield from _reworded(old, new)
        paired = min(len(removed), len(added))
        yield from (Line("removed", [Part("removed", line)]) for line in removed[paired:])
        yield from (Line("added", [Part("added", line)]) for line in added[paired:])


def _reworded(old: str, new: str) -> Iterator[Line]:
    a, b = (re.findall(r"\w+|\s+|[^\w\s]", line) for line in (old, new))
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if matcher.ratio() < _ALIKE:
        yield Line("removed", [Part("removed", old)])
        yield Line("added", [Part("added", new)])
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
    yield Line("changed", parts)
