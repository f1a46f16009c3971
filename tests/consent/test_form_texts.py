"""Texts of consent forms as people read them, and the differences between two versions."""

import pytest

from consent.differences import line_differences
from consent.models import ConsentForm
from consent.rendering import ReadLine, consent_text, markdown_html, read_lines


def changes_of(older: str, newer: str) -> list[tuple[str, str, str]]:
    """(change, kind, text) of each line; what was removed in brackets, what was added in braces."""
    marks = {"same": "{}", "removed": "[{}]", "added": "{{{}}}"}
    return [
        (line.change, line.kind, "".join(marks[part.change].format(part.text) for part in line.parts))
        for line in line_differences(older, newer)
    ]


def test_no_marks_of_markdown_are_read() -> None:
    text = (
        "# Why\n\nWe *ask* **you**,\nand `others`.\n\n1. one\n2. two\n\n> said\n\n| a | b |\n|---|---|\n| **c** | d |\n"
    )
    assert read_lines(text) == [
        ReadLine("heading", "Why"),
        ReadLine("text", "We ask you, and others."),
        ReadLine("item", "one"),
        ReadLine("item", "two"),
        ReadLine("text", "said"),
        ReadLine("row", "a | b"),
        ReadLine("row", "c | d"),
    ]


def test_lines_show_their_changed_words() -> None:
    for older, newer, lines in (
        ("- for **ten** years\n- a", "- for **two** years\n- a", ["changed item for [ten]{two} years", "same item a"]),
        ("- a", "- a\n- c", ["same item a", "added item {c}"]),
        ("See [us](https://a.ex).", "See [us](https://b.ex).", ["changed text See us (https://[a]{b}.ex)."]),
        ("We ask\nyou.", "We ask you.", ["same text We ask you."]),
        ("Why", "# Why", ["removed text [Why]", "added heading {Why}"]),
        ("We ask.", "Nothing of it stood here.", ["removed text [We ask.]", "added text {Nothing of it stood here.}"]),
    ):
        assert [" ".join(change) for change in changes_of(older, newer)] == lines


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
    active = ("<script", "<p onclick", "<img", "<iframe", 'href="javascript', 'href="data')
    assert not any(part in markdown_html(text) for part in active)


def test_ordinary_markdown_is_kept_and_headings_continue_those_of_the_page() -> None:
    html = markdown_html("- **a**\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n[us](https://example.org)")
    for part in ("<li><strong>a</strong></li>", "<td>1</td>"):
        assert part in html
    assert '<a href="https://example.org" rel="noopener noreferrer">us</a>' in html
    assert markdown_html("# A\n\n## B\n\n### C\n\n##### E") == "<h3>A</h3>\n<h4>B</h4>\n<h5>C</h5>\n<h6>E</h6>\n"


def test_a_form_speaks_the_readers_language_or_english() -> None:
    form = ConsentForm(texts={"en": "Hello", "de": "Hallo"})
    assert consent_text(form, "de").html == "<p>Hallo</p>\n"
    fallback = consent_text(form, "fr")
    assert (fallback.language, fallback.html) == ("en", "<p>Hello</p>\n")
