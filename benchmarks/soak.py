"""Many small runs one after the other: does the memory of the workers stay what it was?

    [DATABASE_URL=postgres://…] python benchmarks/soak.py [--runs 1000] [--seconds 3600] [--processes 2]
        [--broker redis://…]

Works in a database of its own. Small runs of teachers in a rehearsal study are approved ten at a time, and a worker
carries them out; no run has to end well, but all have to end. After each ten it notes the resident memory of the
worker's processes. It prints the memory after the first fifth of the runs and at the end, in all and by process, and
stops earlier where the seconds are over.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from databases import empty_database

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 10


def memory_of(parent: int) -> dict[int, float]:
    """Resident MiB of a process and its children."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if parent in (int(fields["Pid"]), int(fields["PPid"])) and "VmRSS" in fields:
            found[int(fields["Pid"])] = int(fields["VmRSS"].split()[0]) / 1024
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=3_600)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--broker", default="filesystem://", help="address of a Redis, which tells of tasks at once")
    given = parser.parse_args()
    sys.path.insert(1, str(ROOT))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ipate-soak-"))
        stack.enter_context(empty_database(folder))
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
        worker = stack.enter_context(running(worker_command(given.processes), Path(folder, "worker.log")))
        done = 0
        while done < given.runs and time.monotonic() < begun + given.seconds:
            for _ in range(AT_ONCE):
                run_start(study, **TABLE_RUN)
            while Run.objects.filter(status__in=Run.ACTIVE).exists():
                time.sleep(0.5)
            done += AT_ONCE
            memory = memory_of(worker.pid)
            noted.append(sum(memory.values()))
            print(
                f"{done:>5} runs, {time.monotonic() - begun:6.0f} s, {noted[-1]:7.1f} MiB in {len(memory)} processes "
                f"(largest {max(memory.values()):.1f}), load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        ended = Run.objects.values_list("status", flat=True)
        first = statistics.median(noted[len(noted) // 5 : len(noted) // 5 + 5])
        last = statistics.median(noted[-5:])
        print(f"{done} runs: {Counter(ended)}")
        print(f"memory after a fifth {first:.1f} MiB, at the end {last:.1f} MiB: {last / first - 1:+.1%}")


if __name__ == "__main__":
    main()
