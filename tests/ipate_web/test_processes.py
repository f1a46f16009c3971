"""Child processes, which leave nothing behind when they stop, and messages between them on the file system."""

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from celery import Celery, current_app
from celery.beat import Scheduler
from django.conf import settings
from django.utils import timezone
from kombu import Connection
from kombu.exceptions import ChannelError
from kombu.utils.imports import symbol_by_name

from ipate_web.celery import FileTransport, app
from ipate_web.processes import free_port, running, site_environment
from tests.workers import wait_until

#: Starts a child process and writes both ids; both live until they are stopped.
FAMILY = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(os.getpid(), child.pid, os.environ["WORD"], flush=True)
signal.pause()
"""


def test_letters_name_the_port_on_which_the_site_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IPATE_SITE_URL", raising=False)
    assert site_environment(8123) == {"IPATE_SITE_URL": "http://127.0.0.1:8123"}
    monkeypatch.setenv("IPATE_SITE_URL", "https://ipate.example")
    assert site_environment(8123) == {}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(pids: tuple[int, int]) -> None:
    """Wait until both processes have ended, which takes a moment after a signal."""
    wait_until(lambda: not any(map(alive, pids)))


def family(log: Path) -> tuple[int, int]:
    parent, child, word = wait_until(lambda: log.exists() and log.read_text().split())
    assert word == "given"
    return int(parent), int(child)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_process_is_stopped_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "family.log"
    with pytest.raises(KeyboardInterrupt), running([sys.executable, "-c", FAMILY], log, {"WORD": "given"}):
        pids = family(log)
        assert all(map(alive, pids))
        raise KeyboardInterrupt
    wait_until_gone(pids)


def test_a_process_that_died_by_itself_is_cleared_away(tmp_path: Path) -> None:
    with running([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log") as process:
        assert process.wait(timeout=300) == 3


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) > port


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_unwind_what_was_started(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "family.log"
    script = f"""
import os, signal, sys
from pathlib import Path
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from ipate_web.processes import running, unwind_on_signals
unwind_on_signals()
try:
    with running([sys.executable, "-c", {FAMILY!r}], Path({str(log)!r}), {{"WORD": "given"}}):
        signal.pause()
except KeyboardInterrupt:
    sys.exit(0)
"""
    with subprocess.Popen([sys.executable, "-c", script], env=os.environ) as parent:
        pids = family(log)
        parent.send_signal(number)
        assert parent.wait(timeout=300) == 0
    wait_until_gone(pids)


def test_periodic_tasks_that_wait_too_long_are_dropped(settings: Any) -> None:
    """After a day without a worker, there is not a day's worth of sweeps."""
    app = current_app._get_current_object()
    app.control.purge()
    scheduler = Scheduler(app, lazy=True)
    scheduler.setup_schedule()
    for entry in scheduler.schedule.values():
        scheduler.apply_async(entry, advance=False)
    with app.connection_for_read() as broker, broker.SimpleQueue(app.conf.task_default_queue) as waiting:
        sent = {}
        with suppress(waiting.Empty):
            while True:
                message = waiting.get_nowait()
                sent[message.headers["task"]] = datetime.fromisoformat(message.headers["expires"])
                message.ack()
    assert "training.tasks.runs_sweep" in sent
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        wait = (sent[entry["task"]] - timezone.now()).total_seconds()
        assert 0 < wait <= max(entry["schedule"], settings.HEARTBEAT_TIMEOUT)


@pytest.mark.parametrize("setting", [timedelta(hours=-1), timedelta(hours=1)])
def test_periodic_tasks_continue_after_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, setting: timedelta) -> None:
    """The clock is wrong for three minutes and is then set right again."""
    beat, now, sent = Celery("beat", set_as_current=False), timezone.now(), Counter[str]()
    beat.conf.beat_schedule = {name: {"task": name, "schedule": every} for name, every in (("often", 10), ("rare", 60))}
    monkeypatch.setattr(beat, "now", lambda: now)
    scheduler = symbol_by_name(settings.CELERY_BEAT_SCHEDULER)(beat)
    monkeypatch.setattr(scheduler, "apply_entry", lambda entry, producer=None: sent.update([entry.name]))
    for change in (timedelta(0), setting, -setting):
        sent.clear()
        now += change
        for _second in range(180):
            now += timedelta(seconds=1)
            while scheduler.tick() == 0:
                pass
        assert 16 <= sent["often"] <= 20 and 2 <= sent["rare"] <= 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("messages", "control"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def connection(folder: Path) -> Iterator[Connection]:
    messages = str(folder / "messages")
    options = {"data_folder_in": messages, "data_folder_out": messages, "control_folder": str(folder / "control")}
    with Connection("filesystem://", transport="ipate_web.celery:FileTransport", transport_options=options) as opened:
        yield opened


@pytest.mark.skipif(not settings.BROKER_URL.startswith("filesystem"), reason="tests the file-system broker")
def test_site_and_workers_use_it() -> None:
    with app.connection_for_write() as connection:
        assert isinstance(connection.transport, FileTransport)


def test_half_written_message_is_not_found(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks for it before it has its final name."""
    writer, reader = connection.channel(), connection.channel()

    def replace(begun: Path, name: Path) -> None:
        with pytest.raises(Empty):
            reader._get("box")
        begun.rename(name)

    with monkeypatch.context() as patched:
        patched.setattr("ipate_web.celery.os.replace", replace)
        writer._put("box", [1, 2])
    assert reader._get("box") == [1, 2]


def test_every_message_comes_once(connection: Connection, folder: Path) -> None:
    numbers = range(3)
    with connection.SimpleQueue("box") as box:
        for number in numbers:
            box.put({"number": number})
        messages = [box.get(timeout=300) for _ in numbers]
        assert sorted(message.payload["number"] for message in messages) == [*numbers]
        for message in messages:
            message.ack()
    assert list((folder / "messages").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_of_the_broker(connection: Connection, folder: Path) -> None:
    (folder / "messages").rmdir()
    with pytest.raises(ChannelError, match="cannot be written"):
        connection.channel()._put("box", {})
