"""Typesetting: tagged PDF (PDF/UA-1) that screen readers can read, and trees of page content to make PDFs from."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

FONTS = Path(__file__).with_name("fonts")
#: Elements that are laid out as blocks, where spaces at the ends have no effect.
_BLOCKS = {
    *("p", "ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "blockquote", "pre"),
    *("h2", "h3", "h4", "h5", "h6", "hr", "boxes"),
}
_KNOWN = {*_BLOCKS, "strong", "em", "code", "a", "br", "lang"}
#: Elements that contain other elements but no words.
_HOLDERS = {"ul", "ol", "dl", "table", "thead", "tbody", "tr", "boxes", "root"}
_EMPTY = {"br", "hr", "img", "input"}
_SPACES = re.compile(r"\s+")
TreePart = str | dict[str, Any]


def tagged_pdf(template: Path, context: dict[str, Any]) -> bytes:
    """Return a PDF made from a Typst template, which treats ``context`` as data, never as markup.

    If our fonts lack a character, the system's fonts are used, and the PDF then does not claim to meet the standard.
    """
    import typst  # slow to import, and most processes create no documents

    inputs = {"data": json.dumps(context)}
    try:
        return _compiled(template, inputs, ignore_system_fonts=True, pdf_standards="ua-1")
    except typst.TypstError:
        return _compiled(template, inputs, ignore_system_fonts=False)


def _compiled(template: Path, inputs: dict[str, str], **options: Any) -> bytes:
    import typst

    document: bytes = typst.compile(  # type: ignore[assignment]  # a file is only written where one is named
        str(template), root=str(template.parent), format="pdf", font_paths=[FONTS], sys_inputs=inputs, **options
    )
    return document


def html_tree(html: str) -> list[TreePart]:
    r"""Return the parts of sanitised HTML: words, and elements with a ``tag`` and their own ``parts``.

    A list with the class “boxes” becomes the element ``boxes``, an element with a language becomes ``lang``, and a cell
    that spans several columns states their number in ``columns``. Other elements that documents cannot show are
    dropped, but their words are kept.

    >>> html_tree('<p>Of <strong>all</strong>\n records</p>')
    [{'tag': 'p', 'parts': ['Of ', {'tag': 'strong', 'parts': ['all']}, ' records']}]
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return _tidied("root", reader.root)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: list[TreePart] = []
        # Open elements, each with the list that collects its parts: its own list or the surrounding element's.
        self._open: list[tuple[str, list[TreePart]]] = [("", self.root)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes, around = dict(attrs), self._open[-1][1]
        node: dict[str, Any] = {"tag": tag, "parts": []}
        if tag == "ul" and "boxes" in (attributes.get("class") or "").split():
            node["tag"] = "boxes"
        elif tag not in _KNOWN and attributes.get("lang"):
            node |= {"tag": "lang", "lang": (attributes["lang"] or "").split("-")[0]}
        elif tag == "a":
            node["href"] = attributes.get("href") or ""
        elif tag in ("th", "td") and attributes.get("colspan"):
            node["columns"] = int(attributes["colspan"] or 1)
        if node["tag"] not in _KNOWN:
            node["parts"] = around
        else:
            around.append(node)
        if tag not in _EMPTY:
            self._open.append((tag, node["parts"]))

    def handle_endtag(self, tag: str) -> None:
        places = [place for place, (name, _parts) in enumerate(self._open) if name == tag]
        if places:
            del self._open[places[-1] :]

    def handle_data(self, data: str) -> None:
        in_code = any(name == "pre" for name, _parts in self._open)
        self._open[-1][1].append(data if in_code else _SPACES.sub(" ", data))


def _tidied(tag: str, parts: list[TreePart]) -> list[TreePart]:
    """Return the parts without spaces at their ends and next to blocks, including nested parts."""
    ends = tag in _BLOCKS or tag == "root"
    kept: list[TreePart] = []
    for place, part in enumerate(parts):
        if isinstance(part, dict):
            kept.append(part | {"parts": _tidied(part["tag"], part["parts"])})
            continue
        if _is_block(parts[place - 1]) if place else ends:
            part = part.lstrip(" ")
        if _is_block(parts[place + 1]) if place + 1 < len(parts) else ends:
            part = part.rstrip(" ")
        if part and not (tag in _HOLDERS and part.isspace()):
            kept.append(part)
    return kept


def _is_block(part: TreePart) -> bool:
    return isinstance(part, dict) and part["tag"] in _BLOCKS
