"""Stored records are erased when their holder requests it or after their last day; accounts are kept."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks as Commits

from accounting.accounts import balances
from accounting.verification import Check
from common.artifacts import arrays_load, arrays_save
from consent import services
from consent.models import AfterWithdrawal, ConsentEvent, ConsentForm, DataHolder, Disposal, Invitation, Mail, Study
from consent.people.pseudonyms import holder_by_pseudonym
from consent.services.erasures import erasure_ask, erasure_state
from consent.services.invitations import invitations_create
from consent.services.paper import PaperConsent, paper_consents_record, scan_load
from learning.formats import DataError, Rows
from tests.factories import consent_choose, form_publish, user_create
from tests.pages import as_, text
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, run_ask, vote_batch
from tests.training.people import HOLDERS, small_study
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    run_draft,
    run_finish,
    run_start,
    run_teach,
    study_with_table,
    table_rows,
)
from training.engine.asking import are_shards_done
from training.engine.records import owners_of, records_load
from training.methods.pate_teachers import predictions_load, vote_open
from training.models import Dataset, Run
from training.services import erasures
from training.services.advance import run_advance
from training.services.datasets import dataset_import
from training.services.erasures import records_erase
from training.services.runs import run_withdraw
from training.services.students import student_ask
from training.verification import batches_with_votes, checks_of, erasure_faults, record_faults, replay_faults

pytestmark = pytest.mark.django_db

SCAN = b"%PDF-1.7 a letter"


@pytest.fixture(autouse=True)
def _no_scans_of_other_tests() -> None:
    """Delete other tests' scans: studies of different tests have the same ids, and files outlive a test's database."""
    shutil.rmtree(settings.PRIVATE_DIR / "evidence", ignore_errors=True)


def holder_of(study: Study, pseudonym: str = "p-001") -> DataHolder:
    return DataHolder.objects.get(study=study, pseudonym=pseudonym)


def private(study: Study) -> Dataset:
    return Dataset.objects.get(study=study, kind=Dataset.Kind.PRIVATE, removed_at=None)


def files(folder: str = "") -> set[str]:
    """Return every file in private storage under ``folder``."""
    root = settings.PRIVATE_DIR
    return {str(path.relative_to(root)) for path in (root / folder).rglob("*") if path.is_file()}


def scan_add(study: Study, pseudonym: str, level: str = "HIGH") -> str:
    """Record the first decision of a holder on paper with a scan, and return the scan's digest."""
    row = PaperConsent(1, pseudonym, level, 1, timezone.now().date(), "letter.pdf")
    paper_consents_record(study=study, consents=[row], scans={"letter.pdf": SCAN}, acting_user=user_create("steward"))
    return ConsentEvent.objects.get(holder__study=study, holder__pseudonym=pseudonym).evidence


def withdraw(holder: DataHolder, commits: Commits, *, keep: bool = False) -> None:
    """Withdraw, and run the tasks that this sends."""
    with commits(execute=True):
        services.consent_withdraw(holder=holder, acting_user=None, keep=keep)
    with commits(execute=True):
        records_erase(holder.study_id)


def faults(study: Study) -> list[str]:
    checks = [Check("replay", partial(replay_faults, batch)) for batch in batches_with_votes(study)]
    return [fault for check in [*checks_of(study), *checks] for fault in check.faults()]


def test_a_withdrawal_erases_rows_scans_and_name_and_leaves_the_account(django_capture_on_commit_callbacks) -> None:
    study = small_study(after_withdrawal=AfterWithdrawal.ERASED, levels="-AL")
    digest = scan_add(study, "p-000")
    run = run_ask(run_start(study, **ASKING_RUN))
    assert run.status == Run.Status.FINISHED, run.message
    holder, dataset = holder_of(study, "p-000"), private(study)
    before, account = dataset.artifact, balances(study)
    others = dict(zip(*_owned(dataset), strict=True))
    assert scan_load(study, digest) and "p-000" in everything_stored() and before in files()

    withdraw(holder, django_capture_on_commit_callbacks)

    assert len(records_load(dataset)["y"]) == HOLDERS - 1, "a worker that knows the old file reads the new one"
    dataset.refresh_from_db()
    holder.refresh_from_db()
    assert before not in files() and dataset.artifact in files()
    assert holder.pk not in owners_of(dataset) and (dataset.rows, dataset.holders) == (HOLDERS - 1, HOLDERS - 1)
    left = dict(zip(*_owned(dataset), strict=True))
    assert left == {owner: row for owner, row in others.items() if owner != holder.pk}
    assert scan_load(study, digest) is None and "p-000" not in everything_stored()
    assert holder_by_pseudonym(study, "p-000") == holder
    assert balances(study).of(np.array([holder.pk])) == account.of(np.array([holder.pk])) > 0
    done = Disposal.objects.filter(study=study).order_by("sequence")
    assert [(row.kind, row.holder_id) for row in done] == [("asked", holder.pk), ("erased", holder.pk)]
    assert (done[1].rows, done[1].files) == (1, 1)
    assert erasure_state(holder).done_at
    assert faults(study) == []


def everything_stored() -> str:
    """Return every value of every table, as text."""
    with connection.cursor() as cursor:
        stored = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            stored += [str(value) for row in cursor.fetchall() for value in row]
    return "\n".join(stored)


def _owned(dataset: Dataset) -> tuple[list[int], list[tuple[float, ...]]]:
    arrays = records_load(dataset)
    return arrays["holder"].tolist(), [tuple(row) for row in arrays["x"].tolist()]


def test_holder_decides_on_erasure_and_a_new_consent_keeps_what_is_left(django_capture_on_commit_callbacks) -> None:
    study = small_study()
    first, second, third = DataHolder.objects.filter(study=study).order_by("pk")[:3]
    user = user_create("hanna")
    services.holder_link(holder=first, user=user)
    withdraw(first, django_capture_on_commit_callbacks, keep=True)
    withdraw(second, django_capture_on_commit_callbacks)
    assert first.pk in owners_of(private(study)) and second.pk not in owners_of(private(study))
    page = text(as_(user).get(f"/my/{study.slug}/choice/"))
    assert "you asked us to keep your records" in page
    assert "None of your records are stored here." not in page

    with pytest.raises(ValidationError, match="Withdraw first"):
        erasure_ask(holder=third, acting_user=None)
    assert erasure_ask(holder=first, acting_user=None)
    assert not erasure_ask(holder=first, acting_user=None), "one request is enough"
    consent_choose(holder=first, level="LOW", form=ConsentForm.objects.get(study=study))
    assert records_erase(study.pk) == 0
    assert first.pk in owners_of(private(study))
    assert faults(study) == []


def test_returning_holder_keeps_their_account(django_capture_on_commit_callbacks) -> None:
    study = small_study()
    run_ask(run_start(study, share=0.5, **ASKING_RUN))
    holder = holder_of(study)
    spent = balances(study).of(np.array([holder.pk]))
    withdraw(holder, django_capture_on_commit_callbacks)

    again = Rows(*(getattr(table_rows(3), name) for name in ("x", "y")), ["p-001", "p-002", "new"])
    stored = dataset_import(study=study, name="again", kind="private", rows=again, schema=TABLE)
    assert stored.rows == 2 and holder.pk not in owners_of(stored)
    with pytest.raises(DataError, match="erased"):
        alone = Rows(table_rows(1).x, table_rows(1).y, ["p-001"])
        dataset_import(study=study, name="alone", kind="private", rows=alone, schema=TABLE)

    consent_choose(holder=holder, level="LOW", form=ConsentForm.objects.get(study=study))
    stored = dataset_import(study=study, name="third time", kind="private", rows=again, schema=TABLE)
    holder.refresh_from_db()
    assert holder.pk in owners_of(stored) and holder.pseudonym == "p-001" and holder.erased_at is None
    assert DataHolder.objects.filter(study=study).count() == HOLDERS + 1
    assert balances(study).of(np.array([holder.pk])) == spent
    assert faults(study) == []


@pytest.mark.parametrize(
    ("kind", "answered"),
    [(ASKING_RUN, True), (ASKING_RUN, False), pytest.param(SAMPLED_RUN, True, marks=pytest.mark.exhaustive)],
    ids=["votes", "unanswered votes", "samples"],
)
def test_records_erased_between_a_batch_and_its_release(kind, answered, django_capture_on_commit_callbacks) -> None:
    """A late worker does not leave coordinates of people who have withdrawn."""
    study = small_study()
    run = run_start(study, share=0.5, **kind)
    if answered:
        run = run_ask(run, 1)
    else:
        run_advance(run.pk)
    assert are_shards_done(run) == answered and run.shards.exists(), "a batch is in progress"

    def coordinates() -> dict[str, dict[str, np.ndarray]]:
        return {name: arrays_load(name) for name in files(f"runs/{run.pk}") if "coordinates" in name}

    holder, kept = holder_of(study), coordinates()
    withdraw(holder, django_capture_on_commit_callbacks)
    assert not coordinates()
    if kind is ASKING_RUN and answered:
        ((cache, arrays),) = kept.items()
        assert holder.pk in arrays["owner"]
        arrays_save(cache, **arrays)  # by the late worker
        run_ask(run, run.batches.count() + 1)
        assert holder.pk not in arrays_load(cache)["owner"] and holder.pk not in arrays_load(cache)["holder"]
    with django_capture_on_commit_callbacks(execute=True):
        run = run_ask(run)
    assert run.status == Run.Status.FINISHED, run.message
    assert faults(study) == []


@pytest.mark.parametrize("moment", ["training", "voting", pytest.param("finished", marks=pytest.mark.exhaustive)])
def test_a_vote_goes_on_without_what_was_learned_from_erased(moment, django_capture_on_commit_callbacks) -> None:
    study = small_study()
    run = run_start(study, share=0.5, **TABLE_RUN)
    holder = holder_of(study)
    run = run_finish(run) if moment == "finished" else run_teach(run)
    if moment == "voting":
        vote_open(run)
        run.refresh_from_db()
        vote_batch(run)
    withdraw(holder, django_capture_on_commit_callbacks)
    with django_capture_on_commit_callbacks(execute=True):
        run = run_finish(run)
    assert run.status == Run.Status.FINISHED, run.message
    assignment = arrays_load(run.assignment)
    mine = assignment["teacher"][assignment["holder"] == holder.pk]
    assert len(mine) == (0 if moment == "training" else 1)
    predictions = predictions_load(run)
    assert (predictions[mine] == -1).all() and (predictions != -1).any()
    assert faults(study) == []


def test_a_removed_dataset_leaves_its_row_and_takes_its_file(django_capture_on_commit_callbacks: Commits) -> None:
    study, olga = small_study(), user_create("olga")
    draft = run_draft(study, **ASKING_RUN)
    dataset = private(study)
    with pytest.raises(ValidationError, match="has not ended"):
        erasures.dataset_remove(dataset=dataset, reason="It was wrong.", acting_user=olga)
    assert dataset.artifact in files()
    run_withdraw(run=draft, acting_user=user_create("otto"))
    run = run_ask(run_start(study, **ASKING_RUN))
    with pytest.raises(ValidationError, match="Enter a reason"):
        erasures.dataset_remove(dataset=dataset, reason=" ", acting_user=olga)
    with django_capture_on_commit_callbacks(execute=True):
        erasures.dataset_remove(dataset=dataset, reason="It was wrong.", acting_user=olga)
    assert dataset.artifact not in files() and not files(f"runs/{run.pk}")
    removed = Dataset.objects.get(pk=dataset.pk)
    assert removed.removed_at and (removed.artifact, removed.rows, removed.holders) == ("", 0, 0)
    with pytest.raises(ValidationError, match="removed"):
        run_draft(study, **ASKING_RUN | {"private_dataset": removed})
    public = Dataset.objects.get(study=study, kind="public")
    with django_capture_on_commit_callbacks(execute=True):
        erasures.dataset_remove(dataset=public, reason="Not ours.", acting_user=olga)
    with pytest.raises(ValidationError, match="public points were removed"):
        student_ask(run=run, student_learner="nearest_neighbour", student_parameters={}, acting_user=olga)
    assert [row.subject for row in Disposal.objects.filter(study=study, kind="dataset")] == ["private", "public"]
    assert faults(study) == []


def test_a_closed_study_asks_nobody_and_learns_nothing(django_capture_on_commit_callbacks) -> None:
    last, olga = timezone.localdate() + timedelta(days=30), user_create("olga")
    study = small_study(levels="HA-", retention_until=last)
    draft, close = run_draft(study, **ASKING_RUN), partial(erasures.study_close, study=study, acting_user=olga)
    account, later = user_create("holder@example.org"), last + timedelta(days=1)
    holder = holder_of(study, "p-000")
    services.holder_link(holder=holder, user=account)
    with pytest.raises(ValidationError) as refused:
        close(reason="")
    assert "reason" in refused.value.message_dict
    with pytest.raises(ValidationError, match="were promised an earlier day"):
        close(reason="We are done.", erase_after=later)
    with pytest.raises(ValidationError, match="new version"):
        services.study_update(study=study, retention_until=later)
    started = run_start(study, share=0.5, **ASKING_RUN)
    with pytest.raises(ValidationError, match="in progress"):
        close(reason="We are done.")
    run_ask(started)
    close(reason="We are done.")
    study.refresh_from_db()
    draft.refresh_from_db()
    assert study.is_closed and study.retention_until == last
    assert draft.status == Run.Status.CANCELLED and draft.message == "The study was closed."
    assert Mail.objects.filter(kind="study_closed", user=account).count() == 1
    form, undecided = ConsentForm.objects.get(study=study), holder_of(study, "p-002")
    refusals: list[Callable[[], Any]] = [
        lambda: run_draft(study, **ASKING_RUN),
        lambda: invitations_create(study=study, acting_user=None, open_places=1),
        lambda: services.consent_give(holder=undecided, level="LOW", form=form, acting_user=None),
        lambda: form_publish(study, texts={"en": "More"}),
    ]
    for refusal in refusals:
        with pytest.raises(ValidationError, match="closed"):
            refusal()
    with pytest.raises(DataError, match="closed"):
        dataset_import(study=study, name="more", kind="private", rows=table_rows(1, ["p-9"]), schema=TABLE)
    withdraw(holder, django_capture_on_commit_callbacks)
    assert holder.pk not in owners_of(private(study)), "withdrawing and erasing stay possible"
    assert faults(study) == []


@pytest.mark.exhaustive
def test_after_their_last_day_no_private_record_is_left(django_capture_on_commit_callbacks, capsys) -> None:
    today = timezone.localdate()
    study = small_study(levels="-AL", retention_until=today)
    other = study_with_table("other", holders=6)
    scan_add(study, "p-000")
    account = user_create("holder@example.org")
    services.holder_link(holder=holder_of(study), user=account)
    invitations_create(study=study, acting_user=None, pseudonyms=["p-002"], open_places=1)
    run = run_ask(run_start(study, share=0.5, **ASKING_RUN))
    under_way = run_ask(run_start(study, share=0.2, **ASKING_RUN), 1)
    account_before = balances(study)
    assert files(f"runs/{run.pk}") and files(f"evidence/{study.pk}")

    call_command("erase_due")
    study.refresh_from_db()
    assert study.expired_at is None, "the last day is not over"
    tomorrow = today + timedelta(days=1)
    with pytest.MonkeyPatch.context() as patch, django_capture_on_commit_callbacks(execute=True):
        patch.setattr("training.services.erasures.timezone.localdate", lambda: tomorrow)
        call_command("erase_due", "--dry-run")
        assert Study.objects.get(pk=study.pk).expired_at is None
        call_command("erase_due")
    output = capsys.readouterr().out
    assert "all private records" in output and "Everything was erased." in output

    study.refresh_from_db()
    under_way.refresh_from_db()
    assert study.expired_at and study.is_closed and under_way.status == Run.Status.CANCELLED
    kept = Dataset.objects.filter(study=study, removed_at=None)
    assert {dataset.kind for dataset in kept} == {"public", "test"}
    for folder in (f"evidence/{study.pk}", f"runs/{run.pk}", f"runs/{under_way.pk}", f"commitments/{study.pk}"):
        assert files(folder) == set(), folder
    assert f"commitments/{study.pk}.npz" not in files()
    assert {dataset.artifact for dataset in kept} <= files()
    stored = DataHolder.objects.filter(study=study)
    assert not stored.filter(user__isnull=False).exists() and not stored.filter(pseudonym__startswith="p-").exists()
    assert not Invitation.objects.filter(study=study).exists()
    assert holder_by_pseudonym(study, "p-001") is None
    now = balances(study)
    assert np.array_equal(now.holders, account_before.holders) and np.array_equal(now.spent, account_before.spent)
    assert private(other).artifact in files() and DataHolder.objects.filter(study=other, erased_at=None).count() == 6
    assert faults(study) == []
    assert erasures.records_expire(study=study, today=tomorrow) == 0, "once is enough"


def test_verification_finds_what_was_not_erased(django_capture_on_commit_callbacks) -> None:
    study = small_study()
    holder, dataset = holder_of(study), private(study)
    before = dataset.artifact
    content = arrays_load(before)
    withdraw(holder, django_capture_on_commit_callbacks)
    assert list(record_faults(study)) == []
    dataset.refresh_from_db()
    arrays_save(dataset.artifact, **content)
    message = " ".join([*record_faults(study), *erasure_faults(study)])
    assert "differs from the recorded one" in message and "whose records were erased" in message
    storages["private"].delete(dataset.artifact)
    with pytest.raises(FileNotFoundError):
        records_load(dataset)
    assert "its file is missing" in " ".join(record_faults(study))
    storages["private"].delete(f"commitments/{study.pk}.npz")
    with pytest.raises(ValidationError, match="Restore the file"):
        invitations_create(study=study, acting_user=None, pseudonyms=["p-001"])
    with pytest.raises(DataError, match="Restore the file"):
        dataset_import(study=study, name="again", kind="private", rows=table_rows(1, ["p-001"]), schema=TABLE)
