"""Nightly verification: faults are stored, counted, mailed and shown, and so is a missing verification."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import mail as outbox
from django.db import connection
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from common.append_only import triggers_remove
from consent.models import ConsentEvent, Mail, Study
from consent.services import consent_withdraw
from consent.services.mail import mails_deliver
from tests import factories
from tests.pages import as_, study_with_roles, text, url
from tests.snapshots import built_once
from training.models import Verification
from training.tasks import studies_verify as task
from training.verification import studies_verify
from training.watch import OVERDUE

pytestmark = pytest.mark.django_db

STAFF = ("operator", "steward", "committee", "chair", "auditor")


@pytest.fixture
@built_once
def study() -> Study:
    study = study_with_roles()
    for role in (*STAFF, "researcher"):
        user = factories.user_create(role)
        EmailAddress.objects.create(user=user, email=f"{role}@example.org", verified=True, primary=True)
    Mail.objects.all().delete()  # about their new roles
    return study


@pytest.fixture
def metric(settings: Any) -> Callable[[str], float]:
    settings.METRICS_TOKEN = "t" * 32

    def metric(name: str) -> float:
        answer = Client().get("/metrics", headers={"Authorization": f"Bearer {settings.METRICS_TOKEN}"})
        families = text_string_to_metric_families(answer.content.decode())
        return next(each.value for family in families for each in family.samples if each.name == name)

    return metric


def row_edit(study: Study) -> None:
    """Change a recorded decision in spite of the triggers."""
    triggers_remove(connection)
    event = ConsentEvent.chain(study.pk).first()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE consent_consentevent SET previous_hash = 'f' WHERE id = %s", [event.pk])


def mailed() -> dict[str, str]:
    """Return the texts of all mails that are delivered now, by recipient."""
    outbox.outbox.clear()
    mails_deliver()
    return {message.to[0].partition("@")[0]: f"{message.subject}\n{message.body}" for message in outbox.outbox}


def pages(study: Study, role: str) -> list[str]:
    client = as_(role)
    return [text(client.get("/")), text(client.get(url("study", study)))]


def state() -> str:
    return Client().get("/readyz").json()["verification"]


def test_a_planted_fault_leads_to_a_row_a_metric_mails_and_banners(study, metric) -> None:
    task()
    outcome = Verification.objects.get(study=study)
    assert (outcome.faults, outcome.locked, outcome.found) == (0, False, [])
    assert timezone.now() - outcome.verified_at < timedelta(minutes=1)
    assert metric("ipate_studies_faulty") == 0 and state() == "ok" and mailed() == {}
    assert not any("fault" in page for role in STAFF for page in pages(study, role))

    row_edit(study)
    studies_verify()
    assert Verification.objects.get(study=study).faults == 0, "once a night"
    night_before(study)
    studies_verify()
    outcome = Verification.objects.get(study=study)
    assert outcome.faults > 0 and outcome.fault_for_deciders and not outcome.locked
    assert metric("ipate_studies_faulty") == 1 and state() == "fault found"

    mails = mailed()
    assert set(mails) == {"auditor", "committee", "chair"}
    assert f"found {outcome.faults} fault" in mails["auditor"]
    for role in ("committee", "chair"):
        assert "A fault was found. The study's auditors have the details." in mails[role]
        assert not any(character.isdigit() for character in mails[role].replace("127.0.0.1:8000", ""))
    for role in STAFF:
        for page in pages(study, role):
            assert "The verification found a fault." in page
            assert ("auditors have the details" in page) is (role in ("operator", "committee", "chair"))
        assert ("previous hash differs" in pages(study, role)[1]) is (role in ("auditor", "steward"))
    assert "found a fault" not in text(as_("researcher").get(url("runs", study)))

    night_before(study)
    studies_verify()
    assert set(mailed()) == {"auditor", "committee", "chair"}, "every night until the fault is gone"


def night_before(study: Study) -> None:
    """Make the last verification a day old."""
    day_ago = timezone.now() - timedelta(days=1)
    Verification.objects.filter(study=study).update(verified_at=day_ago, claimed_at=day_ago)


def test_decision_makers_never_see_a_holders_choice(study, metric, monkeypatch) -> None:
    """An erasure that was requested but not done is a fault that follows from one person's choice."""
    consent_withdraw(holder=study.holders.first(), acting_user=None)
    monkeypatch.setattr("training.verification.LONGEST_WAIT", timedelta(0))
    mailed()
    studies_verify()
    outcome = Verification.objects.get(study=study)
    assert outcome.faults == 1 and not outcome.fault_for_deciders
    assert metric("ipate_studies_faulty") == 0 and state() == "ok"
    assert set(mailed()) == {"auditor"}
    for role in ("operator", "committee", "chair"):
        assert not any("found a fault" in page for page in pages(study, role))
    for role in ("steward", "auditor"):
        assert "asked more than a day ago to have their records erased" in pages(study, role)[1]


def test_rows_without_a_study_are_verified_too(study: Study, metric: Callable[[str], float]) -> None:
    factories.user_create("eve")
    User.objects.filter(username="eve").update(is_superuser=True)  # without the services
    studies_verify()
    assert Verification.objects.get(study=None).faults > 0 and Verification.objects.get(study=study).faults == 0
    assert metric("ipate_studies_faulty") == 1 and state() == "fault found"
    assert "auditor" in mailed()
    assert "Not part of any study" in text(as_("auditor").get("/"))
    for role in ("operator", "steward", "committee"):
        assert "Not part of any study" not in text(as_(role).get("/"))


def test_a_verification_that_did_not_run_is_shown(study, metric, monkeypatch) -> None:
    assert state() == "ok", "a new study is not overdue"
    with monkeypatch.context() as later:
        later.setattr("training.watch.OVERDUE", timedelta(0))
        assert state() == "overdue"
        for page in pages(study, "operator"):
            assert "The verification is overdue." in page
            assert "The verification should run every night but has never" in page
    studies_verify()
    assert state() == "ok" and metric("ipate_verification_age_seconds") < 60
    Verification.objects.update(verified_at=timezone.now() - OVERDUE - timedelta(minutes=1))
    assert state() == "overdue" and metric("ipate_verification_age_seconds") > 26 * 3600
    assert all("The verification is overdue." in page for page in pages(study, "committee"))


def test_a_study_being_verified_is_skipped(study: Study) -> None:
    Verification.objects.create(study=study, claimed_at=timezone.now() - timedelta(hours=1))
    studies_verify()
    assert Verification.objects.get(study=study).verified_at is None
    Verification.objects.filter(study=study).update(claimed_at=timezone.now() - timedelta(hours=4))
    studies_verify()
    assert Verification.objects.get(study=study).verified_at is not None
