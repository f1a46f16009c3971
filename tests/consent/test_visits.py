"""A visit by invitation: how long it lasts, where it returns to, and what is kept when it ends."""

from datetime import date

import pytest
from django.test import Client
from django.urls import reverse

from consent.models import AnswerDraft, ConsentEvent, DataHolder, Study
from consent.services import invitations
from consent.services.decisions import answer_draft_of
from consent.services.disposals import holders_erase
from consent.services.erasures import erasure_ask, erasure_state
from consent.tasks import addresses_sweep
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import circumstance, url
from tests.factories import user_create
from training.services import erasures

ANSWER = {"form_version": 1, "policy_version": 1}
HOURS = 1 / 24


@pytest.fixture
def codes(clock: Clock, study: Study) -> list[str]:
    """Return the codes of P-1 and P-2."""
    issued = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["P-1", "P-2"])
    return [new.code for new in issued]


@pytest.fixture
def visitor(codes: list[str]) -> Client:
    client = Client()
    client.get(reverse("open_link", args=[codes[0]]))
    return client


def ask_anew(study: Study) -> None:
    factories.form_publish(study, {"en": "New.", "de": "Neu."})


def test_a_choice_is_confirmed_at_a_separate_address(visitor: Client, study: Study) -> None:
    sent = visitor.post(url("study", study), {**ANSWER, "choice": "HIGH"})
    assert sent.url == url("check", study)
    for _ in range(2):  # Back, forward and another language show it again
        page = visitor.get(sent.url)
        assert "High protection" in page.text
        assert not ConsentEvent.objects.exists()
    assert 'value="HIGH" required checked' in visitor.get(url("study", study)).text
    ask_anew(study)
    changed = visitor.get(sent.url)
    assert changed.status_code == 422 and "has changed since you opened" in changed.text
    visitor.post(url("decide", study), {**ANSWER, "form_version": 2, "choice": "HIGH"})
    assert ConsentEvent.objects.get().level == "HIGH"
    assert visitor.get(sent.url).url == url("study", study)  # nothing is left to confirm


def test_every_page_and_one_button_extend_the_visit(visitor: Client, study: Study, clock: Clock) -> None:
    for _ in range(3):
        clock.days_pass(1.5 * HOURS)
        page = visitor.get(url("choice", study))
        assert page.status_code == 200
    assert "Your invitation stays open on this device until <strong data-visit-time>06:30</strong> (UTC)" in page.text
    clock.days_pass(1.9 * HOURS)
    assert visitor.post(reverse("stay"), {"next": url("study", study)}).url == url("study", study)
    clock.days_pass(1.9 * HOURS)
    assert visitor.post(reverse("stay"), {"next": "https://evil.example/"}).url == reverse("consent:my_studies")
    document = visitor.post(reverse("stay"), headers={"accept": "application/json"}).json()
    assert document["ends"][:13] == "2026-01-01T10"


def test_a_late_answer_is_kept_for_the_same_person(visitor, study, codes, clock) -> None:
    clock.days_pass(3 * HOURS)
    late = visitor.post(url("study", study), {**ANSWER, "choice": "LOW"})
    assert late.url == reverse("join")
    page = visitor.get(late.url).text
    assert "Your session ended at" in page
    assert "Low protection" not in page
    assert not ConsentEvent.objects.exists()
    again = visitor.get(reverse("open_link", args=[codes[0]]))
    assert "Low protection" in visitor.get(again.url).text


@pytest.fixture
def postponed(visitor: Client, study: Study) -> Client:
    """Let P-1 tick low protection and that they talked to someone, and postpone the decision."""
    answer = {**ANSWER, "choice": "LOW", "text": "en"}
    visitor.post(url("study", study), answer)
    assert visitor.post(url("decide", study), {**answer, "talked": "on", "later": "1"}).url == url("later", study)
    assert "You will find it on any device where you" in visitor.get(url("later", study)).text
    assert not ConsentEvent.objects.exists()
    return visitor


@pytest.mark.parametrize("device", ["same", "another"])
def test_ticked_answers_are_kept_for_a_month_or_until_the_decision(postponed, study, codes, clock, device: str) -> None:
    assert postponed.get(url("export", study)).json()["ticked_to_decide_later"]["choice"] == "LOW"
    clock.days_pass(29)
    postponed = postponed if device == "same" else Client()
    assert "checked" not in again(postponed, codes[1]).text, "hidden from other holders"
    page = again(postponed, codes[0])
    assert page.request["PATH_INFO"] == url("study", study), "the page with the full text"
    assert 'value="LOW" required checked' in page.text
    assert 'id="id_talked" checked' in postponed.get(url("check", study)).text
    postponed.post(url("study", study), {**ANSWER, "choice": "LOW", "text": "en"})
    postponed.post(url("decide", study), {**ANSWER, "choice": "LOW"})
    assert ConsentEvent.objects.get().level == "LOW"
    assert "checked" not in postponed.get(url("study", study)).text, "the draft is deleted after the decision"


@pytest.mark.parametrize("change", [lambda study: factories.policy_approve(study, 2, 4, 8), ask_anew])
def test_a_choice_with_a_new_meaning_is_not_ticked(postponed: Client, study: Study, codes: list[str], change) -> None:
    assert 'value="LOW" required checked' in again(postponed, codes[0]).text
    change(study)
    assert "checked" not in again(postponed, codes[0]).text


@pytest.mark.parametrize("end", ["forgotten", "decided elsewhere", "a guardian", "a month", "erased"])
def test_ticked_answers_expire(postponed: Client, study: Study, codes: list[str], clock: Clock, end: str) -> None:
    holder = DataHolder.objects.get(pseudonym="P-1")
    clock.days_pass(31 if end == "a month" else 1)
    if end == "forgotten":
        again(postponed, codes[0])
        page = postponed.post(url("later", study), {"forget": "1"}, follow=True)
        assert "You will find it on any device where you" not in page.text
    elif end == "decided elsewhere":
        factories.consent_choose(holder=holder, level="HIGH", form=study.consent_forms.get())
    elif end == "a guardian":
        circumstance(study, "guardian")
    elif end == "erased":
        holders_erase(study, {holder.pk: 0})
    assert answer_draft_of(holder) is None
    addresses_sweep()
    assert not AnswerDraft.objects.exists()


@pytest.fixture
def late(visitor: Client, study: Study, clock: Clock) -> Client:
    """Return P-1, who takes part and whose visit is over."""
    visitor.post(url("decide", study), {**ANSWER, "choice": "LOW"})
    clock.days_pass(3 * HOURS)
    return visitor


def again(client: Client, code: str):
    """Open the link again, and return the page to which it leads."""
    return client.get(reverse("open_link", args=[code]), follow=True)


def test_a_late_withdrawal_is_kept_with_its_choice_about_records(late, study, codes, clock) -> None:
    for page, sent in (("withdraw", {}), ("decide", {**ANSWER, "choice": "NONE"})):
        clock.days_pass(3 * HOURS)
        assert late.post(url(page, study), {**sent, "records": "erase"}).url == reverse("join")
        assert ConsentEvent.objects.count() == 1
        shown = again(late, codes[0])
        assert shown.redirect_chain[-1][0] == url("check", study)
        assert "I do not take part" in shown.text and 'value="erase" checked' in shown.text
    late.post(url("decide", study), {**ANSWER, "choice": "NONE", "records": "erase"})
    assert ConsentEvent.objects.latest("sequence").kind == ConsentEvent.Kind.WITHDRAWN
    assert erasure_state(DataHolder.objects.get(pseudonym="P-1")).requested_at is not None


def close(study: Study) -> None:
    olga, last = user_create("olga"), date(2027, 1, 1)
    erasures.study_close(study=study, reason="We are done.", acting_user=olga, erase_after=last)


@pytest.mark.parametrize("meanwhile", [ask_anew, close], ids=["new form", "closed"])
def test_a_late_withdrawal_depends_on_nothing_that_the_study_asks(late, study, codes, meanwhile) -> None:
    late.post(url("withdraw", study), {"records": "keep"})
    meanwhile(study)
    shown = again(late, codes[0])
    assert shown.redirect_chain[-1][0] == url("withdraw", study)
    assert 'value="keep" checked' in shown.text
    late.post(url("withdraw", study), {"records": "keep"})
    assert ConsentEvent.objects.latest("sequence").kind == ConsentEvent.Kind.WITHDRAWN
    assert again(late, codes[0]).redirect_chain[-1][0] != url("check", study)  # nothing is left to confirm


@pytest.mark.parametrize("meanwhile", ["nothing", "closed", "requested"])
def test_a_late_erasure_is_requested_again(late, study, codes, clock, meanwhile: str) -> None:
    """Someone who no longer takes part pressed the button to erase records three hours after seeing it."""
    holder = DataHolder.objects.get(pseudonym="P-1")
    again(late, codes[0])
    late.post(url("withdraw", study), {"records": "keep"})
    clock.days_pass(3 * HOURS)
    page = late.post(url("erase", study), follow=True)
    assert page.redirect_chain == [(reverse("join"), 302)] and "Your session ended at" in page.text
    assert erasure_state(holder).requested_at is None
    if meanwhile == "requested":
        erasure_ask(holder=holder, acting_user=None)
        shown = again(late, codes[0])
        assert shown.redirect_chain[-1][0] == url("choice", study) and "stored records must be erased" in shown.text
        return
    if meanwhile == "closed":
        close(study)
    shown = again(late, codes[0])
    assert shown.redirect_chain[-1][0] == url("erase", study)
    assert "Nothing has been erased yet, because your" in shown.text
    assert erasure_state(holder).requested_at is None, "opening the link has no effect"
    assert "Nothing has been erased yet, because your" not in late.get(url("erase", study)).text
    late.post(url("erase", study))
    assert erasure_state(holder).requested_at is not None
    assert again(late, codes[0]).redirect_chain[-1][0] != url("erase", study)


@pytest.mark.parametrize("page", ["decide", "erase", "leave"])
def test_late_answers_are_kept_for_the_same_person_only(visitor, study, codes, clock, page: str) -> None:
    visitor.post(url("study", study), {**ANSWER, "choice": "LOW"})
    if page == "leave":
        visitor.post(reverse("leave"))
    else:
        clock.days_pass(3 * HOURS)
        visitor.post(url(page, study), {**ANSWER, "choice": "LOW"})
    for code in codes[::-1]:
        shown = again(visitor, code)
        assert shown.redirect_chain[-1][0] == url("study", study)
        assert " checked" not in shown.text


@pytest.mark.parametrize("page", ["erase", "withdraw"])
def test_a_press_after_the_link_was_replaced_says_that_nothing_was_changed(visitor, study, page: str) -> None:
    visitor.post(url("decide", study), {**ANSWER, "choice": "LOW"})
    if page == "erase":
        visitor.post(url("withdraw", study), {"records": "keep"})
    olga = user_create("olga")
    new = invitations.link_reissue(study=study, pseudonym="P-1", reason="It was lost.", acting_user=olga)
    html = visitor.post(url(page, study), {"records": "erase"}, follow=True)
    assert html.status_code == 200
    assert "link no longer works. It may have been replaced by a newer one" in html.text
    assert reverse("join") in html.text and "Your invitation stays open" not in html.text
    holder = DataHolder.objects.get(pseudonym="P-1")
    assert erasure_state(holder).requested_at is None
    assert again(visitor, new.code).status_code == 200
    visitor.get(url("choice", study))
    assert visitor.post(url(page, study), {"records": "erase"}).url == url("choice", study)
    assert erasure_state(holder).requested_at is not None
