"""Pages for writing, comparing and publishing consent forms, and proposals that wait for the ethics committee."""

import math
import re

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.test import Client

from common.noise import SimulationNoise
from consent import selectors, services
from consent.models import ConsentForm, ConsentFormDraft, ConsentFormProposal, EpsilonPolicy, Remark, Study
from consent.services import draft_facts, form_digest
from tests import factories
from tests.pages import as_, text
from tests.snapshots import built_once
from tests.training.runs import study_with_consents
from training.services.drawings import head_counts_draw, head_counts_enter

pytestmark = pytest.mark.django_db

BASE = "/studies/digits/consent-form/"
PROPOSAL = BASE + "proposals/2/"
POLICY = "/studies/digits/policies/2/approve/"
MORE = {"en": "# What we ask\nMore than before.", "de": "# Worum wir bitten\nMehr als zuvor."}


@pytest.fixture
@built_once
def study() -> Study:
    """Return a study in which nine holders take part; ``carla`` and ``conrad`` are the ethics committee."""
    return factories.committee_fill(study_with_consents())


@pytest.fixture
def olga(study: Study) -> Client:
    return as_("olga")


def seen(page: str) -> str:
    """Return the digest of the draft that a page shows."""
    found = re.search(r'name="seen" value="(\w+)"', page)
    assert found is not None
    return found.group(1)


def publish(client: Client, texts: dict[str, str], **sent: str):
    """Write a draft and press the button that proposes it."""
    client.post(BASE + "new/", texts)
    digest = seen(client.get(BASE + "publish/").text)
    return client.post(BASE + "publish/", {"seen": digest, **sent}, follow=True)


def policy_propose(study: Study) -> EpsilonPolicy:
    values = {"high": 0.5, "average": 2, "low": 4, "reason": "Better so."}
    return services.epsilon_policy_propose(study=study, acting_user=factories.user_create("carla"), **values)


def test_a_draft_begins_with_the_words_in_force_and_is_kept(olga: Client) -> None:
    assert "read handwriting" in text(olga.get(BASE + "new/"))
    html = olga.post(BASE + "preview/", {"en": "**Bold** <script>alert(1)</script>"}).text
    assert "<strong>Bold</strong>" in html and "<script" not in html
    assert not ConsentFormDraft.objects.exists(), "a preview saves nothing"
    assert olga.post(BASE + "new/", {"en": "# New words"}).status_code == 302
    assert ConsentFormDraft.objects.get().texts == {"en": "# New words"}
    page = olga.get(BASE + "new/")
    assert "<h3>New words</h3>" in page.text, "the preview needs no JavaScript"
    assert "Draft saved by olga" in text(page)
    assert ConsentForm.objects.count() == 1
    for number in ("²", "-1", "one"):
        shown = text(olga.get(BASE + "as-read/en/", {"proposal": number}))
        assert "New words" in shown, "the draft, where there is no proposal number"


def test_nobody_overwrites_an_unseen_draft(study: Study, olga: Client) -> None:
    otto = factories.user_create("otto")
    draft = services.consent_form_draft_save(study=study, acting_user=otto, texts={"en": "By Otto"})
    page = olga.post(BASE + "new/", {"en": "By Olga", "seen": ""})
    assert page.status_code == 422
    assert "otto has saved a different draft since you opened this page" in text(page)
    assert "By Olga" in page.text
    assert ConsentFormDraft.objects.get().texts == {"en": "By Otto"}
    otto.delete()
    assert "By Otto" in text(olga.get(BASE + "new/"))
    page = olga.post(BASE + "new/", {"en": "By Olga", "seen": ""})
    assert page.status_code == 422 and "deleted account has saved a different draft" in text(page)
    assert seen(page.text) == form_digest(draft.texts, draft_facts(draft))
    assert olga.post(BASE + "new/", {"en": "By Olga", "seen": seen(page.text)}).status_code == 302
    assert ConsentFormDraft.objects.get().texts == {"en": "By Olga"}


def test_publishing_shows_what_changes_and_wants_a_decision(olga: Client) -> None:
    response = olga.post(BASE + "new/", {"en": factories.FORM["en"] + "\nAnd more.", "publish": "1"}, follow=True)
    assert "Proposed changes since version 1" in text(response)
    assert "added: And more." in text(response)
    digest = seen(response.text)
    response = olga.post(BASE + "publish/", {"seen": digest})
    assert response.status_code == 422
    assert "What happens to people who consented to an earlier version?: This field is required." in text(response)
    assert "checked" not in response.text, "nothing is preselected"
    olga.post(BASE + "publish/", {"seen": digest, "renewal": "not_asked"})
    proposal = ConsentFormProposal.objects.latest("sequence")
    assert (proposal.renewal, proposal.proposed_by.username, proposal.follows) == ("not_asked", "olga", 1)
    assert not ConsentFormDraft.objects.exists()


def test_an_unseen_form_is_not_published(olga: Client) -> None:
    olga.post(BASE + "new/", {"en": "Mine"})
    digest = seen(olga.get(BASE + "publish/").text)
    olga.post(BASE + "new/", {"en": "Somebody else's"})
    response = olga.post(BASE + "publish/", {"seen": digest, "renewal": "asked"})
    assert response.status_code == 422
    assert "The draft has changed since you opened this" in text(response)
    assert ConsentFormProposal.objects.count() == ConsentForm.objects.count() == 1
    # The page has shown the new text, so confirming it is enough.
    again = {"seen": seen(response.text), "renewal": "asked"}
    assert olga.post(BASE + "publish/", again).status_code == 302


def test_a_policy_is_commented_on_and_rejected_with_a_reason(study: Study) -> None:
    policy, conrad = policy_propose(study), as_("conrad")
    assert conrad.post(POLICY, {"text": " ", "reject": "1"}).status_code == 422
    assert not policy.remarks.exists(), "no rejection without a reason"
    assert "Your comment has been saved." in text(conrad.post(POLICY, {"text": "Why 4?", "comment": "1"}, follow=True))
    assert selectors.is_waiting(policy)
    page = text(conrad.post(POLICY, {"text": "4 is too much.", "reject": "1"}, follow=True))
    for message in ("Proposal rejected.", "Why 4?", "4 is too much.", "is no longer pending, because it was rejected"):
        assert message in page
    assert "Approve policy" not in page
    conrad.post(POLICY, {"effective_from": ""})
    assert selectors.policy_in_force(study).version == 1
    with pytest.raises(ValidationError, match="was rejected"):
        services.epsilon_policy_approve(policy=policy, acting_user=factories.user_create("conrad"))
    with pytest.raises(ValidationError, match="already been decided"):
        services.proposal_remark(proposal=policy, acting_user=factories.user_create("carla"), kind="comment", text="?")
    assert "rejected" in text(as_("carla").get("/studies/digits/policies/"))
    assert [remark.kind for remark in Remark.chain(study.pk)][-2:] == ["comment", "rejection"]
    assert list(Remark.chain_faults(study.pk)) == []


def test_the_database_requires_a_second_person(study: Study) -> None:
    proposal = factories.form_propose(study, MORE)
    same = {name: getattr(proposal, name) for name in ("study", "texts", "facts", "digest", "renewal")}
    form = ConsentForm(version=2, proposal=proposal, **same)
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
    with pytest.raises(ValidationError, match="Another version has been published in the meantime"):
        services.consent_form_approve(proposal=overtaken, acting_user=conrad)
    assert ConsentForm.objects.count() == 2


def test_affected_holders_are_shown_as_noisy_counts_and_never_exactly(study: Study) -> None:
    factories.form_propose(study, MORE)
    assert "An operator can take head counts with noise," in text(as_("conrad").get(PROPOSAL))
    counts = head_counts_draw(study=study, acting_user=factories.user_create("olga"), noise=SimulationNoise(1))
    total, spread = sum(count.count for count in counts), round(math.sqrt(3) * counts[0].sigma)
    assert total != 9, "otherwise this test shows nothing"
    for name in ("conrad", "carla"):
        shown = text(as_(name).get(PROPOSAL))
        assert f"About {total} people take part (± {spread}, counted with noise" in shown
        assert "9 people" not in shown
    as_("carla").post(BASE + "new/", MORE)
    assert f"About {total} people" in text(as_("carla").get(BASE + "publish/"))
    public = {"HIGH": 10, "AVERAGE": 20, "LOW": 30}
    head_counts_enter(study=study, acting_user=factories.user_create("olga"), counts=public)
    assert "About 60 people take part (a public number" in text(as_("conrad").get(PROPOSAL))
