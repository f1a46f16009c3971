"""Whoever decides for another person declares by which right: it is asked, recorded, and on the receipt."""

from datetime import date

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from consent import exports, receipts, services
from consent.models import ConsentEvent, DataHolder, Study
from consent.services.decisions import Declaration
from consent.services.invitations import Invited
from tests import factories
from tests.consent.conftest import answer, link_opened

DECLARED = Declaration("parents", "I may decide about this person")


@pytest.fixture
def client(study: Study) -> Client:
    """Browser of the bearer of an invitation who answers as Anna's guardian."""
    return link_opened(study, Invited("Anna", "guardian", date(2099, 1, 1)))


@pytest.fixture
def holder(study: Study, client: Client) -> DataHolder:
    return DataHolder.objects.get(study=study, pseudonym="Anna")


def test_a_guardian_is_asked_by_which_right_they_consent(client: Client, study: Study, holder: DataHolder) -> None:
    check, decide = (reverse(f"consent:{page}", args=["digits"]) for page in ("check", "decide"))
    client.post(reverse("consent:study", args=["digits"]), answer(study))
    page = client.get(check).text
    assert "parental responsibility" in page.lower()
    assert "power of attorney" not in page, "that is a proxy's"
    refused = client.post(decide, answer(study))
    assert refused.status_code == 422
    assert "Say by which right you decide." in refused.text
    client.post(decide, answer(study, "NONE"))
    assert client.post(decide, answer(study, authority="parents", declared="on")).status_code == 302
    client.post(reverse("consent:withdraw", args=["digits"]), {"records": "keep"})
    refusal, event, withdrawal = ConsentEvent.objects.filter(holder=holder).order_by("sequence")
    assert [(each.kind, each.authority) for each in (refusal, withdrawal)] == [("refused", ""), ("withdrawn", "")]
    assert (event.authority, event.answered_by) == ("parents", "guardian")
    assert event.statement.startswith("I may decide about this person")
    receipt = client.get(reverse("consent:receipt", args=["digits", 2])).text
    assert "Parental responsibility" in receipt and "I may decide about this person" in receipt
    assert "Anna" not in event.statement, "it outlives the pseudonym"
    themself = link_opened(study, "P-2")
    themself.post(reverse("consent:study", args=["digits"]), answer(study))
    assert "By which right" not in themself.get(check).text
    assert themself.post(decide, answer(study)).status_code == 302


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
