"""Differences between two versions, as people read them."""

import pytest

from consent.differences import Line, line_differences
from consent.rendering import ReadLine, read_lines


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


def test_a_reworded_item_shows_its_changed_words() -> None:
    changed = changes_of("- for **ten** years\n- here", "- for **two** years\n- here")
    assert changed == [("changed", "item", "for [ten]{two} years"), ("same", "item", "here")]


def test_another_address_of_a_link_is_a_change() -> None:
    ((change, _kind, text),) = changes_of("See [us](https://a.example).", "See [us](https://b.example).")
    assert (change, text) == ("changed", "See us (https://[a]{b}.example).")


def test_a_line_broken_elsewhere_is_no_change() -> None:
    assert changes_of("We ask\nyou.", "We ask you.") == [("same", "text", "We ask you.")]


@pytest.mark.parametrize(("older", "newer"), [("Why", "# Why"), ("We ask.", "Nothing of this kind stood here.")])
def test_a_different_line_is_removed_and_added(older: str, newer: str) -> None:
    assert [line.change for line in line_differences(older, newer)] == ["removed", "added"]


def test_lines_of_different_length_lists() -> None:
    assert [line.change for line in line_differences("- a\n- b", "- a\n- b\n- c")] == ["same", "same", "added"]
    assert isinstance(line_differences("a", "b")[0], Line)
