"""Append-only tables, on the database in DATABASE_URL; run the suite again for the other database."""

import itertools

import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from django.urls import reverse

from accounting.models import Release, ShareRecord
from common.append_only import (
    AppendOnlyError,
    append_only_models,
    chained_models,
    chains_begin,
    triggers_install,
    triggers_remove,
)
from consent import selectors, services
from consent.models import (
    ChainHead,
    ConsentEvent,
    ConsentForm,
    ConsentFormProposal,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Study,
)
from tests import factories
from tests.pages import as_

pytestmark = [pytest.mark.django_db, pytest.mark.both]


@pytest.fixture
def study() -> Study:
    """Return a study with five chained consent events; the triggers are on."""
    study = factories.study_open()
    form = selectors.consent_form_in_force(study)
    for n, level in enumerate(("HIGH", "LOW", "AVERAGE", "HIGH", "LOW")):
        holder = factories.holder_create(study, f"P-{n}")
        services.consent_give(holder=holder, level=level, form=form, acting_user=None)
    return study


def faults(study: Study) -> list[str]:
    return list(ConsentEvent.chain_faults(study.pk))


CHAINED = [ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, ConsentEvent]


def test_the_database_refuses_update_and_delete_and_the_orm_does_before(study: Study) -> None:
    assert {*CHAINED, Release, ShareRecord} <= {*append_only_models()}
    for model in CHAINED:
        table = model._meta.db_table
        for statement in (f"UPDATE {table} SET id = id", f"DELETE FROM {table}"):
            with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement)
        assert model.objects.exists(), table
    form, rows = ConsentForm.objects.get(study=study), ConsentForm.objects.all()
    for attempt in (form.save, form.delete, rows.delete, lambda: rows.filter(pk=form.pk).update(version=9)):
        with pytest.raises(AppendOnlyError):
            attempt()


@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE"])
def test_no_insert_replaces_another_row(study: Study, verb: str) -> None:
    """Callers of a plain INSERT get the same error as from a unique constraint."""
    if verb != "INSERT" and connection.vendor != "sqlite":
        pytest.skip("only SQLite has INSERT OR REPLACE")
    for model, same in itertools.product(CHAINED, ("key", "constraint")):
        before = list(model.objects.order_by("pk").values())
        table = model._meta.db_table
        copied = [str(field.column) for field in model._meta.concrete_fields if not field.primary_key]
        values = [f"{name} + 1000" if (name, same) == ("sequence", "key") else name for name in copied]
        if same == "key":
            copied, values = ["id", *copied], ["id", *values]
        statement = f"{verb} INTO {table} ({', '.join(copied)}) SELECT {', '.join(values)} FROM {table} WHERE id = %s"
        with connection.cursor() as cursor, pytest.raises(IntegrityError, match=r"(?i)unique"), transaction.atomic():
            cursor.execute(statement, [before[0]["id"]])
        assert list(model.objects.order_by("pk").values()) == before, (table, same)


@pytest.mark.postgres
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has TRUNCATE: set DATABASE_URL")
def test_the_database_refuses_truncate(study: Study) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("TRUNCATE consent_consentevent CASCADE")


def test_triggers_are_there_for_every_table_and_can_be_installed_again(study: Study) -> None:
    triggers_install(connection)
    source, third = "SELECT name FROM sqlite_master WHERE type = 'trigger'", "insert"
    if connection.vendor == "postgresql":
        source, third = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal", "truncate"
    with connection.cursor() as cursor:
        cursor.execute(source)
        present = {name for (name,) in cursor.fetchall()}
    names = {f"{model._meta.db_table}_no_" for model in append_only_models()}
    assert {name + event for name in names for event in ("update", "delete", third)} <= present
    triggers_remove(connection)
    with connection.cursor() as cursor:
        cursor.execute(source)
        assert not [name for (name,) in cursor.fetchall() if "_no_" in name]


def test_each_study_has_its_own_chain(study: Study) -> None:
    events = list(ConsentEvent.objects.filter(study=study).order_by("sequence"))
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5]
    assert [event.previous_hash for event in events] == ["0" * 64, *(event.hash for event in events[:-1])]
    other = factories.study_open("other")
    form = selectors.consent_form_in_force(other)
    event = services.consent_give(holder=factories.holder_create(other), level="HIGH", form=form, acting_user=None)
    assert (event.sequence, event.previous_hash) == (1, "0" * 64)
    assert faults(other) == faults(study) == []


def test_a_study_that_begins_has_the_signed_head_of_every_chain(study: Study) -> None:
    client = as_(factories.user_create("root", is_superuser=True, is_staff=True))
    names = ("title", "purpose", "controller", "contact", "lawful_basis", "quorum")
    names += ("after_withdrawal", "after_death", "after_incapacity")
    basics = {name: getattr(study, name) for name in names}
    address = reverse("admin:consent_study_add")
    page = client.post(address, {**basics, "slug": "admin", "delta": "1e-5", "languages": '["en"]'})
    assert page.status_code == 302
    for begun in (factories.study_create("service"), Study.objects.get(slug="admin")):
        genuine = {head.chain for head in begun.chain_heads.all() if head.is_genuine}
        assert genuine == {model._meta.label_lower for model in chained_models()}


def test_a_study_is_deleted_only_while_nothing_is_on_record() -> None:
    study = Study.objects.create(slug="mistake", title="T", purpose="P", controller="C", contact="c@example.org")
    chains_begin(study.pk)
    study.delete()
    assert not ChainHead.objects.exists()
    with pytest.raises(models.ProtectedError):
        factories.study_create("operated").delete()


def edit_and_hash(rows: models.QuerySet[ConsentEvent]) -> None:
    forged = rows.get(sequence=2)
    forged.level = "HIGH"
    rows.filter(sequence=2).update(level="HIGH", hash=forged.computed_hash())


def insert(rows: models.QuerySet[ConsentEvent]) -> None:
    for row in reversed(rows.filter(sequence__gte=3)):
        rows.filter(pk=row.pk).update(sequence=row.sequence + 1)
    inserted = rows.get(sequence=2)
    inserted.pk, inserted.sequence, inserted.previous_hash = None, 3, inserted.hash
    inserted.hash = inserted.computed_hash()
    ConsentEvent.objects.bulk_create([inserted])


def reorder(rows: models.QuerySet[ConsentEvent]) -> None:
    for old, new in ((2, 99), (3, 2), (99, 3)):
        rows.filter(sequence=old).update(sequence=new)


def test_tampering_is_found_in_a_chain_without_triggers(study: Study) -> None:
    """Someone has removed the triggers; the end of the test restores them."""
    triggers_remove(connection)
    rows = models.QuerySet(ConsentEvent).filter(study=study).order_by("sequence")
    for tamper, expected in ((edit_and_hash, ["3"]), (insert, ["4"]), (reorder, ["2", "3", "4"])):
        with transaction.atomic():
            tamper(rows)
            found = {fault.partition(":")[0] for fault in faults(study)}
            assert found >= {f"consent event {number}" for number in expected}, tamper
            transaction.set_rollback(True)
        assert faults(study) == []


def test_numbers_in_json_are_what_was_hashed_on_every_database(study: Study) -> None:
    """PostgreSQL stores them as decimals: 1e16 becomes 10000000000000000, and zero has no sign."""
    olga = factories.user_create("olga")
    fields = {"digest": "0" * 64, "renewal": "asked", "proposed_by_id": olga.pk}
    numbers = [1e16, 1.5e17, -2e20, 1.7976931348623157e308, 9007199254740993.0, -0.0, 5e-324, 0.1, 10**16]
    for follows, number in enumerate(numbers, 1):
        texts, facts = {"numbers": [number, {"nested": number}]}, {"number": number}
        row = ConsentFormProposal(study=study, follows=follows, texts=texts, facts=facts, **fields)
        ConsentFormProposal.append([row])
        assert float(ConsentFormProposal.objects.get(pk=row.pk).texts["numbers"][0]) == number
    assert list(ConsentFormProposal.chain_faults(study.pk)) == []
    triggers_remove(connection)
    models.QuerySet(ConsentFormProposal).filter(study=study, follows=1, sequence=2).update(texts={"numbers": [2e16]})
    assert list(ConsentFormProposal.chain_faults(study.pk)) == [
        "proposed consent form 2: its content was changed after it was recorded (hash differs)."
    ]


MANY = 100


@pytest.fixture
def refusals(study: Study) -> list[ConsentEvent]:
    """Return unrecorded refusals of many holders."""
    ids = services.holders_register(study=study, pseudonyms=[f"M-{n}" for n in range(MANY)])
    return [ConsentEvent(study=study, holder_id=pk, kind="refused", channel="staff") for pk in ids.values()]


def test_bulk_rows_equal_single_rows(study: Study, refusals: list[ConsentEvent]) -> None:
    refusals[3].level = "HIGH"
    with pytest.raises(IntegrityError, match="consent_event_has_a_level"), transaction.atomic():
        ConsentEvent.append(refusals)
    refusals[3].level = ""
    ConsentEvent.append(refusals)
    assert ConsentEvent.objects.count() == 5 + MANY and faults(study) == []
    last = ConsentEvent.objects.get(study=study, sequence=5 + MANY)
    for field in ConsentEvent._meta.concrete_fields:
        if not field.primary_key:
            assert getattr(last, field.attname) == getattr(refusals[-1], field.attname), field.name


def test_one_wrong_value_among_many_rows_is_refused(study: Study, refusals: list[ConsentEvent]) -> None:
    wrong = {"kind": "forgotten", "channel": "x" * 11, "evidence": "0" * 65, "recorded_at": "soon"}
    for place, (field, value) in itertools.product((0, 7, MANY - 1), wrong.items()):
        right = getattr(refusals[place], field)
        setattr(refusals[place], field, value)
        with pytest.raises(ValidationError) as error:
            ConsentEvent.append(refusals)
        setattr(refusals[place], field, right)
        assert list(error.value.message_dict) == [field]
        assert ConsentEvent.objects.count() == 5


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL synchronises by itself")
def test_not_even_a_power_failure_undoes_what_was_committed() -> None:
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: a sync at every commit"
