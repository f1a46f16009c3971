"""Kill workers at random moments, again and again, and compare what was released with what was charged.

    python -m benchmarks.fault_campaign --kills 200 --minutes 10 --seed 1

On SQLite and PostgreSQL (IPATE_TEST_POSTGRES_URL), over the file system and Redis (IPATE_TEST_REDIS_URL, an empty
database): two workers of two processes each work on four runs at once, one by each method in each of two studies.
SIGKILL hits the process that trains, votes, asks holders or teaches a student, or its whole worker; connections to
PostgreSQL and Redis are cut, as a restart of theirs would, and tasks are delivered again on top. Then the workers may
finish, and every chain, label, account and share is verified, every charge computed anew. Exit status 1 where something
is wrong.
The seed fixes what is done, not when the system does it.
"""

import argparse
import json
import math
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
from datetime import timedelta
from pathlib import Path
from typing import Any

from ipate_web.processes import running, unwind_on_signals, worker_command

POSTGRES = os.environ.get("IPATE_TEST_POSTGRES_URL", "postgres://root@127.0.0.1:5432/postgres")
REDIS = os.environ.get("IPATE_TEST_REDIS_URL", "redis://127.0.0.1:6379/11")
WORKERS, STUDIES, RUNS_OF_A_STUDY = 2, 2, 2
PHASES = ("training", "voting", "asking", "student")
#: How often a phase may be hit more than the one that was hit least: runs have to get to where they can be hit.
LEAD = 4
#: Longest pause between two blows, in seconds.
PAUSE = 1.0
#: What makes a run by teachers spend about as long in each of its phases.
TEACHERS: dict[str, Any] = {
    "learner": "random_forest",
    "learner_parameters": {"trees": 120},
    "aggregator": {"name": "confident_gnmax", "sigma": 2000.0, "sigma_threshold": 4000.0, "threshold": 3.0},
    "batch_size": 2,
    "teachers": 12,
}
#: So little of every cap (SHARES) that in the middle of a run some have nothing left of it.
ASKING: dict[str, Any] = {
    "asking": {"rounds": 2, "sigma": 200.0, "radius_share": 0.3, "kernel": "epanechnikov"},
    "batch_size": 20,
}
STUDENT: dict[str, Any] = {"student_learner": "random_forest", "student_parameters": {"trees": 100}}
#: Entered as the number of holders at each level: a batch is asked in several shards.
HEAD_COUNT = 8_000
#: How many points are put to the vote: as many batches as it takes until killing can hit them.
POINTS = 240
#: Which share of every cap a run may use, by method: what it does not need is free for the next one.
SHARES = {"pate": 0.05, "neighbours": 0.01}
#: Database and broker, by the name on the command line.
COMBINATIONS = {
    f"{database.lower()}-{broker.lower()}": (database, broker)
    for database in ("SQLite", "PostgreSQL")
    for broker in ("files", "Redis")
}
RECOVERY_SECONDS = 600


# --- One combination of database and broker, in a process of its own ------------------------------------------------


class Campaign:
    """Studies whose runs are worked on by workers that are killed."""

    def __init__(self, seed: int, folder: Path, stack: ExitStack) -> None:
        from accounting.head_counts import head_counts_enter
        from consent.models import Level
        from tests.factories import user_create
        from tests.training.runs import study_with_table

        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.studies = [
            study_with_table(f"study-{n}", holders=31, records=4, points=POINTS, retain_votes=True)
            for n in range(STUDIES)
        ]
        for study in self.studies:
            head_counts_enter(
                study=study, acting_user=user_create("olga"), counts=dict.fromkeys(Level.values, HEAD_COUNT)
            )
        self._start = lambda: stack.enter_context(running(command, folder / "worker.log", quick))
        # The place of a process that was killed is free again after a second, not after Celery's ten.
        command = [*worker_command(), "--", "worker.lost_wait=1"]
        quick = {"IPATE_HEARTBEAT_TIMEOUT": "1", "IPATE_SWEEP_INTERVAL": "1", "OMP_NUM_THREADS": "1"}
        self.workers = [self._start() for _ in range(WORKERS)]

    @property
    def kills(self) -> int:
        return self.counts["processes killed"] + self.counts["whole workers killed"]

    def runs_top_up(self) -> None:
        """As many runs as are worked on at once; those of one study wait for each other's vote."""
        from tests.training.asking import ASKING_RUN
        from tests.training.runs import TABLE_RUN, run_start
        from training.models import Run

        fields = {"pate": TABLE_RUN | TEACHERS | STUDENT, "neighbours": ASKING_RUN | ASKING | STUDENT}
        for study in self.studies:
            active = Run.objects.filter(study=study, status__in=Run.ACTIVE)
            for _ in range(active.count(), RUNS_OF_A_STUDY):
                method = "neighbours" if active.filter(method="pate").exists() else "pate"
                run_start(study, share=SHARES[method], **fields[method])

    def strike(self) -> None:
        """Kill who works on the phase that was hit least so far, or cut connections, and deliver tasks again."""
        time.sleep(self.random.uniform(0, PAUSE))
        self.runs_top_up()
        if self.random.random() < 0.25:
            self._deliver_again()
        for place, worker in enumerate(self.workers):
            if worker.poll() is not None:  # Celery's own master gives up when its processes die one after the other
                self.workers[place] = self._start()
                self.counts["workers that ended by themselves"] += 1
        children = {pid: place for place, worker in enumerate(self.workers) for pid in _children(worker.pid)}
        least = min(self.counts[f"while {phase}"] for phase in PHASES)
        targets = [
            (phase, pid)
            for phase, pid in self._claims()
            if pid in children and self.counts[f"while {phase}"] < least + LEAD
        ]
        if not targets:
            return
        if self.random.random() < 0.15:
            self._cut_connections()
            return
        self.random.shuffle(targets)
        phase, pid = min(targets, key=lambda target: self.counts[f"while {target[0]}"])
        if self.random.random() < 0.1:
            worker = self.workers[children[pid]]
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            self.workers[children[pid]] = self._start()
            self.counts["whole workers killed"] += 1
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.counts["processes killed"] += 1
        self.counts[f"while {phase}"] += 1

    def _claims(self) -> list[tuple[str, int]]:
        """(phase, process that works on it) of all that is claimed now."""
        from training.models import Run, Shard, TeacherChunk

        shards = Shard.objects.filter(run__status="asking").values_list("run__status", "claimed_by")
        chunks = TeacherChunk.objects.filter(run__status="training").values_list("run__status", "claimed_by")
        runs = Run.objects.filter(status__in=("voting", "asking", "student")).values_list("status", "claimed_by")
        return [(phase, int(token.split(":")[1])) for phase, token in (*chunks, *shards, *runs) if token]

    def _deliver_again(self) -> None:
        from celery import current_app

        from training.models import Run, Shard, TeacherChunk

        active = Run.objects.filter(status__in=Run.ACTIVE)
        tasks = [("run_advance", str(pk)) for pk in active.values_list("pk", flat=True)]
        tasks += [
            ("chunk_train", str(pk)) for pk in TeacherChunk.objects.filter(run__in=active).values_list("pk", flat=True)
        ]
        tasks += [("shard_ask", str(pk)) for pk in Shard.objects.filter(run__in=active).values_list("pk", flat=True)]
        for name, pk in self.random.choices(tasks, k=3):
            current_app.send_task(f"training.tasks.{name}", [pk])
            self.counts["tasks delivered again"] += 1

    def _cut_connections(self) -> None:
        """Do to connections what a restart of database and broker does; SQLite and files have none."""
        from django.conf import settings
        from django.db import connection

        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                self.counts["connections to the database cut"] += cursor.fetchone()[0]
        if settings.BROKER_URL.startswith("redis"):
            import redis

            with redis.Redis.from_url(settings.BROKER_URL) as server:
                number = str(server.connection_pool.connection_kwargs["db"])
                for client in server.client_list(_type="normal"):
                    if client["db"] == number and client["id"] != str(server.client_id()):
                        self.counts["connections to the broker cut"] += server.client_kill_filter(_id=client["id"])

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
        """Faults, in words; none where labels and register agree and every run went on by itself."""
        from accounting.shares import share_free, shares
        from accounting.sweep import files_sweep
        from accounting.verification import study_faults
        from training.models import Run
        from training.verification import batches_kept, release_faults, replay_faults, stray_faults

        for run in Run.objects.exclude(status=Run.Status.FINISHED):
            yield f"run {run.pk} did not finish: {run.status}, {run.message}"
        for study in self.studies:
            self.counts["files without a row deleted"] += files_sweep(study, timedelta(0))
            yield from study_faults(study)
            yield from stray_faults(study)
            for run in Run.objects.filter(study=study).select_related("study"):
                self.counts[f"runs finished, {run.method}"] += run.status == Run.Status.FINISHED
                yield from release_faults(run)
            used = sum(share.used or 0.0 for share in shares(study).values())
            if abs(used + share_free(study) - 1) > 1e-9:
                yield f"{study.slug}: {used:g} of every cap is used, but {share_free(study):g} free."
            for batch in batches_kept(study):
                self.counts["batches recomputed"] += 1
                self.counts["labels"] += batch.labels
                yield from replay_faults(batch)


def _children(pid: int) -> list[int]:
    """The processes of a worker, whichever of its threads started them, that have been alive for a second."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in children.read_text().split()]
    return [child for child in found if _age(child) > 1]


def _age(pid: int) -> float:
    """For how many seconds a process has been alive; 0 if it is no more."""
    with suppress(OSError):
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return 0.0


def combination_run(seed: int, kills: int, seconds: float) -> dict[str, Any]:
    """Kill so often in the environment's combination, for so many seconds at most; what was counted, and the faults."""
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    with ExitStack() as stack:
        campaign = Campaign(seed, settings.VAR_DIR, stack)
        deadline = time.monotonic() + seconds
        while campaign.kills < kills and time.monotonic() < deadline:
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


def combination(database: str, broker: str, seed: int, kills: int, seconds: float) -> dict[str, Any]:
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
        options = ["--one", "--seed", str(seed), "--kills", str(kills), "--minutes", str(seconds / 60)]
        command = [sys.executable, "-m", "benchmarks.fault_campaign", *options]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            printed, _ = process.communicate()
        finally:
            process.terminate()  # where this campaign is ended, its workers end, too
            process.wait()
        if process.returncode:
            raise SystemExit(f"{database}, {broker}: ended with exit status {process.returncode}.")
        return json.loads(printed.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how often to kill, all combinations together")
    parser.add_argument("--minutes", type=float, default=10, help="for how long to kill at most, all together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--combination", action="append", choices=list(COMBINATIONS), help="only this one; may be given several times"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unwind_on_signals()
    if options.one:
        print(json.dumps(combination_run(options.seed, options.kills, options.minutes * 60)))
        return
    combinations = [COMBINATIONS[name] for name in options.combination or COMBINATIONS]
    kills, seconds = math.ceil(options.kills / len(combinations)), 60 * options.minutes / len(combinations)
    total = faults = 0
    for place, (database, broker) in enumerate(combinations):
        result = combination(database, broker, options.seed + place, kills, seconds)
        counts = result["counts"]
        killed = counts.get("processes killed", 0) + counts.get("whole workers killed", 0)
        print(f"{database}, {broker}: {killed} SIGKILLs, {len(result['faults'])} faults")
        for name, count in sorted(counts.items()):
            print(f"  {count:5} {name}")
        for fault in result["faults"]:
            print(f"  FAULT {fault}")
        sys.stdout.flush()
        total, faults = total + killed, faults + len(result["faults"])
    print(f"{total} SIGKILLs, {faults} faults")
    if faults:
        raise SystemExit(f"{faults} faults.")


if __name__ == "__main__":
    main()
