"""Real Celery worker processes on a test's database and broker."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from ipate_web.processes import running, worker_command
from tests.databases import database_url


@contextmanager
def worker(log: Path, **environment: str) -> Iterator[subprocess.Popen]:
    """Context with a worker that notices dead ones soon."""
    variables = {
        "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
        "DATABASE_URL": database_url(),
        "IPATE_BROKER_URL": settings.BROKER_URL,
        "IPATE_HEARTBEAT_TIMEOUT": "1.5",
        "IPATE_SWEEP_INTERVAL": "0.5",
    }
    with running(worker_command(), log, variables | environment) as process:
        yield process


def wait_until(condition: Callable[[], bool], log: Path, seconds: float = 300) -> None:
    """Wait for ``condition``; a test whose wait is in vain fails with the end of the worker's log."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"Nothing happened within {seconds} s; the worker says:\n{log.read_text()[-5000:]}")
        time.sleep(0.01)
