"""Rule 9, on the database that DATABASE_URL names: run the suite a second time for the other one."""

from collections.abc import Callable

import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from django.urls import reverse

from common.append_only import (
    AppendOnly,
    AppendOnlyError,
    Chained,
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
        "accounting.Release",
        "accounting.ShareRecord",
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


@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE"])
@pytest.mark.parametrize("same", ["key", "constraint"])
@pytest.mark.parametrize(
    "model", [ConsentForm, EpsilonPolicy, EpsilonPolicyApproval, ConsentEvent], ids=lambda model: model.__name__
)
def test_no_row_is_put_in_the_place_of_another(study: Study, model: type[Chained], same: str, verb: str) -> None:
    """Callers of a plain INSERT are told what a unique constraint would tell them."""
    if verb != "INSERT" and connection.vendor != "sqlite":
        pytest.skip("only SQLite has INSERT OR REPLACE")
    before = list(model.objects.order_by("pk").values())
    table = model._meta.db_table
    copied = [str(field.column) for field in model._meta.concrete_fields if not field.primary_key]
    values = [f"{name} + 1000" if (name, same) == ("sequence", "key") else name for name in copied]
    if same == "key":
        copied, values = ["id", *copied], ["id", *values]
    statement = f"{verb} INTO {table} ({', '.join(copied)}) SELECT {', '.join(values)} FROM {table} WHERE id = %s"
    with connection.cursor() as cursor, pytest.raises(IntegrityError, match=r"(?i)unique"), transaction.atomic():
        cursor.execute(statement, [before[0]["id"]])
    assert list(model.objects.order_by("pk").values()) == before


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
    events = ("update", "delete", "truncate" if connection.vendor == "postgresql" else "insert")
    assert {f"{model._meta.db_table}_no_{event}" for model in append_only_models() for event in events} <= present
    triggers_remove(connection)
    with connection.cursor() as cursor:
        cursor.execute(source)
        assert not [name for (name,) in cursor.fetchall() if "_no_" in name]


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


def test_a_study_that_begins_has_the_signed_head_of_every_chain(study: Study) -> None:
    client = as_(factories.user_create("root", is_superuser=True, is_staff=True))
    names = ("title", "purpose", "controller", "contact", "lawful_basis", "quorum")
    names += ("after_withdrawal", "after_death", "after_incapacity")
    basics = {name: getattr(study, name) for name in names}
    address = reverse("admin:consent_study_add")
    page = client.post(address, {**basics, "slug": "admin", "delta": "1e-5", "languages": '["en"]'})
    assert page.status_code == 302
    for begun in (factories.study_create("service"), Study.objects.get(slug="admin")):
        assert {head.chain for head in begun.chain_heads.all() if head.is_genuine} == {
            model._meta.label_lower for model in chained_models()
        }


def test_a_study_is_deleted_only_while_nothing_is_on_record() -> None:
    study = Study.objects.create(slug="mistake", title="T", purpose="P", controller="C", contact="c@example.org")
    chains_begin(study.pk)
    study.delete()
    assert not ChainHead.objects.exists()
    with pytest.raises(models.ProtectedError):
        factories.study_create("operated").delete()


def test_progress_of_checking_a_chain_is_reported(study: Study) -> None:
    seen: list[int] = []

    def watch(rows):
        for row in rows:
            seen.append(row[0])
            yield row

    assert list(ConsentEvent.chain_faults(study.pk, watch)) == []
    assert seen == [1, 2, 3, 4, 5]


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


@pytest.mark.parametrize(
    "number", [1e16, 1.5e17, -2e20, 1.7976931348623157e308, 9007199254740993.0, -0.0, 5e-324, 0.1, 10**16]
)
def test_numbers_in_json_are_what_was_hashed_on_every_database(study: Study, number: float) -> None:
    """PostgreSQL keeps them as decimals, in which 1e16 is 10000000000000000, and a zero has no sign."""
    olga = factories.user_create("olga")
    texts = {"numbers": [number, {"nested": number}]}
    fields = {"follows": 1, "facts": {"number": number}, "digest": "0" * 64, "renewal": "asked"}
    ConsentFormProposal.append([ConsentFormProposal(study=study, texts=texts, proposed_by_id=olga.pk, **fields)])
    assert float(ConsentFormProposal.objects.get(study=study, follows=1).texts["numbers"][0]) == number
    assert list(ConsentFormProposal.chain_faults(study.pk)) == []


def test_a_number_in_json_that_was_edited_is_found(study: Study) -> None:
    olga = factories.user_create("olga")
    fields = {"follows": 1, "facts": {"number": 1}, "digest": "0" * 64, "renewal": "asked", "proposed_by_id": olga.pk}
    form = ConsentFormProposal(study=study, texts={"number": 1e16}, **fields)
    ConsentFormProposal.append([form])
    triggers_remove(connection)
    models.QuerySet(ConsentFormProposal).filter(pk=form.pk).update(texts={"number": 2e16})
    assert list(ConsentFormProposal.chain_faults(study.pk)) == [
        "proposed consent form 2: its content is not what was recorded (hash differs)."
    ]


# --- Many rows at once ----------------------------------------------------------------------------------------------


MANY = 100


@pytest.fixture
def refusals(study: Study) -> list[ConsentEvent]:
    """Of many holders; not recorded yet."""
    ids = services.holders_register(study=study, pseudonyms=[f"M-{n}" for n in range(MANY)])
    return [ConsentEvent(study=study, holder_id=pk, kind="refused", channel="staff") for pk in ids.values()]


def test_bulk_rows_equal_single_rows(study: Study, refusals: list[ConsentEvent]) -> None:
    ConsentEvent.append(refusals)
    assert ConsentEvent.objects.count() == 5 + MANY
    assert faults(study) == []
    last = ConsentEvent.objects.get(study=study, sequence=5 + MANY)
    for field in ConsentEvent._meta.concrete_fields:
        if not field.primary_key:
            assert getattr(last, field.attname) == getattr(refusals[-1], field.attname), field.name


@pytest.mark.parametrize("place", [0, 7, MANY - 1])
@pytest.mark.parametrize(
    ("field", "value"), [("kind", "forgotten"), ("channel", "x" * 11), ("evidence", "0" * 65), ("recorded_at", "soon")]
)
def test_one_wrong_value_among_many_rows_is_refused(
    study: Study, refusals: list[ConsentEvent], place: int, field: str, value: str
) -> None:
    setattr(refusals[place], field, value)
    with pytest.raises(ValidationError) as error:
        ConsentEvent.append(refusals)
    assert list(error.value.message_dict) == [field]
    assert ConsentEvent.objects.count() == 5


def test_many_rows_are_held_to_the_constraints_of_the_table(study: Study, refusals: list[ConsentEvent]) -> None:
    refusals[3].level = "HIGH"
    with pytest.raises(IntegrityError, match="consent_event_has_a_level"), transaction.atomic():
        ConsentEvent.append(refusals)
    assert faults(study) == []


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL synchronises by itself")
def test_not_even_a_power_failure_undoes_what_was_committed() -> None:
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: a sync at every commit"
