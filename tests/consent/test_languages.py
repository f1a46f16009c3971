"""Languages and variants of a study: complete forms, the reader's choice, and a record of the text that was read."""

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from consent import services
from consent.documents import receipts
from consent.models import ConsentEvent, DataHolder, Study
from consent.people import exports
from consent.wording.facts import facts_of
from tests import factories
from tests.consent.conftest import answer
from tests.factories import user_create
from tests.snapshots import built_once

TEXTS = {"en": "We ask.", "de": "Wir fragen.", "fr": "Nous demandons."}
FRENCH = {"title": "Étude Chiffres", "purpose": "Apprendre à lire.", "recipients": "Les archives."}
FRENCH |= {"data_categories": "Des chiffres.", "data_source": "Votre traitement.", "retention": "Jusqu'à la fin."}
FRENCH |= {"harm": "Une assurance devine une maladie."}


@pytest.fixture
@built_once
def study(db: None) -> Study:
    """Return a study that also offers French."""
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
    assert '<span lang="en">Learn to read handwritten digits.</span>' in html, "the text has no German translation"


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


LANGUAGES = ["en", "de", "en-x-easy", "de-x-young"]
GERMAN = dict.fromkeys(("title", "purpose", "data_categories", "data_source", "retention"), "Z")
VARIANTS = {"en": "We ask.", "de": "Wir fragen.", "en-x-easy": "We ask you. Short.", "de-x-young": "Wir fragen dich."}


@pytest.fixture
@built_once
def varied(db: None) -> Study:
    varied = factories.study_create(languages=LANGUAGES, translations={"de": GERMAN})
    factories.policy_approve(varied)
    factories.form_publish(varied, VARIANTS)
    return varied


@pytest.fixture
def reader(varied: Study, client: Client) -> Client:
    client.force_login(factories.holder_create(varied, user=user_create("hanna")).user)
    return client


def page(client: Client, **query: str) -> str:
    return " ".join(client.get(reverse("consent:study", args=["digits"]), query).text.split())


def test_readers_choose_a_variant_and_the_main_text_stays_binding(reader: Client) -> None:
    main = page(reader)
    assert "<p>We ask.</p>" in main
    assert '<a href="?text=en-x-easy" lang="en-x-easy" hreflang="en-x-easy">English, easy to read</a>' in main
    assert main.index("?text=en-x-easy") < main.index("<p>We ask.</p>"), "the choice is above the text"
    assert "This text is meant to help you understand" not in main
    easy = page(reader, text="en-x-easy")
    assert '<div class="prose" lang="en"><p>We ask you. Short.</p>' in easy
    assert "This text is meant to help you understand" in easy and '<a href="?text=en">Read the main text</a>' in easy
    reader.cookies["django_language"] = "de"
    young = page(reader, text="de-x-young")
    assert 'lang="de"><p>Wir fragen dich.</p>' in young
    assert "Dieser Text soll beim Verstehen helfen" in young and "English, leicht zu lesen" in young


def test_it_is_recorded_which_text_was_read(reader: Client, varied: Study) -> None:
    field = '<input type="hidden" name="text" value="en-x-easy">'
    assert field in page(reader, text="en-x-easy")
    reader.post(reverse("consent:decide", args=["digits"]), answer(varied, "NONE", text="xx"))
    assert ConsentEvent.objects.get().text_read == "", "the form has no such text"
    sent = answer(varied, text="en-x-easy")
    reader.post(reverse("consent:study", args=["digits"]), sent)
    assert field in reader.get(reverse("consent:check", args=["digits"])).text
    reader.post(reverse("consent:decide", args=["digits"]), sent)
    event = ConsentEvent.objects.latest("sequence")
    assert event.text_read == "en-x-easy"
    assert dict(receipts.receipt_facts(event))["Text you read"] == "English, easy to read"
    assert receipts.receipt_json([event])["consent_record"]["events"][0]["extension"]["text_read"] == "en-x-easy"
    rows = list(exports.decisions(varied))
    assert [row["text_read"] for row in rows] == ["", "en-x-easy"] and exports.export_faults(varied, rows) == []
    read = reader.get(reverse("consent:receipt_text", args=["digits", 2])).text
    assert "We ask you. Short." in read, "the text that was read at the time"
    assert services.consent_withdraw(holder=event.holder, acting_user=None).text_read == ""
    assert list(ConsentEvent.chain_faults(varied.pk)) == []
