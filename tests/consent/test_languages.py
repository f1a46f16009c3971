"""A study adds languages; its consent form is complete in each before anybody reads it."""

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from consent import services
from consent.facts import facts_of
from consent.models import DataHolder, Study
from tests import factories
from tests.snapshots import built_once

TEXTS = {"en": "We ask.", "de": "Wir fragen.", "fr": "Nous demandons."}
FRENCH = {
    "title": "Étude Chiffres",
    "purpose": "Apprendre à lire.",
    "recipients": "Les archives.",
    "data_categories": "Des chiffres.",
    "data_source": "Votre traitement.",
    "retention": "Jusqu'à la fin.",
    "harm": "Une assurance devine une maladie.",
}


@pytest.fixture
@built_once
def study(db: None) -> Study:
    """Promises French as well."""
    study = factories.study_create(
        languages=["en", "fr"],
        recipients="The archive.",
        translations={"fr": FRENCH, "de": {"title": "Studie Ziffern"}},
    )
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
    assert '<h1><span lang="fr">Étude Chiffres</span></h1>' in html and "Les archives." in html
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


def test_study_texts_come_in_the_readers_language_with_its_mark(
    study: Study, holder: DataHolder, client: Client
) -> None:
    factories.form_publish(study, TEXTS)
    client.force_login(holder.user)
    client.cookies["django_language"] = "de"
    html = client.get(reverse("consent:study", args=[study.slug])).content.decode()
    assert "<h1>Studie Ziffern</h1>" in html and "<title>Studie Ziffern" in html
    assert '<span lang="en">Learn to read handwritten digits.</span>' in html, "there is no German of it"
    assert "Étude" not in html


def test_a_form_waits_until_the_studys_own_texts_are_in_all_its_languages(study: Study) -> None:
    sentence = {"fr": {name: text for name, text in FRENCH.items() if name != "recipients"}}
    services.study_update(study=study, translations=sentence)
    with pytest.raises(ValidationError, match="missing in Français"):
        factories.form_publish(study, TEXTS)
    services.study_update(study=study, translations={"fr": FRENCH})
    factories.form_publish(study, TEXTS)


def test_after_a_decision_translations_can_be_added_and_not_changed(study: Study, holder: DataHolder) -> None:
    form = factories.form_publish(study, TEXTS)
    services.consent_give(holder=holder, level="LOW", form=form, acting_user=None)
    german = {"title": "Ziffern", "purpose": "Ziffern lesen lernen."}
    for changed in (
        {"translations": {"fr": FRENCH, "de": german}},
        {"translations": {"de": {"title": "Ziffern"}}},
        {"data_source": "Somebody else."},
        {"recipients": "The press."},
    ):
        with pytest.raises(ValidationError, match="belongs to the version"):
            services.study_update(study=study, **changed)
    services.study_update(study=study, translations={"fr": FRENCH, "de": {"title": "Andere Ziffern"}})
    facts = facts_of(study)
    added = facts | {"translations": facts["translations"] | {"de": {"purpose": "Ziffern lesen lernen."}}}
    factories.form_publish(study, TEXTS, facts=added)
    study.refresh_from_db()
    assert study.translations["de"] == {"title": "Andere Ziffern", "purpose": "Ziffern lesen lernen."}
    changed = added | {"translations": facts["translations"] | {"de": {"purpose": "Mehr."}}}
    with pytest.raises(ValidationError, match="People consented to other facts: Purpose"):
        factories.form_publish(study, TEXTS, facts=changed)


def test_the_form_of_a_study_has_its_texts_in_each_language(db: None, client: Client) -> None:
    olga = factories.user_create("olga", is_superuser=True)
    study = factories.study_create("plain")
    client.force_login(olga)
    page = reverse("staff:study_edit", args=["plain"])
    html = client.get(page).content.decode()
    assert 'name="purpose_de"' in html and 'lang="de"' in html
    sent = {
        "title": study.title, "purpose": study.purpose, "controller": study.controller, "contact": study.contact,
        "languages": "en de", "delta": "1e-5", "title_de": "Schlicht", "purpose_de": "Ziffern lesen.",
        "controller_address": "Street 1", "supervisory_authority": "The authority",
    }  # fmt: skip
    assert client.post(page, sent).status_code == 302
    study.refresh_from_db()
    assert study.translations == {"de": {"title": "Schlicht", "purpose": "Ziffern lesen."}}
    assert study.controller_address == "Street 1"
