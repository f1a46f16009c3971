"""Rule 9, on the database that DATABASE_URL names: run the suite a second time for the other one."""

from collections.abc import Callable

import pytest
from django.db import DatabaseError, connection, models, transaction

from consent import selectors, services
from consent.models import ConsentEvent, ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, Study
from ipate_web.append_only import (
    AppendOnly,
    AppendOnlyError,
    append_only_models,
    triggers_install,
    triggers_remove,
)
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    """With five consent events, chained; the triggers are on."""
    study = factories.study_open()
    form = selectors.consent_form_in_force(study)
    for n, level in enumerate(("HIGH", "LOW", "AVERAGE", "HIGH", "LOW")):
        holder = factories.holder_create(study, f"P-{n}")
        services.consent_give(holder=holder, level=level, form=form, acting_user=None)
    return study


@pytest.fixture
def rows(study: Study) -> models.QuerySet[ConsentEvent]:
    """The study's events for someone who has got rid of the triggers; the test's end puts them back."""
    triggers_remove(connection)
    return models.QuerySet(ConsentEvent).filter(study=study).order_by("sequence")


def faults(study: Study) -> list[str]:
    return list(ConsentEvent.chain_faults(study.pk))


# --- Triggers -------------------------------------------------------------------------------------------------------


def test_consent_and_ledger_are_append_only() -> None:
    names = {model._meta.label for model in append_only_models()}
    assert {
        "consent.ConsentForm",
        "consent.EpsilonPolicy",
        "consent.EpsilonPolicyApproval",
        "consent.ConsentEvent",
        "accounting.LedgerEntry",
    } <= names


@pytest.mark.parametrize(
    "model", [ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, ConsentEvent], ids=lambda model: model.__name__
)
def test_the_database_refuses_update_and_delete(study: Study, model: type[AppendOnly]) -> None:
    table = model._meta.db_table
    with connection.cursor() as cursor:
        for statement in (f"UPDATE {table} SET id = id", f"DELETE FROM {table}"):
            with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
                cursor.execute(statement)
    assert model.objects.exists()


@pytest.mark.postgres
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has TRUNCATE: set DATABASE_URL")
def test_the_database_refuses_truncate(study: Study) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("TRUNCATE consent_consentevent CASCADE")


def test_triggers_are_there_for_every_table_and_can_be_installed_again(study: Study) -> None:
    triggers_install(connection)
    source = (
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
        if connection.vendor == "postgresql"
        else "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    )
    with connection.cursor() as cursor:
        cursor.execute(source)
        present = {name for (name,) in cursor.fetchall()}
    for model in append_only_models():
        assert {f"{model._meta.db_table}_no_update", f"{model._meta.db_table}_no_delete"} <= present


@pytest.mark.parametrize(
    "attempt",
    [
        lambda form: form.save(),
        lambda form: form.delete(),
        lambda form: ConsentForm.objects.filter(pk=form.pk).update(version=9),
        lambda form: ConsentForm.objects.all().delete(),
    ],
    ids=["save", "delete", "update", "delete all"],
)
def test_the_orm_refuses_before_the_database_must(study: Study, attempt: Callable[[ConsentForm], object]) -> None:
    with pytest.raises(AppendOnlyError):
        attempt(ConsentForm.objects.get(study=study))


# --- The chain ------------------------------------------------------------------------------------------------------


def test_a_chain_as_recorded_is_whole(study: Study) -> None:
    events = list(ConsentEvent.objects.filter(study=study).order_by("sequence"))
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5]
    assert events[0].previous_hash == "0" * 64
    assert [event.previous_hash for event in events[1:]] == [event.hash for event in events[:-1]]
    assert faults(study) == []


def test_each_study_has_its_own_chain(study: Study) -> None:
    other = factories.study_open("other")
    form = selectors.consent_form_in_force(other)
    holder = factories.holder_create(other)
    event = services.consent_give(holder=holder, level="HIGH", form=form, acting_user=None)
    assert (event.sequence, event.previous_hash) == (1, "0" * 64)
    assert faults(other) == faults(study) == []


def test_an_edited_row_is_found(study: Study, rows: models.QuerySet[ConsentEvent]) -> None:
    rows.filter(sequence=2).update(level="HIGH")
    assert faults(study) == ["consent event 2: its content is not what was recorded (hash differs)."]


def test_an_edited_row_with_a_matching_hash_is_found_by_the_next(
    study: Study, rows: models.QuerySet[ConsentEvent]
) -> None:
    forged = rows.get(sequence=2)
    forged.level = "HIGH"
    rows.filter(sequence=2).update(level="HIGH", hash=forged.computed_hash())
    assert faults(study) == ["consent event 3: does not follow the row before it (previous hash differs)."]


def test_a_removed_row_is_found(study: Study, rows: models.QuerySet[ConsentEvent]) -> None:
    rows.filter(sequence=2)._raw_delete("default")
    assert faults(study)[0].startswith("consent event 3: number 2 was expected")


def test_an_inserted_row_is_found(study: Study, rows: models.QuerySet[ConsentEvent]) -> None:
    for row in reversed(rows.filter(sequence__gte=3)):
        rows.filter(pk=row.pk).update(sequence=row.sequence + 1)
    inserted = rows.get(sequence=2)
    inserted.pk, inserted.sequence, inserted.previous_hash = None, 3, inserted.hash
    inserted.hash = inserted.computed_hash()
    ConsentEvent.objects.bulk_create([inserted])
    assert faults(study)[0].startswith("consent event 4:")


def test_reordered_rows_are_found(study: Study, rows: models.QuerySet[ConsentEvent]) -> None:
    rows.filter(sequence=2).update(sequence=99)
    rows.filter(sequence=3).update(sequence=2)
    rows.filter(sequence=99).update(sequence=3)
    assert {fault.split(":")[0] for fault in faults(study)} == {f"consent event {n}" for n in (2, 3, 4)}
