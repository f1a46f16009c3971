"""German is complete: nothing is missing from the catalogue, from its translations, or from what is compiled."""

import gettext
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
SOURCES = ("accounting", "consent", "ipate_web", "training", "templates")
CATALOGUE = Path("locale", "de", "LC_MESSAGES", "django.po")
FIELD = re.compile(r'^(msgid|msgid_plural|msgstr(?:\[\d\])?) ((?:".*"\n?)+)', re.MULTILINE)
VALUES = re.compile(r"%\(\w+\)\w|%%|</?\w+")


def _text(lines: str) -> str:
    quoted = "".join(line.strip()[1:-1] for line in lines.splitlines())
    return quoted.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def _entries(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Each text that is in use, with its German: one of each, or singular and plural."""
    for block in path.read_text().split("\n\n"):
        fields = [(name, _text(lines)) for name, lines in FIELD.findall(block)]
        english = [text for name, text in fields if name.startswith("msgid")]
        if english and english != [""]:
            yield english, [text for name, text in fields if name.startswith("msgstr")]


@pytest.fixture(scope="module")
def entries() -> list[tuple[list[str], list[str]]]:
    return list(_entries(ROOT / CATALOGUE))


def test_every_text_is_translated(entries) -> None:
    assert "#, fuzzy" not in (ROOT / CATALOGUE).read_text(), "a translation is guessed: check it, remove the mark"
    assert [english for english, german in entries if not all(german)] == []
    assert len(entries) > 800


def test_translations_fill_in_the_same_values(entries) -> None:
    for english, german in entries:
        for text, translated in zip(english, german, strict=True):
            assert set(VALUES.findall(translated)) == set(VALUES.findall(text)), text


def test_the_compiled_file_is_up_to_date(entries) -> None:
    with open(ROOT / CATALOGUE.with_suffix(".mo"), "rb") as file:
        compiled = gettext.GNUTranslations(file)
    stale = [
        english
        for english, german in entries
        if (compiled.gettext(english[0]) if len(english) == 1 else compiled.ngettext(*english, 1)) != german[0]
        or (len(english) == 2 and compiled.ngettext(*english, 2) != german[1])
    ]
    assert stale == [], "run: python manage.py compilemessages -l de -i .venv"


def test_the_catalogue_has_every_text_of_the_sources(entries, tmp_path: Path) -> None:
    if shutil.which("xgettext") is None:
        if os.environ.get("IPATE_REQUIRE_SERVICES") == "1":
            pytest.fail("GNU gettext is missing and IPATE_REQUIRE_SERVICES=1 wants it.")
        pytest.skip("GNU gettext is not installed")
    for name in SOURCES:
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "locale").mkdir()
    subprocess.run(
        [sys.executable, "-m", "django", "makemessages", "-l", "de", "--no-location", "--no-wrap"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    known = [english for english, _german in entries]
    missing = [english for english, _german in _entries(tmp_path / CATALOGUE) if english not in known]
    assert missing == [], "locale/README.md says how to add them"
