"""A study adds languages; its consent form is complete in each before anybody reads it."""

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from consent import services
from consent.models import DataHolder, Study
from consent.wording.facts import facts_of
from tests import factories
from tests.snapshots import built_once

TEXTS = {"en": "We ask.", "de": "Wir fragen.", "fr": "Nous demandons."}
FRENCH = {"title": "Étude Chiffres", "purpose": "Apprendre à lire.", "recipients": "Les archives."}
FRENCH |= {"data_categories": "Des chiffres.", "data_source": "Votre traitement.", "retention": "Jusqu'à la fin."}
FRENCH |= {"harm": "Une assurance devine une maladie."}


@pytest.fixture
@built_once
def study(db: None) -> Study:
    """Promises French as well."""
    translations = {"fr": FRENCH, "de": {"title": "Studie Ziffern"}}
    study = factories.study_create(languages=["en", "fr"], recipients="The archive.", translations=translations)
    factories.policy_approve(study)
    return study


def test_a_form_is_published_only_when_it_is_complete(study: Study) -> None:
    for missing, language in (("fr", "Français"), ("en", "English")):
        with pytest.raises(ValidationError, match=language):
            factories.form_publish(study, {code: words for code, words in TEXTS.items() if code != missing})
    sentence = {"fr": {name: words for name, words in FRENCH.items() if name != "recipients"}}
    services.study_update(study=study, translations=sentence)
    with pytest.raises(ValidationError, match="missing in Français"):
        factories.form_publish(study, TEXTS)
    services.study_update(study=study, translations={"fr": FRENCH})
    assert factories.form_publish(study, TEXTS).texts == TEXTS


def test_a_change_in_one_language_only_is_refused(study: Study) -> None:
    factories.form_publish(study, TEXTS)
    with pytest.raises(ValidationError, match="in English has changed, but the text in Deutsch, Français has not"):
        factories.form_publish(study, TEXTS | {"en": "We ask for more."})
    assert study.consent_forms.count() == 1
    more = {code: f"{words} +" for code, words in TEXTS.items()}
    assert factories.form_publish(study, more).texts == more


def test_a_holder_reads_the_text_in_each_language(study: Study, holder: DataHolder, client: Client) -> None:
    factories.form_publish(study, TEXTS)
    client.force_login(holder.user)
    path = reverse("consent:study", args=[study.slug])
    html = " ".join(client.get(path).text.split())
    assert "We ask." in html
    assert '<a href="?text=fr" lang="fr" hreflang="fr">Français</a>' in html
    html = client.get(path, {"text": "fr"}).content.decode()
    assert '<div class="prose" lang="fr"><p>Nous demandons.</p>' in html
    assert "This text is not available in your language" not in html
    assert '<h1><span lang="fr">Étude Chiffres</span></h1>' in html and "Les archives." in html
    assert "We ask." in client.get(path, {"text": "xx"}).content.decode()
    client.cookies["django_language"] = "de"
    html = client.get(path).text
    assert "<h1>Studie Ziffern</h1>" in html and "<title>Studie Ziffern" in html and "Étude" not in html
    assert '<span lang="en">Learn to read handwritten digits.</span>' in html, "there is no German of it"


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
    with pytest.raises(ValidationError, match=r"People consented to different facts \(Purpose"):
        factories.form_publish(study, TEXTS, facts=changed)
