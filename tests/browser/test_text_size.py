"""Pages on a phone: what a holder decides by is short, and reflows (WCAG 2.2, 1.4.4 and 1.4.10); tables and words."""

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from consent.models import DataHolder, Study
from consent.selectors import consent_form_in_force
from tests import factories
from tests.browser.conftest import Site, each_language
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive, pytest.mark.django_db(transaction=True)]

#: Words of the decisive sentences that stand on more than one line.
BROKEN_WORDS = """() => {
  const broken = [];
  for (const element of document.querySelectorAll(".odds p, .choice-name, .facts, .note, .lead, .history")) {
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      for (const found of text.data.matchAll(/[\\p{L}\\p{N}@.]+/gu)) {
        if (found[0].includes("@") || text.parentElement.closest("code")) continue;  // an address is no word
        const range = document.createRange();
        range.setStart(text, found.index);
        range.setEnd(text, found.index + found[0].length);
        const lines = new Set([...range.getClientRects()].filter((box) => box.width > 1).map((box) => box.top));
        if (lines.size > 1 && !/^[0-9a-f]{64}$/.test(found[0])) broken.push(found[0]);
      }
    }
  }
  return broken;
}"""
#: Elements whose text is cut off at their edge, or stands beyond the screen.
CLIPPED = """() => [...document.querySelectorAll("main *")].filter((element) => {
  const style = getComputedStyle(element), box = element.getBoundingClientRect();
  if (!box.width || element.closest(".visually-hidden, .table-wrap, svg")) return false;
  const hides = style.overflowX !== "visible" || style.overflowY !== "visible";
  const wide = element.scrollWidth > element.clientWidth + 1, high = element.scrollHeight > element.clientHeight + 1;
  const cut = hides && (wide || high);
  return cut || box.right > document.documentElement.clientWidth + 1;
}).map((element) => element.outerHTML.slice(0, 120))"""


#: Pixels from the top of the page to the end of the button that decides, with every fact that a study can give.
LONGEST = 2500
#: What has to be read before the button without opening anything.
SAID = {
    "en": (
        factories.HARM["en"],
        "equally likely beforehand",
        "Were your records used or not?",
        "up to 4 times (average) or 8 times (low) as much from your records as at high",
        "Whatever you choose has no other consequences for you.",
        "Who sees your records",
    ),
    "de": (
        factories.HARM["de"],
        "vorher gleich wahrscheinlich",
        "Wurden Ihre Daten verwendet oder nicht?",
        "bis zu 4-mal (mittel) oder 8-mal (niedrig) so viel",
        "Was Sie wählen, hat für Sie keine anderen Folgen.",
        "Wer Ihre Daten sieht",
    ),
}
#: Words from which on a sentence that stands twice is a repetition.
WORDS = 6

#: About as long as those of the demonstration.
TEXTS = {
    "en": """## What this is about

Many people come back to hospital soon after they have left. We want to know earlier who needs more care at home.

**Where your records come from.** They were written during your stays, and are kept in any case.

**How a program learns from them.** It never gets to see a single record. For each of many public examples, the records
of all who take part vote on the right answer. Chance is added to every count, which limits what one person's records
can change. The program learns from the counts alone, and is published for other hospitals.

**Whom you can ask.** Every ward has our number. We answer on working days, also by telephone and in simple words.
""",
    "de": """## Worum es geht

Viele Menschen kommen bald nach ihrer Entlassung wieder ins Krankenhaus. Wir möchten früher wissen, wer zu Hause mehr
Hilfe braucht.

**Woher Ihre Daten stammen.** Sie wurden während Ihrer Aufenthalte aufgeschrieben und werden ohnehin aufbewahrt.

**Wie ein Programm daraus lernt.** Es bekommt keinen einzelnen Eintrag zu sehen. Bei jedem von vielen öffentlichen
Beispielen stimmen die Daten aller, die mitmachen, über die richtige Antwort ab. Jeder Auszählung wird Zufall
beigemischt. Das begrenzt, was die Daten einer Person ändern können. Das Programm lernt allein aus den Auszählungen und
wird für andere Krankenhäuser veröffentlicht.

**Wen Sie fragen können.** Jede Station hat unsere Nummer. Wir antworten an Werktagen, auch am Telefon und einfach.
""",
}


#: What comes on top for somebody who is asked again: their promise before and now, and what has changed.
AGAIN = ("before-and-now", "changed")


def enlarge(site: Site, percent: int) -> None:
    """Set the size of text that a person has chosen in their browser, from the page that is open on."""
    session = site.page.context.new_cdp_session(site.page)
    session.send("Page.enable")
    session.send("Page.setFontSizes", {"fontSizes": {"standard": 16 * percent // 100}})
    session.detach()
    size = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
    site.wait_for(f"{size} === {16 * percent / 100}")


def look(site: Site) -> None:
    """Look at the page at both sizes of text."""
    site.page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
    for percent in (150, 200):
        enlarge(site, percent)
        assert site.page.evaluate(CLIPPED) == [], (site.page.url, percent)
        assert site.page.evaluate(BROKEN_WORDS) == [], (site.page.url, percent)
        site.fits()


@pytest.fixture
def study() -> Study:
    """A study that tells all that a study can tell."""
    study = factories.study_create(
        title="Readmission within 30 days",
        purpose="A warning when a patient is likely to come back within 30 days, so that care at home is arranged.",
        data_categories="your stays in hospital: diagnoses, tests, medication and length of stay",
        recipients="the computing centre of the university, which runs this site on their behalf",
        data_source="the hospital's own files",
        retention="until the work is published, at most until the last day above",
        retention_until=timezone.localdate() + timedelta(days=900),
        controller_address="University Hospital, Hospital Street 1, 12345 Town",
        data_protection_officer="Data protection officer, dpo@example.org",
        supervisory_authority="The state's commissioner for data protection",
        translations={"de": {"harm": factories.HARM["de"]}},
    )
    factories.form_publish(study, TEXTS)
    factories.policy_approve(study)
    factories.holder_create(study, user=factories.user_create("hanna"))
    return study


@pytest.fixture
def hanna(visit: Any, study: Study, language: str) -> Site:
    """The holder's phone, in the language of the test."""
    site = visit("phone", person="hanna")
    site.speak(language)
    return site


# --- Holders ----------------------------------------------------------------------------------------------------------


@each_language
def test_what_a_holder_decides_by_reflows(hanna: Site) -> None:
    submit = hanna.page.locator("main form .button-primary")
    hanna.open("/my/digits/")
    look(hanna)
    hanna.page.locator("[value=AVERAGE]").check()
    submit.click()
    hanna.page.locator("input[type=radio]").first.wait_for(state="detached")
    look(hanna)
    submit.click()
    hanna.page.locator("#stands").wait_for()
    for page in ("digits/choice/", "digits/withdraw/", "digits/uses/", "digits/receipts/1/", ""):
        hanna.open(f"/my/{page}")
        look(hanna)


@each_language
def test_a_renewal_begins_with_the_change_and_needs_no_scrolling(hanna: Site, study: Study, language: str) -> None:
    factories.consent_choose(holder=DataHolder.objects.get(), level="HIGH", form=consent_form_in_force(study))
    factories.policy_approve(study, 2, 4, 8)
    more = {"en": "\n\nNew: the county hospital joins in.", "de": "\n\nNeu: Ein Haus macht mit."}
    factories.form_publish(study, {code: text + more[code] for code, text in TEXTS.items()}, renewal="required")
    hanna.open("/my/digits/")
    boxes = [hanna.page.locator(f"section[aria-labelledby={name}]").bounding_box() for name in AGAIN]
    assert all(box["y"] < 1200 for box in boxes), "the change comes first"
    button = hanna.page.locator("form.decide button.button-primary").bounding_box()
    assert button["y"] + button["height"] <= LONGEST + sum(box["height"] for box in boxes)
    main = hanna.page.get_by_role("main")
    short = main.locator("#in-short")
    assert not short.is_visible()
    main.locator("details", has=hanna.page.locator("#in-short")).locator("summary").first.click()
    assert short.is_visible(), "all of it is one press away"
    beyond = "(box => box.scrollWidth - box.clientWidth)(document.querySelector('.beside'))"
    for page in ("choice", "study"):
        hanna.open(reverse(f"consent:{page}", args=[study.slug]))
        for percent in (100, 200):
            enlarge(hanna, percent)
            assert hanna.page.evaluate(CLIPPED) == []
            assert hanna.page.evaluate(beyond) == 0, "before and now stand beside each other"
            hanna.fits()


@each_language
def test_the_study_page_is_short_on_a_phone_and_says_nothing_twice(hanna: Site, language: str) -> None:
    hanna.open("/my/digits/")
    page, height = hanna.page, hanna.page.viewport_size["height"]
    assert page.locator("html").get_attribute("lang") == language
    button = page.locator("form.decide button.button-primary").bounding_box()
    assert button["y"] + button["height"] <= LONGEST, button
    shown = " ".join(page.get_by_role("main").inner_text().split())
    assert [part for part in SAID[language] if part not in shown] == [], "visible without opening anything"

    jump = page.get_by_role("main").locator('a[href="#decision"]')
    box = jump.bounding_box()
    assert box["y"] + box["height"] <= height, "on the first screen"
    jump.click()
    hanna.wait_for("scrollY > 0")
    assert 0 <= page.locator("#decision").bounding_box()["y"] < height / 2
    choices = page.locator("input[name=choice]")
    assert choices.count() == 4
    assert choices.last.bounding_box()["y"] <= height, "all answers on the screen that the jump leads to"

    said = Counter(
        sentence
        for text in page.get_by_role("main").locator("p, li, dd, dt, summary, legend, h1, h2, h3").all_inner_texts()
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text)
        if len(sentence.split()) >= WORDS
    )
    assert len(said) > 10, "else this test shows nothing"
    assert {sentence: times for sentence, times in said.items() if times > 1} == {}


#: Said of somebody who took part, and whose form was replaced by one that asks again; and what would say otherwise.
STATUS = "Your records are not used now. You agreed (low protection), but there is new information since."
TAKING_PART = re.compile("You take part:|That stands until you decide|your decision stands")


@pytest.mark.parametrize("language", ["en"])
def test_after_a_new_form_every_page_says_that_the_records_are_not_used(hanna: Site, study: Study) -> None:
    factories.consent_choose(holder=DataHolder.objects.get(), level="LOW", form=consent_form_in_force(study))
    factories.form_publish(study, {code: f"{text}\n\n**{code}**" for code, text in TEXTS.items()}, renewal="required")
    main = hanna.page.get_by_role("main")
    for page in ("digits/", "digits/choice/", "", "digits/uses/", "digits/receipts/1/"):
        hanna.open(f"/my/{page}")
        hanna.says(STATUS)
        assert main.get_by_text(STATUS).count() == 1, page
        assert main.get_by_text(TAKING_PART).count() == 0, page
        assert main.get_by_text("ead it and decide again").count() == 1, page
        hanna.fits()
        if page != "digits/":
            hanna.press("Read and decide again")
            hanna.says("What has changed since you agreed")


# --- Staff ------------------------------------------------------------------------------------------------------------


def test_columns_sections_and_words_on_a_phone(visit: Any) -> None:
    run = run_finish(run_start(study_with_table("digits"), share=0.5, **TABLE_RUN))
    site: Site = visit("phone", person="olga")
    site.open("/studies/digits/runs/")
    table = site.page.locator(".table-wrap")
    method = table.get_by_role("columnheader", name="Method")
    expect(method).to_be_hidden()
    assert table.evaluate("wrap => wrap.scrollWidth <= wrap.clientWidth"), "nothing to scroll sideways"
    table.get_by_label("All columns").check()
    expect(method).to_be_visible()

    site.page.set_viewport_size({"width": 360, "height": 780})
    site.speak("de")
    site.open("/studies/digits/models/")
    table = site.page.locator(".table-wrap")
    assert table.evaluate("wrap => wrap.scrollWidth <= wrap.clientWidth"), "nor in German, whose words are longer"
    expect(table.get_by_text("Log-Verlust")).to_be_hidden()
    table.get_by_label("Alle Spalten").check()
    expect(table.get_by_text("Log-Verlust")).to_be_visible()
    site.speak("en")
    site.resize("phone")

    site.open(f"/studies/digits/runs/{run.pk}/")
    charges = site.page.get_by_role("columnheader", name="Promised ε")
    expect(charges).to_be_hidden()
    site.page.get_by_role("link", name="What it costs each group").click()
    expect(charges).to_be_visible()
    meaning = site.page.locator("#word-noise")
    expect(meaning).to_be_hidden()
    site.page.get_by_role("button", name="Noise").focus()
    site.page.keyboard.press("Enter")
    expect(meaning).to_be_visible()
    site.page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()


def test_a_part_that_asks_for_itself_keeps_what_the_reader_did(visit: Any) -> None:
    """Columns went away again after five seconds, and the keyboard began at the top of the page."""
    run_start(study_with_table("digits"), share=0.5, **TABLE_RUN)
    site: Site = visit("phone", person="olga")
    site.open("/queue/")
    box = site.page.get_by_label("All columns").first
    box.check()
    box.focus()
    waited = site.page.get_by_role("columnheader", name="Waits for")
    expect(waited).to_be_visible()
    site.page.evaluate("new Promise(done => document.addEventListener('htmx:afterSettle', done, { once: true }))")
    expect(waited).to_be_visible()
    expect(box).to_be_focused()
