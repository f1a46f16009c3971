"""German is complete, and what is compiled is what was translated."""

import gettext
import re
from pathlib import Path

import pytest
from django.conf import settings

FOLDER = Path(settings.LOCALE_PATHS[0], "de", "LC_MESSAGES")
ENTRY = re.compile(r'^msgid ((?:".*"\n)+)msgstr ((?:".*"\n?)+)', re.MULTILINE)


def _text(lines: str) -> str:
    return "".join(line.strip()[1:-1] for line in lines.splitlines()).replace('\\"', '"').replace("\\n", "\n")


@pytest.fixture(scope="module")
def entries() -> dict[str, str]:
    source = (FOLDER / "django.po").read_text()
    assert "#, fuzzy" not in source, "a translation is only guessed: check it and remove the mark"
    return {_text(english): _text(german) for english, german in ENTRY.findall(source)}


def test_every_text_is_translated(entries: dict[str, str]) -> None:
    assert [english for english, german in entries.items() if not german] == []
    assert len(entries) > 100


def test_translations_fill_in_the_same_values(entries: dict[str, str]) -> None:
    values = re.compile(r"%\(\w+\)\w")
    for english, german in entries.items():
        assert set(values.findall(english)) == set(values.findall(german)), english


def test_the_compiled_file_is_up_to_date(entries: dict[str, str]) -> None:
    with open(FOLDER / "django.mo", "rb") as file:
        compiled = gettext.GNUTranslations(file)
    stale = [english for english, german in entries.items() if english and compiled.gettext(english) != german]
    assert stale == [], "run: python manage.py compilemessages -l de -i .venv"
