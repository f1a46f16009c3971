"""Approvals of runs in a study with many holders: cost of the request, and of the worker's part afterwards.

    python benchmarks/approvals.py [--holders 1000000]

Uses a separate test database on the server of DATABASE_URL, which is removed afterwards; without it, SQLite.
"""

from functools import partial
from io import StringIO
from typing import Any

from consent_scale import database, head_print, holders_count, holders_import, list_write, measure

TEACHERS, POINTS = 250, 300


def main() -> None:
    holders = holders_count(__doc__)
    with database() as folder:
        from django.core.management import call_command

        from tests import factories
        from tests.training.asking import ASKING_RUN
        from tests.training.runs import TABLE, TABLE_RUN, head_counts_state, run_draft, table_rows
        from training.models import Run
        from training.services.advance import step_of
        from training.services.approvals import run_approve, run_plan
        from training.services.datasets import dataset_import
        from training.services.runs import run_cancel

        head_print(f"{holders:,} holders, {TEACHERS} teachers")
        study = factories.study_open("scale", delta=1e-9)
        holders_import(study, holders)
        path = list_write(folder, holders)
        call_command("import_paper_consents", "scale", path, scans=folder, by="olga", stdout=StringIO())
        own = table_rows(holders, [f"P-{n:07}" for n in range(holders)])
        for kind, rows in (("private", own), ("public", table_rows(POINTS)), ("test", table_rows(21))):
            dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
        head_counts_state(study)
        olga = factories.user_create("olga")
        votes = TABLE_RUN | {"teachers": TEACHERS, "aggregator": {"name": "gnmax", "sigma": 100.0}}

        def go_on(run: Run) -> None:
            """Carry out the run's steps until the teachers can be trained."""
            while run.status not in (Run.Status.PREPARING, Run.Status.FAILED):
                step: Any = step_of(run)
                step(run)
                run.refresh_from_db()

        for name, fields in (
            ("teachers vote", votes),
            ("teachers vote, upsampling", votes | {"variant": "upsampling"}),
            ("every holder votes", ASKING_RUN),
        ):
            run = run_draft(study, **fields)
            run = measure(f"{name}: approval", partial(run_approve, run=run, acting_user=olga, share=0.1))
            measure(f"{name}: plan", partial(run_plan, run))
            run.refresh_from_db()
            if run.method == Run.Method.PATE:
                measure(f"{name}: worker", partial(go_on, run))
            run_cancel(run=run, acting_user=olga)


if __name__ == "__main__":
    main()
