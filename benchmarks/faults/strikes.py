"""Strikes. Each affects a process in a step of a run or one responding to a request, and reports whether it hit.

A process is stopped before it is killed. It counts as hit in a step only if it still has its claim at that time.
"""

import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from benchmarks.faults.hooks import AFTER_COMMIT, BEFORE_COMMIT, HALF_A_FILE, LOCK_TIMEOUT, order_path
from benchmarks.faults.people import Deed
from benchmarks.faults.processes import HEARTBEAT_TIMEOUT, Claim, Processes, children, claims, fill, send_signal, until
from benchmarks.faults.studies import Studies

#: Seconds within which an order must be carried out; otherwise it is withdrawn.
ORDER_SECONDS = 10.0
#: Log messages for a full disk, and for a database that is locked or unreachable.
FULL = ("No space left on device", "database or disk is full")
LOCKED = ("database is locked",)
#: Kinds that kill, with their weights among all kills.
KILLS = {"process": 10, "commit": 6, "file": 4, "worker": 3, "web": 7}
#: Kinds that do not kill, with their numbers of strikes per 30 kills.
OTHERS = {"connections": 3, "disk": 2, "pause": 2}
WORDS = {
    "process": "SIGKILL of the process that carries out a step, at a random moment",
    "commit": "the same just before or just after a COMMIT",
    "file": "the same with half a file written",
    "worker": "SIGKILL of a whole worker in a step",
    "web": "SIGKILL of the site's process with a request under way",
    "connections": "connections to database and broker cut; on SQLite its lock held",
    "disk": "a full disk",
    "pause": "a process stopped until its claim was taken over, then woken",
}
"""Description of each kind."""


class Strikes:
    """Strikes against the processes of a campaign.

    Args:
        processes: Processes that are struck.
        studies: Studies that they work on.
        disk: File system of the site, which can become full.
        random: Random generator for targets and times.
    """

    def __init__(self, processes: Processes, studies: Studies, disk: Path, random: random.Random) -> None:
        self.processes, self.studies, self.disk, self.random = processes, studies, disk, random
        self.stages: Counter[str] = Counter()
        self.faults: list[str] = []
        self._kinds: dict[str, Callable[[], str | None]] = {
            "process": self._process,
            "commit": lambda: self._ordered(self.random.choice((BEFORE_COMMIT, AFTER_COMMIT))),
            "file": lambda: self._ordered(HALF_A_FILE),
            "worker": self._worker,
            "web": self._web,
            "connections": self._connections,
            "disk": self._disk,
            "pause": self._pause,
        }

    def strike(self, kind: str) -> str | None:
        """Strike once. Return the stage or request that was hit, or None."""
        stage = self._kinds[kind]()
        if stage is not None:
            self.stages[stage] += 1
        return stage

    def _target(self) -> Claim | None:
        """Return a process in the stage that has been hit least."""
        found = self.processes.claimed()
        self.random.shuffle(found)
        return min(found, key=lambda claim: self.stages[claim.stage], default=None)

    def _stopped(self) -> Claim | None:
        """Return a process that was stopped in a step and still has its claim."""
        target = self._target()
        if target is None or not send_signal(target.pid, signal.SIGSTOP):
            return None
        still = [claim for claim in claims() if claim.token == target.token]
        if not still:
            send_signal(target.pid, signal.SIGCONT)
            return None
        return still[0]

    def _process(self) -> str | None:
        target = self._stopped()
        if target is None:
            return None
        return target.stage if send_signal(target.pid, signal.SIGKILL) else None

    def _worker(self) -> str | None:
        target = self._stopped()
        if target is None:
            return None
        return target.stage if self.processes.worker_kill(target.pid) else None

    def _pause(self) -> str | None:
        target = self._stopped()
        if target is None:
            return None
        taken_over = False
        for _ in until(3 * HEARTBEAT_TIMEOUT + 4 * LOCK_TIMEOUT, pause=0.1):
            with suppress(Exception):  # the process may hold SQLite's lock
                taken_over = target.token not in {claim.token for claim in claims()}
            if taken_over:
                break
        send_signal(target.pid, signal.SIGCONT)
        return target.stage if taken_over else None

    # --- Deaths at a moment -----------------------------------------------------------------------------------------

    def _ordered(self, moment: str) -> str | None:
        """Order all processes of the workers to die at a moment of a step. The first one to reach it is hit."""
        orders = {pid: order_path(self.processes.orders, pid, moment) for pid in self.processes.pool()}
        for order in orders.values():
            order.touch()
        hit = None
        for _ in until(ORDER_SECONDS):
            if dead := [pid for pid, order in orders.items() if not order.exists()]:
                stages = [claim.stage for claim in claims() if claim.pid in dead]
                hit = stages[0] if stages else None
                break
        for order in orders.values():
            order.unlink(missing_ok=True)
            Path(f"{order}.done").unlink(missing_ok=True)
        return hit

    # --- The site ---------------------------------------------------------------------------------------------------

    def _web(self) -> str | None:
        """Kill the site's process during a request, at a random moment or at its commit, and check the result."""
        if not self.processes.site_answers():
            return None
        site = children(self.processes.site.pid)
        if len(site) != 1:
            return None
        pid, deed = site.pop(), self.studies.deed()
        before = deed.done()
        with ThreadPoolExecutor(1) as thread:
            moment = self.random.choice((BEFORE_COMMIT, AFTER_COMMIT, None))
            if moment is None:
                answer = thread.submit(deed.ask, self.processes.address)
                time.sleep(self.random.uniform(0.005, 0.15))
                send_signal(pid, signal.SIGSTOP)
                hit = not answer.done() and send_signal(pid, signal.SIGKILL)
                send_signal(pid, signal.SIGCONT)
            else:
                order = order_path(self.processes.orders, pid, moment)
                order.touch()
                answer = thread.submit(deed.ask, self.processes.address)
                answer.result()
                hit = not order.exists()
                for left in (order, Path(f"{order}.done")):
                    left.unlink(missing_ok=True)
        self._compare(deed, before, answer.result())
        return deed.name if hit else None

    def _compare(self, deed: Deed, before: int, status: int | None) -> None:
        """Check that confirmed requests were carried out once, and all others at most once."""
        times = deed.done() - before
        possible = {1} if status == deed.accepted else {0, 1}
        if times not in possible:
            self.faults.append(f"{deed.name} was answered with {status} and carried out {times} times.")

    # --- Database, broker, disk -------------------------------------------------------------------------------------

    def _connections(self) -> str | None:
        """Cut every connection, as if the database and the broker had restarted. For SQLite, hold the lock instead."""
        from django.conf import settings
        from django.db import connection

        target = self._target()
        if target is None:
            return None
        if connection.vendor != "postgresql":
            return target.stage if self._lock_held(settings.DATABASES["default"]["NAME"]) else None
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            cut = cursor.fetchone()[0]
        if settings.BROKER_URL.startswith("redis"):
            import redis

            with redis.Redis.from_url(settings.BROKER_URL) as server:
                number = str(server.connection_pool.connection_kwargs["db"])
                for client in server.client_list(_type="normal"):
                    if client["db"] == number and client["id"] != str(server.client_id()):
                        server.client_kill_filter(_id=client["id"])
        return target.stage if cut else None

    def _lock_held(self, name: str) -> bool:
        """Hold SQLite's lock until a process gives up waiting for it; return whether any did."""
        before = self.processes.logged(*LOCKED)
        with suppress(sqlite3.OperationalError), sqlite3.connect(name, timeout=5, isolation_level=None) as lock:
            lock.execute("BEGIN IMMEDIATE")
            for _ in until(4 * LOCK_TIMEOUT, pause=0.1):
                if self.processes.logged(*LOCKED) > before:
                    break
            lock.execute("ROLLBACK")
        return self.processes.logged(*LOCKED) > before

    def _disk(self) -> str | None:
        """Fill the disk until writes fail, during a person's request, then free the space again."""
        target = self._target()
        if target is None:
            return None
        deed = self.studies.deed()
        done, before = deed.done(), self.processes.logged(*FULL)
        ballast = self.disk / "ballast"
        try:
            fill(ballast)
            status = deed.ask(self.processes.address)
            for _ in until(10, pause=0.1):
                fill(ballast)
                if self.processes.logged(*FULL) > before:
                    break
        finally:
            ballast.unlink()
        self._compare(deed, done, status)
        return target.stage if self.processes.logged(*FULL) > before else None
