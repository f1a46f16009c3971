"""Rule 9 for the ledger: nothing can be changed, and what was changed all the same is found and named."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, models, transaction

from accounting.models import LedgerEntry
from accounting.verification import study_faults
from consent.models import Study
from ipate_web.append_only import AppendOnlyError, triggers_remove
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    """With six entries: two batches of three groups."""
    study = study_with_table()
    run_finish(run_start(study, **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 40.0}, "wanted_labels": 8}))
    assert LedgerEntry.objects.filter(study=study).count() == 6
    return study


@pytest.fixture
def rows(study: Study) -> models.QuerySet[LedgerEntry]:
    """The ledger for someone who has got rid of the triggers."""
    triggers_remove(connection)
    return models.QuerySet(LedgerEntry).filter(study=study)


@pytest.mark.parametrize("statement", ["UPDATE {} SET labels = 0", "DELETE FROM {}"])
def test_the_database_refuses_to_change_the_ledger(study: Study, statement: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        cursor.execute(statement.format(LedgerEntry._meta.db_table))
    with pytest.raises(AppendOnlyError):
        LedgerEntry.objects.update(labels=0)
    with pytest.raises(AppendOnlyError):
        LedgerEntry.objects.all().delete()
    with pytest.raises(AppendOnlyError):
        LedgerEntry.objects.earliest("sequence").save()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite has INSERT OR REPLACE")
def test_the_database_refuses_to_replace_an_entry(study: Study) -> None:
    table = LedgerEntry._meta.db_table
    columns = [str(field.column) for field in LedgerEntry._meta.concrete_fields]
    values = ["0" if name == "labels" else name for name in columns]
    statement = f"REPLACE INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {table}"
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        cursor.execute(statement)
    assert list(LedgerEntry.chain_faults(study.pk)) == []


def test_a_ledger_as_written_is_whole(study: Study) -> None:
    assert list(LedgerEntry.chain_faults(study.pk)) == []
    assert list(study_faults(study)) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("run", "00000000-0000-0000-0000-000000000000"),
        ("batch", 7),
        ("mechanism", {"name": "gnmax", "sigma": 41.0}),
        ("sensitivity", 0.5),
        ("method", "exact"),
        ("delta", 1e-6),
        ("orders", [2.0]),
        ("rdp", [0.0]),
        ("published_rdp", [0.0]),
        ("queries", 5),
        ("labels", 3),
        ("recorded_at", "2020-01-01T00:00:00Z"),
        ("previous_hash", "0" * 64),
        ("hash", "0" * 64),
    ],
)
def test_every_column_is_under_seal(study: Study, rows: models.QuerySet[LedgerEntry], column: str, value: Any) -> None:
    rows.filter(sequence=4).update(**{column: value})
    faults = list(LedgerEntry.chain_faults(study.pk))
    assert faults
    assert faults[0].startswith("ledger entry 4:")


def test_who_recorded_it_and_for_which_group_is_under_seal(study: Study, rows: models.QuerySet[LedgerEntry]) -> None:
    rows.filter(sequence=1).update(recorded_by_id=user_create("eve").pk)
    other = rows.get(sequence=5).group_id
    rows.filter(sequence=5).update(batch=9)
    rows.filter(sequence=6).update(group_id=other)
    assert [fault.partition(":")[0] for fault in LedgerEntry.chain_faults(study.pk)] == [
        f"ledger entry {sequence}" for sequence in (1, 5, 6)
    ]


def test_every_column_has_been_tried() -> None:
    tried = {"run", "batch", "mechanism", "sensitivity", "method", "delta", "orders", "rdp", "published_rdp", "queries"}
    tried |= {"labels", "recorded_at", "previous_hash", "hash", "recorded_by", "group"}
    assert {field.name for field in LedgerEntry._meta.concrete_fields} - tried == {"id", "study", "sequence"}


def test_a_removed_entry_is_found_by_the_next_and_by_the_totals(
    study: Study, rows: models.QuerySet[LedgerEntry]
) -> None:
    rows.filter(sequence=3)._raw_delete("default")
    faults = list(study_faults(study))
    assert faults[0].startswith("ledger entry 4: number 3 was expected")
    assert any("its total of rdp is not the sum of its entries" in fault for fault in faults)


def test_a_total_that_was_changed_is_found(study: Study) -> None:
    group = study.accounts.get().groups.get(name="LOW")
    group.spent_rdp = [value / 2 for value in group.spent_rdp]
    group.save()
    assert [fault for fault in study_faults(study) if "group LOW: its total of rdp" in fault]


def test_a_cost_above_the_budget_is_found(study: Study) -> None:
    study.accounts.get().groups.filter(name="HIGH").update(epsilon=1e-3)
    assert any("group HIGH: a holder has spent more than ε = 0.001" in fault for fault in study_faults(study))


def test_the_ledger_of_a_study_says_nothing_of_another(study: Study, rows: models.QuerySet[LedgerEntry]) -> None:
    other = study_with_table("other")
    run_finish(run_start(other, **TABLE_RUN | {"wanted_labels": 1}))
    assert LedgerEntry.objects.filter(study=other).earliest("sequence").sequence == 1
    rows.filter(sequence=1).update(labels=0)
    assert list(study_faults(other)) == []
