"""German is complete: nothing is missing from the catalogue or its translations, and what is compiled is not older.

Texts are renamed in code, templates, catalogue and tests at once, or not at all.
"""

import ast
import gettext
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

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
    """Programs that collect texts do not look into f-strings: whatever stands there stays English."""
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
        timeout=300,
    )
    known = {english for english, _german in texts}
    found = {english for english, _german in _texts(polib.pofile(str(tmp_path / CATALOGUE)))}
    assert found - known == set(), "locale/README.md says how to add them"
    assert known - found == set(), "delete what nothing says any more"


RENAMED = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "Whoever has the link opens the page with it, and nobody else does so."
msgstr "Wer den Link hat, öffnet damit die Seite."

#, python-format
msgid "%(n)s person is told."
msgid_plural "%(n)s people are told."
msgstr[0] "%(n)s Person erfährt es."
msgstr[1] "%(n)s Personen erfahren es."

#, python-format
msgid "%(name)s gives 5 %% of it away."
msgstr "%(name)s gibt 5 %% davon weg."

msgid "Begin anew"
msgstr "Neu beginnen"
"""
MODULE = """from django.utils.translation import gettext as _


def opened(text):
    return _(
        "Whoever has the link opens the page with it, "
        "and nobody else does so."
    )


WORDS = {"Whoever has the link opens the page with it, and nobody else does so.": "anew"}
BUTTON = _("Begin anew")
"""
TEMPLATE = """{% load i18n %}{% with n=people|length %}
<p>{% blocktranslate trimmed %}
    Whoever has the link opens the page with it,
    and nobody else does so.
  {% endblocktranslate %}</p>
{% blocktranslate count n=n %}{{ n }} person is told.{% plural %}{{ n }} people are told.{% endblocktranslate %}
{% blocktranslate %}{{ name }} gives 5 % of it away.{% endblocktranslate %}
{% include "a.html" with text=_("Begin anew") %}
{% translate "Begin anew" %}
"""
TEST = """def test_it(page):
    assert "Begin anew" in page and ">Begin anew</button>" in page
    assert "Anna gives 5 % of it away." in page
    assert "the link opens the page" in page
    assert "Neu beginnen" in page
"""
TABLE = """
[[text]]
old = "Whoever has the link opens the page with it, and nobody else does so."
new = "Only people with the link (or a copy of it) can open the page."
de = "Nur wer den Link (oder eine Kopie davon) hat, kann die Seite öffnen."
[[text]]
old = "%(n)s person is told."
new = "We tell %(n)s person."
new_plural = "We tell %(n)s people."
de = ["Wir benachrichtigen %(n)s Person.", "Wir benachrichtigen %(n)s Personen."]
[[text]]
old = "%(name)s gives 5 %% of it away."
new = "%(name)s gives away 5 %%."
[[text]]
old = "Begin anew"
new = "Start over"
de = "Von vorn beginnen"
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = spec_from_file_location("rename_texts", Path(settings.BASE_DIR) / "locale" / "rename_texts.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def files(tmp_path: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    texts = {
        "locale/de/LC_MESSAGES/django.po": RENAMED,
        "locale/de/LC_MESSAGES/person.po": 'msgid "Begin anew"\nmsgstr "%(person)s beginnt von vorn"\n',
        "consent/module.py": MODULE,
        "templates/page.html": TEMPLATE,
        "tests/test_page.py": TEST,
        "docs/page.md": "Press **Begin\nanew**.\n",
        "table.toml": TABLE,
    }
    paths = {name.rsplit("/", 1)[-1]: tmp_path / name for name in texts}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return paths


def test_texts_are_renamed_everywhere_once(files: dict[str, Path], tool: ModuleType) -> None:
    assert tool.main([str(files["table.toml"])]) == 0
    entries = {entry.msgid: entry for entry in polib.pofile(str(files["django.po"]))}
    long = "Only people with the link (or a copy of it) can open the page."
    assert set(entries) == {long, "We tell %(n)s person.", "%(name)s gives away 5 %%.", "Start over"}
    assert entries["We tell %(n)s person."].msgstr_plural[1] == "Wir benachrichtigen %(n)s Personen."
    assert entries["%(name)s gives away 5 %%."].msgstr == "%(name)s gibt 5 %% davon weg."
    (about,) = polib.pofile(str(files["person.po"]))
    assert (about.msgid, about.msgstr) == ("Start over", "%(person)s beginnt von vorn")
    module = files["module.py"].read_text()
    assert f'return _("{long}")' in module and f'{{"{long}": "anew"}}' in module and '_("Start over")' in module
    template = files["page.html"].read_text()
    assert f"trimmed %}}\n    {long}\n  {{%" in template
    assert "We tell {{ n }} person.{% plural %}We tell {{ n }} people.{% end" in template
    assert "{{ name }} gives away 5 %." in template and template.count('"Start over"') == 2
    test = files["test_page.py"].read_text()
    assert '">Start over</button>"' in test and "Anna gives away 5 %." in test and "Von vorn beginnen" in test
    assert '"Only people with the link" in page' in test, "a part that a regular expression matches as it stands"
    assert files["page.md"].read_text() == "Press **Start over**.\n"
    before = {name: path.read_text() for name, path in files.items()}
    assert tool.main([str(files["table.toml"])]) == 1, "a second time"
    assert {name: path.read_text() for name, path in files.items()} == before


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"Begin anew"', '"Begin again"', "not in the catalogue: Begin again"),
        ('"Begin anew"', '"%(n)s person is told."', "twice in the table"),
        ('new = "Start over"', 'new = "%(n)s person is told."', "both old and new"),
        ('"Start over"', '"Start %(what)s"', "new values in: Start %(what)s"),
        ('"Von vorn beginnen"', '"<b>Von</b> vorn"', "values of English and German differ: Start over"),
        ('new_plural = "We tell %(n)s people."\n', "", "has a plural in only one"),
    ],
)
def test_a_table_that_cannot_be_applied_in_full_changes_nothing(files, tool, old, new, told, capsys) -> None:
    assert old in TABLE and tomllib.loads(TABLE.replace(old, new))
    files["table.toml"].write_text(TABLE.replace(old, new))
    before = {name: path.read_text() for name, path in files.items()}
    assert tool.main([str(files["table.toml"])]) == 1
    assert told in capsys.readouterr().err
    assert {name: path.read_text() for name, path in files.items()} == before
