"""Variants of a study's text, for young people or easy to read: data of the study, chosen by the reader, on record."""

import pytest
from django.test import Client
from django.urls import reverse

from consent import services
from consent.documents import receipts
from consent.models import ConsentEvent, Study
from consent.people import exports
from tests import factories
from tests.consent.conftest import answer
from tests.factories import user_create
from tests.snapshots import built_once

LANGUAGES = ["en", "de", "en-x-easy", "de-x-young"]
GERMAN = dict.fromkeys(("title", "purpose", "data_categories", "data_source", "retention"), "Z")
TEXTS = {"en": "We ask.", "de": "Wir fragen.", "en-x-easy": "We ask you. Short.", "de-x-young": "Wir fragen dich."}


@pytest.fixture
@built_once
def study(db: None) -> Study:
    study = factories.study_create(languages=LANGUAGES, translations={"de": GERMAN})
    factories.policy_approve(study)
    factories.form_publish(study, TEXTS)
    return study


@pytest.fixture
def reader(study: Study, client: Client) -> Client:
    client.force_login(factories.holder_create(study, user=user_create("hanna")).user)
    return client


def page(client: Client, **query: str) -> str:
    return " ".join(client.get(reverse("consent:study", args=["digits"]), query).text.split())


def test_readers_choose_a_variant_and_the_main_text_stays_binding(reader: Client) -> None:
    main = page(reader)
    assert "<p>We ask.</p>" in main
    assert '<a href="?text=en-x-easy" lang="en-x-easy" hreflang="en-x-easy">English, easy to read</a>' in main
    assert main.index("?text=en-x-easy") < main.index("<p>We ask.</p>"), "before the text"
    assert "This text is meant to help you understand" not in main
    easy = page(reader, text="en-x-easy")
    assert '<div class="prose" lang="en"><p>We ask you. Short.</p>' in easy
    assert "This text is meant to help you understand" in easy and '<a href="?text=en">Read the main text</a>' in easy
    reader.cookies["django_language"] = "de"
    young = page(reader, text="de-x-young")
    assert 'lang="de"><p>Wir fragen dich.</p>' in young
    assert "Dieser Text soll beim Verstehen helfen" in young and "English, leicht zu lesen" in young


def test_it_is_recorded_which_text_was_read(reader: Client, study: Study) -> None:
    field = '<input type="hidden" name="text" value="en-x-easy">'
    assert field in page(reader, text="en-x-easy")
    reader.post(reverse("consent:decide", args=["digits"]), answer(study, "NONE", text="xx"))
    assert ConsentEvent.objects.get().text_read == "", "the form has no such text"
    sent = answer(study, text="en-x-easy")
    reader.post(reverse("consent:study", args=["digits"]), sent)
    assert field in reader.get(reverse("consent:check", args=["digits"])).text
    reader.post(reverse("consent:decide", args=["digits"]), sent)
    event = ConsentEvent.objects.latest("sequence")
    assert event.text_read == "en-x-easy"
    assert dict(receipts.receipt_facts(event))["Text you read"] == "English, easy to read"
    assert receipts.receipt_json([event])["consent_record"]["events"][0]["extension"]["text_read"] == "en-x-easy"
    rows = list(exports.decisions(study))
    assert [row["text_read"] for row in rows] == ["", "en-x-easy"] and exports.export_faults(study, rows) == []
    read = reader.get(reverse("consent:receipt_text", args=["digits", 2])).text
    assert "We ask you. Short." in read, "what was read then"
    assert services.consent_withdraw(holder=event.holder, acting_user=None).text_read == ""
    assert list(ConsentEvent.chain_faults(study.pk)) == []
