"""The check of the documents' prose."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from django.conf import settings

CHECK = Path(settings.BASE_DIR) / "docs" / "plain_english.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = spec_from_file_location("plain_english", CHECK)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documents_are_in_plain_english() -> None:
    done = subprocess.run([sys.executable, CHECK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_reads_prose_alone(check: ModuleType) -> None:
    text = (
        "# A heading\n\nTwo words. Then `a name in code` and [a link](there.md).\n\n| a | b |\n\n```\ncode here\n```\n"
    )
    assert list(check.sentences(check.prose(text))) == ["Two words.", "Then `a name in code` and a link."]
    assert check.words("Then `a name in code` and a link.") == 5


def test_it_finds_what_is_hard_to_read(check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("We do it in order to win. " + "word " * (check.LONGEST + 1) + "ends.")
    found = list(check.faults(page))
    assert [fault.split(":")[0] for fault in found] == ["page.md"] * 4
    assert any("in order to" in fault for fault in found) and any("at most 70" in fault for fault in found)
    page.write_text("We do it to win. It is short.")
    assert list(check.faults(page)) == []
