"""Pages to write, compare and publish consent forms."""

import re

import pytest
from django.test import Client

from consent import services
from consent.models import ConsentForm, ConsentFormDraft, ConsentFormProposal, Study
from consent.services import draft_facts, form_digest
from tests import factories
from tests.pages import as_, text

pytestmark = pytest.mark.django_db

BASE = "/studies/digits/consent-form/"


@pytest.fixture
def study() -> Study:
    return factories.study_open()


@pytest.fixture
def olga(study: Study) -> Client:
    return as_("olga")


def seen(client: Client) -> str:
    """The digest of the draft that the publication page shows."""
    return re.search(r'name="seen" value="(\w+)"', client.get(BASE + "publish/").content.decode()).group(1)


def test_a_draft_begins_with_the_words_in_force_and_is_kept(olga: Client) -> None:
    assert "read handwriting" in text(olga.get(BASE + "new/"))
    assert olga.post(BASE + "new/", {"en": "# New words"}).status_code == 302
    assert ConsentFormDraft.objects.get().texts == {"en": "# New words"}
    page = olga.get(BASE + "new/")
    assert "<h3>New words</h3>" in page.content.decode(), "the preview needs no JavaScript"
    assert "Draft saved by olga" in text(page)
    assert ConsentForm.objects.count() == 1


def languages_offered(client: Client) -> list[str]:
    return re.findall(r'<textarea[^>]* lang="([\w-]+)"', client.get(BASE + "new/").content.decode())


def test_texts_are_required_in_the_languages_of_the_study(study: Study, olga: Client) -> None:
    """German is a language of the site; a study may do without it."""
    assert languages_offered(olga) == ["en", "de"], "the version in force has both"
    factories.form_publish(study, {"en": "Only English now."})
    assert languages_offered(olga) == ["en"]
    services.study_update(study=study, languages=["en", "fr"])
    assert languages_offered(olga) == ["en", "fr"]
    olga.post(BASE + "new/", {"en": "Hello", "fr": "Salut"})
    services.study_update(study=study, languages=["en"])
    assert languages_offered(olga) == ["en", "fr"], "what is in the draft is not lost"


def test_an_unfinished_draft_is_kept_but_not_taken_on_to_publication(olga: Client) -> None:
    page = olga.post(BASE + "new/", {"en": "", "de": "Nur Deutsch.", "publish": "1"})
    assert page.status_code == 422
    assert "Write this text before you publish the form." in text(page)
    assert "Nur Deutsch." in page.content.decode(), "nothing typed is lost"
    assert not ConsentFormDraft.objects.exists()
    assert olga.post(BASE + "new/", {"en": "", "de": "Nur Deutsch."}).status_code == 302


def test_a_draft_of_somebody_whose_account_is_gone_is_taken_over(study: Study, olga: Client) -> None:
    otto = factories.user_create("otto")
    draft = services.consent_form_draft_save(study=study, acting_user=otto, texts={"en": "By Otto"})
    otto.delete()
    assert "By Otto" in text(olga.get(BASE + "new/"))
    page = olga.post(BASE + "new/", {"en": "By Olga", "seen": ""})
    assert page.status_code == 422 and "deleted account has saved another draft" in text(page)
    seen = form_digest(draft.texts, draft_facts(draft))
    assert olga.post(BASE + "new/", {"en": "By Olga", "seen": seen}).status_code == 302


def test_nobody_writes_over_a_draft_that_they_have_not_seen(study: Study, olga: Client) -> None:
    services.consent_form_draft_save(study=study, acting_user=factories.user_create("otto"), texts={"en": "By Otto"})
    page = olga.post(BASE + "new/", {"en": "By Olga", "seen": ""})
    assert page.status_code == 422
    assert "otto has saved another draft since you opened this page" in text(page)
    assert "By Olga" in page.content.decode()
    assert ConsentFormDraft.objects.get().texts == {"en": "By Otto"}
    again = re.search(r'name="seen" value="(\w+)"', page.content.decode()).group(1)
    assert olga.post(BASE + "new/", {"en": "By Olga", "seen": again}).status_code == 302
    assert ConsentFormDraft.objects.get().texts == {"en": "By Olga"}


def test_the_preview_is_made_safe_and_saves_nothing(olga: Client) -> None:
    html = olga.post(BASE + "preview/", {"en": "**Bold** <script>alert(1)</script>"}).content.decode()
    assert "<strong>Bold</strong>" in html
    assert "<script" not in html
    assert not ConsentFormDraft.objects.exists()


def test_what_is_no_number_of_a_proposal_shows_the_draft(study: Study, olga: Client) -> None:
    olga.post(BASE + "new/", {"en": "Mine"})
    for number in ("²", "-1", "one"):
        assert "Mine" in text(olga.get(BASE + "as-read/en/", {"proposal": number}))


def test_publishing_shows_what_changes_and_wants_a_decision(olga: Client) -> None:
    response = olga.post(BASE + "new/", {"en": factories.FORM["en"] + "\nAnd more.", "publish": "1"}, follow=True)
    assert "What changes since version 1" in text(response)
    assert "added: And more." in text(response)
    response = olga.post(BASE + "publish/", {"seen": seen(olga)})
    assert response.status_code == 422
    assert "What about those who consented to an earlier version?: This field is required." in text(response)
    assert "checked" not in response.content.decode(), "the decision is not made for them"
    olga.post(BASE + "publish/", {"seen": seen(olga), "renewal": "not_asked"})
    proposal = ConsentFormProposal.objects.latest("sequence")
    assert (proposal.renewal, proposal.proposed_by.username, proposal.follows) == ("not_asked", "olga", 1)
    assert not ConsentFormDraft.objects.exists()


def test_the_first_version_asks_nobody_again() -> None:
    factories.study_create()
    client = as_("olga")
    client.post(BASE + "new/", {"en": "Hello"})
    assert "earlier version" not in text(client.get(BASE + "publish/"))
    client.post(BASE + "publish/", {"seen": seen(client)})
    assert ConsentFormProposal.objects.get().texts == {"en": "Hello"}


def test_an_unseen_form_is_not_published(olga: Client) -> None:
    olga.post(BASE + "new/", {"en": "Mine"})
    digest = seen(olga)
    olga.post(BASE + "new/", {"en": "Somebody else's"})
    response = olga.post(BASE + "publish/", {"seen": digest, "renewal": "asked"})
    assert response.status_code == 422
    assert "Somebody has changed the draft" in text(response)
    assert ConsentForm.objects.count() == 1
    # The page has shown the new words; to confirm them is enough.
    digest = re.search(r'name="seen" value="(\w+)"', response.content.decode()).group(1)
    assert olga.post(BASE + "publish/", {"seen": digest, "renewal": "asked"}).status_code == 302


@pytest.mark.parametrize(
    ("texts", "message"),
    [({"de": "Hallo"}, "needs a text in English"), (factories.FORM, "what the version in force says")],
)
def test_the_page_says_why_a_form_cannot_be_published(olga: Client, texts: dict[str, str], message: str) -> None:
    olga.post(BASE + "new/", texts)
    response = olga.post(BASE + "publish/", {"seen": seen(olga), "renewal": "asked"})
    assert response.status_code == 422
    assert message in text(response)


def test_a_version_says_what_it_changed_and_decided(olga: Client, study: Study) -> None:
    factories.form_publish(study, {"en": "# What we ask\nWe would like to learn **nothing**."}, renewal="asked")
    page = text(olga.get(BASE + "2/"))
    assert "They are asked again" in page or "they are asked again; their consent stands" in page
    assert "What changed since version 1" in page
    assert "removed:" in page
    assert "What changed" not in text(olga.get(BASE + "1/"))
