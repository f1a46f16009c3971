"""Strike workers and the site repeatedly, and compare releases with charges.

    python -m benchmarks.fault_campaign --kills 300 --minutes 60 --seed 1 --output /tmp/campaign.jsonl

For each method, on SQLite with the file broker and on PostgreSQL with Redis (IPATE_TEST_POSTGRES_URL, where the
campaign creates a database; IPATE_TEST_REDIS_URL, an empty database), two workers of one process each and the site work
on four runs of two studies, and are struck (see WORDS in benchmarks/faults/strikes.py). Then the runs may finish, every
chain, label, account and share is verified, and every charge is recomputed. One line for each method, database and kind
of strike is written to --output. A campaign called again with the same file and seed continues with the strikes that
have not hit yet.

The exit status is 1 if there is a fault, or if fewer strikes hit than requested. A strike counts only if it hit a
process in a step of a run, or one that was responding to a request. The file system that becomes full requires root
(--kind leaves out strikes). The seed determines what is done, but not when the system does it.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.faults.strikes import KILLS, OTHERS, WORDS
from benchmarks.faults.studies import SHARES
from ipate_web.processes import unwind_on_signals

POSTGRES = os.environ.get("IPATE_TEST_POSTGRES_URL", "postgres://root@127.0.0.1:5432/postgres")
REDIS = os.environ.get("IPATE_TEST_REDIS_URL", "redis://127.0.0.1:6379/11")
DATABASES = ("sqlite", "postgresql")
#: Size of the site's file system.
DISK = "192m"
#: Longest pause between two strikes, in seconds.
PAUSE = 0.7
#: Seconds within which a strike must hit; otherwise the rest of its kind is given up.
MISSING_SECONDS = 120.0


def strikes_planned(kills: int, kinds: Iterable[str]) -> dict[str, int]:
    """Return the number of strikes of each kind for one method on one database.

    >>> strikes_planned(30, ["process", "web", "disk"])
    {'process': 18, 'web': 12, 'disk': 2}
    """
    killing = [kind for kind in KILLS if kind in kinds]
    parts = sum(KILLS[kind] for kind in killing)
    planned = {kind: kills * KILLS[kind] // parts for kind in killing}
    for kind in killing[: kills - sum(planned.values())]:
        planned[kind] += 1
    planned |= {kind: max(1, OTHERS[kind] * kills // 30) for kind in OTHERS if kind in kinds}
    return {kind: number for kind, number in planned.items() if number}


# --- One database, in a separate process ------------------------------------------------------------------------------


def method_strike(
    method: str, planned: dict[str, int], seed: str, seconds: float, disk: Path, folder: Path, bar: tqdm
) -> list[dict[str, Any]]:
    """Strike runs of one method, let them finish, and check them; return a result for each kind of strike."""
    from benchmarks.faults.checks import faults, runs_finish
    from benchmarks.faults.processes import Processes
    from benchmarks.faults.strikes import Strikes
    from benchmarks.faults.studies import Studies

    chance = random.Random(seed)
    hits: dict[str, Counter[str]] = {kind: Counter() for kind in planned}
    counts: Counter[str] = Counter()
    begun = time.monotonic()
    with ExitStack() as stack:
        processes, studies = Processes(folder, stack), Studies(method, chance)
        strikes = Strikes(processes, studies, disk, chance)
        last_hit = dict.fromkeys(planned, begun)
        while time.monotonic() < begun + seconds:
            left = {
                kind: number - hits[kind].total()
                for kind, number in planned.items()
                if hits[kind].total() < number and time.monotonic() < last_hit[kind] + MISSING_SECONDS
            }
            if not left:
                break
            processes.supervise()
            studies.top_up()
            kind = chance.choices(list(left), list(left.values()))[0]
            stage = strikes.strike(kind)
            if stage is None:
                counts[f"misses, {kind}"] += 1
            else:
                hits[kind][stage] += 1
                last_hit = dict.fromkeys(planned, time.monotonic())
                bar.update()
            bar.set_postfix_str(f"{method}, {kind}: {stage or 'missed'}")
            time.sleep(chance.uniform(0, PAUSE))
        bar.set_postfix_str(f"{method}: runs may finish")
        runs_finish(processes, studies)
        wrong = [*strikes.faults, *faults(studies, counts)]
        counts["processes that exited unexpectedly"] = processes.ended
    counts["seconds"] = round(time.monotonic() - begun)
    rows = [
        {"kind": kind, "asked": number, "hit": hits[kind].total(), "stages": dict(hits[kind])}
        for kind, number in planned.items()
    ]
    return [*rows, {"kind": "afterwards", "counts": dict(counts), "faults": wrong}]


def database_strike(options: argparse.Namespace) -> None:
    """Strike the environment's database, one method after the other."""
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)
    todo = {method: left for method in options.method if (left := strikes_left(options, options.one, method))}
    deadline = time.monotonic() + options.minutes * 60
    with tqdm(total=sum(sum(left.values()) for left in todo.values()), desc=options.one, unit="strike") as bar:
        for place, (method, left) in enumerate(todo.items()):
            earlier = sum(row["kind"] == "afterwards" for row in cell_results(options, options.one, method))
            seed = f"{options.seed}/{options.one}/{method}/{earlier}"
            seconds = (deadline - time.monotonic()) / (len(todo) - place)
            folder = options.folder / method
            folder.mkdir()
            rows = method_strike(method, left, seed, seconds, settings.VAR_DIR, folder, bar)
            with options.output.open("a") as file:
                for row in rows:
                    cell = {"method": method, "database": options.one, "seed": options.seed}
                    file.write(json.dumps(cell | row) + "\n")


# --- All databases ----------------------------------------------------------------------------------------------------


def cell_results(options: argparse.Namespace, database: str, method: str) -> list[dict[str, Any]]:
    """Return the results of a method on a database in the output, from campaigns with this seed."""
    if not options.output.exists():
        return []
    rows = map(json.loads, options.output.read_text().splitlines())
    cell = {"method": method, "database": database, "seed": options.seed}
    return [row for row in rows if cell.items() <= row.items()]


def cell_planned(options: argparse.Namespace) -> dict[str, int]:
    """Return the number of strikes of each kind for each method on each database."""
    return strikes_planned(-(-options.kills // (len(options.method) * len(options.database))), options.kind)


def stages_hit(rows: list[dict[str, Any]], kind: str) -> Counter[str]:
    """Return the number of hits of a kind of strike, by stage."""
    return sum((Counter(row["stages"]) for row in rows if row["kind"] == kind), Counter())


def strikes_left(options: argparse.Namespace, database: str, method: str) -> dict[str, int]:
    """Return the number of strikes of each kind that have not hit yet."""
    rows = cell_results(options, database, method)
    left = {kind: number - stages_hit(rows, kind).total() for kind, number in cell_planned(options).items()}
    return {kind: number for kind, number in left.items() if number > 0}


@contextmanager
def empty_postgres() -> Iterator[str]:
    """Yield the URL of a database for this campaign, which is removed afterwards."""
    import psycopg

    server, _, beside = POSTGRES.rpartition("/")
    name = f"{beside}_faults_{os.getpid()}"
    with psycopg.connect(POSTGRES.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield f"{server}/{name}"
    finally:
        with psycopg.connect(POSTGRES.replace("postgres://", "postgresql://"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def empty_redis() -> Iterator[str]:
    """Yield an unused Redis database, which is emptied afterwards."""
    import redis

    with redis.Redis.from_url(REDIS) as server:
        if server.dbsize():
            raise SystemExit(f"{REDIS} is in use. Set IPATE_TEST_REDIS_URL to an empty database.")
        try:
            yield REDIS
        finally:
            server.flushdb()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a separate file system, which can become full, in ``folder``."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
        raise SystemExit("No file system could be mounted. Run as root, or omit --kind disk.")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def database_campaign(database: str, options: argparse.Namespace, minutes: float) -> int:
    """Strike one database in a separate process; return its exit status."""
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="ipate-faults-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(temporary))
        (folder / "site").mkdir()
        if "disk" in options.kind:
            stack.enter_context(small_disk(folder / "site"))
        is_postgres = database == "postgresql"
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
            "IPATE_VAR_DIR": str(folder / "site"),
            "IPATE_LOG_LEVEL": "ERROR",
            "DATABASE_URL": stack.enter_context(empty_postgres()) if is_postgres else f"sqlite:///{folder}/site/db",
            "IPATE_BROKER_URL": stack.enter_context(empty_redis()) if is_postgres else "filesystem://",
        }
        arguments = ["--one", database, "--folder", str(folder), "--minutes", str(minutes)]
        arguments += ["--kills", str(options.kills), "--seed", str(options.seed), "--output", str(options.output)]
        for name in ("method", "database", "kind"):
            for value in getattr(options, name):
                arguments += [f"--{name}", value]
        command = [sys.executable, "-m", "benchmarks.fault_campaign", *arguments]
        process = subprocess.Popen(command, env=environment)
        try:
            status = process.wait()
        finally:
            process.terminate()  # so that the workers end when the campaign is stopped
            process.wait()
        if options.keep_logs:
            keep_logs(folder, options.output, database)
        return status


def keep_logs(folder: Path, output: Path, database: str) -> None:
    """Append all logs to a file next to the output."""
    with output.with_suffix(f".{database}.log").open("a") as kept:
        for log in sorted(folder.glob("*/*.log")):
            kept.write(f"=== {log.parent.name}/{log.name}\n{log.read_text(errors='replace')}\n")


def report(options: argparse.Namespace) -> list[str]:
    """Print the results; return a description of everything that is wrong with them."""
    wrong: list[str] = []
    total: Counter[str] = Counter()
    for database in options.database:
        for method in options.method:
            rows, where = cell_results(options, database, method), f"{method}, {database}"
            for kind, cells in cell_planned(options).items():
                hit = stages_hit(rows, kind)
                print(f"{where}, {kind}: {hit.total()} of {cells} hit {dict(sorted(hit.items()))}")
                total[kind] += hit.total()
                if hit.total() < cells:
                    wrong.append(f"{where}, {kind}: only {hit.total()} of {cells} strikes hit.")
            for row in rows:
                if row["kind"] == "afterwards":
                    print(f"{where}: {len(row['faults'])} faults; {dict(sorted(row['counts'].items()))}")
                    wrong += [f"{where}: {fault}" for fault in row["faults"]]
    kills = sum(total[kind] for kind in KILLS)
    print(f"{kills} kills, {total.total() - kills} other strikes, {len(wrong)} faults or shortfalls")
    if not total.total():
        wrong.append("Nothing was hit, so this campaign has no result.")
    return wrong


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{kind}: {words}" for kind, words in WORDS.items()),
    )
    parser.add_argument("--kills", type=int, default=300, help="number of kills over all methods and databases")
    parser.add_argument("--minutes", type=float, default=60, help="maximum duration of the campaign; 0 to only report")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("fault-campaign.jsonl"), help="results, one per line")
    for name, choices in (("method", list(SHARES)), ("database", list(DATABASES)), ("kind", list(WORDS))):
        text = f"only this {name}; can be repeated"
        parser.add_argument(f"--{name}", action="append", choices=choices, help=text)
    parser.add_argument("--keep-logs", action="store_true", help="keep the logs of workers and site next to the output")
    parser.add_argument("--one", choices=DATABASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.method = given.method or list(SHARES)
    given.database = given.database or list(DATABASES)
    given.kind = given.kind or list(WORDS)
    if not set(given.kind) & set(KILLS):
        parser.error(f"--kind needs one that kills as well: {', '.join(KILLS)}.")
    return given


def main() -> None:
    """Carry out the strikes given by the arguments, and report."""
    options = arguments()
    unwind_on_signals()
    if options.one:
        database_strike(options)
        return
    for database in options.database:
        if options.minutes and any(strikes_left(options, database, method) for method in options.method):
            status = database_campaign(database, options, options.minutes / len(options.database))
            if status:
                raise SystemExit(f"{database}: the campaign ended with exit status {status}.")
    if wrong := report(options):
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
