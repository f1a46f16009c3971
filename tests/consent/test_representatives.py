"""Guardians and proxies declare by which right they decide, and read about the person whose records it is about."""

import re
from datetime import date

import polib
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import translation

from consent import services
from consent.documents import receipts
from consent.models import ConsentEvent, DataHolder, Mail, Study
from consent.people import exports
from consent.people.pseudonyms import Invited
from consent.services import invitations
from consent.services.decisions import Declaration
from consent.services.mail import mail_render
from consent.wording.third_person import gettext, in_third_person
from tests import factories
from tests.consent.conftest import answer, link_opened
from tests.factories import user_create

NAME = "Anna <Example> 100%"
SENT = {"authority": "parents", "declared": "on"}


@pytest.fixture
def study(db: None) -> Study:
    return factories.study_open(title="Reading digits")


@pytest.fixture
def guardian(study: Study) -> Client:
    """Bearer of an invitation to answer for somebody."""
    return link_opened(study, Invited(NAME, "guardian", date(2099, 1, 1)))


def read(client: Client, name: str, *parts: object) -> str:
    """Text of the page proper, without marks."""
    html = client.get(reverse(f"consent:{name}", args=["digits", *parts])).content.decode()
    main = re.sub(r"<[^>]+>", " ", html.partition("<main")[2].partition("</main>")[0])
    for text in ("learn from your records how", "aus Ihren Daten lernen"):  # of the form, which is the study's own
        main = main.replace(text, "")
    return " ".join(main.replace("&lt;", "<").replace("&gt;", ">").replace("&#x27;", "'").split())


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_of_a_guardian_is_about_the_person(guardian: Client, study: Study, language: str) -> None:
    guardian.cookies["django_language"] = language
    response = read(guardian, "study")
    chosen = {"en": "The limit you chose", "de": "die Sie gewählt haben"}[language]
    assert chosen not in response, "the person may have, before somebody answered for them"
    guardian.post(reverse("consent:study", args=["digits"]), answer(study))
    checked = read(guardian, "check")
    guardian.post(reverse("consent:decide", args=["digits"]), answer(study, **SENT))
    pages = [response, checked, *(read(guardian, name) for name in ("choice", "withdraw", "uses"))]
    pages.append(read(guardian, "receipt", 1))
    guardian.post(reverse("consent:withdraw", args=["digits"]), {"records": "keep"})
    pages += [read(guardian, "erase"), read(guardian, "choice")]
    theirs, yours = {
        "en": ("'s records", r"[Yy]our (?:stored )?records|whether you took part|\b[Mm]y records"),
        "de": ("Daten von ", r"Ihren? (?:gespeicherten )?Daten|ob Sie teilgenommen|[Mm]einen? Daten"),
    }[language]
    for page in pages:
        assert re.search(yours, page) is None, page
        assert NAME in page
    assert f"{NAME}'s records" in response if language == "en" else f"Daten von {NAME}" in response
    assert theirs in checked


@pytest.mark.parametrize(
    ("language", "says"), [("en", "The decision for Anna on"), ("de", "Die Entscheidung für Anna über")]
)
def test_mails_to_a_guardian_are_about_the_person(study: Study, language: str, says: str) -> None:
    invited = Invited("Anna", "guardian", date(2099, 1, 1))
    invitations.invitations_create(study=study, acting_user=None, pseudonyms=[invited])
    parent = user_create("parent", email="parent@example.org")
    parent.emailaddress_set.create(email=parent.email, verified=True)
    services.holder_link(holder=DataHolder.objects.get(pseudonym="Anna"), user=parent)
    with translation.override(language):
        services.mail.language_note(parent)
    services.mail.mails_send("receipt", [parent.pk], study=study)
    message = mail_render(Mail.objects.get(kind="receipt"))
    assert message.subject.startswith(says)


def test_every_text_in_the_third_person_is_of_a_text_that_is_said() -> None:
    locale = settings.BASE_DIR / "locale"
    said = {entry.msgid for entry in polib.pofile(str(locale / "de/LC_MESSAGES/django.po")) if not entry.obsolete}
    english, german = (polib.pofile(str(locale / language / "LC_MESSAGES/person.po")) for language in ("en", "de"))
    assert len(english) > 140 and [entry.msgid for entry in english] == [entry.msgid for entry in german]
    values = re.compile(r"%\((?!person)\w+\)\w|</?strong>")
    for entry in [*english, *german]:
        assert entry.msgid in said, f"its wording has changed, change it in person.po, too: {entry.msgid}"
        assert entry.msgstr and not entry.fuzzy
        assert sorted(values.findall(entry.msgid)) == sorted(values.findall(entry.msgstr)), entry.msgid


def test_the_voice_ends_with_its_block() -> None:
    with translation.override("de"), in_third_person("Anna"):
        assert gettext("My choice") == "Entscheidung für Anna"
        assert translation.get_language() == "de"
    assert gettext("My choice") == "My choice"


DECLARATION = Declaration("parents", "I may decide about this person")


@pytest.fixture
def holder(study: Study, guardian: Client) -> DataHolder:
    return DataHolder.objects.get(study=study)


def test_a_guardian_is_asked_by_which_right_they_consent(guardian: Client, study: Study, holder: DataHolder) -> None:
    check, decide = (reverse(f"consent:{page}", args=["digits"]) for page in ("check", "decide"))
    guardian.post(reverse("consent:study", args=["digits"]), answer(study))
    page = guardian.get(check).text
    assert "parental responsibility" in page.lower()
    assert "power of attorney" not in page, "that is a proxy's"
    refused = guardian.post(decide, answer(study))
    assert refused.status_code == 422
    assert "Say what gives you the right to decide." in refused.text
    guardian.post(decide, answer(study, "NONE"))
    assert guardian.post(decide, answer(study, **SENT)).status_code == 302
    guardian.post(reverse("consent:withdraw", args=["digits"]), {"records": "keep"})
    refusal, event, withdrawal = ConsentEvent.objects.filter(holder=holder).order_by("sequence")
    assert [(each.kind, each.authority) for each in (refusal, withdrawal)] == [("refused", ""), ("withdrawn", "")]
    assert (event.authority, event.answered_by) == ("parents", "guardian")
    assert event.statement.startswith("I may decide about this person")
    receipt = guardian.get(reverse("consent:receipt", args=["digits", 2])).text
    assert "Parental responsibility" in receipt and "I may decide about this person" in receipt
    assert "Anna" not in event.statement, "it outlives the pseudonym"
    themself = link_opened(study, "P-2")
    assert "asking for permission to learn from your records" in read(themself, "study")
    themself.post(reverse("consent:study", args=["digits"]), answer(study))
    assert "What gives you the right" not in themself.get(check).text
    assert themself.post(decide, answer(study)).status_code == 302


def test_a_right_that_the_role_cannot_have_is_refused(study: Study, holder: DataHolder) -> None:
    form = study.consent_forms.latest("version")
    for one, authority in ((holder, "power"), (factories.holder_create(study), "parents")):
        with pytest.raises(ValidationError, match="The person who answers for these records"):
            declared = Declaration(authority, "I may.")
            services.consent_give(holder=one, level="LOW", form=form, acting_user=None, declared=declared)


def test_it_is_part_of_the_record(study: Study, holder: DataHolder) -> None:
    form = study.consent_forms.latest("version")
    event = services.consent_give(holder=holder, level="LOW", form=form, acting_user=None, declared=DECLARATION)
    again = services.consent_give(holder=holder, level="LOW", form=form, acting_user=None, declared=DECLARATION)
    assert again == event
    other = Declaration("guardianship", "I am the guardian.")
    assert services.consent_give(holder=holder, level="LOW", form=form, acting_user=None, declared=other) != event
    extension = receipts.receipt_json([event])["consent_record"]["events"][0]["extension"]
    assert (extension["authority"], extension["statement"]) == ("parents", DECLARATION.statement)
    rows = list(exports.decisions(study))
    assert [row["authority"] for row in rows] == ["parents", "guardianship"]
    assert exports.export_faults(study, rows) == []
    assert list(ConsentEvent.chain_faults(study.pk)) == []
    alone = ConsentEvent.from_act(event.as_act())
    alone.statement = ""
    with pytest.raises(IntegrityError), transaction.atomic():
        ConsentEvent.append([alone])
