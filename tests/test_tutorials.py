"""The tutorials: every command is run, and pages are called as they are; see also tests/client/test_tutorial.py."""

import re
import shlex
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command

ROOT = Path(settings.BASE_DIR)
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
#: What other tests run: a command → the test.
ELSEWHERE = {"make up": "tests/ipate_web/test_demo.py", "python3 -m pip install ./client": "tests/client"}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_what_tutorials_press_is_on_pages() -> None:
    catalogue = polib.pofile(ROOT / "locale" / "de" / "LC_MESSAGES" / "django.po")
    known = {entry.msgid for entry in catalogue}
    pressed = {
        re.sub(r"\s+", " ", name)
        for path in TUTORIALS
        for name in re.findall(r"\*\*(.+?)\*\*", re.sub(r"(?s)```.*?```", "", path.read_text("utf-8")), re.DOTALL)
    }
    assert len(pressed) > 30
    assert sorted(pressed - known) == []


@pytest.mark.django_db
def test_the_commands_of_the_first_study_work(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for path in TUTORIALS for block in blocks(path, "sh") for line in block.splitlines()]
    commands = [line for line in lines if line not in ELSEWHERE and not line.startswith(("export ", "#"))]
    monkeypatch.setenv("DJANGO_SUPERUSER_USERNAME", "ada")
    monkeypatch.setenv("DJANGO_SUPERUSER_EMAIL", "ada@example.org")
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "correct horse battery")
    assert len(commands) == 2
    for command in commands:
        python, manage, name, *arguments = shlex.split(command)
        assert (python, manage) == (".venv/bin/python", "manage.py")
        call_command(name, *arguments, *(["--no-input"] if name == "createsuperuser" else []))
    assert User.objects.get(is_superuser=True).username == "ada"
