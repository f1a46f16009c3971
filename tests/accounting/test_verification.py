"""``manage.py verify_ledger`` finds and names everything that was changed in database or storage without the site."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, models, transaction
from django.test import override_settings

from accounting.accounts import balances, balances_load
from accounting.models import AccountBook, HeadCount, Release, ShareRecord
from accounting.shares import share_grant
from accounting.verification import study_faults
from common.append_only import Chained, chained_models, triggers_remove
from common.artifacts import arrays_load, arrays_save, private_load, private_save
from consent import services
from consent.models import ChainHead, ConsentEvent, ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, Study
from tests.factories import form_publish, policy_approve, study_create, user_create
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, run_ask, vote_batch
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.engine.records import records_load, records_store
from training.methods import neighbours, pate_teachers
from training.methods.pate_teachers import ballot_load, vote_open
from training.models import Batch, Query, Round, Run, StudentModel
from training.services import advance, students
from training.services.drawings import head_counts_draw
from training.verification import batches_with_votes, release_faults

pytestmark = pytest.mark.django_db

QUIET = {"aggregator": {"name": "gnmax", "sigma": 40.0}, "teachers": 4}


@built_once
def study_with_history() -> Study:
    """Return a study with two of every form, policy and approval, a withdrawal, head counts, and a run with votes."""

    # Enough people at each promise for a teacher, for any noise.
    class Enough:
        def rounded_normal(self, scale: float, shape: int) -> np.ndarray:
            return np.full(shape, 10)

    study = study_with_table(holders=12, retain_votes=True)
    form_publish(study, {"en": "# What we ask now\nThe same, in other words."})
    policy_approve(study, 0.9, 1.9, 2.9)
    services.consent_withdraw(holder=study.holders.latest("pk"), acting_user=user_create("olga"))
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=Enough())
    run = run_finish(run_start(study, share=0.5, **TABLE_RUN | QUIET, wanted_labels=8))
    assert run.status == Run.Status.FINISHED, run.message
    return study


@pytest.fixture
def study(db: None) -> Study:
    """Return a study for an intruder who has removed the triggers."""
    study = study_with_history()
    triggers_remove(connection)
    return study


def rows_of(model: type[Chained]) -> models.QuerySet:
    """Return rows that can be changed."""
    return models.QuerySet(model).order_by("sequence")


def tables_with_rows() -> list[type[Chained]]:
    """Return the chained tables that contain rows of the study: at least those of consent and accounts."""
    tables = [model for model in chained_models() if rows_of(model).exists()]
    assert {ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, ConsentEvent, Release, ShareRecord} <= set(tables)
    return tables


def verify(*options: str) -> list[str]:
    """Return the faults that the command reports, after checking its exit status."""
    report = io.StringIO()
    try:
        call_command("verify_ledger", *options, stdout=report)
    except CommandError as error:
        assert error.returncode == 1
        faults = [line.strip() for line in report.getvalue().splitlines() if line[:9].isspace()]
        faults += [line for line in report.getvalue().splitlines() if "no chain contains" in line]
        assert str(error).startswith(f"{len(faults)} fault")
        return faults
    return []


def test_unchanged_records_verify_and_the_report_says_so(study: Study) -> None:
    ballot_load.cache_clear()
    report = io.StringIO()
    call_command("verify_ledger", "--study", study.slug, "--replay", stdout=report)
    text = report.getvalue()
    assert "FAULT" not in text
    assert f"consent events: 13, ending with {ConsentEvent.objects.latest('sequence').hash}" in text
    assert "ok  accounts equal the charges of all releases" in text
    assert "2 batches can be replayed" in text
    with pytest.raises(CommandError, match="no study “nowhere”"):
        call_command("verify_ledger", "--study", "nowhere")


def another(field: models.Field, value: Any) -> Any:
    """Return another value that the column may contain."""
    if field.choices and field.model is not ShareRecord:  # a study that has ended has a row of every kind already
        return next(choice for choice, _ in field.choices if choice != value)
    if isinstance(field, models.JSONField):
        return {"changed": 1}
    match value:
        case None if isinstance(field, models.UUIDField):
            return uuid4()
        case None if isinstance(field, models.FloatField):
            return 0.5
        case None:
            return date(2020, 2, 2) if isinstance(field, models.DateField) else 4711
        case str():
            return ("x" if value[:1] != "x" else "y") + value[1:]
        case datetime():
            return value + timedelta(microseconds=1)
        case date():
            return value + timedelta(days=1)
        case UUID():
            return uuid4()
        case bool():
            return not value
        case float():
            return value * (1 - 1e-12) or 1e-300
    return value + 4711


@contextmanager
def undone() -> Iterator[None]:
    """Undo what happens in this context."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_every_change_to_a_column_of_a_chained_table_is_found(study: Study) -> None:
    for model in tables_with_rows():
        for row in rows_of(model) if model in (Release, ShareRecord) else rows_of(model)[:1]:
            for field in model._meta.concrete_fields:
                if field.primary_key:
                    continue
                with undone():
                    changed = another(field, getattr(row, field.attname))
                    try:
                        with transaction.atomic():
                            rows_of(model).filter(pk=row.pk).update(**{field.attname: changed})
                    except IntegrityError:
                        continue  # the database refuses it
                    faults = list(model.chain_faults(study.pk))
                assert any(fault.startswith(str(model._meta.verbose_name)) for fault in faults), (model, field.name)


def test_every_change_to_a_derived_table_is_found(study: Study) -> None:
    for model in (AccountBook, HeadCount):
        row = model.objects.order_by("pk").last()
        for field in model._meta.concrete_fields:
            if field.name == "id":
                continue
            with undone():
                if field.name == "study":
                    changed: Any = study_create("another").pk
                elif field.name == "release":
                    changed = Release.objects.get(kind="model").pk
                else:
                    changed = another(field, getattr(row, field.attname))
                model.objects.filter(pk=row.pk).update(**{field.attname: changed})
                faults = list(study_faults(study))
            assert faults, (model, field.name)


def test_a_removed_row_is_found_wherever_it_was(study: Study) -> None:
    for model in tables_with_rows():
        for row in (rows_of(model).first(), rows_of(model).last()):
            with undone(), connection.constraint_checks_disabled():
                HeadCount.objects.all().delete()
                rows_of(model).filter(pk=row.pk)._raw_delete("default")
                faults = list(model.chain_faults(study.pk))
                # The row is restored before the end of the transaction, when references are checked.
                models.QuerySet(model).bulk_create([row])
            assert any("missing" in fault or "removed" in fault for fault in faults), row
    for model in (AccountBook, HeadCount):
        with undone():
            model.objects.order_by("pk").last().delete()
            assert list(study_faults(study))


def test_the_head_reveals_a_recomputed_chain(study: Study) -> None:
    previous = rows_of(Release)[0].hash
    for row in rows_of(Release)[1:]:
        row.charge, row.previous_hash = row.charge / 2, previous
        previous = row.computed_hash()
        rows_of(Release).filter(pk=row.pk).update(charge=row.charge, previous_hash=row.previous_hash, hash=previous)
    last = Release.objects.latest("sequence").sequence
    fault = f"release {last}: is not the last row of the chain (its hash differs from the chain's head)."
    assert list(Release.chain_faults(study.pk)) == [fault]
    assert any("above the public charge" in fault for fault in study_faults(study))


def test_a_forged_head_is_never_signed(study: Study) -> None:
    last = rows_of(ShareRecord).last()
    rows_of(ShareRecord).filter(pk=last.pk)._raw_delete("default")
    heads = ChainHead.objects.filter(study=study, chain="accounting.sharerecord")
    heads.update(sequence=last.sequence - 1, hash=rows_of(ShareRecord).last().hash)
    unsigned = "the end of the chain is not signed with this site's secret key."
    assert list(ShareRecord.chain_faults(study.pk)) == [f"share record {last.sequence - 1}: {unsigned}"]
    share_grant(study=study, subject=uuid4(), purpose="run", share=0.01, acting_user=None)
    assert list(ShareRecord.chain_faults(study.pk)) == [f"share record {last.sequence}: {unsigned}"]
    ChainHead.objects.all().delete()
    assert list(ConsentEvent.chain_faults(study.pk)) == [f"consent event 13: {unsigned}"]


def test_signatures_of_a_fallback_key_stay_valid(study: Study, settings: Any) -> None:
    old, new = settings.SECRET_KEY, "n" * 50
    with override_settings(SECRET_KEY=new):
        assert any("not signed" in fault for fault in verify())
    with override_settings(SECRET_KEY=new, SECRET_KEY_FALLBACKS=[old]):
        assert verify() == []


def test_a_hash_noted_outside_proves_that_a_whole_old_state_was_put_back(study: Study) -> None:
    assert verify("--noted", Release.objects.latest("sequence").hash) == []
    assert verify("--noted", "f" * 64) == [
        f"{'f' * 64}: no chain contains this hash, so a chain was shortened or rewritten."
    ]


def rewrite(name: str, **arrays: np.ndarray) -> None:
    """Write other content under the same name."""
    arrays_save(name, **{**arrays_load(name), **arrays})


def charges_name() -> str:
    return Release.objects.filter(kind="labels").earliest("sequence").charges


def spare_one(name: str) -> None:
    """Charge someone less than other records say."""
    spent = arrays_load(name)["spent"]
    spent[0] *= 1 - 1e-6
    rewrite(name, spent=spent)


def book_name() -> str:
    return AccountBook.objects.get().artifact


unsalt = partial(rewrite, salt=np.zeros(32, np.uint8))
FILES: list[tuple[Callable[[], str], Callable[[str], None], str]] = [
    (charges_name, spare_one, "its charge file differs from the recorded one"),
    (charges_name, spare_one, "The accounts do not equal the sum of the charges"),
    (charges_name, spare_one, "charge differs from their group"),
    (charges_name, unsalt, "differs from the recorded one"),
    (charges_name, lambda name: storages["private"].delete(name), "its charge file is missing"),
    (book_name, spare_one, "The account file differs from the recorded one"),
    (book_name, spare_one, "The accounts do not equal the sum of the charges"),
    (book_name, unsalt, "The account file differs"),
    (book_name, lambda name: storages["private"].delete(name), "cannot be checked (FileNotFoundError"),
]


def test_a_file_that_was_changed_is_found(study: Study) -> None:
    for name_of, forge, fault in FILES:
        content = private_load(name := name_of())
        forge(name)
        faults = verify()
        assert any(fault in line for line in faults), (fault, faults)
        private_save(name, ContentFile(content))
    # An intruder in database and storage gives a holder back what they have spent.
    spent = balances_load(book_name())
    digest = arrays_save(book_name(), holder=spent.holders, spent=spent.spent * 0.5, salt=np.zeros(32, np.uint8))
    AccountBook.objects.update(digest=digest)
    assert any("do not equal the sum of the charges" in fault for fault in verify())


def run_update(**fields: Any) -> None:
    Run.objects.update(**fields)


def plan_update(change: Callable[[dict], object]) -> None:
    run = Run.objects.get()
    change(run.plan)
    Run.objects.update(plan=run.plan)


def shares_forge() -> None:
    """Grant all of every cap, twice."""
    rows_of(ShareRecord).filter(kind="settled")._raw_delete("default")
    rows_of(ShareRecord).filter(kind="granted").update(share=1.0)


UNKNOWN = uuid4()

FORGERIES: list[tuple[Callable[[], object], str]] = [
    (lambda: Query.objects.earliest("pk").delete(), "for 4 queries, found 3"),
    (lambda: Query.objects.update(label=None), "for 4 queries, found 0"),
    (
        lambda: Query.objects.filter(row=0).update(label=(Query.objects.get(row=0).label + 1) % 3),
        "differ from the released ones",
    ),
    (lambda: run_update(position=9), "its position or number of labels"),
    (lambda: run_update(spent=[0.0, 0.0, 0.0]), "are not the sum of its releases"),
    (lambda: run_update(share=0.6), "its share differs from the one that was granted"),
    (lambda: run_update(status="asking"), "contradicts the state of its share"),
    (lambda: plan_update(lambda plan: plan["budgets"][0].update(label=1.0)), "differs from the cost of"),
    (lambda: Batch.objects.filter(index=1).delete(), "is missing"),
    (lambda: Batch.objects.filter(index=1).update(start=5), "does not follow the batch before it"),
    (lambda: StudentModel.objects.update(digest="0" * 64), "its student models differ from the register"),
    (lambda: rows_of(Release).filter(run__isnull=False).update(run=UNKNOWN), f"run {UNKNOWN}: has 3 entries"),
    (lambda: rows_of(Release).filter(kind="labels").update(run=None), "without an entry in the register"),
    (lambda: rows_of(ShareRecord).filter(purpose="run")._raw_delete("default"), "was not granted a share"),
    (shares_forge, "add up to 2, which is more than 1"),
    (lambda: rows_of(ShareRecord).filter(kind="opened")._raw_delete("default"), "without an open share"),
    (lambda: rows_of(ShareRecord).filter(kind="settled").update(share=1e-6), "used more than its final share"),
    (lambda: rows_of(ShareRecord).filter(kind="settled").update(share=1e-6), "more than their promise allows"),
    (lambda: rows_of(ConsentEvent).exclude(level="").update(level="HIGH"), "more than their promise allows"),
    (lambda: rows_of(ConsentEvent).filter(sequence=1)._raw_delete("default"), "never consented"),
    (lambda: HeadCount.objects.update(count=99), "head counts differ from the released ones"),
]


@pytest.mark.exhaustive
def test_derived_rows_are_compared_with_the_chains(study: Study) -> None:
    for forge, fault in FORGERIES:
        with undone():
            forge()
            faults = verify()
        assert any(fault in line for line in faults), (fault, faults)


def test_charges_that_the_assignment_does_not_explain_are_found_by_the_replay(study: Study) -> None:
    assignment = Run.objects.get().assignment
    arrays = arrays_load(assignment)
    for forged, fault in (
        ({"holder": np.where(arrays["holder"] == arrays["holder"][0], 10**6, arrays["holder"])}, "was not charged to"),
        ({"group": (arrays["group"] + 1) % 3}, "differ from its cost"),
    ):
        rewrite(assignment, **arrays | forged)
        ballot_load.cache_clear()
        assert any(fault in line for line in verify("--replay"))
    ballot_load.cache_clear()


@pytest.mark.exhaustive
def test_runs_that_ended_before_votes_were_kept_are_not_replayed() -> None:
    study = study_with_table(holders=9)
    run = run_ask(run_start(study, share=0.5, **ASKING_RUN))
    study = services.study_update(study=study, retain_votes=True)
    later = run_ask(run_start(study, share=0.5, **ASKING_RUN))
    assert {run.status, later.status} == {Run.Status.FINISHED}
    assert verify("--replay") == []
    assert {batch.run_id for batch in batches_with_votes(study)} == {later.pk}


def round_update(**fields: Any) -> None:
    Round.objects.filter(index=1).update(**fields)


def first_round() -> Round:
    return Round.objects.get(index=0)


# Not covered without --replay: Batch.attempt, the name of a file that only a replay reads. Not covered at all: when a
# round was opened, and an operator's statement of where public data come from (Dataset.provenance).
ASKED_FORGERIES: list[tuple[Callable[[], object], str]] = [
    (lambda: Query.objects.filter(row=3).update(counts=[1, 2, 3]), "differ from the released ones"),
    (lambda: Query.objects.filter(row=3).update(counts=None), "cannot be checked"),
    (lambda: run_update(method="pate"), "cannot be checked"),
    (lambda: Round.objects.filter(index=0).update(sigma=90.0), "differs from its plan"),
    (lambda: Round.objects.filter(index=0).update(sigma=90.0), "its public charge does not match"),
    (lambda: plan_update(lambda plan: plan["budgets"][0].update(allowed=1e-6)), "its public charge does not match"),
    (lambda: round_update(index=2), "differs from its plan"),
    (lambda: round_update(artifact=first_round().artifact), "asked about points that do not belong to its round"),
    (lambda: round_update(size=99), "the description of its round differs"),
    (
        lambda: round_update(representation={"template": "Another", "values": {"count": 9}}),
        "the description of its round differs",
    ),
    (lambda: round_update(position=1), "ends after the last position of its round"),
    (
        lambda: Batch.objects.filter(index=1).update(round=first_round()),
        "asked about points that do not belong to its round",
    ),
    (lambda: Batch.objects.filter(index=1).update(round=None), "does not belong to a round of its run"),
]


def test_questions_and_answers_match_the_register() -> None:
    study = study_with_table(holders=9, retain_votes=True)
    body = {"choices": {"sigma": 10.0, "radius_share": 0.3, "rounds": 2, "first_queries": 4}, "batch_size": 6}
    run = run_finish(run_start(study, share=0.5, **ASKING_RUN | body))
    assert run.status == Run.Status.FINISHED, run.message
    triggers_remove(connection)
    assert verify("--replay") == []
    for forge, fault in ASKED_FORGERIES:
        with undone():
            forge()
            neighbours._question.cache_clear()
            faults = verify()
        neighbours._question.cache_clear()
        assert any(fault in line for line in faults), (fault, faults)

    batch, release = Batch.objects.get(index=0), Release.objects.get(batch=0)
    artifact, records = run.private_dataset.artifact, records_load(run.private_dataset)
    content = private_load(artifact)
    records_store(records | {"x": records["x"][::-1].copy()}, artifact=artifact)
    assert any("differ from its cost" in fault for fault in verify("--replay"))
    private_save(artifact, ContentFile(content))
    with undone():
        Batch.objects.filter(index=0).update(attempt="runs/nowhere.npz")
        assert any("cannot be checked" in fault for fault in verify("--replay"))
    question = first_round().artifact
    radii = arrays_load(question)["radii"]
    rewrite(question, radii=radii + 1)
    neighbours._question.cache_clear()
    assert any("the released question differs" in fault for fault in verify())
    rewrite(question, radii=radii)
    neighbours._question.cache_clear()
    charges, attempt = arrays_load(release.charges), arrays_load(batch.attempt)
    rewrite(batch.attempt, holder=attempt["holder"] + 1)
    assert any("not charged to the people who were asked" in fault for fault in verify("--replay"))
    rewrite(batch.attempt, holder=attempt["holder"], spent=attempt["limit"])
    assert any("differ from its cost" in fault for fault in verify("--replay"))
    rewrite(batch.attempt, spent=attempt["spent"])
    rewrite(release.charges, spent=charges["spent"] * 0.5)
    faults = verify("--replay")
    assert any("its charge file differs from the recorded one" in fault for fault in faults)
    assert any("differ from its cost" in fault for fault in faults)


@pytest.mark.exhaustive
def test_a_run_verifies_at_every_stage() -> None:
    study = study_with_table(holders=12)
    run = run_start(study, share=0.5, **TABLE_RUN)
    steps = [
        lambda: pate_teachers.run_prepare(run),
        lambda: [advance.chunk_train(chunk.pk) for chunk in run.chunks.all()],
        lambda: vote_open(run),
        *[lambda: vote_batch(Run.objects.get(pk=run.pk))] * 4,
        lambda: students.student_train(Run.objects.get(pk=run.pk)),
    ]
    for step in steps:
        step()
        assert list(study_faults(study)) == []
        assert list(release_faults(Run.objects.get(pk=run.pk))) == []
    assert Run.objects.get(pk=run.pk).status == Run.Status.FINISHED
    assert len(balances(study).holders) == 12
