"""Small real studies and runs: a few hundred of the digits that scikit-learn ships."""

from functools import cache
from typing import Any

from consent import services
from consent.models import ConsentForm, DataHolder, Study
from tests.factories import study_open, user_create
from training.formats import Splits, catalogue_load
from training.models import Dataset, Run
from training.services.datasets import dataset_import
from training.services.lifecycle import chunk_train, run_advance, run_approve, run_propose

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


def run_start(study: Study, **fields: Any) -> Run:
    """An approved run that no worker has picked up."""
    return run_approve(run=run_draft(study, **fields), acting_user=user_create("olga"))


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
