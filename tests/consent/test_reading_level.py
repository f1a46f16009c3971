"""Reading level of holders' pages: grade 8 or less in English, Sachtextformel 9 or less in German."""

import re
from html.parser import HTMLParser

import pytest

from consent.models import Study
from tests import factories
from tests.snapshots import built_once

#: Texts that the study, not the site, writes.
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
    """Return the level and hardest sentences of a page that is too hard; empty if it is not."""
    formula, largest = FORMULAS[language]
    read = sentences(html)
    assert read, page
    level = formula(read)
    return {page: (round(level, 1), sorted(read, key=lambda one: -formula([one]))[:12])} if level > largest else {}


#: Elements that end a sentence, even without a full stop.
_BLOCK = {"p", "li", "dd", "dt", "h1", "h2", "h3", "h4", "summary", "label", "td", "th", "legend", "a", "button", "div"}
#: Elements that contain no sentences of the site to its holders.
_LEFT_OUT = {"script", "style", "svg", "code", "table", "nav", "header", "footer"}
_VOID = {"br", "input", "meta", "link", "hr", "path", "circle"}


class _Sentences(HTMLParser):
    """The text of ``<main>`` in blocks, without elements that are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = [""]
        self.open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        if tag in _BLOCK and not (tag == "a" and self.blocks[-1].strip()):
            self.blocks.append("")
        left_out = tag in _LEFT_OUT or dict(attrs).get("class") == "visually-hidden"
        self.open.append((tag, left_out))

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        while self.open and self.open.pop()[0] != tag:
            pass
        if tag in _BLOCK - {"a"}:
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        if any(tag == "main" for tag, _ in self.open) and not any(left_out for _, left_out in self.open):
            self.blocks[-1] += data


def sentences(html: str) -> list[str]:
    """Return the sentences of a page in order, which end with a full stop, question mark or exclamation mark."""
    parser = _Sentences()
    parser.feed(html)
    found = []
    for block in parser.blocks:
        line = re.sub(r"\s+", " ", block).strip()
        # The full stop after a day or within an address does not end a sentence.
        found += [
            part for part in re.split(r"(?<=[^\d][.?!])\s+(?=[“„A-ZÄÖÜ])", line) if part.rstrip("”“)")[-1:] in {*".?!"}
        ]
    return found


def words(sentence: str) -> list[str]:
    return [word for word in re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", sentence) if not word.isdigit()]


def syllables_en(word: str) -> int:
    """Return the number of syllables of an English word.

    >>> [syllables_en(word) for word in ("records", "used", "decided", "table", "guess", "protection", "people")]
    [2, 1, 3, 2, 1, 3, 2]
    """
    word = word.lower()
    count = len(re.findall(r"[aeiouy]+", word))
    silent = re.search(r"[^aeiouyl]e$|[^aeioutdy]ed$|[^aeiouyscxzg]es$", word)
    return max(count - bool(silent), 1)


def syllables_de(word: str) -> int:
    """Return the number of syllables of a German word.

    >>> [syllables_de(word) for word in ("Daten", "Einwilligung", "teilnehmen", "neue", "Studie", "Frau")]
    [2, 4, 3, 2, 2, 1]
    """
    return max(len(re.findall(r"ei|ai|au|eu|äu|ie|aa|ee|oo|[aeiouyäöü]", word.lower())), 1)


def flesch_kincaid(text: list[str]) -> float:
    """Return the Flesch-Kincaid grade (Kincaid et al. 1975) of English sentences."""
    found = [word for sentence in text for word in words(sentence)]
    return 0.39 * len(found) / len(text) + 11.8 * sum(map(syllables_en, found)) / len(found) - 15.59


def wiener_sachtextformel(text: list[str]) -> float:
    """Return the first Wiener Sachtextformel (Bamberger, Vanecek 1984) of German sentences."""
    found = [word for sentence in text for word in words(sentence)]
    syllables = [syllables_de(word) for word in found]
    three = 100 * sum(count >= 3 for count in syllables) / len(found)
    one = 100 * sum(count == 1 for count in syllables) / len(found)
    long = 100 * sum(len(word) > 6 for word in found) / len(found)
    return 0.1935 * three + 0.1672 * len(found) / len(text) + 0.1297 * long - 0.0327 * one - 0.875


#: The formula of each language, and the highest level allowed for holders.
FORMULAS = {"en": (flesch_kincaid, 8.0), "de": (wiener_sachtextformel, 9.0)}
