"""Whoever decides for another person declares by which right: it is asked, recorded, and on the receipt."""

from datetime import date

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from consent import exports, receipts, services
from consent.models import ConsentEvent, DataHolder, Study
from consent.services import invitations
from consent.services.decisions import Declaration
from tests import factories

DECLARED = Declaration("parents", "I may decide about this person")


@pytest.fixture
def study(db: None) -> Study:
    return factories.study_open(title="Reading digits")


@pytest.fixture
def holder(study: Study, client: Client) -> DataHolder:
    """Somebody for whom the bearer of an invitation answers as guardian; ``client`` is their browser."""
    invited = invitations.Invited("Anna", "guardian", date(2099, 1, 1))
    (issued,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=[invited])
    client.get(reverse("open_link", args=[issued.code]))
    return DataHolder.objects.get(study=study, pseudonym="Anna")


def answer(study: Study, choice: str = "LOW") -> dict[str, object]:
    form, policy = study.consent_forms.latest("version"), study.epsilon_policies.latest("version")
    return {"form_version": form.version, "policy_version": policy.version, "choice": choice}


def test_a_guardian_is_asked_by_which_right_they_consent(client: Client, study: Study, holder: DataHolder) -> None:
    client.post(reverse("consent:study", args=["digits"]), answer(study))
    page = client.get(reverse("consent:check", args=["digits"])).content.decode()
    assert "Parental" in page or "parental responsibility" in page
    assert "power of attorney" not in page, "that is a proxy's"
    decide = reverse("consent:decide", args=["digits"])
    refused = client.post(decide, answer(study))
    assert refused.status_code == 422
    assert "Say by which right you decide." in refused.content.decode()
    assert not ConsentEvent.objects.filter(holder=holder).exists()
    declared = client.post(decide, {**answer(study), "authority": "parents", "declared": "on"})
    assert declared.status_code == 302
    event = ConsentEvent.objects.get(holder=holder)
    assert (event.authority, event.answered_by) == ("parents", "guardian")
    assert event.statement.startswith("I may decide about this person")
    receipt = client.get(reverse("consent:receipt", args=["digits", 1])).content.decode()
    assert "Parental responsibility" in receipt and "I may decide about this person" in receipt
    assert "Anna" not in event.statement, "it outlives the pseudonym"


def test_refusal_and_withdrawal_need_no_declaration(client: Client, study: Study, holder: DataHolder) -> None:
    client.post(reverse("consent:decide", args=["digits"]), answer(study, "NONE"))
    form = study.consent_forms.latest("version")
    services.consent_give(holder=holder, level="LOW", form=form, acting_user=None, declared=DECLARED)
    client.post(reverse("consent:withdraw", args=["digits"]), {"records": "keep"})
    kinds = [(event.kind, event.authority) for event in ConsentEvent.objects.order_by("sequence")]
    assert kinds == [("refused", ""), ("given", "parents"), ("withdrawn", "")]


def test_holder_who_answers_for_themself_declares_nothing(client: Client, study: Study) -> None:
    (issued,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    client.get(reverse("open_link", args=[issued.code]))
    client.post(reverse("consent:study", args=["digits"]), answer(study))
    assert "By which right" not in client.get(reverse("consent:check", args=["digits"])).content.decode()
    assert client.post(reverse("consent:decide", args=["digits"]), answer(study)).status_code == 302


def test_a_right_that_the_role_cannot_have_is_refused(study: Study, holder: DataHolder) -> None:
    form = study.consent_forms.latest("version")
    for one, authority in ((holder, "power"), (factories.holder_create(study), "parents")):
        with pytest.raises(ValidationError, match="Who answers for this person has changed"):
            services.consent_give(
                holder=one, level="LOW", form=form, acting_user=None, declared=Declaration(authority, "I may.")
            )


def test_it_is_part_of_the_record(study: Study, holder: DataHolder) -> None:
    form = study.consent_forms.latest("version")
    event = services.consent_give(holder=holder, level="LOW", form=form, acting_user=None, declared=DECLARED)
    again = services.consent_give(holder=holder, level="LOW", form=form, acting_user=None, declared=DECLARED)
    assert again == event
    other = Declaration("guardianship", "I am the guardian.")
    assert services.consent_give(holder=holder, level="LOW", form=form, acting_user=None, declared=other) != event
    extension = receipts.receipt_json([event])["consent_record"]["events"][0]["extension"]
    assert (extension["authority"], extension["statement"]) == ("parents", DECLARED.statement)
    rows = list(exports.decisions(study))
    assert [row["authority"] for row in rows] == ["parents", "guardianship"]
    assert exports.export_faults(study, rows) == []
    assert list(ConsentEvent.chain_faults(study.pk)) == []
    alone = ConsentEvent.from_act(event.as_act())
    alone.statement = ""
    with pytest.raises(IntegrityError), transaction.atomic():
        ConsentEvent.append([alone])
