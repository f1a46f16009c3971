"""Documents: built by MkDocs and served by the site, in plain English, with correct commands and versions.

See also tests/client/test_tutorial.py.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import ipate_client
import polib
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command, get_commands, load_command_class

import ipate_web.staff.urls
from common import __version__
from ipate_web.staff.pages import HELP_ELSEWHERE, HELP_SECTIONS
from tests import factories
from tests.everything import addresses

ROOT = Path(settings.BASE_DIR)
DOCS = ROOT / "docs"
TUTORIALS, HOW_TO = (sorted((DOCS / name).glob("*.md")) for name in ("tutorials", "how-to"))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the documentation. A missing link or section makes the build fail, unless ``--quiet`` hides its warning."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.exhaustive
@pytest.mark.django_db
def test_documents_are_served_where_they_are_built_and_help_leads_to_them(built, settings, client) -> None:
    assert client.get("/docs/").status_code == 404 and b"/docs/" not in client.get("/").content
    settings.DOCUMENTS = built
    assert b'href="/docs/"' in client.get("/").content
    front = client.get("/docs/")
    assert front.status_code == 200 and "default-src 'self'" in front["Content-Security-Policy"]
    assert b"<h1" in b"".join(front.streaming_content)
    assert client.get("/docs/consent.html").status_code == 200
    assert b"".join(client.get("/docs/gaussian-accounts.pdf").streaming_content).startswith(b"%PDF-")
    assert client.get("/docs/nothing.html").status_code == 404
    assert client.get("/docs/%2e%2e/%2e%2e/etc/passwd").status_code == 400
    assert client.post("/docs/").status_code == 405

    assert set(addresses(ipate_web.staff.urls.urlpatterns)) >= set(HELP_SECTIONS), "unknown name of a page"
    templates = "".join(text_of(path) for path in (ROOT / "templates").rglob("*.html"))
    links = {f"{page}.html{section}" for page, section in re.findall(r'document_link "(.+?)" "(.*?)"', templates)}
    assert len(links) == templates.count("{% document_link ") > 3
    for target in {HELP_ELSEWHERE, *HELP_SECTIONS.values(), *links}:
        page, _, section = target.partition("#")
        assert not section or f' id="{section}"' in text_of(built / page), target
    study = factories.study_open()
    client.force_login(factories.user_create("olga"))
    assert b'href="/docs/choosing-a-method.html"' in client.get(f"/studies/{study.slug}/runs/").content


@pytest.mark.exhaustive
def test_the_security_policy_lets_every_page_of_documents_work(built: Path) -> None:
    """No page contains anything that the policy would block, or loads anything from another site."""
    pages = list(built.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert not re.search(r"<script>|<style|\sstyle=|\son[a-z]+=\"", text_of(page)), page
        assert not re.search(r'(src|<link[^>]* href)="https?:', text_of(page)), page


def test_the_picture_of_the_architecture_is_drawn_from_its_source() -> None:
    import typst  # here, because only this test needs it

    drawn = typst.compile(DOCS / "architecture.typ", format="svg")
    assert drawn == (DOCS / "architecture.svg").read_bytes(), "run: make pictures"


def test_the_picture_of_the_architecture_shows_every_package() -> None:
    shown = set(re.findall(r"part\(\[([a-z_.]+)\]", text_of(DOCS / "architecture.typ")))
    listed = set(re.findall(r"`([a-z_]+)/`", text_of(DOCS / "architecture.md").split("## Inside an app")[0]))
    packages = {each.parent.name for each in ROOT.glob("*/__init__.py")} - {"benchmarks", "tests"}
    assert packages <= shown and packages <= listed
    outside = {"holders", "staff", "researchers", "database", "broker", "storage", "journal"}
    assert all((ROOT / each.replace(".", "/") / "__init__.py").exists() for each in shown - outside)
    assert all(
        (ROOT / each).is_dir()
        or each in {"staff", "api", "accounts", "engine", "methods", "alliances", "services", "privacy"}
        for each in listed
    )


def test_newcomers_find_every_place_that_is_named() -> None:
    places = re.findall(r"`([\w/]+\.py)::(\w+)`", text_of(DOCS / "where-is.md"))
    assert len(places) > 15
    for path, name in places:
        found = re.search(rf"^(def |class )?{name}\b", text_of(ROOT / path), re.MULTILINE)
        assert found, f"{path} has no {name}"


def test_files_and_folders_that_documents_name_exist() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    whole = {*tracked, *(f"{folder}/" for path in tracked for folder in Path(path).parents)}
    known = {path[start:] for path in whole for start in (0, *(each.end() for each in re.finditer("/", path)))}
    named = {
        (path.name, name)
        for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
        for name in re.findall(r"`([\w/-]+(?:\.py|\w/))`", text_of(path))
        if not name.startswith(("var/", "/"))
    } - {("importing.md", f"{name}/") for name in ("adult", "diabetes130", "mnist")}  # folders of data sets
    assert len(named) > 80
    known |= {"commitments/"}  # in private storage
    assert sorted((page, name) for page, name in named if name not in known) == []


def test_tests_that_documents_name_exist() -> None:
    tests = list((ROOT / "tests").rglob("*.py"))
    known = {name for path in tests for name in re.findall(r"(?:def |class )(\w+)", text_of(path))}
    known |= {path.stem for path in tests} | {"test_dataset", "test_webhook"}  # a field and a method of the client
    documents = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    named = {name for path in documents for name in re.findall(r"\btest_\w+", text_of(path))}
    assert len(named) > 40
    assert sorted(named - known) == []


#: Commands that other tests run → the test.
ELSEWHERE = {"make up": "tests/ipate_web/test_demo.py", "python3 -m pip install ./client": "tests/client"}


def test_buttons_of_tutorials_are_on_pages() -> None:
    known = {entry.msgid for entry in polib.pofile(ROOT / "locale" / "de" / "LC_MESSAGES" / "django.po")}
    pressed = {
        re.sub(r"\s+", " ", name)
        for path in TUTORIALS + HOW_TO
        for name in re.findall(r"\*\*(.+?)\*\*", re.sub(r"(?s)```.*?```", "", text_of(path)), re.DOTALL)
    }
    assert len(pressed) > 60
    assert sorted(pressed - known) == []


@pytest.mark.django_db
def test_the_commands_of_the_first_study_work(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block for path in TUTORIALS for block in re.findall(r"```sh\n(.*?)```", text_of(path), re.DOTALL)]
    lines = [line for block in blocks for line in block.splitlines()]
    commands = dict.fromkeys(line for line in lines if line not in ELSEWHERE and not line.startswith(("export ", "#")))
    for name, value in (("USERNAME", "ada"), ("EMAIL", "ada@example.org"), ("PASSWORD", "correct horse battery")):
        monkeypatch.setenv(f"DJANGO_SUPERUSER_{name}", value)
    assert len(commands) == 2
    for command in commands:
        python, manage, name, *arguments = shlex.split(command)
        assert (python, manage) == (".venv/bin/python", "manage.py")
        call_command(name, *arguments, *(["--no-input"] if name == "createsuperuser" else []))
    assert User.objects.get(is_superuser=True).username == "ada"


def test_how_to_pages_name_existing_commands_and_options() -> None:
    called = [
        shlex.split(command.replace("…", ""))
        for path in HOW_TO
        for command in re.findall(r"`ipate ([^`]+)`", re.sub(r"\s+", " ", text_of(path)))
    ]
    assert len(called) > 8
    for name, *arguments in called:
        parser = load_command_class(get_commands()[name], name).create_parser("ipate", name)
        known = {option for action in parser._actions for option in action.option_strings}
        assert {each for each in arguments if each.startswith("--")} <= known, name


def test_the_client_the_documents_and_the_list_of_changes_have_the_version() -> None:
    assert ipate_client.__version__ == __version__
    assert f"\nversion: {__version__}\n" in text_of(ROOT / "CITATION.cff")
    assert f"  version = {{{__version__}}}," in text_of(DOCS / "notation.md")
    headings = [line for line in text_of(ROOT / "CHANGELOG.md").splitlines() if line.startswith("## ")]
    assert next(heading for heading in headings if heading != "## Unreleased").startswith(f"## {__version__} – ")


def test_documents_docstrings_pages_and_the_api_keep_to_the_style() -> None:
    command = [sys.executable, DOCS / "plain_english.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_check_finds_banned_words_and_beginnings() -> None:
    check = run_path(str(DOCS / "plain_english.py"))
    for sentence, found in (
        ("Whoever has the link opens it.", 2),
        ("We do it in order to win.", 1),
        ("What is released cannot be taken back.", 1),
        ("What is released?", 0),
        ("It is read alone, or let alone.", 1),
        ("Only `whoever` may read it.", 0),
    ):
        assert len(list(check["banned"](sentence))) == found, sentence
    assert len(check["ALLOWED"]) <= 40
