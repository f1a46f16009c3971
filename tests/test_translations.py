"""German is complete: nothing is missing from the catalogue, from its translations, or from what is compiled."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polib
import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
SOURCES = ("accounting", "common", "consent", "ipate_web", "learning", "training", "templates")
CATALOGUE = Path("locale", "de", "LC_MESSAGES", "django.po")
VALUES = re.compile(r"%\(\w+\)\w|%%|</?\w+")

Texts = list[tuple[tuple[str, ...], tuple[str, ...]]]


def _texts(catalogue: polib.POFile | polib.MOFile) -> Texts:
    """Texts in use with their translations: one of each, or singular and plural."""
    return [
        ((entry.msgid, entry.msgid_plural), tuple(text for _number, text in sorted(entry.msgstr_plural.items())))
        if entry.msgid_plural
        else ((entry.msgid,), (entry.msgstr,))
        for entry in catalogue
        if not entry.obsolete
    ]


@pytest.fixture(scope="module")
def catalogue() -> polib.POFile:
    return polib.pofile(str(ROOT / CATALOGUE))


@pytest.fixture(scope="module")
def texts(catalogue: polib.POFile) -> Texts:
    return _texts(catalogue)


def test_every_text_is_translated(catalogue: polib.POFile, texts: Texts) -> None:
    assert [entry.msgid for entry in catalogue.fuzzy_entries()] == [], "guessed: check it, remove the mark"
    assert [english for english, german in texts if not all(german)] == []
    assert len(texts) > 800


def test_translations_fill_in_the_same_values(texts: Texts) -> None:
    for english, german in texts:
        for text, translated in zip(english, german, strict=True):
            assert set(VALUES.findall(translated)) == set(VALUES.findall(text)), text


def test_the_compiled_file_is_up_to_date(texts: Texts) -> None:
    compiled = _texts(polib.mofile(str(ROOT / CATALOGUE.with_suffix(".mo"))))
    assert sorted(set(texts) ^ set(compiled)) == [], "run: python manage.py compilemessages -l de -i .venv"


def test_the_catalogue_has_every_text_of_the_sources_and_no_other(texts: Texts, tmp_path: Path) -> None:
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
    known = {english for english, _german in texts}
    found = {english for english, _german in _texts(polib.pofile(str(tmp_path / CATALOGUE)))}
    assert found - known == set(), "locale/README.md says how to add them"
    assert known - found == set(), "delete what nothing says any more"
