"""The site and a worker as child processes, for a single machine without other servers."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command

WORKER = [
    *(sys.executable, "-m", "celery", "-A", "ipate_web", "worker"),
    *("--beat", "--loglevel", "INFO"),
    # A single worker has no other workers to gossip with.
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
]


def worker_command(processes: int = 2) -> list[str]:
    """Return the command line of a Celery worker that also sends the periodic tasks."""
    return [*WORKER, "--concurrency", str(processes)]


def site_command(port: int) -> list[str]:
    """Return the command line of gunicorn, listening on this machine only."""
    options = ["--bind", f"127.0.0.1:{port}", "--workers", "1", "--threads", "4", "--access-logfile", "/dev/null"]
    return [sys.executable, "-m", "gunicorn", "ipate_web.wsgi:application", *options]


def site_environment(port: int) -> dict[str, str]:
    """Return environment variables for a site on this machine and its worker, with the port for links in documents.

    The result is empty if the installation defines its own URL.
    """
    return {} if "IPATE_SITE_URL" in os.environ else {"IPATE_SITE_URL": f"http://127.0.0.1:{port}"}


def static_files_collect() -> None:
    """Collect the static files for a site on this machine, uncompressed because compression takes seconds."""
    staticfiles_storage.compress_files = lambda _paths: ()  # type: ignore[attr-defined]
    call_command("collectstatic", interactive=False, verbosity=0)


def free_port(wish: int) -> int:
    """Return the first free port, starting with ``wish``."""
    for port in range(wish, wish + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise OSError(f"Ports {wish} to {wish + 99} are all in use. Choose another with --port.")


def wait_for_answer(port: int, process: subprocess.Popen) -> None:
    """Wait until the site on this machine responds, or its process has ended."""
    while process.poll() is None:
        with suppress(OSError, HTTPException):
            asked = HTTPConnection("127.0.0.1", port, timeout=5)  # urllib would use a proxy
            asked.request("GET", "/healthz")
            asked.getresponse().read()
            return
        time.sleep(0.05)


def unwind_on_signals() -> None:
    """Handle SIGTERM like Ctrl-C, so that child processes are stopped.

    Also handle Ctrl-C itself if the shell made the process ignore it, as shells do for background processes.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


@contextmanager
def running(command: list[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """Run ``command`` inside the block, in its own process group, with its output appended to ``log``.

    When the block ends, the command and all its children are stopped.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            cwd=settings.BASE_DIR,
            env=os.environ | {"IPATE_VAR_DIR": str(settings.VAR_DIR)} | (environment or {}),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
