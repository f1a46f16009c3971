"""Reading level of holders' pages: grade 8 or less in English, Sachtextformel 9 or less in German."""

import pytest

from consent.models import Study
from tests import factories
from tests.consent.readability import FORMULAS, flesch_kincaid, sentences, wiener_sachtextformel
from tests.snapshots import built_once

#: What a study says of itself, which the site does not write.
OWN_WORDS = {"controller": "Klinik", "purpose": "Lesen.", "data_categories": "Bilder.", "recipients": ""}
PAGES = ["/my/", "/my/digits/", "/my/digits/choice/", "/my/digits/withdraw/", "/my/digits/uses/", "/my/digits/check/",
         "/my/digits/receipts/1/", "/my/digits/receipts/1/text/", "/glossary/", "/join/", "/privacy/",
         "/accessibility/", "/account/", "/account/addresses/", "/account/password/forgotten/"]  # fmt: skip


@pytest.fixture
@built_once
def study(db: None) -> Study:
    study = factories.study_create(**OWN_WORDS)
    factories.form_publish(study, {"en": "Read.", "de": "Lesen."})
    factories.policy_approve(study)
    return study


@pytest.mark.parametrize("renewal", [None, pytest.param("asked", marks=pytest.mark.exhaustive), "required"])
@pytest.mark.parametrize("language", ["en", "de"])
def test_holders_read_plain_sentences(browser, study, hanna, give, language: str, renewal: str | None) -> None:
    give(factories.holder_create(study, user=hanna), "HIGH")
    if renewal:
        factories.form_publish(study, {"en": "Read more.", "de": "Mehr lesen."}, renewal)
    browser.cookies["django_language"] = language
    hard = {}
    for page in PAGES:
        if page == "/my/digits/check/":
            version = study.consent_forms.count()
            answer = {"choice": "LOW", "form_version": version, "policy_version": 1, "promise": "1.0"}
            response = browser.post("/my/digits/", answer, follow=True)
        else:
            response = browser.get(page)
        assert response.status_code == 200, page
        hard |= too_hard(page, response.text, language)
    assert hard == {}, "shorter sentences, shorter words"


def too_hard(page: str, html: str, language: str) -> dict[str, tuple[float, list[str]]]:
    """Level and hardest sentences of a page that is above the largest level; empty if it is not."""
    formula, largest = FORMULAS[language]
    read = sentences(html)
    assert read, page
    level = formula(read)
    return {page: (round(level, 1), sorted(read, key=lambda one: -formula([one]))[:12])} if level > largest else {}


def test_a_hard_page_is_found() -> None:
    hard = "<main><p>Notwithstanding differential confidentiality, participation necessitates authorisation.</p></main>"
    assert flesch_kincaid(sentences(hard)) > 8
    schwer = (
        "<main><p>Die Einwilligungserklärung beinhaltet Verarbeitungsgrundlagen personenbezogener Daten.</p></main>"
    )
    assert wiener_sachtextformel(sentences(schwer)) > 9
