"""``manage.py demo`` and ``manage.py up`` in processes of their own, as people start them."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from ipate_web.processes import free_port
from tests.workers import wait_until

pytestmark = pytest.mark.worker

PATIENCE = 1800
"""Seconds after which a command hangs, on a machine that is slow and busy with other tests."""


def environment(var: Path) -> dict[str, str]:
    """The embedded default, in a folder of its own, whatever the suite runs on."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "IPATE_BROKER_URL")}
    return inherited | {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_VAR_DIR": str(var)}


def manage(var: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=settings.BASE_DIR,
        env=environment(var),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def processes_in(var: Path) -> list[int]:
    """The living processes that were started with this folder."""
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


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
def test_the_demo_runs_the_main_job_and_can_be_run_again(tmp_path: Path) -> None:
    runs = demo(tmp_path, "--port", "8123")
    mails = [mail.read_text() for mail in (tmp_path / "mail").iterdir()]
    assert mails
    assert all("http://127.0.0.1:8123" in mail and ":8000" not in mail for mail in mails)
    everybody, weighting, baseline = runs
    assert [(run["method"], run["variant"], run["rehearsal"]) for run in runs] == [
        ("neighbours", "", False),
        ("pate", "weighting", True),
        ("pate", "standard", True),
    ]
    for run in runs:
        assert run.keys() == {
            *("method", "variant", "rehearsal", "labels", "label_accuracy", "student_accuracy", "groups")
        }
        assert [group["level"] for group in run["groups"]] == ["HIGH", "AVERAGE", "LOW"]
        assert [group["epsilon"] for group in run["groups"]] == [1.0, 2.0, 3.0]
        assert all(group.keys() == {"level", "holders", "epsilon", "share"} for group in run["groups"])
    assert all(0.5 < group["share"] <= 0.95 for group in everybody["groups"])
    assert all(group["share"] is None for run in (weighting, baseline) for group in run["groups"])
    assert everybody["labels"] == 300, "every public point"
    assert everybody["label_accuracy"] > 0.7
    assert everybody["student_accuracy"] > baseline["student_accuracy"]
    assert weighting["labels"] > baseline["labels"] > 0

    assert demo(tmp_path) == runs, "run again, it finds everything done"
    query = "DataHolder.objects.filter(study__rehearsal=False).count()"
    counts = f"Study.objects.count(), Run.objects.count(), ConsentEvent.objects.count() == {query}"
    assert in_database(tmp_path, counts) == "2 3 True"
    assert in_database(tmp_path, "list(Run.objects.values_list('forgotten_at', flat=True)).count(None)") == "0"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
def test_up_serves_until_stopped_and_leaves_no_process(tmp_path: Path) -> None:
    """By SIGTERM; test_processes.py shows that Ctrl-C does the same."""
    port = free_port(8400 + os.getpid() % 500)
    with manage(tmp_path, "up", "--port", str(port)) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert "The site runs at" in said
            answer = wait_until(lambda: health(said.split()[4]), pause=0.2)
            assert json.loads(answer)["status"] == "ok"
            assert len(processes_in(tmp_path)) > 3
            site = f"IPATE_SITE_URL=http://127.0.0.1:{port}".encode()
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
                process.kill()  # or leaving the block would wait for ever
                raise
        assert status == 0
    wait_until_none_is_left(tmp_path)


def health(address: str) -> bytes:
    """Health of the site in its own words; nothing as long as it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=5) as answer:
            return answer.read()
    except OSError:
        return b""
