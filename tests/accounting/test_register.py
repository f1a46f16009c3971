"""The release register and the accounts that follow from it: charged together, or not at all."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, transaction
from pytest_django import DjangoCaptureOnCommitCallbacks as Commits

from accounting import services
from accounting.book import Balances, _book_load, balances, charges_of
from accounting.caps import SLACKS, slack_of
from accounting.models import AccountBook, Release
from accounting.services import LimitExceeded, release_record
from accounting.slacks import slack_faults
from accounting.verification import balances_rebuilt, study_faults
from common.append_only import AppendOnlyError
from common.artifacts import arrays_delete, arrays_digest, arrays_load
from consent.models import Study
from tests.training.runs import study_with_consents

pytestmark = [pytest.mark.django_db, pytest.mark.both]


@pytest.fixture
def study() -> Study:
    return study_with_consents("register", delta=1e-4)


def ids(study: Study) -> np.ndarray:
    return np.array(study.holders.order_by("pk").values_list("pk", flat=True))


def charge(study: Study, holders: Any, charges: Any, **fields: Any) -> Release:
    defaults = {"kind": "head_counts", "content": {}, "charge": float(np.max(charges, initial=0.0))}
    with transaction.atomic():
        return release_record(
            study=study, holders=np.asarray(holders), charges=np.asarray(charges, dtype=float), **defaults | fields
        )


def files(study: Study) -> set[str]:
    folder = Path(settings.PRIVATE_DIR) / "accounts" / str(study.pk)
    return {f"accounts/{study.pk}/{path.name}" for path in folder.glob("*")}


# --- Accounts as arrays ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_unlisted_holders_have_spent_nothing() -> None:
    book = Balances(np.array([3, 5, 9]), np.array([0.3, 0.5, 0.9]))
    assert book.of(np.array([9, 1, 5, 10, 4])).tolist() == [0.9, 0.0, 0.5, 0.0, 0.0]
    assert Balances.empty().of(np.array([1, 2])).tolist() == [0.0, 0.0]
    assert len(book.of(np.empty(0, dtype=np.int64))) == 0


def test_charges_add_up_and_newcomers_are_put_in_their_place() -> None:
    book = Balances(np.array([3, 9]), np.array([0.3, 0.9]))
    after = book.charged(Balances(np.array([1, 5, 9]), np.array([0.1, 0.5, 0.05])))
    assert after.holders.tolist() == [1, 3, 5, 9]
    assert after.spent.tolist() == [0.1, 0.3, 0.5, 0.9 + 0.05]
    assert book.spent.tolist() == [0.3, 0.9], "what was before stays as it was"


# --- Recording ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_book_is_the_sum_of_all_charge_files_bit_for_bit(study: Study) -> None:
    rng, everybody = np.random.default_rng(4), ids(study)
    expected = dict.fromkeys(everybody.tolist(), 0.0)
    for _ in range(20):
        chosen = np.sort(rng.choice(everybody, rng.integers(1, 9), replace=False))
        charges = rng.uniform(0, 1e-3, len(chosen))
        charge(study, chosen, charges)
        for holder, each in zip(chosen.tolist(), charges.tolist(), strict=True):
            expected[holder] += each
    now, rebuilt = balances(study), balances_rebuilt(study)
    np.testing.assert_array_equal(now.holders, rebuilt.holders)
    np.testing.assert_array_equal(now.spent, rebuilt.spent)
    assert dict(zip(now.holders.tolist(), now.spent.tolist(), strict=True)) == expected


def test_a_release_says_what_left_and_who_was_charged_lies_in_its_file(study: Study) -> None:
    run, everybody = uuid4(), ids(study)
    release = charge(
        study, everybody[:2], [0.01, 0.02], kind="labels", run=run, batch=0, content={"labels": 3}, acting_user_id=7
    )
    stored = Release.objects.get()
    assert (stored.run, stored.batch, stored.kind, stored.content) == (run, 0, "labels", {"labels": 3})
    assert (stored.charge, stored.recorded_by_id, stored.sequence) == (0.02, 7, 1)
    assert stored.charges_digest == arrays_digest(release.charges)
    charges = charges_of(stored)
    assert (charges.holders.tolist(), charges.spent.tolist()) == (everybody[:2].tolist(), [0.01, 0.02])
    book = AccountBook.objects.get(study=study)
    assert (book.sequence, book.digest) == (1, arrays_digest(book.artifact))


def test_a_release_that_charges_nobody_leaves_the_accounts_alone(study: Study) -> None:
    charge(study, ids(study)[:1], [0.01])
    with transaction.atomic():
        release = release_record(study=study, kind="model", content={"digest": "d"})
    assert (release.charges, len(charges_of(release).holders)) == ("", 0)
    assert AccountBook.objects.get(study=study).sequence == 1


def test_equal_charges_do_not_have_equal_digests(study: Study) -> None:
    """Or who was charged could be tried out against the register."""
    digests = {charge(study, ids(study), np.full(9, 0.001)).charges_digest for _ in range(3)}
    assert len(digests) == 3


def test_a_charge_above_a_limit_is_refused_and_nothing_is_written(study: Study) -> None:
    everybody = ids(study)
    limits = np.full(9, 0.03)
    charge(study, everybody, np.full(9, 0.02), limits=limits)
    before, kept = balances(study), files(study)
    with pytest.raises(LimitExceeded, match="would exceed an account's limit") as refused:
        charge(study, everybody, [0.01] * 8 + [0.02], limits=limits)
    assert "0.0" not in str(refused.value), "an account is nobody's business"
    assert Release.objects.count() == 1
    assert files(study) == kept
    np.testing.assert_array_equal(balances(study).spent, before.spent)
    charge(study, everybody, np.full(9, 0.01), limits=limits)
    assert list(study_faults(study)) != [], "charges without a share are told"


def test_holder_above_a_lowered_limit_who_pays_nothing_is_no_obstacle(study: Study) -> None:
    everybody = ids(study)
    charge(study, everybody, np.full(9, 0.02))
    limits = np.array([0.01] + [0.03] * 8)
    charge(study, everybody, [0.0] + [0.01] * 8, limits=limits)
    with pytest.raises(LimitExceeded):
        charge(study, everybody, [1e-6] + [0.0] * 8, limits=limits)


def test_a_batch_is_charged_once(study: Study) -> None:
    run = uuid4()
    charge(study, ids(study), np.full(9, 0.001), run=run, batch=0)
    before = balances(study)
    with pytest.raises(IntegrityError):
        charge(study, ids(study), np.full(9, 0.001), run=run, batch=0)
    np.testing.assert_array_equal(balances(study).spent, before.spent)


def test_after_a_rollback_file_and_row_are_both_the_old_ones(
    study: Study, django_capture_on_commit_callbacks: Commits
) -> None:
    earlier = files(study)
    charge(study, ids(study), np.full(9, 0.001))
    before, book = balances(study), AccountBook.objects.get(study=study)
    with (
        django_capture_on_commit_callbacks(execute=True),
        pytest.raises(ZeroDivisionError),
        transaction.atomic(),
    ):
        charge(study, ids(study), np.full(9, 0.002))
        raise ZeroDivisionError
    again = AccountBook.objects.get(study=study)
    assert (again.artifact, again.digest, again.sequence) == (book.artifact, book.digest, book.sequence)
    np.testing.assert_array_equal(balances(study).spent, before.spent)
    referred = {again.artifact, *Release.objects.values_list("charges", flat=True)}
    assert referred <= files(study)
    assert len(files(study) - referred - earlier) == 2, "orphans, to which no row leads"


def test_the_book_before_is_deleted_once_the_new_one_is_committed(
    study: Study, django_capture_on_commit_callbacks: Commits
) -> None:
    earlier = files(study)
    with django_capture_on_commit_callbacks(execute=True):
        for _ in range(3):
            charge(study, ids(study), np.full(9, 0.001))
    book = AccountBook.objects.get(study=study)
    assert files(study) - earlier == {book.artifact, *Release.objects.values_list("charges", flat=True)}


def test_reader_gets_the_new_book_while_it_is_replaced(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    from accounting import book

    charge(study, ids(study), np.full(9, 0.001))
    real, first = book._book_load, iter([True])

    def load(name: str) -> Balances:
        if next(first, False):
            charge(study, ids(study), np.full(9, 0.001))
            raise FileNotFoundError
        return real(name)

    monkeypatch.setattr(book, "_book_load", load)
    assert balances(study).spent.tolist() == [0.002] * 9


def test_a_book_that_is_lost_is_not_taken_for_an_empty_one(study: Study) -> None:
    charge(study, ids(study), np.full(9, 0.001))
    arrays_delete(AccountBook.objects.get(study=study).artifact)
    _book_load.cache_clear()
    with pytest.raises(FileNotFoundError):
        balances(study)


def test_accounts_are_salted_files_of_numbers_alone(study: Study) -> None:
    charge(study, ids(study), np.full(9, 0.001))
    arrays = arrays_load(AccountBook.objects.get(study=study).artifact)
    assert {name: array.dtype.kind for name, array in arrays.items()} == {"holder": "i", "spent": "f", "salt": "u"}
    assert len(arrays["salt"]) == 32


@pytest.mark.parametrize("model", ["accounting_release", "accounting_sharerecord"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET sequence = 9", "DELETE FROM {}"])
def test_the_database_refuses_to_change_what_is_recorded(study: Study, model: str, statement: str) -> None:
    from accounting.shares import share_grant

    charge(study, ids(study), np.full(9, 0.001))
    share_grant(study=study, subject=uuid4(), purpose="run", share=0.1, acting_user=None)
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        cursor.execute(statement.format(model))
    with pytest.raises(AppendOnlyError):
        Release.objects.all().delete()


# --- Files for auditors ---------------------------------------------------------------------------------------------


def test_the_exported_register_holds_no_accounts(study: Study, tmp_path: Path) -> None:
    charge(study, ids(study)[:2], [0.012345, 0.023456], content={"labels": 3})
    for kind in ("json", "csv"):
        call_command("export_ledger", "register", format=kind, output=tmp_path / kind)
    document = json.loads((tmp_path / "json").read_text())
    assert [(row["charge"], row["content"]) for row in document["releases"]] == [(0.023456, {"labels": 3})]
    assert document["shares"] == []
    head, row = (tmp_path / "csv").read_text().splitlines()
    assert head.split(",")[:3] == ["sequence", "recorded_at", "kind"]
    assert "0.023456" in row
    assert "0.012345" not in (tmp_path / "json").read_text() + row
    with pytest.raises(CommandError, match="no study “nowhere”"):
        call_command("export_ledger", "nowhere")


# --- Slacks of sampled runs -----------------------------------------------------------------------------------------


def test_ten_sampled_runs_have_their_slack_and_no_eleventh(study: Study) -> None:
    slack = slack_of(study.delta)
    for _ in range(SLACKS):
        charge(study, ids(study)[:2], [1e-4, 2e-4], content={"slack": slack})
    assert list(slack_faults(study)) == []
    with pytest.raises(LimitExceeded, match="slack"):
        charge(study, ids(study)[:2], [1e-4, 2e-4], content={"slack": slack})
    assert balances(study).of(ids(study)[:2]).tolist() == pytest.approx([10e-4, 20e-4])


def test_more_slack_than_caps_leave_is_found(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "slack_fits", lambda study, slack: True)
    charge(study, ids(study)[:1], [1e-4], content={"slack": 11 * slack_of(study.delta)})
    assert any("more than caps leave" in fault for fault in study_faults(study))
