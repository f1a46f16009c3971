"""Emails and letters to holders without an account, and an address that they leave, confirm and delete."""

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core import mail as outbox
from django.test import Client
from django.utils import timezone

from consent import services
from consent.models import DataHolder, HolderAddress, Letter, Mail, SealedChange, Study
from consent.services.changes import change_faults
from consent.services.invitations import link_reissue
from consent.services.letters import letters_due
from consent.services.mail import WAITS, addresses_sweep, mails_deliver
from tests import factories
from tests.clock import later
from tests.consent.conftest import circumstance, link_opened
from tests.factories import decide, user_create
from tests.pages import text
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
    """Return a browser in which the holder's link was opened."""
    return link_opened(study)


def delivered() -> list[outbox.EmailMessage]:
    outbox.outbox.clear()
    mails_deliver()
    return list(outbox.outbox)


def link_in(message: outbox.EmailMessage) -> str:
    (link,) = {word for word in message.body.split() if "/address/" in word}
    return link.removeprefix(settings.SITE_URL.rstrip("/"))


def leave(browser: Client, email: str = "hanna@example.org") -> str:
    """Leave an address, and return the link in the email that asks to confirm it."""
    browser.post(TOLD, {"way": "mail", "email": email})
    (message,) = delivered()
    assert message.to == [email]
    return link_in(message)


def confirmed(browser: Client) -> str:
    link = leave(browser)
    Client().post(link, {"confirm": "1"})
    return link


def test_an_unconfirmed_address_gets_only_the_confirmation(browser: Client, holder: DataHolder) -> None:
    browser.post(TOLD, {"way": "mail", "email": "hanna@example.org"})
    (request,) = delivered()
    assert "digits" not in (request.subject + request.body).lower(), "other people may read the email"
    decide(holder, "HIGH")
    assert delivered() == []
    assert "is not confirmed yet" in text(browser.get(TOLD))
    assert "Was that you?" in text(Client().get(link_in(request)))
    assert HolderAddress.objects.get().confirmed_at is None, "opening the link does not confirm the address"
    Client().post(link_in(request), {"confirm": "1"})
    decide(holder, "LOW")
    (receipt,) = delivered()
    assert (receipt.to, receipt.subject) == (["hanna@example.org"], "Your decision on “Reading digits” is recorded")
    assert "protection" not in receipt.body
    assert "Emails go to hanna@example.org." in text(browser.get(TOLD))


def test_every_mail_deletes_the_address_at_one_click(browser: Client, holder: DataHolder) -> None:
    link = confirmed(browser)
    decide(holder, "HIGH")
    (receipt,) = delivered()
    assert link_in(receipt) == link
    assert receipt.extra_headers["List-Unsubscribe"] == f"<{settings.SITE_URL.rstrip('/')}{link}>"
    assert Client().get(link).status_code == 200 and HolderAddress.objects.exists()
    strict = Client(enforce_csrf_checks=True)  # a mail program has no cookie
    assert "This address is not stored here" in text(strict.post(link, {"List-Unsubscribe": "One-Click"}))
    assert not HolderAddress.objects.exists()
    assert Client().get(link).status_code == 404
    assert Client().get("/address/guessed/").status_code == 404
    decide(holder, "LOW")
    assert delivered() == []


def test_news_and_reminders_reach_the_address_and_letters_are_no_longer_due(browser, holder, study) -> None:
    decide(holder, "HIGH")
    factories.form_publish(study, {"en": "More.", "de": "Mehr."}, renewal="required")
    assert len(letters_due(study, Letter.Kind.NEW_FORM)) == 1
    confirmed(browser)
    assert letters_due(study, Letter.Kind.NEW_FORM) == []
    factories.form_publish(study, {"en": "More yet.", "de": "Noch mehr."}, renewal="required")
    link_reissue(study=study, pseudonym="P-1", reason="Lost.", acting_user=user_create("olga"))
    assert {message.to[0] for message in delivered()} == {"hanna@example.org"}
    kinds = Mail.objects.filter(address__isnull=False).values_list("kind", flat=True)
    assert sorted(kinds) == ["address_left", "new_form", "new_link"]


def test_receipts_come_on_paper_for_holders_who_prefer_letters(browser, holder, study) -> None:
    confirmed(browser)
    decide(holder, "HIGH")
    assert letters_due(study, Letter.Kind.RECEIPT) == []
    browser.post(TOLD, {"way": "letter"})
    assert HolderAddress.objects.get().email == ""
    assert "You get news and receipts by letter." in text(browser.get(TOLD))
    assert len(letters_due(study, Letter.Kind.RECEIPT)) == 1
    browser.post(TOLD, {"way": "none"})
    assert letters_due(study, Letter.Kind.RECEIPT) == []
    assert not HolderAddress.objects.exists()


@pytest.mark.parametrize("end", ["account", "guardian", "died", "erased"])
def test_the_address_is_deleted_when_it_is_no_longer_needed(browser, holder, study: Study, end: str) -> None:
    confirmed(browser)
    decide(holder, "HIGH")
    if end == "account":
        services.holder_link(holder=holder, user=user_create("hanna"))
    elif end == "erased":
        services.consent_withdraw(holder=holder, acting_user=None)
        records_erase(study.pk)
        assert HolderAddress.objects.exists(), "the receipt of the withdrawal has not been delivered yet"
        assert "Your decision" in delivered()[-1].subject
        addresses_sweep()
    else:
        circumstance(study, end)
    assert not HolderAddress.objects.exists()
    assert not Mail.objects.filter(address__isnull=False).exists()
    if end == "erased":
        decide(holder, "HIGH")
        confirmed(browser)
        delivered()
        assert addresses_sweep() == 0, "an address left after the erasure is kept"
        assert HolderAddress.objects.get().confirmed_at is not None


def test_confirmations_are_few_and_an_address_that_nobody_confirms_is_deleted(browser: Client) -> None:
    answer = browser.post(TOLD, {"way": "mail", "email": "hanna"})
    assert answer.status_code == 422 and "Enter a valid email address, such as name" in text(answer)
    for number in range(5):
        leave(browser, f"h{number}@example.org")
    browser.post(TOLD, {"way": "mail", "email": "sixth@example.org"})
    assert delivered() == []
    assert "Too many confirmation emails were sent" in text(browser.get(TOLD))
    assert HolderAddress.objects.get().email == "h4@example.org", "the refused address was not stored"
    assert addresses_sweep() == 0
    HolderAddress.objects.update(left_at=timezone.now() - WAITS)
    assert addresses_sweep() == 1
    assert not HolderAddress.objects.exists()


def test_every_change_is_on_record_without_the_address(browser: Client, holder: DataHolder, study: Study) -> None:
    confirmed(browser)
    assert list(change_faults(study)) == []
    copy = browser.get("/my/digits/export/").json()
    assert copy["addresses"][0]["email"] == "hanna@example.org"
    assert [mail["kind"] for mail in copy["mails"]] == ["address_left"]
    browser.post(TOLD, {"way": "none"})
    assert list(change_faults(study)) == []
    rows = SealedChange.objects.filter(study=study, model="consent.holderaddress")
    states = [(row.before is None, row.after is None) for row in rows.order_by("sequence")]
    assert states == [(True, False), (False, False), (False, True)]
    assert not any("email" in (row.before or row.after) for row in rows)
    HolderAddress.objects.create(study=study, holder=holder, way="letter", language="en")
    assert list(change_faults(study)) != []


LATER, REMINDER = "/my/digits/later/", "“Reading digits”: your reminder to decide"


def test_a_postponed_decision_is_reminded_once(browser, holder, monkeypatch) -> None:
    assert browser.post("/my/digits/", {"later": "1"}).url == LATER
    assert browser.post(LATER, {"days": "400", "email": "hanna@example.org"}).status_code == 422
    assert not HolderAddress.objects.exists()
    browser.post(LATER, {"days": "7", "email": "hana@example.org"})
    assert "You have not decided anything yet" in text(browser.get("/my/digits/choice/"))
    assert not holder.consent_events.exists()
    delivered()
    confirmed(browser)  # another address replaces that one
    browser.post(LATER, {"days": "3"})  # instead
    assert delivered() == []
    later(monkeypatch, days=3)
    (reminder,) = delivered()
    assert (reminder.to, reminder.subject) == (["hanna@example.org"], REMINDER)
    later(monkeypatch, days=30)
    assert delivered() == []


def account(holder: DataHolder) -> User:
    """Return the holder's account, which replaces an address."""
    user = user_create("hanna", email="hanna@example.org")
    user.emailaddress_set.create(email=user.email, verified=True)
    services.holder_link(holder=holder, user=user)
    return user


@pytest.mark.parametrize("meanwhile", ["an account", "decided", "unconfirmed", "handed over"])
def test_a_reminder_goes_to_somebody_who_has_not_decided(browser, holder, study, monkeypatch, meanwhile) -> None:
    if meanwhile != "unconfirmed":
        confirmed(browser)
    browser.post(LATER, {"days": "3", "email": "hanna@example.org"})
    if meanwhile == "an account":
        account(holder)
    elif meanwhile == "decided":
        decide(holder, "HIGH")
    elif meanwhile == "handed over":
        circumstance(study, "guardian")
    delivered()
    later(monkeypatch, days=4)
    assert [message.subject for message in delivered()] == [REMINDER] * (meanwhile == "an account")
