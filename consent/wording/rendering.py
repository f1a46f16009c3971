"""Rendered consent forms: Markdown as sanitised HTML, and the differences between two versions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import nh3
from django.conf import settings
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from consent.languages import language_of
from consent.models import ConsentForm

# No images, because their server would learn who reads the form.
_TAGS = {
    "p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "strong", "em", "a", "blockquote", "code", "pre",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
_TOP_HEADING = 3  # A form is displayed under a heading of level 2.
#: Texts of at most this many characters are not folded, because the opening and the link to the rest would be as long.
_SHORT = 300
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
DiffKind = Literal["same", "added", "removed"]
#: Lines that share less than this are treated as different lines, not as versions of the same line.
_ALIKE = 0.5


@dataclass(frozen=True)
class ConsentText:
    """Rendered text of a form, with its language and its code in the form.

    A page shows the ``opening`` of a long text and folds the ``rest``, which is empty for a short text; ``html`` is the
    whole text.
    """

    language: str
    opening: SafeString
    rest: SafeString
    code: str

    @property
    def html(self) -> SafeString:
        return self.opening + self.rest


def markdown_html(text: str) -> SafeString:
    r"""Return CommonMark with tables as sanitised HTML, with headings starting at level 3.

    >>> markdown_html("# Why\n<script>alert(1)</script> [us](javascript:x)")
    '<h3>Why</h3>\n<p>&lt;script&gt;alert(1)&lt;/script&gt; [us](javascript:x)</p>\n'
    """
    return _html(_parsed(text))


def _parsed(text: str) -> list[Token]:
    """Return the tokens of CommonMark, with headings starting at level 3."""
    tokens = _markdown.parse(text)
    headings = [token for token in tokens if token.type.startswith("heading")]
    highest = min((int(token.tag[1]) for token in headings), default=1)
    for token in headings:
        token.tag = f"h{min(int(token.tag[1]) - highest + _TOP_HEADING, 6)}"
    return tokens


def _html(tokens: list[Token]) -> SafeString:
    html = _markdown.renderer.render(tokens, _markdown.options, {})
    return mark_safe(nh3.clean(html, tags=_TAGS, link_rel="noopener noreferrer"))  # noqa: S308 – sanitised here


@dataclass(frozen=True)
class ReadLine:
    """A line as read by people: a heading, an item of a list, a row of a table, or other text."""

    kind: str
    text: str


def read_lines(text: str) -> list[ReadLine]:
    r"""Return lines of CommonMark as a reader sees them, without markup and with each link's address after its text.

    >>> [(line.kind, line.text) for line in read_lines("# Why\n- for **you**\n- [us](https://example.org)")]
    [('heading', 'Why'), ('item', 'for you'), ('item', 'us (https://example.org)')]
    """
    lines: list[ReadLine] = []
    kind = "text"
    cells: list[str] | None = None
    for token in _markdown.parse(text):
        if token.type == "heading_open":
            kind = "heading"
        elif token.type == "list_item_open":
            kind = "item"
        elif token.type in ("heading_close", "list_item_close"):
            kind = "text"
        elif token.type == "tr_open":
            cells = []
        elif token.type == "tr_close":
            lines.append(ReadLine("row", " | ".join(cells or [])))
            cells = None
        elif token.type == "inline":
            if cells is not None:
                cells.append(_read(token))
            else:
                lines += [ReadLine(kind, line) for line in _read(token).split("\n") if line]
        elif token.type in ("fence", "code_block"):
            lines += [ReadLine("text", line) for line in token.content.splitlines() if line.strip()]
    return lines


def _read(inline: Token) -> str:
    """Return the words of an inline token."""
    words, addresses = [], []
    for token in inline.children or []:
        if token.type == "link_open":
            addresses.append(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            words.append(f" ({addresses.pop()})")
        elif token.type == "softbreak":
            words.append(" ")
        elif token.type == "hardbreak":
            words.append("\n")
        else:
            words.append(token.content)
    return "".join(words)


def consent_text(form: ConsentForm, language: str) -> ConsentText:
    """Return the form's text with this code, or else the text in the site's first language."""
    code = language if language in form.texts else settings.LANGUAGE_CODE
    tokens = _parsed(form.texts[code])
    end = _opening_end(tokens) if len(form.texts[code]) > _SHORT else len(tokens)
    return ConsentText(language_of(code), _html(tokens[:end]), _html(tokens[end:]), code)


def _opening_end(tokens: list[Token]) -> int:
    """Return the number of tokens up to the end of the first top-level paragraph, or of all tokens if there is none."""
    ends = (place + 1 for place, token in enumerate(tokens) if token.type == "paragraph_close" and token.level == 0)
    return next(ends, len(tokens))


@dataclass(frozen=True)
class DiffPart:
    """Part of a line that is in both versions, only in the newer, or only in the older version."""

    change: DiffKind
    text: str


@dataclass(frozen=True)
class DiffLine:
    """Line of text with its kind and its change as a whole: ``same``, ``added``, ``removed`` or ``changed``."""

    change: str
    parts: list[DiffPart]
    kind: str = "text"


def line_differences(older: str, newer: str) -> list[DiffLine]:
    r"""Return lines of both versions in reading order; a reworded line appears once, with its changed words marked.

    Args:
        older: Markdown of the older version.
        newer: Markdown of the newer version.

    >>> [(line.change, [(part.change, part.text) for part in line.parts]) for line in line_differences(
    ...     "We ask **you**.\n\nThank you.", "We ask all of you.\n\nThank you.")]
    [('changed', [('same', 'We ask '), ('added', 'all of '), ('same', 'you.')]), ('same', [('same', 'Thank you.')])]
    """
    return list(_lines(read_lines(older), read_lines(newer)))


def sentence_differences(older: str, newer: str) -> list[DiffLine]:
    """Return the differences between two sentences without Markdown, or nothing if they are the same."""
    return [] if older == newer else list(_reworded(ReadLine("text", older), ReadLine("text", newer)))


def _lines(older: list[ReadLine], newer: list[ReadLine]) -> Iterator[DiffLine]:
    for tag, a, b, c, d in SequenceMatcher(None, older, newer, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (_whole_line("same", line) for line in older[a:b])
            continue
        removed, added = older[a:b], newer[c:d]
        for old, new in zip(removed, added, strict=False):
            yield from _reworded(old, new)
        paired = min(len(removed), len(added))
        yield from (_whole_line("removed", line) for line in removed[paired:])
        yield from (_whole_line("added", line) for line in added[paired:])


def _whole_line(change: DiffKind, line: ReadLine) -> DiffLine:
    return DiffLine(change, [DiffPart(change, line.text)], line.kind)


def _reworded(old: ReadLine, new: ReadLine) -> Iterator[DiffLine]:
    a, b = (re.findall(r"\w+|\s+|[^\w\s]", line.text) for line in (old, new))
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if old.kind != new.kind or matcher.ratio() < _ALIKE:
        yield _whole_line("removed", old)
        yield _whole_line("added", new)
        return
    parts = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            parts.append(DiffPart("same", "".join(a[i:j])))
            continue
        if i < j:
            parts.append(DiffPart("removed", "".join(a[i:j])))
        if k < m:
            parts.append(DiffPart("added", "".join(b[k:m])))
    yield DiffLine("changed", parts, new.kind)
