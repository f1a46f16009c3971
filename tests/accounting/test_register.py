"""The release register and the accounts that depend on it are charged together, or not at all."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, transaction

from accounting import accounts, services, tasks
from accounting.accounts import Balances, balances, balances_store, charges_of, slack_faults
from accounting.caps import SLACKS, slack_of
from accounting.models import AccountBook, Release
from accounting.services import LimitExceeded, release_record
from accounting.shares import share_grant
from accounting.tasks import accounts_sweep
from accounting.verification import balances_rebuilt, study_faults
from common.append_only import AppendOnlyError
from common.artifacts import arrays_delete, arrays_delete_folder, arrays_digest, arrays_load
from consent.models import Study
from ipate_web import settings as site_settings
from tests.accounting.charging import share_charge
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


def named(study: Study) -> set[str]:
    charges = Release.objects.filter(study=study).exclude(charges="").values_list("charges", flat=True)
    return {AccountBook.objects.get(study=study).artifact, *charges}


def test_charges_add_up_by_holder_and_unlisted_holders_have_spent_nothing() -> None:
    rng = np.random.default_rng(5)
    accounts, expected = Balances.empty(), Counter[int]()
    assert accounts.of(np.array([1, 2])).tolist() == [0.0, 0.0]
    for _ in range(30):
        chosen = np.sort(rng.choice(40, size=rng.integers(0, 12), replace=False))
        charges = rng.integers(0, 8, len(chosen)) / 8
        before = accounts.spent.copy()
        after = accounts.charged(Balances(chosen, charges))
        np.testing.assert_array_equal(accounts.spent, before)
        accounts = after
        expected.update(dict(zip(chosen.tolist(), charges.tolist(), strict=True)))
    assert dict(zip(accounts.holders.tolist(), accounts.spent.tolist(), strict=True)) == dict(expected)
    assert (np.diff(accounts.holders) > 0).all()
    asked = np.array([77, 3, 0, -1, 39, 3])
    np.testing.assert_array_equal(accounts.of(asked), [expected[holder] for holder in asked.tolist()])
    for holders in ([1, 1], [2, 1]):
        with pytest.raises(ValueError, match="ascending order"):
            Balances(np.array(holders), np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="one amount per holder"):
        Balances(np.array([1, 2]), np.array([0.5]))


def test_the_book_is_the_sum_of_all_charge_files_bit_for_bit(study: Study) -> None:
    rng, everybody = np.random.default_rng(4), ids(study)
    expected = dict.fromkeys(everybody.tolist(), 0.0)
    for _ in range(8):
        chosen = np.sort(rng.choice(everybody, rng.integers(1, 9), replace=False))
        charges = rng.uniform(0, 1e-3, len(chosen))
        charge(study, chosen, charges)
        for holder, each in zip(chosen.tolist(), charges.tolist(), strict=True):
            expected[holder] += each
    now, rebuilt = balances(study), balances_rebuilt(study)
    np.testing.assert_array_equal(now.holders, rebuilt.holders)
    np.testing.assert_array_equal(now.spent, rebuilt.spent)
    assert dict(zip(now.holders.tolist(), now.spent.tolist(), strict=True)) == expected


def test_a_release_describes_its_contents_and_its_file_the_charges(study: Study) -> None:
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
    accounts = AccountBook.objects.get(study=study)
    assert (accounts.sequence, accounts.digest) == (1, arrays_digest(accounts.artifact))
    before = balances(study)
    with pytest.raises(IntegrityError):
        charge(study, everybody[:2], [0.01, 0.02], kind="labels", run=run, batch=0)
    np.testing.assert_array_equal(balances(study).spent, before.spent, "a batch is charged once")


def test_a_release_that_charges_nobody_does_not_change_accounts(study: Study) -> None:
    charge(study, ids(study)[:1], [0.01])
    with transaction.atomic():
        release = release_record(study=study, kind="model", content={"digest": "d"})
    assert (release.charges, len(charges_of(release).holders)) == ("", 0)
    assert AccountBook.objects.get(study=study).sequence == 1


def test_equal_charges_do_not_have_equal_digests(study: Study) -> None:
    """Otherwise guesses of who was charged could be compared with the register."""
    digests = {charge(study, ids(study), np.full(9, 0.001)).charges_digest for _ in range(3)}
    assert len(digests) == 3
    arrays = arrays_load(AccountBook.objects.get(study=study).artifact)
    assert {name: array.dtype.kind for name, array in arrays.items()} == {"holder": "i", "spent": "f", "salt": "u"}
    assert len(arrays["salt"]) == 32


def test_a_charge_above_a_limit_is_refused_and_nothing_is_written(study: Study) -> None:
    everybody = ids(study)
    limits = np.full(9, 0.03)
    charge(study, everybody, np.full(9, 0.02), limits=limits)
    before, kept = balances(study), files(study)
    with pytest.raises(LimitExceeded, match="would exceed an account's limit") as refused:
        charge(study, everybody, [0.01] * 8 + [0.02], limits=limits)
    assert "0.0" not in str(refused.value), "the error reveals no account"
    assert Release.objects.count() == 1
    assert files(study) == kept
    np.testing.assert_array_equal(balances(study).spent, before.spent)
    charge(study, everybody, np.full(9, 0.01), limits=limits)
    assert list(study_faults(study)) != [], "charges without a share are reported"
    lowered, nothing = np.array([0.01] + [0.05] * 8), [0.0] * 8
    charge(study, everybody, [0.0] + [0.01] * 8, limits=lowered)
    with pytest.raises(LimitExceeded):
        charge(study, everybody, [1e-6, *nothing], limits=lowered)


def test_file_and_row_are_old_after_a_rollback_and_new_after_a_commit(
    study, django_capture_on_commit_callbacks
) -> None:
    earlier = files(study)
    charge(study, ids(study), np.full(9, 0.001))
    before, kept = balances(study), AccountBook.objects.get(study=study)
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(ZeroDivisionError), transaction.atomic():
        charge(study, ids(study), np.full(9, 0.002))
        raise ZeroDivisionError
    again = AccountBook.objects.get(study=study)
    assert (again.artifact, again.digest, again.sequence) == (kept.artifact, kept.digest, kept.sequence)
    np.testing.assert_array_equal(balances(study).spent, before.spent)
    assert named(study) <= files(study)
    orphans = files(study) - named(study) - earlier
    assert len(orphans) == 2, "no row refers to them"
    with django_capture_on_commit_callbacks(execute=True):
        charge(study, ids(study), np.full(9, 0.001))
    assert files(study) - earlier - orphans == named(study), "the old book is deleted after the commit"


def test_a_replaced_book_is_read_again_and_a_missing_one_is_an_error(study, monkeypatch) -> None:
    charge(study, ids(study), np.full(9, 0.001))
    real, first = accounts._book_load, iter([True])

    def load(name: str) -> Balances:
        if next(first, False):
            charge(study, ids(study), np.full(9, 0.001))
            raise FileNotFoundError
        return real(name)

    monkeypatch.setattr(accounts, "_book_load", load)
    assert balances(study).spent.tolist() == [0.002] * 9
    arrays_delete(AccountBook.objects.get(study=study).artifact)
    real.cache_clear()
    with pytest.raises(FileNotFoundError):
        balances(study)


def test_the_database_refuses_to_change_what_is_recorded(study: Study) -> None:
    charge(study, ids(study), np.full(9, 0.001))
    share_grant(study=study, subject=uuid4(), purpose="run", share=0.1, acting_user=None)
    for model in ("accounting_release", "accounting_sharerecord"):
        for statement in (f"UPDATE {model} SET sequence = 9", f"DELETE FROM {model}"):
            with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
                cursor.execute(statement)
    with pytest.raises(AppendOnlyError):
        Release.objects.all().delete()


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


def test_ten_sampled_runs_have_their_slack_and_no_eleventh(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    slack = slack_of(study.delta)
    for _ in range(SLACKS):
        charge(study, ids(study)[:2], [1e-4, 2e-4], content={"slack": slack})
    assert list(slack_faults(study)) == []
    with pytest.raises(LimitExceeded, match="slack"):
        charge(study, ids(study)[:2], [1e-4, 2e-4], content={"slack": slack})
    assert balances(study).of(ids(study)[:2]).tolist() == pytest.approx([10e-4, 20e-4])
    monkeypatch.setattr(services, "slack_fits", lambda study, slack: True)
    charge(study, ids(study)[:1], [1e-4], content={"slack": slack})
    assert any("than the caps leave" in fault for fault in study_faults(study))


@pytest.mark.django_db(transaction=True)
def test_old_files_that_nothing_names_are_deleted_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with_consents("sweep")
    arrays_delete_folder(f"accounts/{study.pk}")  # of a rolled-back test whose study had the same id
    share_charge(study, 0.25)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        share_charge(study, 0.25)
        raise ZeroDivisionError
    assert len(files(study) - named(study)) == 2
    accounts_sweep()
    assert len(files(study) - named(study)) == 2, "not yet old enough"
    for name in files(study):
        os.utime(Path(settings.PRIVATE_DIR) / name, times=(time.time() - 2 * 86_400,) * 2)
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "missing_rows", lambda study: {"accounting.release": 1})
        assert tasks.files_sweep(study) == 0, "the study is locked after a restore"
    fresh, _digest = balances_store(study, "charges", Balances(np.array([1]), np.array([0.5])))
    accounts_sweep()
    assert files(study) == named(study) | {fresh}, "a charge that was just written may be committed soon"
    assert list(study_faults(study)) == []
    assert accounts_sweep.name in [entry["task"] for entry in site_settings.CELERY_BEAT_SCHEDULE.values()]
