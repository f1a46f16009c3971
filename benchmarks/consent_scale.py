"""A study of many holders: how long import, snapshot, the recruitment page and one decision take, and how much memory.

    python benchmarks/consent_scale.py [--holders 1000000]

Uses the database of DATABASE_URL in a test database of its own, which is removed afterwards; without it, SQLite.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LEVELS = ("HIGH", "AVERAGE", "AVERAGE", "LOW", "LOW", "LOW", "NONE")
BATCH = 50_000


@contextmanager
def database() -> Iterator[None]:
    """Django on a database that is empty and goes away again."""
    with tempfile.TemporaryDirectory(prefix="ipate-scale-") as folder:
        os.environ["IPATE_TEST_DIR"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        sys.path.insert(0, str(ROOT))
        import django

        django.setup()
        from django.db import connection

        name = connection.settings_dict["NAME"]
        if connection.vendor == "postgresql":
            connection.settings_dict["TEST"]["NAME"] = f"ipate_scale_{os.getpid()}"
        connection.creation.create_test_db(verbosity=0, serialize=False)
        try:
            yield
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)


def measure(name: str, work: Callable[[], Any]) -> Any:
    """Print the seconds that ``work`` takes, and the most memory that the process has held so far."""
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:<44} {seconds:>9.2f} s {peak:>9.0f} MiB", flush=True)
    return result


def traced(work: Callable[[], Any]) -> float:
    """MiB at the peak of ``work``."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return peak


def import_consents(study: Any, user: Any, holders: int) -> None:
    """Register and record in batches, each a transaction, as lists of signed papers."""
    from consent.paper import PaperConsent, paper_consents_record
    from consent.services import holders_register

    today = datetime.now(UTC).date()
    for start in range(0, holders, BATCH):
        numbers = range(start, min(start + BATCH, holders))
        holders_register(study=study, pseudonyms=[f"P-{n:07}" for n in numbers])
        consents = [PaperConsent(n, f"P-{n:07}", LEVELS[n % len(LEVELS)], 1, today, "scan.pdf") for n in numbers]
        paper_consents_record(study=study, consents=consents, scans={"scan.pdf": b"%PDF-"}, acting_user=user)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holders", type=int, default=1_000_000)
    holders = parser.parse_args().holders
    with database():
        from django.db import connection
        from django.test import Client

        from consent import selectors, services
        from consent.recruitment import recruitment_course
        from tests import factories

        print(f"{connection.vendor}, {holders:,} holders")
        print(f"{'':<44} {'time':>11} {'peak so far':>13}")
        study = factories.study_open("scale", delta=1e-9)
        olga = factories.user_create("olga")
        measure("import: holders, consents on paper", lambda: import_consents(study, olga, holders))
        snapshot = measure("snapshot", lambda: selectors.consent_snapshot(study))
        measure("counts per level", lambda: selectors.holders_per_level(study))
        measure("course of recruitment", lambda: recruitment_course(study))
        client = Client(HTTP_HOST="localhost")
        client.force_login(olga)
        response = measure("page: recruitment", lambda: client.get("/studies/scale/recruitment/"))
        assert response.status_code == 200
        response = measure("page: overview of the study", lambda: client.get("/studies/scale/"))
        assert response.status_code == 200
        holder = study.holders.get(pk=int(snapshot.holders[holders // 3]))
        form = selectors.consent_form_in_force(study)
        for level in ("HIGH", "LOW"):
            measure(
                "one decision",
                lambda level=level: services.consent_give(holder=holder, level=level, form=form, acting_user=None),
            )
        print(f"{'snapshot, allocated at the peak':<44} {traced(lambda: selectors.consent_snapshot(study)):>23.0f} MiB")


if __name__ == "__main__":
    main()
