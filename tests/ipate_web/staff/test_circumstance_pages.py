"""Pages for who answers, letters and decisions on paper, and holders' pages if someone else answers."""

import json
import re
from datetime import date, timedelta

import pytest
from allauth.account.models import EmailAddress
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from consent import selectors, services
from consent.documents.receipts import receipt_context
from consent.models import Circumstance, ConsentEvent, DataHolder, HolderAddress, LevelAccess, Study
from consent.people.circumstances import day_of
from consent.services.holders import circumstance_record
from consent.services.invitations import invitations_create, letter_returned
from consent.services.letters import letters_due
from consent.services.paper import PaperConsent, paper_consents_record
from tests import factories
from tests.pages import as_, person_confirm, text
from tests.snapshots import built_once

pytestmark = pytest.mark.django_db

ANSWERS, INVITATIONS = "/studies/digits/recruitment/answers/", "/studies/digits/invitations/"
LETTERS = INVITATIONS + "letters/"


@pytest.fixture
@built_once
def study() -> Study:
    return factories.members_add(factories.study_open(), aud="auditor")


def by_link(study: Study, pseudonym: str) -> Client:
    """Return a browser in which the link of a new invitation was opened."""
    (new,) = invitations_create(study=study, acting_user=None, pseudonyms=[pseudonym], replace=True)
    client = Client()
    client.get(f"/join/{new.code}/")
    return client


def later(days: int):
    return day_of(timezone.now()) + timedelta(days=days)


def record(study: Study, pseudonym: str, kind: str, **fields) -> None:
    circumstance_record(study=study, pseudonym=pseudonym, kind=kind, reason="Register.", acting_user=None, **fields)


def answer(client: Client, choice: str = "LOW") -> None:
    declared = {"authority": "other", "declared": "on"}  # required only of guardians and proxies
    shown = re.search(r'name="promise" value="([^"]*)"', client.get("/my/digits/").text)
    form = {"form_version": 1, "policy_version": 1, "choice": choice, "weaker": "on", **declared}
    form["promise"] = shown.group(1) if shown else ""
    client.post("/my/digits/decide/", form)


def test_a_steward_records_who_answers_and_the_auditor_reads_it(study: Study) -> None:
    olga, auditor, day = as_("olga"), as_("aud"), later(900)
    factories.holder_create(study, "P-1")
    sent = {"pseudonym": "P-1", "kind": "guardian", "until": day.isoformat(), "reason": "Birth certificate."}
    assert auditor.post(ANSWERS, sent).status_code == 403
    page = olga.post(ANSWERS, sent | {"pseudonym": "P-9"})
    assert page.status_code == 422 and "This pseudonym does not exist in this study" in text(page)
    assert not Circumstance.objects.exists()
    assert "Recorded: P-1, a parent or guardian answers." in text(person_confirm(olga, ANSWERS, sent, follow=True))
    page = text(auditor.get(ANSWERS))
    assert "Birth certificate." in page and "olga" in page
    rows = f"pseudonym,answers,until\nP-2,guardian,{day.isoformat()}\nP-3\n"
    page = text(olga.post(INVITATIONS, {"pseudonyms": rows, "open_places": 0}))
    assert "2 invitations were created." in page
    recorded = list(Circumstance.objects.order_by("sequence").values_list("holder__pseudonym", "kind", "until"))
    assert recorded == [("P-1", "guardian", day), ("P-2", "guardian", day)]
    wrong = olga.post(INVITATIONS, {"pseudonyms": "pseudonym,answers\nP-4,aunt"})
    assert (wrong.status_code, DataHolder.objects.filter(pseudonym="P-4").exists()) == (422, False)


def test_holder_who_can_no_longer_decide_can_still_withdraw(study: Study) -> None:
    holder = factories.holder_create(study, "P-1")
    browser = by_link(study, "P-1")
    answer(browser)
    record(study, "P-1", "incapable")
    assert "Your records are not used at present, because" in text(browser.get("/my/digits/choice/"))
    answer(browser, "HIGH")
    assert selectors.consent_current(holder).level == "LOW"
    assert "We have recorded that this person cannot" in text(browser.get("/my/digits/"))
    browser.post("/my/digits/withdraw/")
    assert selectors.consent_current(holder).kind == "withdrawn"


def test_stewards_read_ways_of_contact_and_no_address_or_choice(study: Study) -> None:
    """The page with contact options for questions by telephone is the same for every decision."""
    for name in ("account", "fresh"):
        user = factories.user_create(name, email=f"{name}@example.org")
        EmailAddress.objects.create(user=user, email=user.email, verified=name == "account")
        factories.holder_create(study, name, user=user)
    ways = {"left": "mail", "waits": "mail", "wish": "letter", "quiet": "nothing"}
    for name, way in ways.items():
        confirmed = timezone.now() if name == "left" else None
        email, holder = f"{name}@example.org" if way == "mail" else "", factories.holder_create(study, name)
        row = {"way": way, "email": email, "language": "en", "confirmed_at": confirmed}
        HolderAddress.objects.create(study=study, holder=holder, **row)
    factories.holder_create(study, "plain")

    def told() -> dict[str, str]:
        page = as_("olga").get(LETTERS).text
        assert "@example.org" not in page.split('id="told"')[1]
        return dict(re.findall(r">(\w+)</a></th>\s*<td>([^<]+)</td>", page))

    ways = told()
    assert ways == {
        "account": "emails to the account",
        "left": "emails to an address they gave us",
        "fresh": "letters, until their email address is confirmed",
        "waits": "letters, until their email address is confirmed",
        "wish": "letters, including receipts, at their request",
        "quiet": "only letters that ask for a decision, at their request",
        "plain": "letters, because they gave no email address",
    }
    search, olga = reverse("staff:people_search", args=[study.slug]), as_("olga")
    found = olga.post(search, {"page": "letters", "name": "PLA"}, follow=True).text
    assert ">plain</a>" in found and ">left</a>" not in found
    assert "This pseudonym does not exist" in olga.post(search, {"page": "letters", "name": "no"}, follow=True).text
    for holder in study.holders.all():
        services.consent_refuse(holder=holder, acting_user=None)
    assert told() == ways
    factories.form_publish(study, {"en": "More.", "de": "Mehr."}, renewal="required")
    assert olga.post(LETTERS, {"kind": "new_form"}).status_code == 200
    assert letters_due(study, "new_form") == []
    letter_returned(holder=study.holders.get(pseudonym="plain"), acting_user=factories.user_create("olga"))
    assert [due.holder.pseudonym for due in letters_due(study, "new_form")] == ["plain"], "it was returned"
    assert next(iter(told())) == "plain"


def test_receipts_on_paper_are_on_record_as_looks(study: Study) -> None:
    factories.holder_create(study, "P-1")
    paper = PaperConsent(1, "P-1", "AVERAGE", 1, timezone.localdate(), "a.pdf")
    olga, scans = factories.user_create("olga"), {"a.pdf": b"%PDF-1"}
    paper_consents_record(study=study, consents=[paper], scans=scans, acting_user=olga)
    assert as_("olga").post(LETTERS, {"kind": "receipt"}).content.startswith(b"%PDF")
    document = json.dumps(receipt_context(ConsentEvent.objects.get()))
    assert "average protection" in document
    assert "/join/" not in document, "a receipt gives no access"
    assert LevelAccess.objects.get().reason == "A paper receipt was printed."
    assert as_("olga").post(LETTERS, {"kind": "other"}).status_code == 404


ONE = "/studies/digits/recruitment/paper/"


@pytest.fixture
def olga(study: Study) -> Client:
    services.holders_register(study=study, pseudonyms=["P-1", "P-2"])
    return as_("olga")


def scan(name: str = "a.pdf", content: bytes = b"%PDF-1.7") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def one(**changes: object) -> dict[str, object]:
    today = timezone.localdate().isoformat()
    fields = {"pseudonym": "P-1", "level": "LOW", "form_version": "1", "signed_on": today, "scan": scan()}
    return {**fields, **changes}


def answers_by(study: Study, kind: str, until: date | None = None) -> None:
    olga = factories.user_create("olga")
    circumstance_record(study=study, acting_user=olga, pseudonym="P-1", kind=kind, until=until, reason="x")


def test_a_person_is_shown_before_something_is_recorded_about_them(olga: Client, study: Study) -> None:
    factories.holder_create(study, "P-0001")
    answers_by(study, "guardian", date(2040, 1, 1))
    died = {"pseudonym": " P-1", "kind": "died", "reason": "Register of deaths."}
    shown = text(olga.post(ANSWERS, died))
    for words in ("Is this the person? ", "A parent or guardian answers", "2040", "“P-0001”", "Register of deaths."):
        assert words in shown
    assert Circumstance.objects.count() == 1 and " protection" not in shown
    page = text(olga.post(ONE, one()))
    assert "Low protection" in page and "Scan" in page and "This field is required" not in page
    assert not ConsentEvent.objects.exists()
    assert person_confirm(olga, ANSWERS, died).status_code == 302
    assert Circumstance.objects.count() == 2
