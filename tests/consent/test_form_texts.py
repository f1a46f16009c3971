"""Texts and changes as people read them, words with pop-ups, and codes that detect every mistake."""

import itertools
import re

from django.template import Context, Template
from django.test import Client
from django.utils.html import escape

import ipate_web.staff.urls
from consent.documents.codes import (
    GROUP,
    LETTERS,
    check_letter,
    code_faults,
    code_in_groups,
    code_new,
    code_normalise,
    code_of,
)
from consent.models import ConsentForm
from consent.wording.glossary import WORDS, WORDS_OF_STAFF
from consent.wording.rendering import ReadLine, consent_text, line_differences, markdown_html, read_lines
from ipate_web.staff.pages import HELP_WORDS
from tests.everything import addresses


def test_no_marks_of_markdown_are_read() -> None:
    text = (
        "# Why\n\nWe *ask* **you**,\nand `others`.\n\n1. one\n2. two\n\n> said\n\n| a | b |\n|---|---|\n| **c** | d |\n"
    )
    lines = [("heading", "Why"), ("text", "We ask you, and others."), ("item", "one"), ("item", "two")]
    lines += [("text", "said"), ("row", "a | b"), ("row", "c | d")]
    assert read_lines(text) == [ReadLine(*line) for line in lines]


def test_lines_show_their_changed_words() -> None:
    """Removed words are in brackets, and added ones in braces."""
    marks = {"same": "{}", "removed": "[{}]", "added": "{{{}}}"}
    for older, newer, lines in (
        ("- for **ten** years\n- a", "- for **two** years\n- a", ["changed item for [ten]{two} years", "same item a"]),
        ("- a", "- a\n- c", ["same item a", "added item {c}"]),
        ("See [us](https://a.ex).", "See [us](https://b.ex).", ["changed text See us (https://[a]{b}.ex)."]),
        ("We ask\nyou.", "We ask you.", ["same text We ask you."]),
        ("Why", "# Why", ["removed text [Why]", "added heading {Why}"]),
        ("We ask.", "Nothing of it stood here.", ["removed text [We ask.]", "added text {Nothing of it stood here.}"]),
    ):
        for line, shown in zip(line_differences(older, newer), lines, strict=True):
            parts = "".join(marks[part.change].format(part.text) for part in line.parts)
            assert f"{line.change} {line.kind} {parts}" == shown


def test_nothing_active_or_remote_survives() -> None:
    for text, active in (
        ("<script>alert(1)</script>", "<script"),
        ('<p onclick="alert(1)">x</p>', "<p onclick"),
        ("[x](javascript:alert(1))", 'href="javascript'),
        ("![x](https://example.org/tracker.png)", "<img"),
        ("<iframe src=//example.org></iframe>", "<iframe"),
        ("[x](data:text/html;base64,PHNjcmlwdD4=)", 'href="data'),
    ):
        assert active not in markdown_html(text)


def test_ordinary_markdown_is_kept_and_headings_continue_those_of_the_page() -> None:
    html = markdown_html("- **a**\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n[us](https://example.org)")
    assert "<li><strong>a</strong></li>" in html and "<td>1</td>" in html
    assert '<a href="https://example.org" rel="noopener noreferrer">us</a>' in html
    assert markdown_html("# A\n\n## B\n\n### C\n\n##### E") == "<h3>A</h3>\n<h4>B</h4>\n<h5>C</h5>\n<h6>E</h6>\n"


def test_a_form_speaks_the_readers_language_or_english() -> None:
    form = ConsentForm(texts={"en": "Hello", "de": "Hallo"})
    assert consent_text(form, "de").html == "<p>Hallo</p>\n"
    fallback = consent_text(form, "fr")
    assert (fallback.language, fallback.html) == ("en", "<p>Hello</p>\n")


CODE = code_of(0x2F6A1B09C37D5E84F1A26B3C09D7E58F143, 7)
GROUPS = code_in_groups(CODE).split()


def wrong_groups(text: str) -> list[int]:
    faults = code_faults(text, 7)
    return [place for place in range(1, 8) if any(fault.startswith(f"Group {place} ") for fault in faults)]


def test_a_code_is_random_bits_and_check_letters_and_letters_that_look_alike_are_the_same() -> None:
    codes = {code_new(7) for _ in range(200)}
    assert len(codes) == 200 and code_of(0, 7) != code_of(1, 7)
    for code in codes:
        assert len(code) == 35 and set(code) <= set(LETTERS)
        assert not any(code_faults(typed, 7) for typed in (code, code_in_groups(code), code_in_groups(code, "-")))
    assert code_normalise(code_in_groups(CODE, " - ").lower().replace("0", "o").replace("1", "l")) == CODE


def test_every_single_wrong_letter_is_noticed_in_its_group() -> None:
    for place in range(35):
        for letter in set(LETTERS) - {CODE[place]}:
            assert wrong_groups(CODE[:place] + letter + CODE[place + 1 :]) == [place // GROUP + 1]


def test_swapped_letters_are_noticed() -> None:
    for start in range(0, 35, GROUP):
        for one, other in itertools.combinations(range(start, start + GROUP), 2):
            letters = list(CODE)
            letters[one], letters[other] = letters[other], letters[one]
            assert letters == list(CODE) or wrong_groups("".join(letters)) == [start // GROUP + 1]
    for one, other in itertools.combinations(range(7), 2):
        swapped = list(GROUPS)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        assert wrong_groups(" ".join(swapped)) == [one + 1, other + 1]


def test_a_missing_letter_is_reported_with_its_group() -> None:
    short = [*GROUPS[:3], GROUPS[3][1:], *GROUPS[4:]]
    assert code_faults(" ".join(short), 7) == [f"Group 4 ({short[3]}) must have 5 letters or digits."]
    # Without spaces, the first group is the one that is wrong.
    length, first = code_faults("".join(short), 7)
    assert length.endswith("You typed 34 characters.") and first.startswith("Group 4 ")
    assert code_faults(" ".join(GROUPS[:6]), 7)[0].endswith("You typed 30 characters.")
    (fault,) = code_faults("U" + CODE[1:], 7)
    assert fault == f"Group 1 (U{CODE[1:5]}) contains a character that is never used in codes."


def test_a_check_letter_follows_from_the_others_by_polynomials_over_two() -> None:
    def times_x(value: int) -> int:
        return (value << 1) ^ (0b100101 if value & 16 else 0)

    for letters, place in itertools.product(("0000", "Z7K1", "8QRA"), (1, 7)):
        total = place
        for power, letter in enumerate(letters, 1):
            value = LETTERS.index(letter)
            for _ in range(power):
                value = times_x(value)
            total ^= value
        assert check_letter(letters, place) == LETTERS[total]


def test_each_glossary_word_has_its_pop_up() -> None:
    page = Template('{% words "noise cap" %}').render(Context())
    assert re.findall(r'popovertarget="([^"]+)"', page) == re.findall(r'id="([^"]+)" popover', page)
    assert escape(str(WORDS["noise"][1])) in page and "<dfn>Cap</dfn>" in page
    assert not WORDS.keys() & WORDS_OF_STAFF.keys()


def test_words_of_pages_are_known_and_in_the_glossary(client: Client) -> None:
    assert set(HELP_WORDS) <= set(addresses(ipate_web.staff.urls.urlpatterns))
    assert {key for keys in HELP_WORDS.values() for key in keys.split()} <= set(WORDS | WORDS_OF_STAFF)
    page = client.get("/glossary/").content.decode()
    assert all(f'<dt id="{key}">' in page for key in WORDS | WORDS_OF_STAFF)
