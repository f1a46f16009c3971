"""Minutes from a run's approval to its published student: MNIST, 60,000 holders, defaults, and a real worker.

    IPATE_DATA_DIR=… python benchmarks/approval_to_student.py [--data mnist] [--processes 2] [--wait]

Builds the demo study in a separate database (next to the one of DATABASE_URL, or else SQLite), with consent from every
holder, starts a worker with the given number of processes, and approves a run in which every holder votes. `--wait`
waits for the Enter key before the approval, so that the machine can become idle. Prints the wall-clock time of each
stage. The time for the approval includes head counts, proposal and plan.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from databases import empty_database
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("digits", "mnist", "adult", "diabetes"), default="mnist")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--wait", action="store_true")
    given = parser.parse_args()
    sys.path.insert(1, str(ROOT))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="ipate-approval-") as folder, empty_database(folder):
        import django

        django.setup()
        from django.conf import settings
        from django.core.management import call_command

        from ipate_web.processes import running, worker_command
        from learning.formats import catalogue_load
        from training.demonstration import neighbours_run_start, people, study_build
        from training.models import Run

        call_command("migrate", verbosity=0)
        users, _logins = people()
        real = study_build(given.data, catalogue_load(given.data, settings.DATA_DIR or None), users, _track)
        with running(worker_command(given.processes), Path(folder) / "worker.log"):
            if given.wait:
                input("Press Enter to approve the run. ")
            stages = [("approval", time.monotonic())]
            run = neighbours_run_start(given.data, real, proposer=users["operator"], approver=users["operator2"])
            while not run.has_ended:
                if stages[-1][0] != run.status:
                    stages.append((run.status, time.monotonic()))
                time.sleep(0.1)
                run.refresh_from_db()
            stages.append((run.status, time.monotonic()))
        assert run.status == Run.Status.FINISHED and run.student is not None, run.message
        for (status, begun), (_next, ended) in pairwise(stages):
            print(f"{status:10} {ended - begun:6.1f} s")
        print(
            f"together   {stages[-1][1] - stages[0][1]:6.1f} s; {run.labels} labels, {run.student.accuracy:.4f} right"
        )


def _track(items: Iterable[Any], description: str, total: int) -> Iterable[Any]:
    return tqdm(items, desc=description, total=total)


if __name__ == "__main__":
    main()
