"""Proposals that wait for the ethics committee: seen on its home, approved, rejected or commented on."""

import math
import re

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.test import Client

from common.noise import SimulationNoise
from consent import selectors, services
from consent.models import ConsentForm, ConsentFormProposal, EpsilonPolicy, Remark, Study
from tests import factories
from tests.pages import as_, text
from tests.snapshots import built_once
from tests.training.runs import study_with_consents
from training.services.head_counts import head_counts_draw, head_counts_enter

pytestmark = pytest.mark.django_db

BASE = "/studies/digits/consent-form/"
PROPOSAL = BASE + "proposals/2/"
MORE = {"en": "# What we ask\nMore than before.", "de": "# Worum wir bitten\nMehr als zuvor."}


@pytest.fixture
@built_once
def study() -> Study:
    """Nine holders take part; ``carla`` and ``conrad`` are the ethics committee."""
    return factories.committee_fill(study_with_consents())


def policy_propose(study: Study) -> EpsilonPolicy:
    return services.epsilon_policy_propose(
        study=study, acting_user=factories.user_create("carla"), high=0.5, average=2, low=4, reason="Better so."
    )


def draft_publish(client: Client, renewal: str, texts: dict[str, str] = MORE):
    """Write a draft and press the button that publishes or proposes it."""
    client.post(BASE + "new/", texts)
    seen = re.search(r'name="seen" value="(\w+)"', client.get(BASE + "publish/").text).group(1)
    return client.post(BASE + "publish/", {"seen": seen, "renewal": renewal}, follow=True)


# --- Home -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_deciders_see_waiting_tasks_at_once(study: Study) -> None:
    assert "ε policy, version 2" not in text(as_("conrad").get("/"))
    policy_propose(study)
    factories.form_propose(study, MORE)
    home = as_("conrad").get("/")
    for message in ("Waiting for you", "ε policy, version 2", "Consent form that asks people again"):
        assert message in text(home)
    assert "/studies/digits/policies/2/approve/" in home.text
    assert PROPOSAL in home.text
    assert "You proposed it: somebody else decides." not in text(home)
    assert "You proposed it: somebody else decides." in text(as_("carla").get("/"))
    assert "ε policy, version 2" not in text(as_("olga").get("/")), "an operator does not decide on these"


def test_a_decided_proposal_waits_no_more(study: Study) -> None:
    policy, proposal = policy_propose(study), factories.form_propose(study, MORE)
    conrad = factories.user_create("conrad")
    services.proposal_remark(proposal=policy, acting_user=conrad, kind="rejection", text="Too much.")
    services.consent_form_approve(proposal=proposal, acting_user=conrad)
    home = text(as_("conrad").get("/"))
    assert not any(message in home for message in ("ε policy, version", "Consent form that asks people again"))


# --- Reject and comment ---------------------------------------------------------------------------------------------


def test_a_policy_is_commented_on_and_rejected_with_a_reason(study: Study) -> None:
    policy = policy_propose(study)
    path = "/studies/digits/policies/2/approve/"
    refused = as_("conrad").post(path, {"text": " ", "reject": "1"})
    assert refused.status_code == 422
    assert not policy.remarks.exists(), "no rejection without a reason"
    assert "Your comment is kept." in text(as_("conrad").post(path, {"text": "Why 4?", "comment": "1"}, follow=True))
    assert selectors.is_waiting(policy)
    page = text(as_("conrad").post(path, {"text": "4 is too much.", "reject": "1"}, follow=True))
    for message in ("The proposal is rejected.", "Why 4?", "4 is too much.", "not waiting any more"):
        assert message in page
    assert "Yes, put it in force" not in page
    as_("conrad").post(path, {"effective_from": ""})
    assert selectors.policy_in_force(study).version == 1
    with pytest.raises(ValidationError, match="was rejected"):
        services.epsilon_policy_approve(policy=policy, acting_user=factories.user_create("conrad"))
    assert "rejected" in text(as_("carla").get("/studies/digits/policies/"))
    assert list(Remark.chain_faults(study.pk)) == []


def test_remarks_are_chained_and_their_signature_holds(study: Study) -> None:
    policy = policy_propose(study)
    carla = factories.user_create("carla")
    for kind in ("comment", "rejection"):
        services.proposal_remark(proposal=policy, acting_user=carla, kind=kind, text="As said.")
    assert [remark.kind for remark in Remark.chain(study.pk)][-2:] == ["comment", "rejection"]
    assert list(Remark.chain_faults(study.pk)) == []
    with pytest.raises(ValidationError, match="decided already"):
        services.proposal_remark(proposal=policy, acting_user=carla, kind="comment", text="Too late.")


# --- Two people for a form that asks again --------------------------------------------------------------------------


def test_a_form_that_asks_people_again_needs_two_people(study: Study) -> None:
    assert "The form is proposed." in text(draft_publish(as_("carla"), "required"))
    assert ConsentForm.objects.count() == 1
    own = as_("carla").get(PROPOSAL)
    assert "You proposed this form yourself." in text(own)
    assert "Yes, publish it" not in text(own)
    as_("carla").post(PROPOSAL)
    assert ConsentForm.objects.count() == 1
    assert as_("olga").post(PROPOSAL).status_code == 403, "an operator is not of the committee"
    assert "Version 2 is published" in text(as_("conrad").post(PROPOSAL, follow=True))
    form = ConsentForm.objects.get(version=2)
    assert (form.texts, form.renewal) == (MORE, "required")
    assert (form.proposed_by.username, form.published_by.username) == ("carla", "conrad")
    assert list(ConsentForm.chain_faults(study.pk)) == []
    assert "proposed by carla" in text(as_("olga").get(BASE))


def test_a_form_without_renewed_consent_needs_two_people(study: Study) -> None:
    assert "The form is proposed." in text(draft_publish(as_("olga"), "not_asked"))
    assert ConsentForm.objects.count() == 1
    assert "Version 2 is published" in text(as_("conrad").post(PROPOSAL, follow=True))


def test_the_database_itself_knows_a_second_person(study: Study) -> None:
    proposal = factories.form_propose(study, MORE)
    form = ConsentForm(
        study=study,
        version=2,
        texts=MORE,
        facts=proposal.facts,
        digest=proposal.digest,
        renewal="required",
        proposal=proposal,
    )
    form.proposed_by_id = form.published_by_id = proposal.proposed_by_id
    with pytest.raises(IntegrityError, match="second_person"), transaction.atomic():
        ConsentForm.append([form])


def test_a_rejected_or_overtaken_form_is_not_published(study: Study) -> None:
    conrad = factories.user_create("conrad")
    rejected = factories.form_propose(study, MORE)
    as_("conrad").post(PROPOSAL, {"text": "Say what for.", "reject": "1"})
    with pytest.raises(ValidationError, match="was rejected"):
        services.consent_form_approve(proposal=rejected, acting_user=conrad)
    overtaken = factories.form_propose(study, MORE)
    factories.form_publish(study, {"en": "In other words.", "de": "In anderen Worten."})
    with pytest.raises(ValidationError, match="Another version has been published since"):
        services.consent_form_approve(proposal=overtaken, acting_user=conrad)
    assert ConsentForm.objects.count() == 2
    assert ConsentFormProposal.objects.count() == 4


def test_affected_holders_are_shown_as_noisy_counts_and_never_exactly(study: Study) -> None:
    factories.form_propose(study, MORE)
    assert "has not been counted" in text(as_("conrad").get(PROPOSAL))
    counts = head_counts_draw(study=study, acting_user=factories.user_create("olga"), noise=SimulationNoise(1))
    total, spread = sum(count.count for count in counts), round(math.sqrt(3) * counts[0].sigma)
    assert total != 9, "else this test shows nothing"
    for name, page in (("conrad", PROPOSAL), ("carla", PROPOSAL)):
        shown = text(as_(name).get(page))
        assert f"About {total} people take part (± {spread}, counted with noise" in shown
        assert "9 people" not in shown
    as_("carla").post(BASE + "new/", MORE)
    assert f"About {total} people" in text(as_("carla").get(BASE + "publish/"))
    public = {"HIGH": 10, "AVERAGE": 20, "LOW": 30}
    head_counts_enter(study=study, acting_user=factories.user_create("olga"), counts=public)
    assert "About 60 people take part (a public number" in text(as_("conrad").get(PROPOSAL))


# --- Every language -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renewal", ["not_asked", "required"])
def test_a_change_in_one_language_only_is_stopped(study: Study, renewal: str) -> None:
    page = draft_publish(as_("carla"), renewal, factories.FORM | {"en": MORE["en"]})
    assert page.status_code == 422
    sentence = "The text in English has changed, that in Deutsch has not: people would read different things."
    assert sentence in text(page)
    assert (ConsentForm.objects.count(), ConsentFormProposal.objects.count()) == (1, 1)


def test_a_language_may_be_added_without_changing_the_others(study: Study) -> None:
    assert factories.form_publish(study, factories.FORM | {"fr": "# Notre demande"}).version == 2


@pytest.mark.parametrize(("language", "words"), [("en", "At most 56 times in 100"), ("de", "höchstens 56 von 100 Mal")])
def test_the_preview_is_the_page_itself_in_every_language(study: Study, language: str, words: str) -> None:
    factories.form_propose(study, MORE)
    page = as_("conrad").get(f"{BASE}as-read/{language}/?proposal=2")
    assert f'<html lang="{language}">' in page.text
    assert words.lower() in text(page).lower(), "with the odds"
    assert ("Mehr als zuvor." in page.text) is (language == "de")
    assert re.search(r'<button class="button button-primary" disabled>', page.text), "nobody can answer there"
    assert as_("conrad").get(f"{BASE}as-read/fr/?proposal=2").status_code == 404
    assert as_("conrad").get(f"{BASE}as-read/en/").url == BASE + "new/", "there is no draft yet"
    as_("carla").post(BASE + "new/", {"en": "The draft."})
    assert "The draft." in as_("conrad").get(f"{BASE}as-read/en/").text
