"""A study adds languages; its consent form is complete in each before anybody reads it."""

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from consent import services
from consent.models import DataHolder, Study
from tests import factories

TEXTS = {"en": "We ask.", "de": "Wir fragen.", "fr": "Nous demandons."}


@pytest.fixture
def study(db: None) -> Study:
    """Promises French as well."""
    study = factories.study_create(languages=["en", "fr"])
    factories.policy_approve(study)
    return study


@pytest.mark.parametrize("missing", ["fr", "en"])
def test_a_form_is_published_only_when_it_is_complete(study: Study, missing: str) -> None:
    texts = {code: text for code, text in TEXTS.items() if code != missing}
    with pytest.raises(ValidationError, match={"fr": "Français", "en": "English"}[missing]):
        factories.form_publish(study, texts)


def test_a_holder_reads_the_text_in_each_language(study: Study, holder: DataHolder, client: Client) -> None:
    factories.form_publish(study, TEXTS)
    client.force_login(holder.user)
    path = reverse("consent:study", args=[study.slug])
    html = client.get(path).content.decode()
    assert "We ask." in html
    assert '<a href="?text=fr" lang="fr" hreflang="fr">Français</a>' in html
    html = client.get(path, {"text": "fr"}).content.decode()
    assert '<div class="prose" lang="fr"><p>Nous demandons.</p>' in html
    assert "no text in your language" not in html
    assert "We ask." in client.get(path, {"text": "xx"}).content.decode()


@pytest.mark.parametrize(("codes", "says"), [(["en", "xx"], "Unknown language: xx"), (["fr"], "keep “en”")])
def test_languages_that_nobody_could_read_are_refused(study: Study, codes: list[str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        services.study_update(study=study, languages=codes)


def test_an_operator_adds_a_language_and_writes_the_text(study: Study, client: Client) -> None:
    client.force_login(factories.user_create("olga"))
    edit = reverse("staff:study_edit", args=[study.slug])
    assert 'value="en fr"' in client.get(edit).content.decode()
    fields = {"title": "T", "slug": "digits", "purpose": "P", "controller": "C", "contact": "c@example.org"}
    fields |= {"lawful_basis": "consent", "delta": "1e-5"}
    refused = client.post(edit, {**fields, "languages": "en klingon"})
    assert "Unknown language: klingon" in refused.content.decode()
    assert client.post(edit, {**fields, "languages": "EN, pl"}).status_code == 302
    study.refresh_from_db()
    assert study.languages == ["en", "pl"]
    form = client.get(reverse("staff:consent_form_new", args=[study.slug])).content.decode()
    assert 'lang="pl"' in form
