"""Reading level of holders' pages: grade 8 or less in English, Sachtextformel 9 or less in German."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from consent.models import Study
from tests import factories
from tests.consent.conftest import Decide
from tests.consent.readability import FORMULAS, flesch_kincaid, sentences, wiener_sachtextformel

#: What a study says of itself, which the site does not write.
OWN_WORDS = {
    "controller": "Klinik",
    "purpose": "Lesen.",
    "data_categories": "Bilder.",
    "recipients": "",
    "retention": "",
}
PAGES = ["/my/", "/my/digits/", "/my/digits/choice/", "/my/digits/withdraw/", "/my/digits/uses/", "/my/digits/check/",
         "/my/digits/receipts/1/", "/glossary/", "/join/"]  # fmt: skip


@pytest.fixture
def study(db: None) -> Study:
    study = factories.study_create(**OWN_WORDS)
    factories.form_publish(study, {"en": "Read.", "de": "Lesen."})
    factories.policy_approve(study)
    return study


@pytest.fixture
def browser(hanna: User) -> Client:
    client = Client()
    client.force_login(hanna)
    return client


@pytest.mark.parametrize("renewal", [None, "asked", "required"])
@pytest.mark.parametrize("language", ["en", "de"])
def test_holders_read_plain_sentences(
    browser: Client, study: Study, hanna: User, give: Decide, language: str, renewal: str | None
) -> None:
    give(factories.holder_create(study, user=hanna), "HIGH")
    if renewal:
        factories.form_publish(study, {"en": "Read more.", "de": "Mehr lesen."}, renewal)
    browser.cookies["django_language"] = language
    formula, largest = FORMULAS[language]
    hard = {}
    for page in PAGES:
        if page == "/my/digits/check/":
            version = study.consent_forms.count()
            answer = {"choice": "LOW", "form_version": version, "policy_version": 1}
            response = browser.post("/my/digits/", answer, follow=True)
        else:
            response = browser.get(page)
        assert response.status_code == 200, page
        read = sentences(response.text)
        assert read, page
        if (level := formula(read)) > largest:
            hard[page] = (round(level, 1), sorted(read, key=lambda one: -formula([one]))[:12])
    assert hard == {}, "shorter sentences, shorter words"


def test_a_hard_page_is_found() -> None:
    hard = "<main><p>Notwithstanding differential confidentiality, participation necessitates authorisation.</p></main>"
    assert flesch_kincaid(sentences(hard)) > 8
    schwer = (
        "<main><p>Die Einwilligungserklärung beinhaltet Verarbeitungsgrundlagen personenbezogener Daten.</p></main>"
    )
    assert wiener_sachtextformel(sentences(schwer)) > 9
