"""German is complete: no texts or translations are missing, and compiled catalogues are up to date."""

import ast
import gettext
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import polib
import pytest
from django.conf import settings

from ipate_web import catalogues

ROOT = Path(settings.BASE_DIR)
SOURCES = ("accounting", "common", "consent", "ipate_web", "learning", "training", "templates")
CATALOGUE = Path("locale", "de", "LC_MESSAGES", "django.po")
VALUES = re.compile(r"%\(\w+\)\w|%%|</?\w+")

Texts = list[tuple[tuple[str, ...], tuple[str, ...]]]


def _texts(catalogue: Iterable[polib.POEntry]) -> Texts:
    """Return used texts with their translations: one each, or singular and plural."""
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
    assert [entry.msgid for entry in catalogue.fuzzy_entries()] == [], "check it, then remove the mark"
    assert [english for english, german in texts if not all(german)] == []
    assert len(texts) > 800


def test_translations_fill_in_the_same_values(texts: Texts) -> None:
    for english, german in texts:
        for text, translated in zip(english, german, strict=True):
            assert set(VALUES.findall(translated)) == set(VALUES.findall(text)), text


def test_catalogues_hold_every_translation_but_fuzzy_ones(catalogue, tmp_path, monkeypatch) -> None:
    copy = shutil.copytree(ROOT / "locale", tmp_path / "locale", ignore=shutil.ignore_patterns("*.mo")) / "de"
    monkeypatch.setattr(catalogues, "FOLDER", copy.parent)
    (source,) = copy.glob("LC_MESSAGES/django.po")
    source.write_text(f'{source.read_text()}\n#, fuzzy\nmsgid "A guess"\nmsgstr "Geraten"\n')
    catalogues.catalogues_compile()
    with source.with_suffix(".mo").open("rb") as file:
        german = gettext.GNUTranslations(file)
    for entry in (each for each in catalogue if each.msgctxt):
        assert german.pgettext(entry.msgctxt, entry.msgid) == entry.msgstr
    for english, (first, *plural) in _texts([entry for entry in catalogue if not entry.msgctxt]):
        assert german.ngettext(*english, 1) == first if plural else german.gettext(*english) == first
        assert not plural or german.ngettext(*english, 2) == plural[0]
    assert german.gettext("A guess") == "A guess"


def test_no_text_stands_in_a_formatted_string_where_it_is_not_found() -> None:
    """Programs that collect texts ignore f-strings, so their texts would stay English."""
    missed = []
    for path in (path for name in SOURCES for path in (ROOT / name).rglob("*.py")):
        for string in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.JoinedStr)):
            for call in (node for node in ast.walk(string) if isinstance(node, ast.Call)):
                named = isinstance(call.func, ast.Name) and call.func.id in ("_", "gettext", "ngettext", "pgettext")
                if named and call.args and isinstance(call.args[0], ast.Constant):
                    missed.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert missed == []


def test_the_catalogue_has_every_text_of_the_sources_and_no_other(texts: Texts, tmp_path: Path) -> None:
    if shutil.which("xgettext") is None:
        if os.environ.get("IPATE_REQUIRE_SERVICES") == "1":
            pytest.fail("GNU gettext is missing and IPATE_REQUIRE_SERVICES=1 requires it.")
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
        timeout=300,
    )
    known = {english for english, _german in texts}
    found = {english for english, _german in _texts(polib.pofile(str(tmp_path / CATALOGUE)))}
    assert found - known == set(), "locale/README.md says how to add them"
    assert known - found == set(), "delete unused texts"
