"""Chains of changes: verification detects changes that bypass the services, and accepts those made by the services."""

import io
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from common.append_only import triggers_remove
from common.journal import head_note
from consent import services
from consent.models import (
    AccountChange,
    ConfigurationChange,
    DataHolder,
    Invitation,
    SealedChange,
    Study,
    WebhookEndpoint,
    recorded_models,
)
from consent.services.accounts import account_close, account_create, account_faults, account_reopen, administrator_set
from consent.services.changes import change_faults
from consent.services.invitations import (
    account_invitations_end,
    invitation_open,
    invitation_revoke,
    invitations_create,
    link_reissue,
)
from consent.services.webhooks import endpoint_create, endpoint_remove
from tests import factories
from tests.consent.conftest import circumstance
from tests.factories import user_create
from tests.pages import as_
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, run_approve, run_draft, study_with_table, teachers_chosen
from training.models import Dataset, Run
from training.services.datasets import dataset_provenance_state
from training.services.erasures import dataset_remove, records_expire, study_close
from training.services.runs import run_cancel, run_edit, run_withdraw

pytestmark = pytest.mark.django_db


@pytest.fixture
@built_once
def study() -> Study:
    """Return a valid study with data, an approved run, a linked holder, an invitation and a webhook."""
    study = study_with_table()
    run_approve(run=run_draft(study, **TABLE_RUN), acting_user=user_create("olga"), share=0.2)
    holder = DataHolder.objects.filter(study=study).earliest("pk")
    services.holder_link(holder=holder, user=user_create("hanna"))
    invitations_create(study=study, acting_user=user_create("sara"), pseudonyms=["P-invited"])
    endpoint_create(study=study, url="https://9.9.9.9/", events=["run.proposed"], acting_user=user_create("olga"))
    return study


def verified() -> list[str]:
    """Return the lines of ``verify_ledger`` that report a fault."""
    out = io.StringIO()
    try:
        call_command("verify_ledger", stdout=out)
    except CommandError:
        return [line.strip() for line in out.getvalue().splitlines() if line.startswith("         ")]
    return []


def sql(statement: str, *values: Any) -> None:
    """Run a statement at an SQL prompt that changes one row or more."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        assert cursor.rowcount > 0


def stranger() -> int:
    return user_create("mallory").pk


#: Values of single columns that someone at an SQL prompt sets, by table.
OTHERS: dict[str, dict[str, Any]] = {
    "consent_study": {"delta": 1e-3, "purpose": "Sell them.", "controller": "Another person", "retention": "For ever."}
    | {"retention_until": date(2099, 1, 1), "closed_at": "2026-01-01 00:00:00+00:00"},
    "training_run": {
        "approved_by_id": stranger,
        "created_by_id": stranger,
        "purpose": "Else",
        "share": 0.9,
        "plan": "{}",
    },
    "training_dataset": {"provenance": "Made up", "kind": "public", "digest": "0" * 64},
    "consent_dataholder": {"user_id": stranger, "linked_at": "2020-01-01 00:00:00+00:00"},
    "consent_invitation": {"code_hash": "0" * 64, "revoked_at": "2026-01-01 00:00:00+00:00"},
    "consent_webhookendpoint": {"url": "https://198.51.100.1/", "secret": "known", "events": '["form.proposed"]'},
}


def test_changes_by_sql_are_found(study: Study) -> None:
    assert verified() == []
    only = {"consent_dataholder": "WHERE user_id IS NOT NULL", "training_dataset": "WHERE kind = 'test'"}
    for table, column, value in [(table, *each) for table, values in OTHERS.items() for each in values.items()]:
        with transaction.atomic():
            sql(f"UPDATE {table} SET {column} = %s {only.get(table, '')}", value() if callable(value) else value)
            expected = f": {column.removesuffix('_id')} differs from the record."
            assert [fault for fault in change_faults(study) if expected in fault], (table, column)
            transaction.set_rollback(True)
    sql("UPDATE consent_study SET delta = %s", 1e-3)
    assert any(": delta differs from the record." in fault for fault in verified()), "the command finds it as well"


def test_unrecorded_changes_of_rows_are_found(study: Study) -> None:
    run = Run.objects.get(study=study)
    run.title = "Another"
    run.save()
    invitation = Invitation.objects.get(study=study)
    sql("DELETE FROM consent_invitation WHERE id = %s", invitation.pk)
    made = Invitation.objects.create(study=study, code_hash="1" * 64, created_by=user_create("mallory"))
    other = DataHolder.objects.filter(study=study, user=None).earliest("pk")
    sql("UPDATE consent_dataholder SET user_id = %s WHERE id = %s", stranger(), other.pk)
    assert set(change_faults(study)) == {
        f"run {run.pk}: title differs from the record.",
        f"data holder {other.pk}: no record shows who added it.",
        f"invitation {made.pk}: no record shows who added it.",
        f"invitation {invitation.pk}: is missing, and no record shows who removed it.",
    }


def test_a_later_change_through_the_services_hides_no_earlier_one(study: Study) -> None:
    """The next person to change the row is not blamed for the earlier change, and reverting it hides nothing."""
    sql("UPDATE consent_study SET mail_opening = %s", "Else.")
    services.study_update(study=study, acting_user=user_create("olga"), title="Another title")
    assert list(change_faults(study)) == [f"study {study.pk}: mail_opening differs from the record."]
    services.study_update(study=Study.objects.get(), acting_user=user_create("olga"), mail_opening="")
    number, (fault,) = ConfigurationChange.head(study.pk).sequence, change_faults(study)
    assert fault.startswith(f"study {study.pk}: before change {number}, mail_opening differed from the")


def test_an_account_that_an_sql_prompt_raises_is_found() -> None:
    user = user_create("mallory")
    assert verified() == []
    for flag, statement in (
        ("is_superuser", "UPDATE auth_user SET is_superuser = true WHERE id = %s"),
        ("is_staff", "UPDATE auth_user SET is_staff = true WHERE id = %s"),
        ("is_active", "UPDATE auth_user SET is_active = false WHERE id = %s"),
        ("administrator", "INSERT INTO consent_administrator (user_id) VALUES (%s)"),
    ):
        with transaction.atomic():
            sql(statement, user.pk)
            assert verified() == [f"account {user.pk}: {flag} differs from the record."]
            transaction.set_rollback(True)
    administrator_set(user=user, appointed=True, acting_user=None)
    triggers_remove(connection)
    sql("UPDATE consent_accountchange SET changed_by_id = %s", 77)
    assert verified() == ["account change 1: its content was changed after it was recorded (hash differs)."]
    sql("DELETE FROM consent_accountchange")
    sql("DELETE FROM consent_administrator")
    assert any("rows were removed" in fault for fault in verified())


def test_account_changes_by_services_admin_and_commands_are_not_faults() -> None:
    call_command("createsuperuser", interactive=False, username="root", email="root@example.org", verbosity=0)
    root = User.objects.get(username="root")
    root.set_password(factories.PASSWORD)
    root.save()
    made = account_create(username="ada", first_name="", last_name="", email="ada@example.org", acting_user=root)
    administrator_set(user=made, appointed=True, acting_user=root)
    account_close(user=made, acting_user=root)
    account_reopen(user=made, acting_user=root)
    client = as_(root)
    values = {"username": "ada", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00", "is_active": "on"}
    values |= {"is_staff": "on", "is_superuser": "on"}
    page = client.post(reverse("admin:auth_user_change", args=[made.pk]), values)
    assert page.status_code == 302
    kinds = AccountChange.objects.filter(user=made.pk).exclude(kind="changed").values_list("kind", "changed_by")
    assert [*kinds][-2:] == [("admin", root.pk), ("superuser", root.pk)]
    assert list(account_faults()) == []
    words = {"password1": "another horse battery", "password2": "another horse battery", "usable_password": "true"}
    password = client.post(reverse("admin:auth_user_password_change", args=[user_create("eva").pk]), words)
    assert password.url == reverse("admin:auth_user_change", args=[user_create("eva").pk])  # type: ignore[attr-defined]
    assert [*AccountChange.objects.filter(user=user_create("eva")).values_list("kind", flat=True)] == ["changed"]
    gone = user_create("gone", is_staff=True)
    assert client.post(reverse("admin:auth_user_delete", args=[gone.pk]), {"post": "yes"}).status_code == 302
    assert [*AccountChange.objects.filter(user=gone.pk).values_list("kind", flat=True)] == ["admin", "deleted"]
    assert verified() == []


@pytest.mark.django_db(transaction=True)
def test_account_changes_missing_from_a_backup_are_faults_until_reviewed() -> None:
    administrator_set(user=user_create("ada"), appointed=True, acting_user=None)
    assert verified() == []
    head_note(None, "consent.accountchange", 9, "f" * 64)
    fault = "account change: 8 rows in the journal are missing from the database."
    assert verified() == [fault]
    call_command("review_accounts", stdout=io.StringIO())
    with pytest.raises(CommandError, match="--user NAME"):
        call_command("review_accounts", "--reviewed", stdout=io.StringIO())
    assert verified() == [fault]
    call_command("review_accounts", "--reviewed", "--user", "ada", stdout=io.StringIO())
    assert verified() == []
    assert [*AccountChange.objects.values_list("kind", flat=True)] == ["appointed", "reviewed"]


def test_the_database_refuses_a_run_that_its_proposer_approved(study: Study) -> None:
    run = Run.objects.get(study=study)
    for field, other in (("created_by", run.approved_by_id), ("approved_by", run.created_by_id)):
        with pytest.raises(IntegrityError, match="second_person"), transaction.atomic():
            sql(f"UPDATE training_run SET {field}_id = %s", other)


def test_proposer_of_a_run_can_be_deleted_on_record(study: Study) -> None:
    run = Run.objects.get(study=study)
    proposer = run.created_by
    assert proposer is not None
    number = proposer.pk
    proposer.memberships.all().delete()
    proposer.delete()
    User.objects.get(username="hanna").delete()
    assert list(change_faults(study)) == []
    change = ConfigurationChange.chain(study.pk).last()
    assert (change.before, change.after) == ({"created_by": number}, {"created_by": None})
    run.refresh_from_db()
    assert run.created_by is None


def test_every_field_is_declared_once() -> None:
    assert {Study, Run, Dataset, DataHolder, Invitation, WebhookEndpoint} <= set(recorded_models())
    for model in recorded_models():
        fields = [field.name for field in model._meta.concrete_fields if not field.primary_key]
        declared = [*model.open_fields, *model.sealed_fields, *model.working_fields]
        assert sorted(declared) == sorted(set(fields) - {"study"}), model.__name__


def test_a_change_records_old_and_new_values_and_the_user(study: Study) -> None:
    olga = user_create("olga")
    services.study_update(study=study, acting_user=olga, title="Another title", languages=["en", "de"])
    change = ConfigurationChange.chain(study.pk).last()
    assert (change.model, change.row, change.changed_by_id) == ("consent.study", str(study.pk), olga.pk)
    assert change.before == {"title": study.title, "languages": ["en"]}
    assert change.after == {"title": "Another title", "languages": ["en", "de"]}
    rows = ConfigurationChange.head(study.pk).sequence
    services.study_update(study=study, acting_user=olga, title="Another title")
    assert ConfigurationChange.head(study.pk).sequence == rows, "nothing was changed"


def test_no_value_that_concerns_a_person_or_is_a_secret_is_in_the_record(study: Study) -> None:
    hanna, invitation = User.objects.get(username="hanna"), Invitation.objects.get(study=study)
    for change in SealedChange.chain(study.pk):
        for value in {**(change.before or {}), **(change.after or {})}.values():
            assert value is None or (len(value) == 64 and value != invitation.code_hash)
    models = set(ConfigurationChange.chain(study.pk).values_list("model", flat=True))
    assert models == {"consent.study", "training.dataset", "training.run", "consent.webhookendpoint"}
    assert hanna.pk not in SealedChange.chain(study.pk).values_list("changed_by", flat=True)


def test_the_number_of_open_changes_follows_from_no_holder(study: Study) -> None:
    rows = ConfigurationChange.head(study.pk).sequence
    holder = DataHolder.objects.filter(study=study, user=None).earliest("pk")
    services.consent_withdraw(holder=holder, acting_user=None)
    services.holder_link(holder=holder, user=user_create("gerd"))
    link_reissue(study=study, pseudonym=holder.pseudonym, reason="lost", acting_user=user_create("sara"))
    call_command("erase_due")
    assert ConfigurationChange.head(study.pk).sequence == rows
    assert list(change_faults(study)) == []


def test_changing_the_secret_key_keeps_earlier_seals_valid(study: Study, settings: Any) -> None:
    old = settings.SECRET_KEY
    with override_settings(SECRET_KEY="n" * 60, SECRET_KEY_FALLBACKS=[old]):
        assert list(change_faults(study)) == []
        holder = DataHolder.objects.get(study=study, user__username="hanna")
        services.holder_link(holder=holder, user=user_create("gerd"))
        assert list(change_faults(study)) == []
    with override_settings(SECRET_KEY="n" * 60, SECRET_KEY_FALLBACKS=[]):
        assert list(change_faults(study)) != []


def test_the_admin_changes_nothing_unrecorded(study: Study) -> None:
    root = user_create("root", is_superuser=True, is_staff=True)
    client = as_(root)
    holder = DataHolder.objects.get(study=study, user__username="hanna")
    run, dataset = Run.objects.get(study=study), Dataset.objects.filter(study=study).earliest("pk")
    for name, pk, values in (
        ("consent_dataholder", holder.pk, {"pseudonym": holder.pseudonym, "user": user_create("gerd").pk}),
        ("training_run", run.pk, {"title": "Another", "purpose": "", "claimed_by": "", "message": ""}),
        ("training_dataset", dataset.pk, {"name": "another"}),
    ):
        assert client.post(reverse(f"admin:{name}_change", args=[pk]), values).status_code == 302, name
    assert ConfigurationChange.chain(study.pk).last().changed_by_id == root.pk
    assert SealedChange.chain(study.pk).last().changed_by_id == root.pk
    assert list(change_faults(study)) == []


def acts_of(study: Study, draw: random.Random) -> list[Callable[[], Any]]:
    """Return everybody's actions through the services, on random rows; those that are not possible now are refused."""
    olga, sara, names = user_create("olga"), user_create("sara"), (f"Q-{number}" for number in range(1000))

    def one(rows: Any) -> Any:
        found = list(rows.order_by("pk"))
        if not found:
            raise ValidationError("none")
        return draw.choice(found)

    def of_study(model: Any, **fields: Any) -> Any:
        return one(model.objects.filter(study=study, **fields))

    def edit() -> None:
        field = draw.choice([{"title": str(draw.random())}, {"controller": "C"}, {"delta": draw.uniform(1e-9, 1e-3)}])
        services.study_update(study=study, acting_user=olga, **field)

    def change_draft() -> None:
        run = of_study(Run, status="draft")
        datasets = {name: getattr(run, name) for name in ("private_dataset", "public_dataset", "test_dataset")}
        fields = {**teachers_chosen(TABLE_RUN), **datasets, "title": f"Run {draw.random()}", "purpose": "Other"}
        run_edit(run=run, acting_user=run.created_by, **fields)

    def withdraw_draft() -> None:
        run = of_study(Run, status="draft")
        run_withdraw(run=run, acting_user=run.created_by)

    def invite() -> None:
        people, more = [next(names), of_study(DataHolder).pseudonym], {"open_places": 1, "replace": draw.random() < 0.5}
        *_, new = invitations_create(study=study, acting_user=sara, pseudonyms=people, **more)
        if draw.random() < 0.5:
            invitation_open(code=new.code, address="192.0.2.1")

    def link() -> None:
        user = user_create(f"person-{draw.randrange(5)}") if draw.random() < 0.7 else None
        services.holder_link(holder=of_study(DataHolder), user=user)
        if user:
            account_invitations_end(user=user)

    def remove_dataset() -> None:
        if draw.random() < 0.2:
            dataset_remove(dataset=of_study(Dataset), reason="over", acting_user=sara)

    def account() -> None:
        user, act = user_create(f"staff-{draw.randrange(3)}"), draw.choice([account_close, account_reopen, None])
        if act is None:
            administrator_set(user=user, appointed=draw.random() < 0.5, acting_user=None)
        elif AccountChange.objects.filter(user=user, kind="appointed").exists():
            act(user=user, acting_user=None)

    def delete_account() -> None:
        if draw.random() < 0.3:
            one(User.objects.filter(username__startswith="person-")).delete()

    webhook = {"url": "https://9.9.9.9/", "events": ["run.proposed"], "acting_user": olga}
    return [
        *(edit, change_draft, withdraw_draft, invite, link, remove_dataset, account, delete_account),
        lambda: link_reissue(study=study, pseudonym=of_study(DataHolder).pseudonym, reason="lost", acting_user=sara),
        lambda: circumstance(study, draw.choice(["proxy", "person", "died"]), pseudonym=of_study(DataHolder).pseudonym),
        lambda: dataset_provenance_state(dataset=of_study(Dataset), provenance=str(draw.random()), acting_user=olga),
        lambda: run_draft(study, **TABLE_RUN),
        lambda: run_approve(run=of_study(Run, status="draft"), acting_user=olga, share=0.01),
        lambda: invitation_revoke(invitation=of_study(Invitation), acting_user=sara),
        lambda: endpoint_create(study=study, **webhook),
        lambda: endpoint_remove(endpoint=of_study(WebhookEndpoint), acting_user=olga),
    ]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
def test_services_leave_no_faults(seed: int) -> None:
    administrator_set(user=user_create("keeper"), appointed=True, acting_user=None)
    today = timezone.localdate()
    study, draw = study_with_table(retention_until=today + timedelta(days=30)), random.Random(seed)
    acts = acts_of(study, draw)
    for number in range(60):
        study.refresh_from_db()
        with suppress(ValidationError):  # the next one, not now
            draw.choice(acts)()
        if number % 10 == 9:
            assert [*change_faults(study), *account_faults()] == []
    for run in Run.objects.filter(study=study).exclude(status__in=Run.ENDED):
        run_cancel(run=run, acting_user=user_create("olga"))
    study_close(study=study, reason="over", acting_user=user_create("olga"), erase_after=today + timedelta(days=1))
    records_expire(study=Study.objects.get(pk=study.pk), today=today + timedelta(days=2))
    assert not Invitation.objects.filter(study=study).exists()
    assert [*change_faults(study), *account_faults()] == []
    assert ConfigurationChange.head(study.pk).sequence > 15
    assert SealedChange.head(study.pk).sequence > 15
