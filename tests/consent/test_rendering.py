"""Tests of rendering consent forms."""

import pytest

from consent.models import ConsentForm
from consent.rendering import consent_text, markdown_html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '<p onclick="alert(1)">x</p>',
        "[x](javascript:alert(1))",
        "![x](https://example.org/tracker.png)",
        "<iframe src=//example.org></iframe>",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
    ],
)
def test_nothing_active_or_remote_survives(text: str) -> None:
    html = markdown_html(text)
    assert not any(
        part in html for part in ("<script", "<p onclick", "<img", "<iframe", 'href="javascript', 'href="data')
    )


def test_headings_continue_those_of_the_page() -> None:
    assert markdown_html("# A\n\n## B\n\n### C\n\n##### E") == "<h3>A</h3>\n<h4>B</h4>\n<h5>C</h5>\n<h6>E</h6>\n"


def test_ordinary_markdown_is_kept() -> None:
    html = markdown_html("- **a**\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n[us](https://example.org)")
    assert "<li><strong>a</strong></li>" in html
    assert "<td>1</td>" in html
    assert '<a href="https://example.org" rel="noopener noreferrer">us</a>' in html


def test_a_form_speaks_the_readers_language_or_english() -> None:
    form = ConsentForm(texts={"en": "Hello", "de": "Hallo"})
    assert consent_text(form, "de").html == "<p>Hallo</p>\n"
    fallback = consent_text(form, "fr")
    assert (fallback.language, fallback.html) == ("en", "<p>Hello</p>\n")
