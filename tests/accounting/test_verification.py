"""``manage.py verify_ledger``: what is changed in the database behind the site's back is found and named."""

import io
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, models, transaction
from django.test import override_settings

from accounting.models import HolderSpending, LedgerEntry, PrivacyGroup
from accounting.privacy import DEFAULT_ORDERS
from consent import services
from consent.models import ChainHead, ConsentEvent, ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, Level, Study
from ipate_web.append_only import Chained, chained_models, triggers_remove
from tests.factories import form_publish, policy_approve, user_create
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.models import Query, Run, VoteBatch

pytestmark = pytest.mark.django_db

CURVE = len(DEFAULT_ORDERS)
QUIET = {"aggregator": {"name": "gnmax", "sigma": 40.0}}


def study_with_history() -> Study:
    """Two of every form, policy and approval, a withdrawal, a run and a simulation; the votes are kept."""
    study = study_with_table(retain_votes=True)
    form_publish(study, {"en": "# What we ask now\nThe same, in other words."})
    policy_approve(study, 0.9, 1.9, 2.9)
    services.consent_withdraw(holder=study.holders.latest("pk"), acting_user=user_create("olga"))
    for simulation in (False, True):
        run = run_finish(run_start(study, **TABLE_RUN | QUIET, wanted_labels=8, simulation=simulation))
        assert run.status == Run.Status.FINISHED, run.message
    return study


@pytest.fixture
def study() -> Study:
    """Seen by somebody who has got rid of the triggers."""
    study = study_with_history()
    triggers_remove(connection)
    return study


def rows_of(model: type[Chained]) -> models.QuerySet:
    """Rows that can be changed."""
    return models.QuerySet(model).order_by("sequence")


def tables_with_rows() -> list[type[Chained]]:
    """The chained tables that the study has filled: at least those of consent and ledger."""
    tables = [model for model in chained_models() if rows_of(model).exists()]
    assert {ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, ConsentEvent, LedgerEntry} <= set(tables)
    return tables


def verify(*options: str) -> list[str]:
    """The faults that the command reports; its exit status agrees with them."""
    report = io.StringIO()
    try:
        call_command("verify_ledger", *options, stdout=report)
    except CommandError as error:
        assert error.returncode == 1
        faults = [line.strip() for line in report.getvalue().splitlines() if ": " in line and line[:9].isspace()]
        faults += [line for line in report.getvalue().splitlines() if "noted row" in line]
        assert str(error).startswith(f"{len(faults)} faults.")
        return faults
    return []


def test_what_nobody_touched_is_whole_and_the_report_says_so(study: Study) -> None:
    report = io.StringIO()
    call_command("verify_ledger", "--study", study.slug, "--replay", stdout=report)
    text = report.getvalue()
    assert "FAULT" not in text
    assert f"consent events: 31, ending with {ConsentEvent.objects.latest('sequence').hash}" in text
    assert "2 batches can be replayed" in text


def test_an_unknown_study_is_named_with_those_there_are() -> None:
    with pytest.raises(CommandError, match="no study “nowhere”"):
        call_command("verify_ledger", "--study", "nowhere")


# --- Every column of every chained table ----------------------------------------------------------------------------

#: Columns whose other values the database itself refuses.
CHOICES: dict[str, Any] = {"kind": "changed", "level": Level.LOW, "renewal": "asked", "labels": 3}


def another(field: models.Field, value: Any) -> Any:
    """A value that the column may hold and does not."""
    if field.name in CHOICES:
        return CHOICES[field.name]
    if isinstance(field, models.JSONField):
        return ["changed"]
    match value:
        case None:
            return date(2020, 2, 2) if isinstance(field, models.DateField) else 4711
        case str():
            return ("x" if value[:1] != "x" else "y") + value[1:]
        case datetime():
            return value + timedelta(microseconds=1)
        case UUID():
            return uuid4()
        case float():
            return value * (1 + 1e-12)
        case [*numbers, last]:
            return [*numbers, last * (1 + 1e-12)]
    return value + 4711


@contextmanager
def undone() -> Iterator[None]:
    """What happens in it has not happened afterwards."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_every_column_of_every_chained_table_is_under_seal(study: Study) -> None:
    for model in tables_with_rows():
        row = rows_of(model)[0]
        for field in model._meta.concrete_fields:
            if field.primary_key:
                continue
            with undone():
                changed = another(field, getattr(row, field.attname))
                rows_of(model).filter(pk=row.pk).update(**{field.attname: changed})
                faults = list(model.chain_faults(study.pk))
            assert any(fault.startswith(str(model._meta.verbose_name)) for fault in faults), (model, field.name)


def test_a_removed_row_is_found_wherever_it_was(study: Study) -> None:
    for model in tables_with_rows():
        for row in (rows_of(model).first(), rows_of(model).last()):
            with undone():
                rows_of(model).filter(pk=row.pk)._raw_delete("default")
                faults = list(model.chain_faults(study.pk))
            assert any("missing" in fault for fault in faults), row


def test_a_chain_computed_anew_after_an_edit_is_found_by_its_head(study: Study) -> None:
    previous = rows_of(ConsentEvent)[0].hash
    for row in rows_of(ConsentEvent)[1:]:
        row.level, row.previous_hash = row.level and Level.LOW, previous
        previous = row.computed_hash()
        rows_of(ConsentEvent).filter(pk=row.pk).update(level=row.level, previous_hash=row.previous_hash, hash=previous)
    assert list(ConsentEvent.chain_faults(study.pk)) == [
        "consent event 31: is not the row with which the chain ended (its hash differs from the chain's head)."
    ]


def test_a_head_that_was_forged_along_is_not_signed_and_never_becomes_so(study: Study) -> None:
    last = rows_of(ConsentEvent).last()
    rows_of(ConsentEvent).filter(pk=last.pk)._raw_delete("default")
    heads = ChainHead.objects.filter(study=study, chain="consent.consentevent")
    heads.update(sequence=30, hash=rows_of(ConsentEvent).last().hash)
    unsigned = "the end of the chain is not signed with this site's secret key."
    assert list(ConsentEvent.chain_faults(study.pk)) == [f"consent event 30: {unsigned}"]
    services.consent_withdraw(holder=study.holders.earliest("pk"), acting_user=None)
    assert list(ConsentEvent.chain_faults(study.pk)) == [f"consent event 31: {unsigned}"]
    heads.delete()
    assert list(ConsentEvent.chain_faults(study.pk)) == [f"consent event 31: {unsigned}"]


def test_a_row_added_behind_the_sites_back_is_found_and_stops_nobody(study: Study) -> None:
    forged = rows_of(ConsentEvent).last()
    forged.pk, forged.sequence, forged.previous_hash = None, forged.sequence + 1, forged.hash
    forged.hash = forged.computed_hash()
    ConsentEvent.objects.bulk_create([forged])
    assert "the chain ends here, but was 31 long" in next(iter(ConsentEvent.chain_faults(study.pk)))
    services.consent_withdraw(holder=study.holders.earliest("pk"), acting_user=None)
    assert next(iter(ConsentEvent.chain_faults(study.pk))).startswith("consent event 33: does not follow")


def test_a_chain_that_was_emptied_is_not_signed_anew(study: Study) -> None:
    ChainHead.objects.all().delete()
    for model in chained_models():
        with undone():
            rows_of(model)._raw_delete("default")
            faults = list(model.chain_faults(study.pk))
        assert faults == [
            f"{model._meta.verbose_name} 0: the end of the chain is not signed with this site's secret key."
        ]


@pytest.mark.parametrize("forged", [b"\x00", struct.pack(f">{CURVE}d", *[math.nan] * CURVE)], ids=["byte", "NaN"])
@pytest.mark.parametrize("column", ["rdp", "published_rdp", "orders"])
def test_an_entry_with_a_curve_that_is_none_is_named(study: Study, column: str, forged: bytes) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE accounting_ledgerentry SET {column} = %s WHERE sequence = 2", [forged])
    assert "ledger entry 2: its content is not what was recorded (hash differs)." in verify("--replay")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite takes any text for any column")
def test_an_entry_that_cannot_be_read_is_named(study: Study) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounting_ledgerentry SET run = 'forged' WHERE sequence = 2")
    assert any(fault.startswith("ledger entry 2: cannot be read any more") for fault in verify())


def test_an_older_key_still_vouches_while_it_is_named(study: Study, settings: Any) -> None:
    old, new = settings.SECRET_KEY, "n" * 50
    with override_settings(SECRET_KEY=new):
        assert any("not signed" in fault for fault in verify())
    with override_settings(SECRET_KEY=new, SECRET_KEY_FALLBACKS=[old]):
        assert verify() == []


def test_a_hash_noted_outside_proves_that_a_whole_old_state_was_put_back(study: Study) -> None:
    noted = LedgerEntry.objects.latest("sequence").hash
    assert verify("--noted", noted) == []
    assert verify("--noted", "f" * 64) == [
        f"{'f' * 64}: no chain has the noted row any more; one was shortened or written anew."
    ]


# --- What is not chained but follows from what is -------------------------------------------------------------------


def group_update(study: Study, **fields: Any) -> None:
    PrivacyGroup.objects.filter(account__study=study, account__simulation=False, name="LOW").update(**fields)


def simulated(study: Study, **fields: Any) -> None:
    VoteBatch.objects.filter(run__study=study, run__simulation=True, index=0).update(**fields)


def charged(**fields: Any) -> None:
    Run.objects.filter(simulation=False).update(**fields)


def query_between_runs() -> None:
    """Of the run that was charged, in a batch of the simulation."""
    Query.objects.create(
        run=Run.objects.get(simulation=False), batch=VoteBatch.objects.filter(run__simulation=True)[0], row=99
    )


UNKNOWN = uuid4()

FORGERIES: list[tuple[Callable[[Study], object], str]] = [
    (lambda study: group_update(study, spent_rdp=[0.0] * CURVE), "total of rdp is not the sum"),
    (lambda study: study.accounts.update(orders=[]), "cannot be checked any more"),
    (lambda study: group_update(study, published_rdp=[0.0] * 3), "total of published_rdp is not the sum"),
    (lambda study: group_update(study, past_rdp=[0.0] * 3), "past_rdp is not what its holders had spent"),
    (lambda study: group_update(study, epsilon=9.0), "had consented to another level or ε"),
    (lambda study: group_update(study, level="HIGH"), "had consented to another level or ε"),
    (lambda study: group_update(study, holders=11), "11 holders are on record, but the histories have"),
    (lambda study: study.accounts.update(delta=1e-3), "kept at δ = 0.001"),
    (lambda study: study.accounts.update(method="exact"), "was not kept as the account is"),
    (lambda study: HolderSpending.objects.earliest("pk").delete(), "holders are on record"),
    (lambda study: Query.objects.filter(run__simulation=False).earliest("pk").delete(), "labels of 4, but has 3"),
    (lambda study: Query.objects.filter(run__simulation=False).update(label=None), "labels of 4, but has 0"),
    (lambda study: charged(position=9), "its position and number of labels"),
    (lambda study: charged(account=None), "labels were released, but there is no account that paid for them"),
    (lambda study: charged(account=None, status="draft"), "there is no account that paid for them"),
    (lambda study: query_between_runs(), "1 of its queries are in none of its batches"),
    (lambda study: query_between_runs(), "1 of the queries in its batches are of other runs"),
    (lambda study: rows_of(LedgerEntry).update(run=UNKNOWN), f"run {UNKNOWN}: has 6 entries in the ledger"),
    (lambda study: VoteBatch.objects.filter(run__simulation=False, index=1).delete(), "batches that were never"),
    (lambda study: simulated(study, simulated_rdp=[[0.0] * CURVE] * 3), "not what the simulation's batches cost"),
]


def test_what_follows_from_the_chains_is_compared_with_them(study: Study) -> None:
    for forge, fault in FORGERIES:
        with undone():
            forge(study)
            faults = verify()
        assert any(fault in line for line in faults), fault


def test_a_charge_that_is_not_what_the_votes_cost_is_found_by_the_replay(study: Study) -> None:
    entry = rows_of(LedgerEntry)[2]
    rows_of(LedgerEntry).filter(pk=entry.pk).update(rdp=[value * (1 + 1e-11) for value in entry.rdp])
    assert f"ledger entry {entry.sequence}: the votes of batch {entry.batch} cost something else." in verify("--replay")
