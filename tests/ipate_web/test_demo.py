"""``manage.py demo`` and ``manage.py up`` in separate processes, as people start them."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing, nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from ipate_web.management.commands import demo as command
from tests.pages import study_with_finished_run
from tests.workers import wait_until
from training.models import Run

PATIENCE = 1800
"""Seconds after which a command counts as hanging, on a slow machine that is busy with other tests."""


def manage(var: Path, *arguments: str) -> subprocess.Popen:
    """Run a command with the default database in a separate folder, regardless of the suite's database."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "IPATE_BROKER_URL")}
    environment = inherited | {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_VAR_DIR": str(var)}
    command, pipe, folder = [sys.executable, "manage.py", *arguments], subprocess.PIPE, settings.BASE_DIR
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def processes_in(var: Path) -> list[int]:
    """Return the living processes that were started with this folder."""
    mark = f"IPATE_VAR_DIR={var}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_until_none_is_left(var: Path) -> None:
    wait_until(lambda: not processes_in(var), pause=0.2)


def demo(var: Path, *options: str) -> list[dict[str, Any]]:
    with manage(var, "demo", "--no-serve", "--json", *options) as process:
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out
    wait_until_none_is_left(var)
    return json.loads(out.splitlines()[-1])["runs"]


def in_database(var: Path, expression: str) -> str:
    with manage(var, "shell", "-v", "0", "-c", f"print({expression})") as process:
        out, _ = process.communicate(timeout=PATIENCE)
    return out.strip()


class Stopping:
    """A process that has stopped when it is polled for the second time."""

    looks = 0

    def poll(self) -> int | None:
        self.looks += 1
        return None if self.looks < 2 else 0


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the command's steps in order; its only run is one that has finished."""
    study, done = study_with_finished_run(), []

    def noted(name: str, answer: Any = study) -> Any:
        return lambda *_, **__: done.append(name) or answer

    monkeypatch.setattr(command, "unwind_on_signals", lambda: None)
    monkeypatch.setattr(command, "running", lambda words, *_: nullcontext(done.append(words[2]) or Stopping()))
    monkeypatch.setattr(command, "call_command", lambda name, **_: done.append(name))
    monkeypatch.setattr(command, "static_files_collect", noted("collectstatic"))
    for name in ("catalogue_load", "demo_study", "study_build", "demo_rehearsal", "rehearsal_build"):
        monkeypatch.setattr(command, name, noted(name))
    monkeypatch.setattr(command, "wait_for_answer", noted("answer"))
    monkeypatch.setattr(command, "runs_start", noted("runs_start", [study.runs.get()]))
    return done


@pytest.mark.django_db
def test_the_demo_prints_a_table_and_says_which_run_has_failed(done: list[str]) -> None:
    """Uses an existing run; a test below runs the demo itself."""
    run, out = Run.objects.get(), StringIO()
    call_command("demo", "--no-serve", "--json", stdout=out)
    assert "gunicorn" not in done and "celery" in done
    (reported,) = json.loads(out.getvalue().splitlines()[-1])["runs"]
    assert (reported["method"], reported["labels"]) == ("pate", run.labels)
    assert [group["level"] for group in reported["groups"]] == ["HIGH", "AVERAGE", "LOW"]
    assert all(0 < group["share"] <= 1 for group in reported["groups"])
    (line,) = (each for each in out.getvalue().splitlines() if each.startswith(run.title))
    assert f"{100 * reported['student_accuracy']:.1f} %" in line and "+0.0" in line and "high ε 1" in line
    assert "predicting the most frequent class" in out.getvalue()
    Run.objects.filter(pk=run.pk).update(status=Run.Status.FAILED, message="No disk.")
    with pytest.raises(CommandError, match=r"failed\. No disk\."):
        call_command("demo", "--no-serve", stdout=out)


@pytest.mark.django_db
def test_the_demo_serves_the_site_before_anything_is_carried_out(done: list[str]) -> None:
    run, out = Run.objects.get(), StringIO()
    with pytest.raises(CommandError, match="A process has stopped"):
        call_command("demo", stdout=out)
    served = ["migrate", "collectstatic", "gunicorn", "demo_study", "demo_rehearsal", "answer", "celery"]
    assert done == [*served, "catalogue_load", "study_build", "rehearsal_build", "runs_start"]
    said = out.getvalue()
    places = [said.index(words) for words in ("demo-operator2", "follow them", run.title, "Where to look:")]
    assert places == sorted(places)
    assert f"/studies/{run.study.slug}/runs/{run.pk}/" in said


@pytest.mark.worker
@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_the_demo_resumes_and_can_be_run_again(tmp_path: Path) -> None:
    database = tmp_path / "ipate.sqlite3"

    def count(query: str) -> int:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as read:
            return read.execute(query).fetchone()[0]

    with manage(tmp_path, "demo", "--port", "8123") as process:
        try:
            assert process.stdout is not None
            while "demo-holder" not in (line := process.stdout.readline()):
                assert line
            assert health("http://127.0.0.1:8123"), "the site answers before anybody is asked"
            labelled = "SELECT count(*) > 0 FROM training_run WHERE position > 0"
            wait_until(lambda: count(labelled), seconds=PATIENCE, pause=0.2)
        finally:
            process.send_signal(signal.SIGINT)  # otherwise the block would never end
        assert "again to continue" in process.stdout.read()
    wait_until_none_is_left(tmp_path)
    runs = demo(tmp_path, "--port", "8123")
    mails = [mail.read_text() for mail in (tmp_path / "mail").iterdir()]
    assert mails
    assert all("http://127.0.0.1:8123" in mail and ":8000" not in mail for mail in mails)
    everybody, teachers, weighting, baseline = runs
    assert [(run["method"], run["variant"], run["rehearsal"]) for run in runs] == [
        ("neighbours", "", False),
        ("pate", "weighting", False),
        ("pate", "weighting", True),
        ("pate", "standard", True),
    ]
    for run in runs:
        groups = [(group["level"], group["epsilon"]) for group in run["groups"]]
        assert groups == [("HIGH", 1.0), ("AVERAGE", 2.0), ("LOW", 3.0)]
    assert all(0.1 < group["share"] <= 0.15 for group in everybody["groups"])
    assert all(0.2 < group["share"] <= 0.65 for group in teachers["groups"])
    assert all(group["share"] is None for run in (weighting, baseline) for group in run["groups"])
    assert everybody["labels"] == 300, "every public point"
    assert everybody["label_accuracy"] > 0.5
    assert everybody["student_accuracy"] > baseline["student_accuracy"]
    assert teachers["labels"] > 0 and weighting["labels"] > baseline["labels"] > 0

    assert demo(tmp_path) == runs, "when run again, it finds everything done"
    query = "DataHolder.objects.filter(study__rehearsal=False).count()"
    counts = f"Study.objects.count(), Run.objects.count(), ConsentEvent.objects.count() == {query}"
    assert in_database(tmp_path, counts) == "2 4 True"
    assert in_database(tmp_path, "list(Run.objects.values_list('forgotten_at', flat=True)).count(None)") == "0"


@pytest.mark.worker
@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_up_serves_until_stopped_and_leaves_no_process(tmp_path: Path) -> None:
    """It is stopped by SIGTERM; test_processes.py shows that Ctrl-C does the same."""
    with manage(tmp_path, "up", "--port", "8400") as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert "The site runs at" in said
            address = said.split()[4]
            answer = wait_until(lambda: health(address), pause=0.2)
            assert json.loads(answer)["status"] == "ok"
            assert len(processes_in(tmp_path)) > 3
            site = f"IPATE_SITE_URL={address}".encode()
            entries = set()
            for pid in processes_in(tmp_path):
                if site in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    entries |= {b"gunicorn", b"celery"} & set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
            assert entries == {b"gunicorn", b"celery"}, "letters or mails would name another port"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()  # otherwise the block would never end
                raise
        assert status == 0
    wait_until_none_is_left(tmp_path)


def health(address: str) -> bytes:
    """Return the site's health as text, or nothing while it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=5) as answer:
            return answer.read()
    except OSError:
        return b""
