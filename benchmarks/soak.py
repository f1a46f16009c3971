"""Long soaks of an installation.

    DATABASE_URL=postgres://… python benchmarks/soak.py strikes [--seconds 7200] [--seed 1] [--output FILE]
        [--logs FOLDER] [--port 8600]

PostgreSQL, Redis, gunicorn's pages, worker and beat as in docs/install.md form the hub of three sites. Runs are
proposed over the API and across the sites, while connections to Redis, PostgreSQL and the hub are cut or held up, the
disk is full, the clock is an hour wrong, and worker, pages or a site are killed. Killed programs are restarted, and so
are programs that ended by themselves, which counts as a fault. In the end, every run must have ended, with a reason if
it failed, and every account is verified. Needs root, for a file system that becomes full, a C compiler and
redis-server.

    [DATABASE_URL=postgres://…] python benchmarks/soak.py memory [--runs 1000] [--seconds 3600] [--processes 2]
        [--broker redis://…]

Many small runs one after the other, to see whether the workers' memory stays constant. Small runs of teachers in a
rehearsal study are approved ten at a time, and a worker carries them out; runs may fail, but all must end. After every
ten runs it records the resident memory of the worker's processes. It prints the memory after the first fifth of the
runs and at the end, in total and by process, and stops earlier if the time is up.

    [DATABASE_URL=postgres://…] python benchmarks/soak.py clients [--clients 20] [--seconds 20]

p50 and p95 of staff pages and holders' pages, for this many clients that send requests without a pause.

Each works in a separate database.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from databases import empty_database

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 10
#: Sites of the hub. One of them may collude with it, so a sum needs three.
SITES = ["Clinic Northtown", "Clinic Southtown", "Clinic Easttown"]


def strikes(given: argparse.Namespace, stack: ExitStack, folder: Path) -> None:
    from benchmarks.faults.soaking import soak

    logs = given.logs or folder / "log"
    logs.mkdir(exist_ok=True)
    told = lambda line: print(line, flush=True)  # noqa: E731
    found = soak(folder, logs, os.environ["DATABASE_URL"], given.seconds, given.seed, SITES, told, given.port)
    print(json.dumps(found, indent=1))
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")
    if found["wrong"]:
        raise SystemExit(f"{len(found['wrong'])} things are wrong.")


# --- Memory -----------------------------------------------------------------------------------------------------------


def memory_of(parent: int) -> dict[int, float]:
    """Return the resident memory of a process and its children in MiB."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if parent in (int(fields["Pid"]), int(fields["PPid"])) and "VmRSS" in fields:
            found[int(fields["Pid"])] = int(fields["VmRSS"].split()[0]) / 1024
    return found


def memory(given: argparse.Namespace, stack: ExitStack, folder: Path) -> None:
    os.environ["IPATE_BROKER_URL"] = given.broker
    import django

    django.setup()
    from django.core.management import call_command

    from ipate_web.processes import running, worker_command
    from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_start
    from training.models import Run

    call_command("migrate", verbosity=0)
    study = rehearsal_with_table()
    os.environ["OMP_NUM_THREADS"] = "1"
    begun, noted = time.monotonic(), []
    worker = stack.enter_context(running(worker_command(given.processes), folder / "worker.log"))
    done = 0
    while done < given.runs and time.monotonic() < begun + given.seconds:
        for _ in range(AT_ONCE):
            run_start(study, **TABLE_RUN)
        while Run.objects.filter(status__in=Run.ACTIVE).exists():
            time.sleep(0.5)
        done += AT_ONCE
        used = memory_of(worker.pid)
        noted.append(sum(used.values()))
        print(
            f"{done:>5} runs, {time.monotonic() - begun:6.0f} s, {noted[-1]:7.1f} MiB in {len(used)} processes "
            f"(largest {max(used.values()):.1f}), load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    ended = Run.objects.values_list("status", flat=True)
    first = statistics.median(noted[len(noted) // 5 : len(noted) // 5 + 5])
    last = statistics.median(noted[-5:])
    print(f"{done} runs: {Counter(ended)}")
    print(f"memory after a fifth {first:.1f} MiB, at the end {last:.1f} MiB: {last / first - 1:+.1%}")


# --- Clients ----------------------------------------------------------------------------------------------------------


def clients(given: argparse.Namespace, stack: ExitStack, folder: Path) -> None:
    from web_load import gunicorn, load, processor_seconds
    from web_study import site_set_up, study_build

    site_set_up()
    from django.db import connections

    from benchmarks.faults.people import People
    from consent.models import Study

    addresses, staff = study_build(30)
    holder = next(iter(People(Study.objects.get(), deciding=1).sessions.values()))
    pages: dict[str, tuple[str, dict[str, Any]]] = {
        f"staff: {name}": (addresses[name], staff) for name in ("study", "run list", "run")
    }
    pages |= {f"holders: {path}": (path, holder) for path in ("/my/", "/my/speed/")}
    pages["visitors: /sign-in/"] = ("/sign-in/", {})
    connections.close_all()
    with gunicorn(4) as (pid, site):
        for name, (path, cookies) in pages.items():
            load(site + path, cookies, 4, 1.0)
            before = processor_seconds(pid)
            times = load(site + path, cookies, given.clients, given.seconds)
            hundredths = statistics.quantiles(times, n=100)
            print(
                f"{name:<28} {len(times):>5} requests, p50 {1000 * hundredths[49]:6.0f} ms, "
                f"p95 {1000 * hundredths[94]:6.0f} ms, {1000 * (processor_seconds(pid) - before) / len(times):5.1f} ms "
                f"of processor each, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    for mode, seconds in ((strikes, 7_200), (memory, 3_600), (clients, 20)):
        options = modes.add_parser(mode.__name__)
        options.set_defaults(mode=mode)
        options.add_argument("--seconds", type=float, default=seconds)
        if mode is strikes:
            options.add_argument("--seed", type=int, default=1)
            options.add_argument("--output", type=Path)
            options.add_argument("--port", type=int, default=8_600, help="first port to use")
            options.add_argument("--logs", type=Path, help="folder in which the logs of all processes are kept")
        elif mode is memory:
            options.add_argument("--runs", type=int, default=1_000)
            options.add_argument("--processes", type=int, default=2)
            options.add_argument(
                "--broker", default="filesystem://", help="address of a Redis broker, which announces tasks immediately"
            )
        else:
            options.add_argument("--clients", type=int, default=20)
    given = parser.parse_args()
    sys.path.insert(1, str(ROOT))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ipate-soak-"))
        stack.enter_context(empty_database(folder))
        given.mode(given, stack, Path(folder))


if __name__ == "__main__":
    main()
