"""Rendering of a consent form's Markdown as sanitised HTML."""

from dataclasses import dataclass

import nh3
from django.conf import settings
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from consent.models import ConsentForm

# No images: whoever serves them would learn who reads the form.
_TAGS = {
    "p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "strong", "em", "a", "blockquote", "code", "pre",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
_TOP_HEADING = 3  # A form stands under a heading of level 2.
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


@dataclass(frozen=True)
class ConsentText:
    """Rendered text of a form, with the language that was available."""

    language: str
    html: SafeString


def markdown_html(text: str) -> SafeString:
    """Sanitised HTML of CommonMark with tables, with headings from level 3 on.

    >>> markdown_html("# Why\\n<script>alert(1)</script> [us](javascript:x)")
    '<h3>Why</h3>\\n<p>&lt;script&gt;alert(1)&lt;/script&gt; [us](javascript:x)</p>\\n'
    """
    tokens = _markdown.parse(text)
    headings = [token for token in tokens if token.type.startswith("heading")]
    highest = min((int(token.tag[1]) for token in headings), default=1)
    for token in headings:
        token.tag = f"h{min(int(token.tag[1]) - highest + _TOP_HEADING, 6)}"
    html = _markdown.renderer.render(tokens, _markdown.options, {})
    return mark_safe(nh3.clean(html, tags=_TAGS, link_rel="noopener noreferrer"))  # noqa: S308 – sanitised here


def consent_text(form: ConsentForm, language: str) -> ConsentText:
    """Text of the form in ``language``, or in the site's first language if there is none."""
    found = language if language in form.texts else settings.LANGUAGE_CODE
    return ConsentText(found, markdown_html(form.texts[found]))
