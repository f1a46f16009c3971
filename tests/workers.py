"""Real Celery worker processes on a test's database and broker, and functions that wait for processes."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from django.conf import settings

from ipate_web.processes import running, worker_command
from tests.databases import database_url

T = TypeVar("T")


@contextmanager
def worker(log: Path, **environment: str) -> Iterator[subprocess.Popen]:
    """Yield a worker that quickly notices dead ones."""
    with running(worker_command(), log, environment_of_processes() | environment) as process:
        yield process


def environment_of_processes() -> dict[str, str]:
    """Return the environment for a process with the test's database and broker that quickly notices dead workers."""
    return {
        "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
        "DATABASE_URL": database_url(),
        "IPATE_BROKER_URL": settings.BROKER_URL,
        "IPATE_LEAST_TEST_POINTS": str(settings.LEAST_TEST_POINTS or "none"),
        "IPATE_HEARTBEAT_TIMEOUT": "1.5",
        "IPATE_SWEEP_INTERVAL": "0.5",
    }


def port_reserve() -> int:
    """Return a port of this machine that the kernel gives to no other process for the next minute.

    A connection was just closed there, so the kernel does not hand the port out. Servers can still bind it, because
    they set ``SO_REUSEADDR``.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()
    return port


def wait_until(condition: Callable[[], T], *logs: Path, seconds: float = 300, pause: float = 0.01) -> T:
    """Return the first true value of ``condition``; on a timeout the test fails with the ends of the logs."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            said = "".join(f"\n{log.name}: {log.read_text()[-5000:]}" for log in logs)
            pytest.fail(f"Nothing happened within {seconds} s.{said}")
        time.sleep(pause)
    return found
