"""Tutorials and how-to pages: commands are run or known, and pages are called as they are.

See also tests/client/test_tutorial.py.
"""

import re
import shlex
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command, get_commands, load_command_class

ROOT = Path(settings.BASE_DIR)
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
#: What other tests run: a command → the test.
ELSEWHERE = {"make up": "tests/ipate_web/test_demo.py", "python3 -m pip install ./client": "tests/client"}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_buttons_of_tutorials_are_on_pages() -> None:
    catalogue = polib.pofile(ROOT / "locale" / "de" / "LC_MESSAGES" / "django.po")
    known = {entry.msgid for entry in catalogue}
    pressed = {
        re.sub(r"\s+", " ", name)
        for path in TUTORIALS + HOW_TO
        for name in re.findall(r"\*\*(.+?)\*\*", re.sub(r"(?s)```.*?```", "", path.read_text("utf-8")), re.DOTALL)
    }
    assert len(pressed) > 60
    assert sorted(pressed - known) == []


@pytest.mark.django_db
def test_the_commands_of_the_first_study_work(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for path in TUTORIALS for block in blocks(path, "sh") for line in block.splitlines()]
    commands = dict.fromkeys(line for line in lines if line not in ELSEWHERE and not line.startswith(("export ", "#")))
    monkeypatch.setenv("DJANGO_SUPERUSER_USERNAME", "ada")
    monkeypatch.setenv("DJANGO_SUPERUSER_EMAIL", "ada@example.org")
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "correct horse battery")
    assert len(commands) == 2
    for command in commands:
        python, manage, name, *arguments = shlex.split(command)
        assert (python, manage) == (".venv/bin/python", "manage.py")
        call_command(name, *arguments, *(["--no-input"] if name == "createsuperuser" else []))
    assert User.objects.get(is_superuser=True).username == "ada"


def test_how_to_pages_name_commands_and_options_that_there_are() -> None:
    called = [
        shlex.split(command.replace("…", ""))
        for path in HOW_TO
        for command in re.findall(r"`ipate ([^`]+)`", re.sub(r"\s+", " ", path.read_text("utf-8")))
    ]
    assert len(called) > 8
    for name, *arguments in called:
        parser = load_command_class(get_commands()[name], name).create_parser("ipate", name)
        known = {option for action in parser._actions for option in action.option_strings}
        assert {each for each in arguments if each.startswith("--")} <= known, name
