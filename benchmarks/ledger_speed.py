"""How fast the ledger is: committing a batch, and what remains for each group of a large study.

    DATABASE_URL=postgres://… python -m benchmarks.ledger_speed [--holders 1000000] [--runs 100]

Works in an empty database of its own, made beside the one that DATABASE_URL names; without it, in a SQLite file.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GROUPS, QUERIES = 10, 50


@contextmanager
def empty_database() -> Iterator[None]:
    """Let Django use a database of this benchmark's own, gone afterwards."""
    given = os.environ.get("DATABASE_URL", "")
    with tempfile.TemporaryDirectory(prefix="ipate-speed-") as folder:
        os.environ |= {
            "IPATE_VAR_DIR": folder,
            "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
            "IPATE_LOG_LEVEL": "ERROR",
        }
        if not given.startswith("postgres"):
            os.environ["DATABASE_URL"] = f"sqlite:///{folder}/db"
            yield
            return
        import psycopg

        name = f"ipate_speed_{os.getpid()}"
        os.environ["DATABASE_URL"] = f"{given.rpartition('/')[0]}/{name}"
        with psycopg.connect(given.replace("postgres://", "postgresql://"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
            try:
                yield
            finally:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def milliseconds(work: Callable[[], Any], repeat: int) -> list[tuple[float, float]]:
    """(wall, CPU time of this process) of each repetition."""
    times = []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        times.append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)))
    return times


def report(what: str, times: list[tuple[float, float]]) -> None:
    wall, cpu = zip(*times, strict=True)
    print(
        f"{what}: best {min(wall):.1f} ms, median {statistics.median(wall):.1f}, worst {max(wall):.1f}; "
        f"median of CPU time {statistics.median(cpu):.1f}"
    )


def commit_of_a_batch() -> None:
    """A batch as the vote commits it: groups and limits read under the lock; 50 queries with their labels, ten groups'
    charges, totals and the run's position written."""
    import numpy as np
    from django.db import transaction
    from django.utils import timezone

    from accounting.limits import Limits, limits_of
    from accounting.privacy import DEFAULT_ORDERS, gaussian_rdp
    from accounting.services import GroupOpening, account_open
    from consent.services import study_lock
    from tests.training.runs import TABLE_RUN, run_draft, study_with_table
    from training.models import Run
    from training.services.voting import _release

    study = study_with_table(holders=60, points=2 * QUERIES)
    holders = np.array(sorted(study.holders.values_list("pk", flat=True)))
    run = run_draft(study, **TABLE_RUN | {"batch_size": QUERIES})
    openings = [
        GroupOpening(f"group {place}", "LOW", 9.0, part, np.zeros(DEFAULT_ORDERS.size))
        for place, part in enumerate(np.array_split(holders, GROUPS))
    ]
    with transaction.atomic():
        study_lock(study.pk)
        run.account = account_open(
            study=study, run=run.pk, at=timezone.now(), simulation=False, orders=DEFAULT_ORDERS,
            method="exact", conversion="improved", groups=openings,
        )  # fmt: skip
    run.plan = {"aggregator": {"name": "gnmax", "sigma": 40.0}}
    run.save()
    cost = np.outer(np.linspace(1, 2, GROUPS), gaussian_rdp(400.0))

    @transaction.atomic
    def read() -> tuple[Run, Limits]:
        study_lock(study.pk)
        voting = Run.objects.select_for_update(of=("self",)).select_related("account__study").get(pk=run.pk)
        return voting, limits_of(voting.account)

    @transaction.atomic
    def commit() -> None:
        voting, limits = read()
        _release(
            voting,
            limits=limits,
            sensitivities=[1.0] * GROUPS,
            silent=np.zeros(voting.teachers, dtype=bool),
            labels=np.zeros(QUERIES, dtype=int),
            answered=np.ones(QUERIES, dtype=bool),
            rdp=cost,
            published_rdp=1.5 * cost,
        )

    report(f"reading what {GROUPS} groups may spend", milliseconds(read, 40)[5:])
    report(f"reading, and commit of {QUERIES} queries for {GROUPS} groups", milliseconds(commit, 40)[5:])


def remaining_per_group(holders: int, runs: int) -> None:
    from accounting.selectors import remaining_by_group
    from benchmarks.large_study import LEFT_OF_100, large_study

    start = time.perf_counter()
    study = large_study(holders, runs)
    print(f"study of {holders:,} holders and {runs} runs built in {time.perf_counter() - start:.0f} s")
    groups = remaining_by_group(study)
    # All but those who left, and the one who was copied.
    assert sum(group.holders for group in groups) == holders - holders * LEFT_OF_100 // 100 + 1
    what = f"remaining budget of {len(groups)} groups, {holders:,} holders, {runs} runs"
    report(what, milliseconds(lambda: remaining_by_group(study), 7))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holders", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    with empty_database():
        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "ipate_web.settings"
        django.setup()
        from django.core.management import call_command
        from django.db import connection

        call_command("migrate", verbosity=0)
        print(f"on {connection.vendor}")
        commit_of_a_batch()
        remaining_per_group(options.holders, options.runs)
        connection.close()


if __name__ == "__main__":
    main()
