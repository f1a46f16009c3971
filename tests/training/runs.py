"""Small studies and runs: some of the digits that scikit-learn ships, or a table that any learner can read."""

from functools import cache
from typing import Any

import numpy as np

from accounting.models import LedgerEntry
from consent import services
from consent.models import ConsentForm, DataHolder, Study
from tests.factories import study_open, user_create
from training.ballot import batch_cost
from training.formats import Rows, Splits, TabularSchema, catalogue_load
from training.formats.columns import NumericColumn
from training.models import Dataset, Run
from training.services.datasets import dataset_import
from training.services.lifecycle import chunk_train, run_advance, run_approve, run_propose

#: Two measurements, of which the first tells the class.
TABLE = TabularSchema((NumericColumn("length", 0, 1), NumericColumn("width", 0, 1)), ("a", "b", "c"))
HOLDERS = 260
POINTS = 40


@cache
def digits() -> Splits:
    splits = catalogue_load("digits")
    return Splits(
        private=splits.private[:HOLDERS], public=splits.public[:POINTS], test=splits.test[:60], schema=splits.schema
    )


def datasets_import(study: Study) -> dict[str, Dataset]:
    """Private, public and test digits of ``study``, by kind."""
    splits = digits()
    rows = {"private": splits.private, "public": splits.public, "test": splits.test}
    return {
        kind: dataset_import(study=study, name=kind, kind=kind, rows=part, schema=splits.schema)
        for kind, part in rows.items()
    }


def consents_give(study: Study, levels: str = "HHHAAAALLL") -> None:
    """Every registered holder consents; ``levels`` are repeated: H, A, L, or - for no decision."""
    names = {"H": "HIGH", "A": "AVERAGE", "L": "LOW"}
    form = ConsentForm.objects.filter(study=study).latest("version")
    for place, holder in enumerate(DataHolder.objects.filter(study=study).order_by("pk")):
        letter = levels[place % len(levels)]
        if letter in names:
            services.consent_give(holder=holder, level=names[letter], form=form, acting_user=None)


def study_with_data(slug: str = "digits", levels: str = "HHHAAAALLL", **fields: Any) -> Study:
    """A study whose holders have consented, with its three datasets."""
    study = study_open(slug, **{"delta": 1e-4, **fields})
    datasets_import(study)
    consents_give(study, levels)
    return study


def table_rows(number: int, holders: list[str] | None = None) -> Rows:
    """``number`` records of ``TABLE``, the classes in turn; always the same."""
    classes = np.arange(number) % 3
    rng = np.random.default_rng(number)
    x = np.column_stack([0.1 + 0.4 * classes + rng.uniform(-0.05, 0.05, number), rng.uniform(0, 1, number)])
    return Rows(x.astype(np.float32), classes.astype(np.int64), holders)


def study_with_table(
    slug: str = "table", *, levels: str = "HAL", holders: int = 30, records: int = 1, points: int = 12, **fields: Any
) -> Study:
    """A small study on ``TABLE``: each holder owns ``records`` records and has consented as ``levels`` says in turn."""
    study = study_open(slug, **{"delta": 1e-4, **fields})
    owners = [f"p-{place % holders:03}" for place in range(holders * records)]
    for kind, rows in (
        ("private", table_rows(len(owners), owners)),
        ("public", table_rows(points)),
        ("test", table_rows(21)),
    ):
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
    consents_give(study, levels)
    return study


#: For run_draft and the like: a run on ``TABLE`` whose costs anybody can work out.
TABLE_RUN: dict[str, Any] = {
    "learner_parameters": {},
    "aggregator": {"name": "gnmax", "sigma": 10.0},
    "teachers": 6,
    "batch_size": 4,
    "method": Run.Method.DATA_INDEPENDENT,
}


def run_draft(study: Study, **fields: Any) -> Run:
    """A draft on the study's datasets; ``fields`` override the defaults."""
    datasets = {dataset.kind: dataset for dataset in Dataset.objects.filter(study=study)}
    defaults: dict[str, Any] = {
        "title": "A small run",
        "private_dataset": datasets.get("private"),
        "public_dataset": datasets.get("public"),
        "test_dataset": datasets.get("test"),
        "learner": "nearest_neighbour",
        "learner_parameters": {"copies": 2},
        "student_learner": "nearest_neighbour",
        "aggregator": {"name": "confident_gnmax", "sigma": 4.0, "sigma_threshold": 8.0, "threshold": 8.0},
        "teachers": 20,
        "batch_size": 5,
        "method": Run.Method.DATA_DEPENDENT,
    }
    return run_propose(study=study, acting_user=user_create("olga"), **{**defaults, **fields})


def run_start(study: Study, *, share: float = 1.0, **fields: Any) -> Run:
    """An approved run that no worker has picked up; it may spend ``share`` of what is left."""
    return run_approve(run=run_draft(study, **fields), acting_user=user_create("olga"), share=share)


def run_teach(run: Run) -> Run:
    """Do what workers would up to the last teacher; the vote has not begun."""
    run_advance(run.pk)
    for chunk in run.chunks.all():
        chunk_train(chunk.pk)
    run.refresh_from_db()
    return run


def run_finish(run: Run) -> Run:
    """Do what workers would, one step after the other, until the run ends or waits."""
    before = None
    while run.status != before:
        before = run.status
        run = run_teach(run)
    run_advance(run.pk)
    run.refresh_from_db()
    return run


def assert_labels_and_ledger_agree(run: Run) -> None:
    """Every query once, every batch charged once to every group, and every charge what the votes cost."""
    assert sorted(run.queries.values_list("row", flat=True)) == list(range(run.position))
    assert run.queries.filter(label__isnull=False).count() == run.labels
    assert list(LedgerEntry.chain_faults(run.study_id)) == []
    costs = [batch_cost(batch) for batch in run.batches.all()]
    for group in run.account.groups.all():
        entries = list(LedgerEntry.objects.filter(group=group).order_by("batch"))
        assert [entry.batch for entry in entries] == list(range(run.batches.count()))
        assert sum(entry.queries for entry in entries) == run.position
        assert sum(entry.labels for entry in entries) == run.labels
        np.testing.assert_allclose(group.spent_rdp, np.sum([entry.rdp for entry in entries], axis=0), rtol=1e-12)
        for entry in entries:
            np.testing.assert_allclose(entry.rdp, costs[entry.batch][group.index], rtol=1e-12)
