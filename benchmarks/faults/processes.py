"""Processes of the campaign: workers and the site, restarted when they die, and the current step of each."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from ipate_web.processes import free_port, running, worker_command

WORKERS = 2
#: Seconds after which the work of a dead process is taken over.
HEARTBEAT_TIMEOUT = 3.0
#: Seconds between two sweeps. With files, a worker takes about five tasks a second, and not all of them must be sweeps.
SWEEP_INTERVAL = 2.0


@dataclass(frozen=True)
class Claim:
    """Claim on a step of a run: its ``stage``, and the ``pid`` of the process that is carrying it out."""

    token: str
    stage: str
    pid: int


def claims() -> list[Claim]:
    """Return all current claims of processes that are alive or have just died."""
    from common.jobs import claiming_process
    from training.models import Run, Shard, StudentTraining, TeacherChunk

    found = list(Run.objects.filter(status__in=Run.ACTIVE).values_list("claimed_by", "status"))
    found += TeacherChunk.objects.filter(run__status="preparing").values_list("claimed_by", "run__status")
    found += Shard.objects.filter(run__status=Run.Status.ASKING).values_list("claimed_by", "run__status")
    trainings = StudentTraining.objects.exclude(state="done").values_list("claimed_by", flat=True)
    found += [(token, "assessment") for token in trainings]
    return [Claim(token, stage, claiming_process(token)) for token, stage in found if token]


def children(pid: int) -> set[int]:
    """Return the processes started by any thread of another process."""
    found: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found |= {int(child) for child in file.read_text().split()}
    return found


def send_signal(pid: int, number: int) -> bool:
    """Send a signal; return whether the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Processes:
    """Workers and a site.

    Args:
        folder: Folder for logs and orders, on a disk that does not become full.
        stack: Exit stack that ends them.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.orders = folder / "orders"
        self.orders.mkdir()
        self.port = free_port(20_000 + os.getpid() % 20_000)
        self.ended = 0
        self.workers = [self._worker(place) for place in range(WORKERS)]
        self.site = self._site()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _worker(self, place: int) -> subprocess.Popen:
        options = ["--include", "benchmarks.faults.hooks", "--hostname", f"w{place}@%h"]
        # A killed process's slot is free again after a second instead of Celery's ten.
        command = [word for word in worker_command(1) if word != "--beat" or place == 0]
        return self._start([*command, *options, "--", "worker.lost_wait=1"], f"worker-{place}.log")

    def _site(self) -> subprocess.Popen:
        options = ["--bind", f"127.0.0.1:{self.port}", "--workers", "1", "--threads", "2", "--log-level", "error"]
        return self._start([sys.executable, "-m", "gunicorn", "benchmarks.faults.hooks:site()", *options], "site.log")

    def _start(self, command: list[str], log: str) -> subprocess.Popen:
        variables = {
            "IPATE_FAULT_ORDERS": str(self.orders),
            "IPATE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT),
            "IPATE_SWEEP_INTERVAL": str(SWEEP_INTERVAL),
            "OMP_NUM_THREADS": "1",
        }
        return self._stack.enter_context(running(command, self.folder / log, variables))

    def supervise(self) -> None:
        """Restart processes that have ended by themselves, as an installation's supervisor would."""
        for place, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.ended += 1
                self.workers[place] = self._worker(place)
        if self.site.poll() is not None:
            self.ended += 1
            self.site = self._site()

    def claimed(self) -> list[Claim]:
        """Return the claims of the processes of these workers."""
        own = self.pool()
        return [claim for claim in claims() if claim.pid in own]

    def pool(self) -> set[int]:
        """Return the workers' processes that carry out tasks."""
        return {pid for worker in self.workers for pid in children(worker.pid)}

    def worker_kill(self, pid: int) -> bool:
        """SIGKILL the whole worker that a process belongs to, and start another; return whether there was one."""
        for place, worker in enumerate(self.workers):
            if pid in children(worker.pid):
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                self.workers[place] = self._worker(place)
                return True
        return False

    def site_answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.address}/healthz", timeout=5).status_code == 200
        return False

    def logged(self, *words: str) -> int:
        """Return the number of occurrences of the given words in the logs."""
        return sum(log.read_text(errors="replace").count(word) for log in self.folder.glob("*.log") for word in words)


def until(seconds: float, pause: float = 0.01) -> Iterator[None]:
    """Iterate for this many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(pause)


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
