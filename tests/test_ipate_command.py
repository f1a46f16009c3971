"""The command ``ipate`` of an installation: its environment comes from a file, or nothing is started."""

import os
import pwd
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.core.management import call_command

from ipate_web.management.commands import backup

ROOT = Path(settings.BASE_DIR)
SECRET = "x" * 60
ZONE = ZoneInfo("Europe/Berlin")


def ipate(*arguments: str, program: str = "ipate", **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / program, *arguments],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """Return the environment file of an installation on SQLite, with values that need quoting."""
    state = tmp_path / "state"
    state.mkdir()
    file = tmp_path / "environment"
    file.write_text(
        "# comment\n; comment\n\n"
        f"IPATE_SECRET_KEY={SECRET}\n"
        f'IPATE_VAR_DIR="{state}"\n'
        'IPATE_SITE_NAME="Clinic \\"North\\""\n'
        'IPATE_CHECKPOINT_STORAGE_OPTIONS={"location": "/mnt/elsewhere"}\n'
        "IPATE_SITE_OPERATOR=Clinic, Street 1\n"
        'IPATE_SITE_LOGO=""\n'
    )
    return file


SHOW = (
    "import os; from django.conf import settings; "
    "print([os.environ['IPATE_' + each] for each in "
    "('SITE_NAME', 'CHECKPOINT_STORAGE_OPTIONS', 'SITE_OPERATOR')], os.geteuid(), "
    "settings.VAR_DIR, settings.SECRET_KEY)"
)


@pytest.mark.parametrize("in_file", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_the_environment_of_the_file_counts_and_a_key_may_lie_in_another(installation: Path, in_file: bool) -> None:
    if in_file:
        key = installation.parent / "key"
        key.write_text(SECRET)
        text = installation.read_text().replace(f"IPATE_SECRET_KEY={SECRET}", f"IPATE_SECRET_KEY_FILE={key}")
        installation.write_text(text)
    done = ipate("shell", "-v0", "-c", SHOW, IPATE_ENVIRONMENT=str(installation))
    values = ['Clinic "North"', '{"location": "/mnt/elsewhere"}', "Clinic, Street 1"]
    state = installation.parent / "state"
    assert done.stdout == f"{values} {os.geteuid()} {state} {SECRET}\n", done.stderr


@pytest.mark.parametrize("name", ["verify_ledger", "web", "worker"])
def test_without_an_environment_nothing_is_started(tmp_path: Path, name: str) -> None:
    def kept() -> set[Path]:
        return {path for path in ROOT.iterdir() if path.name[0] not in "._"}  # not other tests' leftovers

    missing, before = tmp_path / "environment", kept()
    done = ipate(name, IPATE_ENVIRONMENT=str(missing))
    assert done.returncode != 0 and not done.stdout
    assert str(missing) in done.stderr and "IPATE_SECRET_KEY" in done.stderr and "Traceback" not in done.stderr
    assert kept() == before and not list(tmp_path.iterdir())


def test_manage_py_refuses_beside_an_installation(installation: Path) -> None:
    done = ipate("verify_ledger", program="manage.py", IPATE_ENVIRONMENT=str(installation))
    assert done.returncode != 0 and "Use ipate" in done.stderr and not done.stdout
    assert not list((installation.parent / "state").iterdir()), "a database was created"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("IPATE_SECRET_KEY=x\n", "IPATE_VAR_DIR"),
        ("IPATE_VAR_DIR=/tmp\n", "IPATE_SECRET_KEY"),
        ("IPATE_SECRET_KEY=x\nexport IPATE_VAR_DIR=/tmp\n", "Line 2"),
        ('IPATE_SECRET_KEY="x\n', "Line 1"),
        ("IPATE_SECRET_KEY=secret\nIPATE_VAR_DIR=/nowhere/at/all\n", "/nowhere/at/all"),
    ],
)
def test_a_file_that_does_not_say_all_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "environment"
    file.write_text(text)
    done = ipate("check", IPATE_ENVIRONMENT=str(file))
    assert done.returncode != 0 and said in done.stderr and "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_root_goes_on_as_the_owner_of_the_state(installation: Path) -> None:
    state, nobody = installation.parent / "state", pwd.getpwnam("nobody")
    # Nobody may read these: the program, and the folders above the state.
    for folder in [state.parent, *list(state.parent.parents)[:-2]]:
        if folder.owner() == "root" and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
    shutil.chown(state, "nobody")
    installation.chmod(0o600)
    program = "import os, runpy, sys; os.execv = lambda *_: print(os.getuid(), os.getgroups(), os.environ['USER']); "
    program += f"sys.argv = ['ipate', 'check']; runpy.run_path({str(ROOT / 'ipate')!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "IPATE_ENVIRONMENT": str(installation)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{nobody.pw_uid} {[nobody.pw_gid]} nobody\n", done.stderr


@pytest.mark.parametrize(
    ("now", "hours"), [("2026-11-22T02:59", 1 / 60), ("2026-11-22T03:00", 24), ("2026-11-22T14:00", 13)]
)
def test_the_next_night_begins_at_three(now: str, hours: float) -> None:
    at = datetime.fromisoformat(now).replace(tzinfo=ZONE)
    assert backup.night_after(at) - at == timedelta(hours=hours)


@pytest.mark.django_db
def test_a_nightly_backup_goes_on_after_one_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    made = iter([backup.BackupError("The disk is full."), (tmp_path / "ipate.tar.age", "00")])

    def make(*_: object) -> object:
        found = next(made)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("ipate_web.management.commands.backup.time.sleep", sleep)
    monkeypatch.setattr(backup, "backup_make", make)
    monkeypatch.setattr(backup, "backups_prune", lambda *_: [])
    monkeypatch.setattr(backup, "unwind_on_signals", lambda: None)
    monkeypatch.setattr(backup.connections, "close_all", lambda: None)
    out, err = StringIO(), StringIO()
    call_command("backup", str(tmp_path), "--unencrypted", "--nightly", stdout=out, stderr=err)
    assert "The disk is full. The next attempt is tomorrow." in err.getvalue()
    assert "is complete" in out.getvalue() and out.getvalue().endswith("Stopped.\n")
    assert all(0 < wait <= 25 * 3600 for wait in waits)
