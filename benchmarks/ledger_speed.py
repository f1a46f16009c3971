"""Speed of the accounts: committing a batch that charges very many holders, and rebuilding all accounts.

    DATABASE_URL=postgres://… python -m benchmarks.ledger_speed [--holders 60000 1000000] [--batches 20]

Works in a new database next to the one of DATABASE_URL, or else in a SQLite file. Times are medians of wall-clock time
and, in brackets, of this process's processor time.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

QUERIES, TEACHERS = 50, 250


def report(what: str, work: Callable[[], Any], repeat: int) -> None:
    """Print the duration of ``work``, after a first run that is not measured."""
    times = []
    for _ in range(repeat + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        times.append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)))
    wall, cpu = zip(*times[1:], strict=True)
    print(
        f"  {what:<58} {statistics.median(wall):7.0f} ms ({statistics.median(cpu):.0f}); "
        f"best {min(wall):.0f}, worst {max(wall):.0f}",
        flush=True,
    )


def holders_copy(given: Any, holders: int) -> None:
    """Write ``holders`` more holders with the decisions of ``given`` directly to the tables, with invalid hashes."""
    from django.db import connection

    columns = [field.column for field in given._meta.concrete_fields if not field.primary_key]
    copied = {"holder_id": "h.n", "sequence": "h.n"}
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # checking each row's references takes longer than writing it
            cursor.execute("SET session_replication_role = replica")
            series, public_id = "generate_series({}::bigint, {}) AS h(n)", "gen_random_uuid()"
        else:
            series = "(WITH RECURSIVE h(n) AS (SELECT {} UNION ALL SELECT n + 1 FROM h WHERE n < {}) SELECT n FROM h) h"
            public_id = "lower(hex(randomblob(16)))"
        first = 1 + max(given.holder_id, given.sequence)
        series = series.format(first, first + holders - 1)
        cursor.execute(
            "INSERT INTO consent_dataholder (id, study_id, pseudonym, public_id, created_at) "
            f"SELECT h.n, d.study_id, 'copy ' || h.n, {public_id}, d.created_at "
            f"FROM {series}, consent_dataholder d WHERE d.id = {given.holder_id}"
        )
        cursor.execute(
            f"INSERT INTO consent_consentevent ({', '.join(columns)}) "
            f"SELECT {', '.join(copied.get(column, f'e.{column}') for column in columns)} "
            f"FROM {series}, consent_consentevent e WHERE e.id = {given.pk}"
        )
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = DEFAULT")
            cursor.execute("SELECT setval(pg_get_serial_sequence('consent_dataholder', 'id'), %s)", [first + holders])
            cursor.execute("VACUUM ANALYZE")


def run_voting(study: Any, repeat: int) -> Any:
    """Return a run in the middle of its vote, with every holder of the study in one of its teachers."""
    import numpy as np

    from common.artifacts import arrays_save
    from consent.selectors import consent_snapshot
    from tests.training.runs import TABLE_RUN, run_start
    from training.methods.pate_teachers import assignment_name, predictions_name, vote_open
    from training.models import TeacherChunk

    fields = {"aggregator": {"name": "gnmax", "sigma": 4000.0}, "teachers": TEACHERS, "batch_size": QUERIES}
    run = run_start(study, share=0.5, **TABLE_RUN | fields)
    snapshot = consent_snapshot(study)
    run.consent_sequence, run.snapshot_at = snapshot.sequence, snapshot.at
    run.assignment, run.status = assignment_name(run), "preparing"
    rng = np.random.default_rng(0)
    arrays_save(
        run.assignment,
        holder=snapshot.holders,
        teacher=rng.integers(0, TEACHERS, len(snapshot)),
        group=np.zeros(len(snapshot), dtype=np.int64),
        seeds=np.arange(TEACHERS),
    )
    run.save()
    chunk = TeacherChunk(run=run, start=0, stop=TEACHERS, state="done")
    chunk.artifact = predictions_name(chunk)
    arrays_save(chunk.artifact, predictions=rng.integers(0, 3, (TEACHERS, QUERIES * (repeat + 1))).astype(np.int16))
    chunk.save()
    vote_open(run)
    run.refresh_from_db()
    assert run.status == "asking"
    return run


def charges_commit(study: Any, holders: Any) -> Callable[[], None]:
    """Grant a tenth of every cap; return a function that commits a release with individual charges for ``holders``."""
    import numpy as np
    from django.db import transaction

    from accounting.models import Release
    from accounting.services import release_record
    from accounting.shares import share_grant, share_open
    from consent.services import study_lock

    subject, charges = uuid4(), np.random.default_rng(1).uniform(0, 1e-6, len(holders))
    share_grant(study=study, subject=subject, purpose="individual charges", share=0.1, acting_user=None)
    share_open(study=study, subject=subject)

    @transaction.atomic
    def commit() -> None:
        study_lock(study.pk)
        release_record(
            study=study,
            kind=Release.Kind.LABELS,
            content={},
            run=subject,
            holders=holders,
            charges=charges,
            limits=np.ones(len(holders)),
            charge=1e-6,
        )

    return commit


def measure(holders: int, repeat: int) -> None:
    from accounting.accounts import balances
    from accounting.verification import study_checks
    from consent.models import ConsentEvent
    from consent.selectors import consent_snapshot
    from tests.training.asking import vote_batch
    from tests.training.runs import study_with_table

    study = study_with_table(
        f"n{holders}", levels="L", holders=TEACHERS, points=QUERIES * (repeat + 1), retain_votes=True
    )
    holders_copy(ConsentEvent.objects.filter(study=study).latest("sequence"), holders - TEACHERS)
    print(f"{holders:,} holders")
    run = run_voting(study, repeat)
    report(f"a batch of {QUERIES} queries to {TEACHERS} teachers, all of it", lambda: vote_batch(run), repeat)
    run.refresh_from_db()
    assert run.position == QUERIES * (repeat + 1)
    assert len(balances(study).holders) == holders

    everyone = consent_snapshot(study).holders
    for who, charged in (("everybody", everyone), ("one in ten", everyone[::10])):
        report(f"release with a charge of their own for {who}", charges_commit(study, charged), repeat)
    files = 3 * (repeat + 1)
    rebuilt = next(check for check in study_checks(study) if check.name.startswith("accounts rebuilt"))
    assert rebuilt.faults() == []
    report(f"verify_ledger: accounts rebuilt from {files} charge files", rebuilt.faults, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holders", type=int, nargs="+", default=[60_000, 1_000_000])
    parser.add_argument("--batches", type=int, default=20)
    options = parser.parse_args()
    from benchmarks.databases import empty_database

    with tempfile.TemporaryDirectory(prefix="ipate-speed-") as folder, empty_database(folder):
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection

        call_command("migrate", verbosity=0)
        print(f"on {connection.vendor}, load {os.getloadavg()[0]:.1f}")
        for holders in options.holders:
            measure(holders, options.batches)
        connection.close()


if __name__ == "__main__":
    main()
