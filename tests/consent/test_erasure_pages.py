"""Pages that ask holders, or tell them, what happens to their stored records; links to a closed study."""

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from consent import services
from consent.models import AfterWithdrawal, DataHolder, Disposal, Study
from consent.selectors import consent_current
from consent.services.erasures import erasures_waiting, holders_waiting
from consent.services.invitations import invitations_create
from tests.consent.conftest import answer, circumstance, link_opened
from tests.factories import decide, study_open, user_create
from training.services.erasures import records_erase, study_close

pytestmark = pytest.mark.django_db


def invited(study: Study, level: str = "LOW") -> tuple[Client, DataHolder]:
    """Return a holder who has decided, and the browser in which they opened their link."""
    client, holder = link_opened(study), DataHolder.objects.get(study=study, pseudonym="P-1")
    if level:
        decide(holder, level)
    return client, holder


def url(name: str, *args: object) -> str:
    return reverse(f"consent:{name}", args=["digits", *args])


def test_a_withdrawal_without_an_answer_erases_the_records() -> None:
    study = study_open()
    client, holder = invited(study)
    page = client.get(url("withdraw")).text
    assert 'name="records" value="erase"' in page and "checked" not in page
    assert "The records will then be erased within a day" in page
    client.post(url("withdraw"))
    assert consent_current(holder).kind == "withdrawn"
    assert holders_waiting(study) == {holder.pk}
    assert "This website will erase these records within a day." in client.get(url("receipt", 2)).text
    assert "stored records must be erased" in client.get(url("choice")).text


@pytest.mark.parametrize("kind", ["guardian", "proxy"])
def test_a_withdrawal_on_behalf_of_an_undecided_holder_erases_records(kind: str) -> None:
    study = study_open()
    services.holders_register(study=study, pseudonyms=["P-1"])
    circumstance(study, kind)
    client, holder = invited(study)
    client.post(url("withdraw"))
    assert consent_current(holder).answered_by == kind
    assert holders_waiting(study) == {holder.pk}


def test_wish_to_keep_records_is_on_record_and_they_can_be_erased_later() -> None:
    study = study_open()
    client, holder = invited(study)
    client.post(url("withdraw"), {"records": "keep"})
    assert not holders_waiting(study)
    assert [row.kind for row in Disposal.objects.all()] == ["kept"], "the answer is logged"
    assert "None of your records are stored here." in client.get(url("choice")).text
    assert "These records stay stored, as you asked, but are" in client.get(url("receipt", 2)).text
    assert url("erase") in client.get(url("choice")).text
    assert "cannot be undone" in client.get(url("erase")).text
    assert not holders_waiting(study), "opening the page changes nothing"
    client.post(url("erase"))
    assert holders_waiting(study) == {holder.pk}
    assert "stored records must be erased" in client.post(url("erase"), follow=True).text, "from a second window"
    assert Disposal.objects.filter(kind=Disposal.Kind.ASKED).count() == 1
    records_erase(study.pk)
    page = client.get(url("choice")).text
    assert "Your stored records were erased on" in page and url("erase") not in page
    receipt = client.get(url("receipt", 1)).text
    assert "P-1" not in strip_tags(receipt) and "Known to the study as" not in receipt


def test_refusing_also_carries_out_the_answer_on_erasure() -> None:
    study = study_open()
    client, holder = invited(study)
    assert client.post(url("erase")).headers["Location"] == url("choice"), "participants must withdraw before erasing"
    assert not Disposal.objects.exists()
    client.post(url("study"), answer(study, "NONE"))
    assert 'name="records" value="erase"' in client.get(url("check")).text
    client.post(url("decide"), answer(study, "NONE", records="keep"))
    assert consent_current(holder).kind == "withdrawn"
    assert holders_waiting(study) == set()


def test_nobody_is_asked_in_a_study_that_promises_erasure() -> None:
    study = study_open(after_withdrawal=AfterWithdrawal.ERASED)
    client, holder = invited(study)
    assert "stored records will then be erased here within" in client.get(url("study")).text
    page = client.get(url("withdraw")).text
    assert 'name="records"' not in page and "then be erased here" in page
    client.post(url("withdraw"))
    assert holders_waiting(study) == {holder.pk}
    page = client.get(url("choice")).text
    assert "we recorded that your stored records must" in page and "You asked" not in page


@pytest.mark.parametrize("erased_before", [False, True])
def test_an_erasure_request_after_rejoining_erases_nothing(erased_before: bool) -> None:
    study = study_open()
    client, holder = invited(study)
    client.post(url("withdraw"), {} if erased_before else {"records": "keep"})
    if erased_before:
        records_erase(study.pk)
    decide(holder, "LOW")
    page = client.post(url("erase"), follow=True)
    assert (page.status_code, page.redirect_chain) == (200, [(url("choice"), 302)])
    assert "Your records were not erased, because you" in page.text and url("withdraw") in page.text
    assert "are being erased" not in page.text
    assert Disposal.objects.filter(kind=Disposal.Kind.ASKED).count() == int(erased_before)
    assert not holders_waiting(study)
    assert "records were not erased, because" not in client.get(url("erase"), follow=True).text, "no button was pressed"


def test_an_earlier_withdrawal_does_not_erase_records_to_be_kept() -> None:
    study = study_open()
    client, holder = invited(study)
    client.post(url("withdraw"))
    decide(holder, "LOW")
    records_erase(study.pk)
    client.post(url("withdraw"), {"records": "keep"})
    assert "These records stay stored, as you asked, but are" in client.get(url("receipt", 4)).text
    assert holders_waiting(study) == set() and erasures_waiting([study]) == []
    client.post(url("erase"))
    assert holders_waiting(study) == {holder.pk}
    assert [(each.study_id, each.number) for each in erasures_waiting([study])] == [(study.pk, 1)]


def test_links_of_a_closed_study_lead_to_a_page_that_says_so() -> None:
    study = study_open()
    (open_one,) = invitations_create(study=study, acting_user=None, open_places=1)
    (undecided,) = invitations_create(study=study, acting_user=None, pseudonyms=["P-2"])
    client, holder = invited(study)
    study_close(study=study, reason="Done.", acting_user=user_create("olga"), erase_after=timezone.localdate())
    for issued in (open_one, undecided):
        stranger = Client()
        answer = stranger.get(reverse("open_link", args=[issued.code]))
        assert answer.headers["Location"] == reverse("closed")
        page = stranger.get(reverse("closed"))
        assert page.status_code == 410
        assert "This study is closed" in page.text and "study@example.org" in page.text
        assert stranger.get(url("study")).status_code == 302, "the link does not work"
    assert not DataHolder.objects.filter(pseudonym__startswith="new-").exists(), "no new holder is created"
    assert Client().get(reverse("closed")).headers["Location"] == reverse("join")
    assert client.get(url("study")).status_code == 410
    page = client.get(url("choice")).text
    assert "It no longer learns anything new" in page and url("withdraw") in page and "Read again or change" not in page
    client.post(url("withdraw"), {"records": "erase"})
    assert consent_current(holder).kind == "withdrawn" and holders_waiting(study) == {holder.pk}
