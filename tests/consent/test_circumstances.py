"""Guardians, proxies, deaths and consents that end on a day, also in a restored database that has forgotten them."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polib
import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import translation

from consent import selectors, services
from consent.documents import receipts
from consent.models import Circumstance, ConsentEvent, DataHolder, Invitation, Mail, Study
from consent.people import exports
from consent.people.circumstances import answering_for
from consent.people.counts import holders_per_level
from consent.people.exports import export_json
from consent.people.pseudonyms import Invited
from consent.promises.status import holder_status
from consent.selectors import answerer_faults
from consent.services import Valid, invitations
from consent.services.decisions import Declaration
from consent.services.holders import circumstance_record, handovers_record
from consent.services.invitations import invitation_open, invitations_create
from consent.services.mail import mail_render, reminders_send
from consent.services.replays import Lost, acts_apply
from consent.wording.third_person import gettext, in_third_person
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide, answer, circumstance, link_opened
from tests.factories import user_create

OF_AGE = date(2026, 6, 1)


@pytest.fixture
def study(clock: Clock, db: None) -> Study:
    return factories.study_open()


def record(holder: DataHolder, kind: str, until: date | None = OF_AGE) -> Circumstance:
    return circumstance(holder.study, kind, until if kind == "guardian" else None, holder.pseudonym)


def takes_part(holder: DataHolder) -> bool:
    """Return whether training would use the records, after checking that all ways of asking agree."""
    study = Study.objects.get(pk=holder.study_id)
    found = holder.pk in selectors.consent_snapshot(study).holders
    assert holder_status(holder).counts is found
    current = selectors.consent_current(holder)
    counts = holders_per_level(study)
    assert bool(counts["SUSPENDED"]) is bool(current and current.grants and not found)
    assert (holder.pk in selectors.lapses_at(study, current.recorded_at)) is False
    return found


def at(clock: Clock, month: int, day: int, hour: int = 0, minute: int = 0) -> None:
    """Set the clock to a moment of 2026."""
    clock.moment = clock.moment.replace(month=month, day=day, hour=hour, minute=minute)


def test_a_guardians_consent_counts_until_the_person_comes_of_age(study, holder, give: Decide, clock: Clock) -> None:
    give(holder, "HIGH")
    record(holder, "guardian")
    assert not takes_part(holder), "the person's own consent ends when a guardian has to decide"
    assert give(holder, "LOW").answered_by == "guardian"
    assert takes_part(holder)
    at(clock, 5, 31, 23)
    state = selectors.consent_state(study)
    assert takes_part(holder)
    before = clock.now()
    clock.days_pass(2 / 24)
    assert not takes_part(holder), "even though nothing was recorded"
    assert selectors.consent_state(study) != state, "a vote in progress notices the change"
    assert selectors.holders_lapsed_since(study, before).tolist() == [holder.pk]
    assert selectors.consent_snapshot(study, before).holders.tolist() == [holder.pk], "earlier snapshots do not change"
    assert "someone who no longer decides" in str(holder_status(holder))
    handovers_record()
    assert not takes_part(holder)
    assert give(holder, "HIGH").answered_by == "person"
    assert takes_part(holder)


def test_the_day_that_somebody_comes_of_age_begins_in_the_sites_zone(study, holder, give, clock, settings) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    record(holder, "guardian")
    give(holder, "LOW")
    at(clock, 5, 31, 21, 59)
    assert takes_part(holder)
    record(holder, "guardian", date(2026, 6, 2))
    assert takes_part(holder), "a new end date for the same guardian keeps the consent"
    clock.days_pass(1)
    assert takes_part(holder)
    clock.days_pass(2 / 24 / 60)
    assert not takes_part(holder)


def test_coming_of_age_ends_link_and_account_of_the_guardian(study, holder, hanna, give, clock: Clock) -> None:
    record(holder, "guardian")
    holder.refresh_from_db()
    services.holder_link(holder=holder, user=hanna)
    give(holder, "LOW")
    (old,) = invitations_create(study=study, acting_user=None, pseudonyms=[Invited("P-9", "guardian", OF_AGE)])
    mails = Mail.objects.filter(kind="handed_over", user=hanna).count()
    at(clock, 6, 1, 1)
    assert invitation_open(code=old.code, address="1.2.3.4") is None, "even before it is recorded"
    at(clock, 6, 2)
    handovers_record()
    handovers_record()
    recorded = Circumstance.objects.filter(holder=holder).values_list("kind", "recorded_by_id")
    assert list(recorded) == [("guardian", user_create("olga").pk), ("person", None)]
    assert Circumstance.objects.filter(holder__pseudonym="P-9").last().kind == "person"
    holder.refresh_from_db()
    assert holder.user is None
    assert Mail.objects.filter(kind="handed_over", user=hanna).count() == mails + 1
    for issued in invitations_create(study=study, acting_user=None, pseudonyms=["P-1", "P-9"]):
        opened = invitation_open(code=issued.code, address="1.2.3.4")
        assert opened.holder.pseudonym == issued.pseudonym


@pytest.mark.parametrize("policy", ["ends", "stands"])
@pytest.mark.parametrize(("kind", "setting"), [("died", "after_death"), ("incapable", "after_incapacity")])
def test_the_study_says_what_death_and_incapacity_do(db, give, kind, setting, policy) -> None:
    holder = factories.holder_create(factories.study_open("says", **{setting: policy}))
    give(holder, "LOW")
    record(holder, kind)
    assert takes_part(holder) is (policy == "stands")
    with pytest.raises(ValidationError, match="cannot decide"):
        give(holder, "HIGH")
    if kind == "incapable":
        record(holder, "proxy")
        assert takes_part(holder) is (policy == "stands"), "the proxy must decide unless consents remain valid"
        assert give(holder, "AVERAGE").answered_by == "proxy"
        assert takes_part(holder)
    withdrawn = services.consent_withdraw(holder=holder, acting_user=None)
    assert (withdrawn.kind, withdrawn.answered_by == "proxy") == ("withdrawn", kind == "incapable")
    assert not takes_part(holder)
    record(holder, "person")
    assert services.consent_refuse(holder=holder, acting_user=None).answered_by == "person"


def test_an_ended_circumstance_does_not_return_by_itself(study, holder, give) -> None:
    give(holder, "LOW")
    record(holder, "died")
    record(holder, "person")
    assert not takes_part(holder)
    assert "someone who no longer decides" in str(holder_status(holder)), "the page does not reveal the death"
    give(holder, "LOW")
    assert takes_part(holder)


def test_links_end_if_somebody_else_answers_and_stay_if_nobody_does(study, holder) -> None:
    services.holder_link(holder=holder, user=None)
    invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    record(holder, "incapable")
    assert Invitation.objects.filter(revoked_at=None).count() == 1, "the person can withdraw"
    record(holder, "proxy")
    assert not Invitation.objects.filter(revoked_at=None).exists()
    invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    record(holder, "died")
    assert not Invitation.objects.filter(revoked_at=None).exists()


def test_impossible_values_are_refused(study, holder) -> None:
    assert record(holder, "proxy") == record(holder, "proxy"), "recording it again has no effect"
    factories.holder_create(study, "P-2")
    circumstance(study, "died", pseudonym="P-2")
    for pseudonym, kind, until, says in (
        ("P-1", "guardian", None, "comes of age"),
        ("P-1", "guardian", date(2025, 1, 1), "Record that the person answers for themselves"),
        ("P-1", "died", OF_AGE, "Leave the date empty"),
        ("P-2", "proxy", None, "has died"),
        ("P-1", "incapable", None, "Another person already answers for these"),
    ):
        fields = {"pseudonym": pseudonym, "kind": kind, "until": until, "reason": "Register."}
        with pytest.raises(ValidationError, match=says):
            circumstance_record(study=study, acting_user=None, **fields)
    assert Circumstance.objects.count() == 2


def test_a_consent_counts_for_the_months_that_its_form_says(study, holder, give, clock: Clock) -> None:
    factories.form_publish(study, texts={"en": "A year."}, valid=Valid(months=12))
    event = give(holder, "LOW")
    assert event.renew_by.isoformat().startswith("2027-01-02T00:00"), "valid until the end of the same day a year later"
    assert give(holder, "LOW") == event, "a second click has no effect"
    clock.days_pass(340)
    status = holder_status(holder)
    assert status.counts and status.needs_decision
    assert "1 January 2027" in str(status)
    state = selectors.consent_state(study)
    clock.days_pass(26)
    assert not takes_part(holder)
    assert selectors.consent_state(study) != state
    assert "ended on" in str(holder_status(holder))
    again = give(holder, "LOW")
    assert (again.kind, again.renew_by.year) == ("changed", 2028)
    assert takes_part(holder)


def test_a_consent_counts_until_the_day_that_its_form_says(study, holder, give, clock: Clock) -> None:
    factories.form_publish(study, texts={"en": "For ever."}, valid=Valid(until=date.max))
    assert give(holder, "LOW").renew_by is None, "a consent that would end after the last date never ends"
    assert takes_part(holder)
    factories.form_publish(study, texts={"en": "Till spring."}, valid=Valid(until=date(2026, 3, 31)))
    give(holder, "LOW")
    at(clock, 3, 31, 23)
    assert takes_part(holder)
    clock.days_pass(2 / 24)
    assert not takes_part(holder)
    with pytest.raises(ValidationError, match="Consent to this form is no longer valid"):
        give(holder, "HIGH")


def test_a_version_with_the_same_words_and_another_validity_is_another_version(study) -> None:
    form = factories.form_publish(study, texts=factories.FORM, valid=Valid(months=6))
    assert (form.version, form.valid_months) == (2, 6)
    with pytest.raises(ValidationError, match="This is the same as the current version"):
        factories.form_publish(study, texts=factories.FORM, valid=Valid(months=6))
    assert factories.form_publish(study, factories.FORM, "required", Valid(months=3)).valid_months == 3


def test_a_person_who_cannot_be_recorded_stops_the_whole_list(study) -> None:
    with pytest.raises(ValidationError, match="P-2"):
        invitations_create(study=study, acting_user=None, pseudonyms=[Invited("P-1"), Invited("P-2", "guardian")])
    assert not Invitation.objects.exists()


def test_a_decision_by_somebody_who_did_not_answer_is_found(study, holder, give, tmp_path) -> None:
    record(holder, "proxy")
    give(holder, "LOW")
    file = tmp_path / "consents.json"
    file.write_text("".join(export_json(study)))
    call_command("verify_consents", study.slug, file)
    assert '"kind": "proxy"' in file.read_text()
    assert "Register." not in file.read_text(), "reasons may contain names"
    asked = {"form": selectors.consent_form_in_force(study), "policy": selectors.policy_in_force(study)}
    ConsentEvent.append([ConsentEvent(study=study, holder=holder, kind="changed", level="HIGH", **asked)])
    with pytest.raises(CommandError, match="decision 2: person decided, but the record names proxy"):
        call_command("verify_consents", study.slug, file)
    file.write_text(file.read_text().replace('"kind": "proxy"', '"kind": "guardian"'))
    with pytest.raises(CommandError, match="circumstance 1: kind"):
        call_command("verify_consents", study.slug, file)


def test_holders_of_an_ending_form_get_one_reminder(study, holder, hanna, give, clock: Clock) -> None:
    factories.form_publish(study, texts={"en": "A year."}, valid=Valid(months=12))
    give(holder, "LOW")
    refuser = factories.holder_create(study, "P-2", user=user_create("rita"))
    form = selectors.consent_form_in_force(study)
    services.consent_refuse(holder=refuser, acting_user=None, form=form)
    assert reminders_send() == 0
    clock.days_pass(340)
    assert reminders_send() == 2
    assert reminders_send() == 0
    give(holder, "LOW")
    clock.days_pass(timedelta(days=340).days)
    assert reminders_send() == 1, "the renewed consent gets its own reminder"


def forgotten(study: Study, *acts: Callable[[], Any]) -> Lost:
    """Run ``acts``, then restore the database so that it has forgotten them, and return their records."""
    rows: dict[type[Any], list[Any]] = {}
    with transaction.atomic():
        for act in acts:
            act()
        for model in (Circumstance, ConsentEvent):
            rows[model] = [model.from_act(row.as_act()) for row in model.chain(study.pk)]
        transaction.set_rollback(True)
    return Lost(rows)


@pytest.mark.parametrize("kind", ["guardian", "proxy", "incapable", "died"])
def test_consent_by_the_link_of_a_person_who_no_longer_answers_is_invalid(study, holder, give, clock, kind) -> None:
    """The restored database knows neither the guardian nor that the person's own link has ended."""
    lost = forgotten(study, lambda: record(holder, kind))
    give(holder, "LOW")
    assert takes_part(holder)
    acts_apply(study, lost)
    assert holder.pk not in selectors.consent_snapshot(study).holders
    assert holder.pk in selectors.lapses_at(study, clock.now())
    assert list(answerer_faults(study)) == [], "it was not known then, so it is no fault"
    ConsentEvent.append([ConsentEvent.from_act(ConsentEvent.objects.get().as_act() | {"recorded_at": clock.now()})])
    assert len(list(answerer_faults(study))) == 1, "it is known now, so it is a fault"


def test_recording_a_guardian_again_keeps_earlier_decisions_valid(study, holder, give) -> None:
    """A steward checked who answers, and invited them, before the restore was settled."""
    lost = forgotten(study, lambda: record(holder, "guardian"), lambda: give(holder, "LOW"))
    record(holder, "guardian", date(2030, 1, 2))
    invitations_create(study=study, acting_user=None, pseudonyms=[holder.pseudonym])
    acts_apply(study, lost)
    assert list(answerer_faults(study)) == []
    assert answering_for(holder).until == date(2030, 1, 2)
    assert Invitation.objects.filter(holder=holder, revoked_at=None).exists(), "the new link remains valid"
    assert holder.pk in selectors.consent_snapshot(study).holders
    assert list(Circumstance.chain_faults(study.pk)) == []


def test_a_guardian_until_a_later_day_answers_though_the_earlier_day_came(study, holder, give, clock) -> None:
    """Before the restore, a steward had recorded a later end date for the guardian."""
    record(holder, "guardian", date(2026, 2, 1))
    later = forgotten(study, lambda: record(holder, "guardian", date(2027, 2, 1)))
    later.rows[Circumstance] = later.rows[Circumstance][1:]
    clock.moment = datetime(2026, 2, 2, tzinfo=UTC)
    handovers_record()
    assert not answering_for(holder).represents
    acts_apply(study, later)
    assert answering_for(holder).until == date(2027, 2, 1)


def test_later_records_are_kept_after_lost_ones_are_repeated(study: Study, holder: DataHolder, give: Decide) -> None:
    lost = forgotten(study, lambda: record(holder, "proxy"))
    record(holder, "died")
    acts_apply(study, lost)
    assert answering_for(holder).kind == "died"
    services.consent_refuse(holder=holder, acting_user=None)
    assert list(answerer_faults(study)) == []


NAME = "Anna <Example> 100%"
SENT = {"authority": "parents", "declared": "on"}


@pytest.fixture
def reading(db: None) -> Study:
    return factories.study_open(title="Reading digits")


@pytest.fixture
def guardian(reading: Study) -> Client:
    """Return a browser of someone invited to answer for another person."""
    return link_opened(reading, Invited(NAME, "guardian", date(2099, 1, 1)))


def read(client: Client, name: str, *parts: object) -> str:
    """Return the main text of the page, without markup."""
    html = client.get(reverse(f"consent:{name}", args=["digits", *parts])).content.decode()
    main = re.sub(r"<[^>]+>", " ", html.partition("<main")[2].partition("</main>")[0])
    for text in ("learn from your records how", "aus Ihren Daten lernen"):  # of the form, which the study wrote
        main = main.replace(text, "")
    return " ".join(main.replace("&lt;", "<").replace("&gt;", ">").replace("&#x27;", "'").split())


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_of_a_guardian_is_about_the_person(guardian: Client, reading: Study, language: str) -> None:
    guardian.cookies["django_language"] = language
    response = read(guardian, "study")
    chosen = {"en": "The limit you chose", "de": "die Sie gewählt haben"}[language]
    assert chosen not in response, "the person may have chosen it themselves earlier"
    guardian.post(reverse("consent:study", args=["digits"]), answer(reading))
    checked = read(guardian, "check")
    guardian.post(reverse("consent:decide", args=["digits"]), answer(reading, **SENT))
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
def test_mails_to_a_guardian_are_about_the_person(reading: Study, language: str, says: str) -> None:
    invited = Invited("Anna", "guardian", date(2099, 1, 1))
    invitations.invitations_create(study=reading, acting_user=None, pseudonyms=[invited])
    parent = user_create("parent", email="parent@example.org")
    parent.emailaddress_set.create(email=parent.email, verified=True)
    services.holder_link(holder=DataHolder.objects.get(pseudonym="Anna"), user=parent)
    with translation.override(language):
        services.mail.language_note(parent)
    services.mail.mails_send("receipt", [parent.pk], study=reading)
    message = mail_render(Mail.objects.get(kind="receipt"))
    assert message.subject.startswith(says)


def test_every_text_in_the_third_person_has_a_text_in_use() -> None:
    locale = settings.BASE_DIR / "locale"
    said = {entry.msgid for entry in polib.pofile(str(locale / "de/LC_MESSAGES/django.po")) if not entry.obsolete}
    english, german = (polib.pofile(str(locale / language / "LC_MESSAGES/person.po")) for language in ("en", "de"))
    assert len(english) > 140 and [entry.msgid for entry in english] == [entry.msgid for entry in german]
    values = re.compile(r"%\((?!person)\w+\)\w|</?strong>")
    for entry in [*english, *german]:
        assert entry.msgid in said, f"its wording has changed, change it in person.po, too: {entry.msgid}"
        assert entry.msgstr and not entry.fuzzy
        assert sorted(values.findall(entry.msgid)) == sorted(values.findall(entry.msgstr)), entry.msgid


def test_the_third_person_ends_with_its_block() -> None:
    with translation.override("de"), in_third_person("Anna"):
        assert gettext("My choice") == "Entscheidung für Anna"
        assert translation.get_language() == "de"
    assert gettext("My choice") == "My choice"


DECLARATION = Declaration("parents", "I may decide about this person")


@pytest.fixture
def person(reading: Study, guardian: Client) -> DataHolder:
    return DataHolder.objects.get(study=reading)


def test_a_guardian_is_asked_by_which_right_they_consent(guardian: Client, reading: Study, person: DataHolder) -> None:
    check, decide = (reverse(f"consent:{page}", args=["digits"]) for page in ("check", "decide"))
    guardian.post(reverse("consent:study", args=["digits"]), answer(reading))
    page = guardian.get(check).text
    assert "parental responsibility" in page.lower()
    assert "power of attorney" not in page, "only a proxy can declare it"
    refused = guardian.post(decide, answer(reading))
    assert refused.status_code == 422
    assert "Choose what gives you the right to decide." in refused.text
    guardian.post(decide, answer(reading, "NONE"))
    assert guardian.post(decide, answer(reading, **SENT)).status_code == 302
    guardian.post(reverse("consent:withdraw", args=["digits"]), {"records": "keep"})
    refusal, event, withdrawal = ConsentEvent.objects.filter(holder=person).order_by("sequence")
    assert [(each.kind, each.authority) for each in (refusal, withdrawal)] == [("refused", ""), ("withdrawn", "")]
    assert (event.authority, event.answered_by) == ("parents", "guardian")
    assert event.statement.startswith("I may decide about this person")
    receipt = guardian.get(reverse("consent:receipt", args=["digits", 2])).text
    assert "Parental responsibility" in receipt and "I may decide about this person" in receipt
    assert "Anna" not in event.statement, "the statement is kept after the pseudonym is erased"
    themself = link_opened(reading, "P-2")
    assert "asking for permission to learn from your records" in read(themself, "study")
    themself.post(reverse("consent:study", args=["digits"]), answer(reading))
    assert "What gives you the right" not in themself.get(check).text
    assert themself.post(decide, answer(reading)).status_code == 302


def test_a_right_that_the_role_cannot_have_is_refused(reading: Study, person: DataHolder) -> None:
    form = reading.consent_forms.latest("version")
    for one, authority in ((person, "power"), (factories.holder_create(reading), "parents")):
        with pytest.raises(ValidationError, match="The person who answers for these records"):
            declared = Declaration(authority, "I may.")
            services.consent_give(holder=one, level="LOW", form=form, acting_user=None, declared=declared)


def test_a_declaration_is_recorded(reading: Study, person: DataHolder) -> None:
    form = reading.consent_forms.latest("version")
    event = services.consent_give(holder=person, level="LOW", form=form, acting_user=None, declared=DECLARATION)
    again = services.consent_give(holder=person, level="LOW", form=form, acting_user=None, declared=DECLARATION)
    assert again == event
    other = Declaration("guardianship", "I am the guardian.")
    assert services.consent_give(holder=person, level="LOW", form=form, acting_user=None, declared=other) != event
    extension = receipts.receipt_json([event])["consent_record"]["events"][0]["extension"]
    assert (extension["authority"], extension["statement"]) == ("parents", DECLARATION.statement)
    rows = list(exports.decisions(reading))
    assert [row["authority"] for row in rows] == ["parents", "guardianship"]
    assert exports.export_faults(reading, rows) == []
    assert list(ConsentEvent.chain_faults(reading.pk)) == []
    alone = ConsentEvent.from_act(event.as_act())
    alone.statement = ""
    with pytest.raises(IntegrityError), transaction.atomic():
        ConsentEvent.append([alone])
