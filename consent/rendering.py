"""Rendering of a consent form's Markdown as sanitised HTML."""

from dataclasses import dataclass

import nh3
from django.conf import settings
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from consent.languages import language_of
from consent.models import ConsentForm

# No images: whoever serves them would learn who reads the form.
_TAGS = {
    "p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "strong", "em", "a", "blockquote", "code", "pre",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
_TOP_HEADING = 3  # A form stands under a heading of level 2.
#: Characters up to which a text is no longer than its opening and the line behind which the rest is folded.
_SHORT = 300
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


@dataclass(frozen=True)
class ConsentText:
    """Rendered text of a form, with the language that was available and the code under which the form has it.

    A long text is in two parts for a page that shows its ``opening`` and folds the ``rest``, which is empty in a short
    one; ``html`` is all of it.
    """

    language: str
    opening: SafeString
    rest: SafeString
    code: str

    @property
    def html(self) -> SafeString:
        return self.opening + self.rest


def markdown_html(text: str) -> SafeString:
    r"""Sanitised HTML of CommonMark with tables, with headings from level 3 on.

    >>> markdown_html("# Why\n<script>alert(1)</script> [us](javascript:x)")
    '<h3>Why</h3>\n<p>&lt;script&gt;alert(1)&lt;/script&gt; [us](javascript:x)</p>\n'
    """
    return _html(_parsed(text))


def _parsed(text: str) -> list[Token]:
    """Tokens of CommonMark, with headings from level 3 on."""
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
    """Line as people read it: a heading, an item of a list, a row of a table, or other text."""

    kind: str
    text: str


def read_lines(text: str) -> list[ReadLine]:
    r"""Lines of CommonMark as they are read: no marks, and after the words of a link its address.

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
    """Words of an inline token."""
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
    """Text of the form with a code, or in the site's first language if there is none."""
    code = language if language in form.texts else settings.LANGUAGE_CODE
    tokens = _parsed(form.texts[code])
    end = _opening_end(tokens) if len(form.texts[code]) > _SHORT else len(tokens)
    return ConsentText(language_of(code), _html(tokens[:end]), _html(tokens[end:]), code)


def _opening_end(tokens: list[Token]) -> int:
    """Number of tokens up to the end of the first paragraph that stands by itself; all where there is none."""
    ends = (place + 1 for place, token in enumerate(tokens) if token.type == "paragraph_close" and token.level == 0)
    return next(ends, len(tokens))
