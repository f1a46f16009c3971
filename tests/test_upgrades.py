"""Installations of earlier releases, brought to this version with their data by the product's own restore."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from tests.releases import environment

ROOT = Path(settings.BASE_DIR)
#: Of each release what `python -m tests.releases` wrote when it was made.
RELEASES = sorted(Path(__file__).parent.glob("releases/*.tar.xz"))


def python(var: Path, *arguments: str) -> str:
    given = os.environ | environment(var)
    given.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("release", [*RELEASES, None], ids=lambda path: path.name if path else "this version")
def test_an_installation_is_upgraded_whole(release: Path | None, tmp_path: Path) -> None:
    """This version stands for the next release: what it leaves behind can be kept and brought back."""
    if release is None:
        release = tmp_path / "released.tar.xz"
        python(tmp_path / "var-of-old", "-m", "tests.releases", str(release))
    left, var = tmp_path / "left", tmp_path / "var"
    shutil.unpack_archive(release, left)
    (made,) = left.glob("ipate-2*.tar")
    var.mkdir()
    (left / "journal").rename(var / "journal")
    assert "locked" not in python(var, "manage.py", "restore", str(made), "--yes")
    before = json.loads((left / "facts.json").read_text("utf-8"))
    after = json.loads(python(var, "-m", "tests.releases", "facts").splitlines()[-1])
    assert after.keys() >= before.keys()
    assert {name: after[name] for name in before} == before
    python(var, "-m", "tests.releases", "go_on")


def test_releases_have_left_something_behind() -> None:
    assert RELEASES and all(path.stat().st_size < 500_000 for path in RELEASES)
