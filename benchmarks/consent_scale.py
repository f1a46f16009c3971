"""A study with many holders: time and memory for import, snapshot, pages, one decision, head counts and verification.

    python benchmarks/consent_scale.py [--holders 1000000]

Uses a separate test database on the server of DATABASE_URL, which is removed afterwards; without it, SQLite.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LEVELS = ("HIGH", "AVERAGE", "AVERAGE", "LOW", "LOW", "LOW", "NONE")
#: Number of pseudonyms registered at once, as in the import of a dataset.
DATASET = 50_000


@contextmanager
def database() -> Iterator[Path]:
    """Set up Django with an empty database and yield a folder; both are removed afterwards."""
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
            yield Path(folder)
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)


def holders_count(description: str | None) -> int:
    """Return the number of holders from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holders", type=int, default=1_000_000)
    return parser.parse_args().holders


def head_print(about: str) -> None:
    """Print the database, the subject of the measurement, and the header of the table of :func:`measure`."""
    from django.db import connection

    print(f"{connection.vendor}, {about}")
    print(f"{'':<44} {'time':>11} {'processor':>11} {'most memory':>13}")


def peak_memory() -> float:
    """Return the peak memory of the process in MiB since it was last reset."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(name: str, work: Callable[[], Any]) -> Any:
    """Print wall-clock time, processor time and peak memory of ``work``."""
    Path("/proc/self/clear_refs").write_text("5")
    start, busy = time.perf_counter(), time.process_time()
    result = work()
    start, busy = time.perf_counter() - start, time.process_time() - busy
    print(f"{name:<44} {start:>9.2f} s {busy:>9.2f} s {peak_memory():>9.0f} MiB", flush=True)
    return result


def holders_import(study: Any, holders: int) -> None:
    from consent.services import holders_register

    for start in range(0, holders, DATASET):
        numbers = range(start, min(start + DATASET, holders))
        holders_register(study=study, pseudonyms=[f"P-{n:07}" for n in numbers])


def list_write(folder: Path, holders: int) -> Path:
    """Write a list of the forms that each holder has signed today, all on one scan."""
    (folder / "scan.pdf").write_bytes(b"%PDF-")
    today, path = datetime.now(UTC).date().isoformat(), folder / "list.csv"
    with open(path, "w") as file:
        file.write("pseudonym,level,form_version,signed_on,evidence\n")
        file.writelines(f"P-{n:07},{LEVELS[n % len(LEVELS)]},1,{today},scan.pdf\n" for n in range(holders))
    return path


def main() -> None:
    holders = holders_count(__doc__)
    with database() as folder:
        from django.core.management import call_command
        from django.test import Client

        from consent import selectors, services
        from consent.people.counts import holders_per_level, recruitment_history
        from tests import factories
        from training.services.drawings import head_counts_draw

        head_print(f"{holders:,} holders")
        study = factories.study_open("scale", delta=1e-9)
        form = selectors.consent_form_in_force(study)
        assert form is not None
        measure("register the holders", lambda: holders_import(study, holders))
        path = list_write(folder, holders)
        measure(
            "import_paper_consents, all on one list",
            lambda: call_command("import_paper_consents", "scale", path, scans=folder, by="olga", stdout=StringIO()),
        )
        client = Client(HTTP_HOST="localhost")
        client.force_login(factories.user_create("root", is_superuser=True, is_staff=True))
        assert client.get("/studies/scale/people/").status_code == 200  # excludes costs of a process's first request
        snapshot = measure("snapshot", lambda: selectors.consent_snapshot(study))
        selectors.consent_snapshot(study)  # the second request stores the state
        measure("the same snapshot again", lambda: selectors.consent_snapshot(study))
        measure("counts per level", lambda: holders_per_level(study))
        measure("recruitment history", lambda: recruitment_history(study))
        for name, address in (
            ("page: recruitment", "/studies/scale/recruitment/"),
            ("page: overview of the study", "/studies/scale/"),
            ("page: holders, in the admin", "/admin/consent/dataholder/"),
            ("page: consent events, in the admin", "/admin/consent/consentevent/"),
        ):
            response = measure(name, partial(client.get, address))
            assert response.status_code == 200
        holder = study.holders.get(pk=int(snapshot.holders[holders // 3]))
        decide = partial(services.consent_give, holder=holder, form=form, level="HIGH", acting_user=None)
        measure("one decision", decide)
        olga = factories.user_create("olga")
        measure("head counts, drawn and charged to everybody", lambda: head_counts_draw(study=study, acting_user=olga))
        measure("verify_ledger", lambda: call_command("verify_ledger", stdout=StringIO()))


if __name__ == "__main__":
    main()
