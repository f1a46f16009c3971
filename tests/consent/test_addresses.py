"""Mails and letters to holders without an account: an address that they leave, confirm and delete."""

import json
from datetime import timedelta

import pytest
from django.conf import settings
from django.core import mail as outbox
from django.test import Client
from django.utils import timezone

from consent import services
from consent.models import DataHolder, HolderAddress, Letter, Mail, SealedChange, Study
from consent.selectors import consent_form_in_force
from consent.services.addresses import WAITS, addresses_sweep
from consent.services.changes import change_faults
from consent.services.handover import circumstance_record
from consent.services.invitations import invitations_create, link_reissue
from consent.services.letters import letters_due
from consent.services.mail import mails_deliver
from tests import factories
from tests.pages import as_, text
from training.services.erasures import records_erase

pytestmark = pytest.mark.django_db

TOLD = "/my/digits/told/"


@pytest.fixture
def study() -> Study:
    return factories.study_open(title="Reading digits")


@pytest.fixture
def holder(study: Study) -> DataHolder:
    return factories.holder_create(study, "P-1")


@pytest.fixture
def browser(study: Study, holder: DataHolder) -> Client:
    """Browser in which the holder's link was opened."""
    (new,) = invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    client = Client()
    client.get(f"/join/{new.code}/")
    return client


def delivered() -> list[outbox.EmailMessage]:
    outbox.outbox.clear()
    mails_deliver()
    return list(outbox.outbox)


def link_in(message: outbox.EmailMessage) -> str:
    (link,) = {word for word in message.body.split() if "/address/" in word}
    return link.removeprefix(settings.SITE_URL.rstrip("/"))


def leave(browser: Client, email: str = "hanna@example.org") -> str:
    """Leave an address; returns the link of the mail that asks to confirm it."""
    browser.post(TOLD, {"way": "mail", "email": email})
    (message,) = delivered()
    assert message.to == [email]
    return link_in(message)


def confirmed(browser: Client) -> str:
    link = leave(browser)
    Client().post(link, {"confirm": "1"})
    return link


def decide(holder: DataHolder, level: str = "HIGH") -> None:
    form = consent_form_in_force(holder.study)
    assert form is not None
    factories.consent_choose(holder=DataHolder.objects.get(pk=holder.pk), level=level, form=form, acting_user=None)


def test_an_unconfirmed_address_gets_the_confirmation_alone(browser: Client, holder: DataHolder) -> None:
    browser.post(TOLD, {"way": "mail", "email": "hanna@example.org"})
    (request,) = delivered()
    assert "digits" not in (request.subject + request.body).lower(), "somebody else may read it"
    decide(holder)
    assert delivered() == []
    assert "is not confirmed yet" in text(browser.get(TOLD))
    assert "Was it you?" in text(Client().get(link_in(request)))
    assert HolderAddress.objects.get().confirmed_at is None, "opening the link alone confirms nothing"
    Client().post(link_in(request), {"confirm": "1"})
    decide(holder, "LOW")
    (receipt,) = delivered()
    assert (receipt.to, receipt.subject) == (["hanna@example.org"], "Your decision on “Reading digits” is recorded")
    assert "protection" not in receipt.body
    assert "Mails go to hanna@example.org." in text(browser.get(TOLD))


def test_every_mail_deletes_the_address_at_one_click(browser: Client, holder: DataHolder) -> None:
    link = confirmed(browser)
    decide(holder)
    (receipt,) = delivered()
    assert link_in(receipt) == link
    assert receipt.extra_headers["List-Unsubscribe"] == f"<{settings.SITE_URL.rstrip('/')}{link}>"
    assert Client().get(link).status_code == 200 and HolderAddress.objects.exists()
    strict = Client(enforce_csrf_checks=True)  # a mail program has no cookie
    assert "Nothing is sent to it." in text(strict.post(link, {"List-Unsubscribe": "One-Click"}))
    assert not HolderAddress.objects.exists()
    assert Client().get(link).status_code == 404
    assert Client().get("/address/guessed/").status_code == 404
    decide(holder, "LOW")
    assert delivered() == []


def test_news_and_reminders_reach_the_address_and_letters_are_no_longer_due(
    browser: Client, holder: DataHolder, study: Study
) -> None:
    decide(holder)
    factories.form_publish(study, {"en": "More.", "de": "Mehr."}, renewal="required")
    assert len(letters_due(study, Letter.Kind.NEW_FORM)) == 1
    confirmed(browser)
    assert letters_due(study, Letter.Kind.NEW_FORM) == []
    factories.form_publish(study, {"en": "More yet.", "de": "Noch mehr."}, renewal="required")
    link_reissue(study=study, pseudonym="P-1", reason="Lost.", acting_user=factories.user_create("olga"))
    assert {message.to[0] for message in delivered()} == {"hanna@example.org"}
    assert sorted(Mail.objects.filter(address__isnull=False).values_list("kind", flat=True)) == [
        *("address_left", "new_form", "new_link")
    ]


def test_receipts_come_on_paper_for_holders_who_prefer_letters(
    browser: Client, holder: DataHolder, study: Study
) -> None:
    confirmed(browser)
    decide(holder)
    assert letters_due(study, Letter.Kind.RECEIPT) == []
    browser.post(TOLD, {"way": "letter"})
    assert HolderAddress.objects.get().email == ""
    assert "You are told by letter, receipts included." in text(browser.get(TOLD))
    assert len(letters_due(study, Letter.Kind.RECEIPT)) == 1
    browser.post(TOLD, {"way": "none"})
    assert letters_due(study, Letter.Kind.RECEIPT) == []
    assert not HolderAddress.objects.exists()


@pytest.mark.parametrize("end", ["account", "guardian", "died", "erased"])
def test_the_address_goes_with_what_it_was_for(browser: Client, holder: DataHolder, study: Study, end: str) -> None:
    confirmed(browser)
    decide(holder)
    if end == "account":
        services.holder_link(holder=holder, user=factories.user_create("hanna"))
    elif end == "erased":
        services.consent_withdraw(holder=holder, acting_user=None)
        records_erase(study.pk)
        assert HolderAddress.objects.exists(), "the receipt of the withdrawal is still to be delivered"
        assert "Your decision" in delivered()[-1].subject
        addresses_sweep()
    else:
        until = timezone.localdate() + timedelta(days=99) if end == "guardian" else None
        circumstance_record(study=study, pseudonym="P-1", kind=end, until=until, reason="Known.", acting_user=None)
    assert not HolderAddress.objects.exists()
    assert not Mail.objects.filter(address__isnull=False).exists()


def test_an_address_that_is_left_after_an_erasure_stays(browser: Client, holder: DataHolder, study: Study) -> None:
    decide(holder)
    services.consent_withdraw(holder=holder, acting_user=None)
    records_erase(study.pk)
    decide(holder)
    confirmed(browser)
    delivered()
    assert addresses_sweep() == 0
    assert HolderAddress.objects.get().confirmed_at is not None


def test_an_address_that_nobody_confirms_is_deleted(browser: Client) -> None:
    leave(browser)
    assert addresses_sweep() == 0
    HolderAddress.objects.update(left_at=timezone.now() - WAITS)
    assert addresses_sweep() == 1
    assert not HolderAddress.objects.exists()


def test_confirmations_are_few(browser: Client) -> None:
    for number in range(5):
        leave(browser, f"h{number}@example.org")
    browser.post(TOLD, {"way": "mail", "email": "sixth@example.org"})
    assert delivered() == []
    assert "Too many mails were sent to confirm an address." in text(browser.get(TOLD))
    assert HolderAddress.objects.get().email == "h4@example.org", "nothing is half done"


def test_every_change_is_on_record_without_the_address(browser: Client, holder: DataHolder, study: Study) -> None:
    confirmed(browser)
    assert list(change_faults(study)) == []
    browser.post(TOLD, {"way": "none"})
    assert list(change_faults(study)) == []
    rows = SealedChange.objects.filter(study=study, model="consent.holderaddress")
    assert [(row.before is None, row.after is None) for row in rows.order_by("sequence")] == [
        *((True, False), (False, False), (False, True))
    ]
    assert not any("email" in (row.before or row.after) for row in rows)
    HolderAddress.objects.create(study=study, holder=holder, way="letter", language="en")
    assert list(change_faults(study)) != []


def test_the_copy_of_everything_stored_has_the_address(browser: Client, holder: DataHolder) -> None:
    confirmed(browser)
    copy = json.loads(browser.get("/my/digits/export/").content)
    assert copy["addresses"][0]["email"] == "hanna@example.org"
    assert [mail["kind"] for mail in copy["mails"]] == ["address_left"]


def test_an_account_leads_to_its_mail_settings(study: Study) -> None:
    user = factories.user_create("hanna")
    holder = factories.holder_create(study, user=user)
    assert "You have an account: mails go to its address." in text(as_(user).get(TOLD))
    as_(user).post(TOLD, {"way": "mail", "email": "other@example.org"})
    assert not HolderAddress.objects.exists()
    assert TOLD not in as_(user).get("/my/digits/choice/").text
    assert holder.user == user


def test_an_invalid_address_is_refused_at_its_field(browser: Client) -> None:
    answer = browser.post(TOLD, {"way": "mail", "email": "hanna"})
    assert answer.status_code == 422
    assert "Enter a valid e-mail address" in text(answer)
    assert TOLD in browser.get("/my/digits/choice/").text


# --- Decide later ---------------------------------------------------------------------------------------------------

LATER = "/my/digits/later/"


def after(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    now = timezone.now() + timedelta(days=days)
    monkeypatch.setattr(timezone, "now", lambda: now)


def test_a_postponed_decision_is_reminded_once(
    browser: Client, holder: DataHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert browser.post("/my/digits/", {"later": "1"}).url == LATER
    browser.post(LATER, {"days": "7", "email": "hanna@example.org"})
    assert "Nothing is decided." in text(browser.get("/my/digits/choice/"))
    assert not holder.consent_events.exists()
    (request,) = delivered()
    Client().post(link_in(request), {"confirm": "1"})
    browser.post(LATER, {"days": "3"})  # instead
    assert delivered() == []
    after(monkeypatch, 3)
    (reminder,) = delivered()
    assert reminder.subject == "“Reading digits”: you wanted to decide later"
    after(monkeypatch, 30)
    assert delivered() == []


def test_a_reminder_goes_to_an_account_without_another_address(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    user = factories.user_create("hanna", email="hanna@example.org")
    user.emailaddress_set.create(email=user.email, verified=True)
    factories.holder_create(study, user=user)
    assert 'type="email"' not in as_(user).get(LATER).text
    as_(user).post(LATER, {"days": "14"})
    after(monkeypatch, 13)
    assert delivered() == []
    after(monkeypatch, 1)
    assert [message.to for message in delivered()] == [["hanna@example.org"]]


def test_a_reminder_goes_to_the_address_that_corrects_another(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.post(LATER, {"days": "3", "email": "hana@example.org"})
    delivered()
    confirmed(browser)
    after(monkeypatch, 3)
    (reminder,) = delivered()
    assert reminder.to == ["hanna@example.org"]
    assert reminder.subject == "“Reading digits”: you wanted to decide later"


def test_a_reminder_goes_to_the_account_that_takes_the_place_of_an_address(
    browser: Client, holder: DataHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.post(LATER, {"days": "3", "email": "hanna@example.org"})
    user = factories.user_create("hanna", email="hanna@example.org")
    user.emailaddress_set.create(email=user.email, verified=True)
    services.holder_link(holder=holder, user=user)
    assert not HolderAddress.objects.exists() and delivered() == []
    after(monkeypatch, 3)
    (reminder,) = delivered()
    assert reminder.subject == "“Reading digits”: you wanted to decide later"


@pytest.mark.parametrize("end", ["decided", "unconfirmed", "handed over"])
def test_nobody_is_reminded_who_has_decided_or_whom_nothing_reaches(
    browser: Client, holder: DataHolder, study: Study, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    if end != "unconfirmed":
        confirmed(browser)
    browser.post(LATER, {"days": "3", "email": "hanna@example.org"})
    if end == "decided":
        decide(holder)
    if end == "handed over":
        until = timezone.localdate() + timedelta(days=99)
        circumstance_record(
            study=study, pseudonym="P-1", kind="guardian", until=until, reason="Known.", acting_user=None
        )
    delivered()
    after(monkeypatch, 4)
    assert delivered() == []


def test_another_number_of_days_is_refused(browser: Client) -> None:
    assert browser.post(LATER, {"days": "400", "email": "hanna@example.org"}).status_code == 422
    assert not HolderAddress.objects.exists()
