"""Small studies and runs, with some of the digits that scikit-learn ships or a table that any learner can read."""

from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from accounting.accounts import charges_of
from accounting.models import Release
from accounting.verification import study_faults
from consent import services
from consent.models import Answerer, ConsentEvent, ConsentForm, Level, Role, Study
from consent.people.circumstances import day_of, renew_by
from consent.people.counts import holders_per_level
from consent.selectors import policy_in_force
from learning.formats import Rows, Splits, TabularSchema, catalogue_load
from learning.formats.columns import NumericColumn
from learning.mechanisms.pate.teachers import Teachers
from learning.mechanisms.protocol import PlanError
from tests.factories import consent_choose, study_create, study_open, user_create
from tests.snapshots import built_once
from tests.training.asking import asking_of, shards_ask
from training.methods import pate_teachers
from training.models import Dataset, Run
from training.services import approvals
from training.services.advance import chunk_train, run_advance
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_enter
from training.services.runs import run_propose

#: Two measurements, the first of which determines the class.
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
    """Import private, public and test digits into ``study``, and return the datasets by kind."""
    splits = digits()
    rows = {"private": splits.private, "public": splits.public, "test": splits.test}
    importing = partial(dataset_import, study=study, schema=splits.schema)
    return {kind: importing(name=kind, kind=kind, rows=part) for kind, part in rows.items()}


def consents_give(study: Study, levels: str = "HHHAAAALLL") -> None:
    """Let every registered holder consent, repeating ``levels``: H, A, L, or - for no decision."""
    names = {"H": "HIGH", "A": "AVERAGE", "L": "LOW"}
    form = ConsentForm.objects.filter(study=study).latest("version")
    holders = enumerate(study.holders.order_by("pk"))
    chosen = [(holder, names[letter]) for place, holder in holders if (letter := levels[place % len(levels)]) in names]
    if ConsentEvent.objects.filter(study=study).exists() or any(holder.user_id for holder, _level in chosen):
        for holder, level in chosen:
            consent_choose(holder=holder, level=level, form=form)
        return
    # Equivalent to the services' first decisions of people without an account or address, but in one statement.
    policy = policy_in_force(study)
    with transaction.atomic():
        services.study_lock(study.pk)
        ConsentEvent.append(
            ConsentEvent(
                study=study,
                holder=holder,
                kind=ConsentEvent.Kind.GIVEN,
                level=level,
                form=form,
                policy=policy,
                answered_by=Answerer.PERSON,
                renew_by=renew_by(form, day_of(now := timezone.now())),
                recorded_at=now,
            )
            for holder, level in chosen
        )


@built_once
def study_with_consents(slug: str = "digits", holders: int = 9, levels: str = "HAL", **fields: Any) -> Study:
    """Return a study without data whose holders, P-0 and so on, have consented."""
    study = study_open(slug, **fields)
    services.holders_register(study=study, pseudonyms=[f"P-{number}" for number in range(holders)])
    consents_give(study, levels)
    return study


@built_once
def study_with_data(slug: str = "digits", levels: str = "HHHAAAALLL", **fields: Any) -> Study:
    """Return a study with three datasets whose holders have consented."""
    study = study_open(slug, **{"delta": 1e-4, **fields})
    datasets_import(study)
    consents_give(study, levels)
    head_counts_state(study)
    return study


def head_counts_state(study: Study) -> None:
    """Enter the number of people who consented at each level as public; plans are based on these numbers."""
    counted = holders_per_level(study)
    head_counts_enter(
        study=study, acting_user=user_create("olga"), counts={level: counted[level] for level in Level.values}
    )


def table_rows(number: int, holders: list[str] | None = None) -> Rows:
    """Return ``number`` records of ``TABLE``, with the classes in turn; always the same ones."""
    classes = np.arange(number) % 3
    rng = np.random.default_rng(number)
    x = np.column_stack([0.1 + 0.4 * classes + rng.uniform(-0.05, 0.05, number), rng.uniform(0, 1, number)])
    return Rows(x.astype(np.float32), classes.astype(np.int64), holders)


def study_fill(study: Study, parts: dict[str, Rows], *, schema: Any = TABLE, levels: str = "L") -> Study:
    """Import datasets by their kind, let their holders consent, and return the study."""
    for kind, rows in parts.items():
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=schema)
    consents_give(study, levels)
    head_counts_state(study)
    return study


@built_once
def study_with_table(
    slug: str = "table", *, levels: str = "HAL", holders: int = 30, records: int = 1, points: int = 12, **fields: Any
) -> Study:
    """Return a small study on ``TABLE`` whose holders own ``records`` records each; ``levels`` repeat."""
    study = study_open(slug, **{"delta": 1e-4, **fields})
    owners = [f"p-{place % holders:03}" for place in range(holders * records)]
    parts = {"private": table_rows(len(owners), owners), "public": table_rows(points), "test": table_rows(21)}
    return study_fill(study, parts, levels=levels)


@built_once
def rehearsal_with_table(slug: str = "rehearsal", *, holders: int = 30, points: int = 12) -> Study:
    """Return a rehearsal study on ``TABLE``, in which no one is asked and each owner has one record."""
    study = study_create(slug, delta=1e-4, rehearsal=True)
    owners = [f"p-{place:03}" for place in range(holders)]
    parts = {"private": table_rows(holders, owners), "public": table_rows(points), "test": table_rows(21)}
    for kind, rows in parts.items():
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
    return study


#: For run_draft and similar functions: a run on ``TABLE`` whose costs are easy to work out.
TABLE_RUN: dict[str, Any] = {"learner_parameters": {}, "aggregator": {"name": "gnmax", "sigma": 10.0}}
TABLE_RUN |= {"teachers": 6, "batch_size": 4}


def run_draft(study: Study, *, proposer: User | None = None, **fields: Any) -> Run:
    """Return a draft on the study's datasets, by default proposed by the operator ``otto``; ``fields`` override it.

    Choices about teachers can be given by name. ``olga``, who created the study, can approve the draft, because nobody
    may approve their own proposal.
    """
    otto = user_create("otto")
    services.membership_add(study=study, user=otto, role=Role.OPERATOR, acting_user=None)
    datasets = {dataset.kind: dataset for dataset in Dataset.objects.filter(study=study)}
    public = datasets.get("public")
    defaults: dict[str, Any] = {
        "title": "A small run",
        "private_dataset": datasets.get("private"),
        "public_dataset": public,
        "test_dataset": datasets.get("test"),
        "learner": "nearest_neighbour",
        "learner_parameters": {"copies": 2} if public is not None and public.schema["kind"] == "image" else {},
        "student_learner": "nearest_neighbour",
        "aggregator": {"name": "confident_gnmax", "sigma": 20.0, "sigma_threshold": 30.0, "threshold": 8.0},
        "teachers": 20,
        "batch_size": 5,
    }
    return run_propose(study=study, acting_user=proposer or otto, **teachers_chosen(defaults | fields))


def teachers_chosen(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a run with the choices about teachers moved to ``choices``, or removed for other methods."""
    names = {choice.name for choice in Teachers.described()}
    teachers = {name: value for name, value in fields.items() if name in names}
    chosen = {name: value for name, value in fields.items() if name not in names}
    if fields.get("method", Run.Method.PATE) == Run.Method.PATE:
        chosen["choices"] = teachers | chosen.get("choices", {})
    return chosen


def run_planned(run: Run) -> Run:
    """Do the work of a worker until an approval is carried out. Raises PlanError if it fails."""
    if run.status == Run.Status.PLANNING:
        approvals.run_plan(run)
        run.refresh_from_db()
        if run.status == Run.Status.DRAFT:
            raise PlanError(run.message)
    return run


def run_approve(*, run: Run, acting_user: Any, **given: Any) -> Run:
    """Approve a run as a user who becomes an operator if necessary, and let a worker plan it."""
    approved = approvals.run_approve(run=run, acting_user=acting_user, **given)
    if not acting_user.has_perm("training.approve_run", run.study):
        services.membership_add(study=run.study, user=acting_user, role=Role.OPERATOR, acting_user=None)
    return run_planned(approved)


def run_start(study: Study, *, share: float = 1.0, **fields: Any) -> Run:
    """Return a run approved by ``olga`` that no worker has picked up; it may use ``share`` of every cap."""
    return run_approve(run=run_draft(study, **fields), acting_user=user_create("olga"), share=share)


def run_like(study: Study, recipe: dict[str, Any], *, share: float = 0.5, **fields: Any) -> Run:
    """Return an approved run of a recipe such as `ASKING_RUN`; ``choices`` are added to the recipe's."""
    chosen = recipe["choices"] | fields.pop("choices", {})
    return run_start(study, share=share, **recipe | fields | {"choices": chosen})


def run_begun(run: Run) -> Run:
    """Return the same run with its first round open, before anyone is asked."""
    assert asking_of(run).open(run)
    run.refresh_from_db()
    return run


def run_prepared(run: Run) -> Run:
    """Do the work of workers until the run's people are assigned to its teachers."""
    pate_teachers.run_prepare(run)
    run.refresh_from_db()
    return run


#: Number of chunks of a run's teachers in tests. A chunk's fixed cost exceeds that of its teachers.
CHUNKS = 3


def run_teach(run: Run) -> Run:
    """Do the work of workers up to the last teacher; the vote has not begun."""
    with patch.object(pate_teachers, "CHUNKS", CHUNKS):
        run_advance(run.pk)
    for chunk in run.chunks.exclude(state="done"):
        chunk_train(chunk.pk)
    run.refresh_from_db()
    return run


def run_finish(run: Run) -> Run:
    """Do the work of workers, step by step, until the run ends or waits."""
    before: tuple = ()
    while (now := (run.status, run.batches.count(), run.shards.filter(state="done").count())) != before:
        before = now
        run = shards_ask(run_teach(run))
    run_advance(run.pk)
    run.refresh_from_db()
    return run


def assert_labels_and_register_agree(run: Run) -> None:
    """Check that every query appears once, and that every batch is released and charged once, to each teacher's people.

    Each of them is charged what their group owes.
    """
    assert sorted(run.queries.values_list("row", flat=True)) == list(range(run.position))
    assert run.queries.filter(label__isnull=False).count() == run.labels
    releases = list(Release.objects.filter(run=run.pk, kind=Release.Kind.LABELS).order_by("batch"))
    assert [release.batch for release in releases] == list(range(run.batches.count()))
    assert sum(release.content["queries"] for release in releases) == run.position
    assert sum(release.content["labels"] for release in releases) == run.labels
    np.testing.assert_allclose(run.spent, np.sum([release.content["charges"] for release in releases], axis=0))
    for release in releases:
        assert set(charges_of(release).spent.tolist()) <= set(release.content["charges"])
    assert list(study_faults(run.study)) == []
