"""Many studies on one site, with very many holders in total: pages, a plan, and a commit of accounts in one of them.

    DATABASE_URL=postgres://… python -m benchmarks.many_studies [--studies 10] [--holders 1000000] [--repeat 5]

Works in a separate database next to the one of DATABASE_URL. It writes the holders and their decisions straight into
the tables, evenly across the studies, and requests each page of the last study in this process, as gunicorn would. It
prints wall-clock and processor seconds: for the first request, and medians of the following ones.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.databases import empty_database
from benchmarks.ledger_speed import charges_commit, holders_copy
from benchmarks.web_study import site_set_up


def timed(what: str, work: Callable[[], Any], repeat: int) -> None:
    """Print the duration of the first call, and the medians of the following ones."""
    wall, own = [], []
    for _ in range(repeat + 1):
        began, used = time.monotonic(), time.process_time()
        work()
        wall.append(time.monotonic() - began)
        own.append(time.process_time() - used)
    later = f"then {statistics.median(wall[1:]):7.3f} ({statistics.median(own[1:]):.3f})" if repeat else ""
    print(f"  {what:<40} first {wall[0]:7.3f} ({own[0]:.3f}), {later} load {os.getloadavg()[0]:.0f}", flush=True)


def measure(studies: int, holders: int, repeat: int) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    from consent.models import ConsentEvent, Role
    from consent.selectors import consent_snapshot
    from consent.services import membership_add
    from tests.factories import holder_create, user_create
    from tests.training.asking import ASKING_RUN
    from tests.training.runs import run_draft, study_with_table

    begun = time.monotonic()
    for number in range(studies):
        study = study_with_table(f"study-{number}")
        holders_copy(ConsentEvent.objects.filter(study=study).latest("sequence"), holders // studies)
    print(f"{studies} studies, {holders:,} holders, built in {time.monotonic() - begun:.0f} s", flush=True)
    olga = User.objects.get(username="olga")
    membership_add(study=study, user=olga, role=Role.STEWARD, acting_user=None)
    holder_create(study, "hanna", user=user_create("hanna"))
    draft = run_draft(study, **ASKING_RUN)
    staff, holder = Client(SERVER_NAME="localhost"), Client(SERVER_NAME="localhost")
    staff.force_login(olga)
    holder.force_login(User.objects.get(username="hanna"))
    root = f"/studies/{study.slug}/"

    def page(client: Client, address: str) -> Callable[[], None]:
        def ask() -> None:
            assert client.get(address).status_code == 200, address

        return ask

    for what, client, address in (
        ("home of staff", staff, "/"),
        ("overview of a study", staff, root),
        ("recruitment", staff, f"{root}recruitment/"),
        ("plan of a run, as an approval asks for", staff, f"/api/v1/runs/{draft.pk}/plan"),
        ("a holder's page", holder, f"/my/{study.slug}/"),
        ("a holder's choice", holder, f"/my/{study.slug}/choice/"),
    ):
        timed(what, page(client, address), repeat)
    timed("snapshot of who takes part", lambda: consent_snapshot(study), repeat)
    everyone = consent_snapshot(study).holders
    timed(f"commit of {len(everyone):,} accounts", charges_commit(study, everyone), repeat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--holders", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ipate-studies-") as folder, empty_database(folder):
        site_set_up()
        from django.db import connection

        print(f"on {connection.vendor}, load {os.getloadavg()[0]:.1f}")
        measure(options.studies, options.holders, options.repeat)
        connection.close()


if __name__ == "__main__":
    main()
