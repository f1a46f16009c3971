"""Kill workers at random moments, again and again, and compare what was released with what was charged.

    python -m benchmarks.fault_campaign --minutes 8 --seed 1

On SQLite and PostgreSQL (IPATE_TEST_POSTGRES_URL), over the file system and Redis (IPATE_TEST_REDIS_URL, an empty
database): two workers of two processes each work on three runs at once, two of them in one study. SIGKILL hits one of
their processes or a whole worker while a run trains, votes or teaches its student; tasks are delivered again on top.
Then the workers may finish, and every chain, total, promise and label is verified, every charge computed anew.
The seed fixes what is done, not when the system does it.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

POSTGRES = os.environ.get("IPATE_TEST_POSTGRES_URL", "postgres://root@127.0.0.1:5432/postgres")
REDIS = os.environ.get("IPATE_TEST_REDIS_URL", "redis://127.0.0.1:6379/11")
WORKERS, RUNS_AT_ONCE = 2, 3
PHASES = ("training", "voting", "student")
RECOVERY_SECONDS = 90


# --- One combination of database and broker, in a process of its own ------------------------------------------------


class Campaign:
    """Two studies whose runs are worked on by workers that are killed."""

    def __init__(self, seed: int, folder: Path, stack: ExitStack) -> None:
        from ipate_web.processes import running, worker_command
        from tests.training.runs import study_with_table

        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.studies = [study_with_table(slug, points=20, retain_votes=True) for slug in ("crowded", "quiet")]
        self._start = lambda: stack.enter_context(running(worker_command(), folder / "worker.log", quick))
        quick = {"IPATE_HEARTBEAT_TIMEOUT": "1", "IPATE_SWEEP_INTERVAL": "0.4", "OMP_NUM_THREADS": "1"}
        self.workers = [self._start() for _ in range(WORKERS)]

    def runs_top_up(self) -> None:
        """As many runs as are worked on at once; those of one study wait for each other's vote."""
        from tests.training.runs import TABLE_RUN, run_start
        from training.models import Run

        for place in range(Run.objects.filter(status__in=Run.ACTIVE).count(), RUNS_AT_ONCE):
            noise = {"name": "confident_gnmax", "sigma": 300.0, "sigma_threshold": 600.0, "threshold": 3.0}
            fields = {"aggregator": noise, "batch_size": 2, "teachers": 6, "method": Run.Method.EXACT}
            run_start(self.studies[place > 0], **TABLE_RUN | fields)

    def phase_awaited(self, wanted: str, seconds: float = 1.5) -> str | None:
        """``wanted`` as soon as a run is in it; after a while, any phase that a run is in."""
        from training.models import Run

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if Run.objects.filter(status=wanted).exists():
                return wanted
            time.sleep(0.005)
        return Run.objects.filter(status__in=PHASES).values_list("status", flat=True).first()

    def strike(self) -> None:
        """Kill something while a run is in a phase, and deliver tasks again."""
        self.runs_top_up()
        if self.random.random() < 0.5:
            self._deliver_again()
        phase = self.phase_awaited(self.random.choice(PHASES))
        if phase is None:
            return
        time.sleep(self.random.uniform(0, 0.05 if phase == "student" else 0.3))
        place = self.random.randrange(WORKERS)
        worker = self.workers[place]
        if worker.poll() is not None:  # Celery's own master gives up when its processes die one after the other
            self.workers[place] = self._start()
            self.counts["workers that ended by themselves"] += 1
            return
        pids = _children(worker.pid)
        if not pids:
            return  # it has just been started
        if self.random.random() < 0.2:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            self.workers[place] = self._start()
            self.counts["whole workers killed"] += 1
        else:
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(pids), signal.SIGKILL)
            self.counts["processes killed"] += 1
        self.counts[f"while {phase}"] += 1

    def _deliver_again(self) -> None:
        from celery import current_app

        from training.models import Run, TeacherChunk

        active = Run.objects.filter(status__in=Run.ACTIVE)
        tasks = [("run_advance", str(pk)) for pk in active.values_list("pk", flat=True)]
        tasks += [
            ("chunk_train", str(pk)) for pk in TeacherChunk.objects.filter(run__in=active).values_list("pk", flat=True)
        ]
        for name, pk in self.random.choices(tasks, k=3):
            current_app.send_task(f"training.tasks.{name}", [pk])
            self.counts["tasks delivered again"] += 1

    def recover(self) -> None:
        """Fresh workers finish what is left."""
        from training.models import Run

        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self.workers = [self._start() for _ in range(WORKERS)]
        deadline = time.monotonic() + RECOVERY_SECONDS
        while Run.objects.filter(status__in=Run.ACTIVE).exists() and time.monotonic() < deadline:
            time.sleep(0.2)

    def faults(self) -> Iterator[str]:
        """What is wrong, in words; nothing where labels and ledger agree and every run went on by itself."""
        from accounting.verification import study_faults
        from training.models import Run
        from training.verification import batches_kept, release_faults, replay_faults

        for run in Run.objects.exclude(status=Run.Status.FINISHED):
            yield f"run {run.pk} did not finish: {run.status}, {run.message}"
        for study in self.studies:
            yield from study_faults(study)
            for run in Run.objects.filter(study=study, account__isnull=False).select_related("account"):
                self.counts["runs finished"] += run.status == Run.Status.FINISHED
                yield from release_faults(run)
            for batch in batches_kept(study):
                self.counts["batches recomputed"] += 1
                self.counts["labels"] += batch.labels
                yield from replay_faults(batch)


def _children(pid: int) -> list[int]:
    """The processes of a worker that have been alive for a second."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            if time.time() - Path(f"/proc/{child}").stat().st_ctime > 1:
                found.append(int(child))
    return found


def combination_run(seed: int, seconds: float) -> dict[str, Any]:
    """Kill for so many seconds in the environment's combination; what was counted, and the faults."""
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    with ExitStack() as stack:
        campaign = Campaign(seed, settings.VAR_DIR, stack)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            campaign.strike()
        campaign.recover()
        faults = list(campaign.faults())
    return {"counts": dict(campaign.counts), "faults": faults}


# --- All combinations -----------------------------------------------------------------------------------------------


@contextmanager
def empty_postgres() -> Iterator[str]:
    """The address of a database of this campaign's own, gone afterwards."""
    import psycopg

    server, _, _ = POSTGRES.rpartition("/")
    name = f"ipate_faults_{os.getpid()}"
    with psycopg.connect(POSTGRES.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"{server}/{name}"
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def empty_redis() -> Iterator[str]:
    """A Redis database that nobody uses, emptied afterwards."""
    import redis

    with redis.Redis.from_url(REDIS) as server:
        if server.dbsize():
            raise SystemExit(f"{REDIS} is in use. Name an empty database with IPATE_TEST_REDIS_URL.")
        try:
            yield REDIS
        finally:
            server.flushdb()


def combination(database: str, broker: str, seed: int, seconds: float) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ipate-faults-", ignore_cleanup_errors=True))
        )
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
            "IPATE_VAR_DIR": str(folder),
            "IPATE_LOG_LEVEL": "ERROR",
            "DATABASE_URL": stack.enter_context(empty_postgres())
            if database == "PostgreSQL"
            else f"sqlite:///{folder}/db",
            "IPATE_BROKER_URL": stack.enter_context(empty_redis()) if broker == "Redis" else "filesystem://",
        }
        command = [sys.executable, "-m", "benchmarks.fault_campaign", "--one", str(seconds), "--seed", str(seed)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8, help="for how long to kill, all combinations together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(combination_run(options.seed, options.one)))
        return
    faults = 0
    for place, (database, broker) in enumerate(
        (database, broker) for database in ("SQLite", "PostgreSQL") for broker in ("files", "Redis")
    ):
        result = combination(database, broker, options.seed + place, options.minutes * 15)
        counts = result["counts"]
        kills = counts.get("processes killed", 0) + counts.get("whole workers killed", 0)
        print(f"{database}, {broker}: {kills} SIGKILLs, {len(result['faults'])} faults")
        for name, count in sorted(counts.items()):
            print(f"  {count:5} {name}")
        for fault in result["faults"]:
            print(f"  FAULT {fault}")
        sys.stdout.flush()
        faults += len(result["faults"])
    if faults:
        raise SystemExit(f"{faults} faults.")


if __name__ == "__main__":
    main()
