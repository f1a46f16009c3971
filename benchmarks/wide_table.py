"""Cost of one run of gradient steps on 100,000 people with 50 columns, stage by stage.

    python benchmarks/wide_table.py [--holders 100000] [--columns 50] [--steps 60]

Uses a separate test database on the server of DATABASE_URL, which is removed afterwards; without it, SQLite. One
process does the work of the pages and the worker, so its processor time is that of the whole run.
"""

import argparse
from functools import partial
from io import StringIO

import numpy as np
from consent_scale import database, head_print, holders_import, list_write, measure

PUBLIC = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("holders", 100_000), ("columns", 50), ("steps", 60)):
        parser.add_argument(f"--{name}", type=int, default=number)
    given = parser.parse_args()
    with database() as folder:
        from django.core.management import call_command

        from learning.formats import Rows, TabularSchema
        from learning.formats.columns import NumericColumn
        from tests import factories
        from tests.training.asking import EVERYBODY, run_ask
        from tests.training.runs import head_counts_state, run_draft
        from training.models import Run
        from training.services.approvals import run_approve, run_plan
        from training.services.datasets import dataset_import
        from training.verification import release_faults

        head_print(f"{given.holders:,} holders, {given.columns} columns, {given.steps} steps")
        rng = np.random.default_rng(1)
        weights = rng.normal(size=given.columns)
        schema = TabularSchema(tuple(NumericColumn(f"c{n}", -4, 4) for n in range(given.columns)), ("no", "yes"))

        def rows(number: int, owners: list[str] | None = None) -> Rows:
            x = rng.normal(size=(number, given.columns)).clip(-4, 4).astype(np.float32)
            return Rows(x, (x @ weights + rng.logistic(size=number) > 0).astype(np.int64), owners)

        study = factories.study_open("wide", delta=1e-6)
        holders_import(study, given.holders)
        path = list_write(folder, given.holders)
        call_command("import_paper_consents", "wide", path, scans=folder, by="olga", stdout=StringIO())
        own = rows(given.holders, [f"P-{n:07}" for n in range(given.holders)])
        for kind, some in (("private", own), ("public", rows(PUBLIC)), ("test", rows(PUBLIC))):
            measure(
                f"import of {kind} rows",
                partial(dataset_import, study=study, name=kind, kind=kind, rows=some, schema=schema),
            )
        head_counts_state(study)
        olga = factories.user_create("olga")
        choices = {"method": Run.Method.SGD, "choices": {"steps": given.steps}}
        run = run_draft(study, **EVERYBODY | choices)
        run = measure("approval", partial(run_approve, run=run, acting_user=olga, share=0.5))
        measure("plan", partial(run_plan, run))
        run = measure("steps and model", partial(run_ask, run))
        assert run.status == Run.Status.FINISHED and run.student is not None, run.message
        faults = measure("verification of the release", lambda: list(release_faults(run)))
        assert not faults, faults
        print(f"{run.batches.count()} batches; {run.student.accuracy:.4f} right")


if __name__ == "__main__":
    main()
