"""The study page on a phone: short, the decision one jump away, nothing said twice."""

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from consent.models import DataHolder, Study
from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: Pixels from the top of the page to the end of the button that decides, with every fact that a study can give.
LONGEST = 2500
#: What has to be read before the button without opening anything.
SAID = {
    "en": (
        factories.HARM["en"],
        "equally likely beforehand",
        "Were your records used or not?",
        "Which of two possible sets of records is yours?",
        "What is true of people like you can be found out whether or not you take part.",
        "up to 4 times (average) or 8 times (low) as much from your records as at high",
        "Whatever you choose has no other consequences for you.",
        "Who sees your records",
        "A consent counts until you withdraw it.",
    ),
    "de": (
        factories.HARM["de"],
        "vorher gleich wahrscheinlich",
        "Wurden Ihre Daten verwendet oder nicht?",
        "Welche von zwei möglichen Akten ist Ihre?",
        "Was für Menschen wie Sie gilt, lässt sich herausfinden, ob Sie teilnehmen oder nicht.",
        "bis zu 4-mal (mittel) oder 8-mal (niedrig) so viel",
        "Was Sie wählen, hat für Sie keine anderen Folgen.",
        "Wer Ihre Daten sieht",
        "Eine Einwilligung gilt, bis Sie sie widerrufen.",
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


@pytest.fixture
def study() -> Study:
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


#: What comes on top for somebody who is asked again: their promise before and now, and what has changed.
AGAIN = ("before-and-now", "changed")


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_renewal_begins_with_the_change_and_needs_no_scrolling(visit: Any, study: Study, language: str) -> None:
    holder = DataHolder.objects.get(study=study)
    factories.consent_choose(holder=holder, level="HIGH", form=study.consent_forms.get())
    factories.policy_approve(study, 2, 4, 8)
    more = {"en": "\n\nNew: the county hospital joins in.", "de": "\n\nNeu: Das Kreiskrankenhaus macht mit."}
    factories.form_publish(study, {code: text + more[code] for code, text in TEXTS.items()}, renewal="required")
    site = visit("phone")
    site.sign_in("hanna")
    site.page.context.add_cookies([{"name": "django_language", "value": language, "url": site.address}])
    site.open("/my/digits/")
    boxes = [site.page.locator(f"section[aria-labelledby={name}]").bounding_box() for name in AGAIN]
    assert all(box["y"] < 1200 for box in boxes), "the change comes first"
    button = site.page.locator("form.decide button.button-primary").bounding_box()
    assert button["y"] + button["height"] <= LONGEST + sum(box["height"] for box in boxes)
    main = site.page.get_by_role("main")
    short = main.locator("#in-short")
    assert not short.is_visible()
    main.locator("details", has=site.page.locator("#in-short")).locator("summary").first.click()
    assert short.is_visible(), "all of it is one press away"


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_study_page_is_short_on_a_phone_and_says_nothing_twice(visit: Any, study: Study, language: str) -> None:
    site = visit("phone")
    site.sign_in("hanna")
    site.page.context.add_cookies([{"name": "django_language", "value": language, "url": site.address}])
    site.open("/my/digits/")
    page, height = site.page, site.page.viewport_size["height"]
    assert page.locator("html").get_attribute("lang") == language
    button = page.locator("form.decide button.button-primary").bounding_box()
    assert button is not None and button["y"] + button["height"] <= LONGEST, button
    shown = " ".join(page.get_by_role("main").inner_text().split())
    assert [part for part in SAID[language] if part not in shown] == [], "visible without opening anything"

    jump = page.get_by_role("main").locator('a[href="#decision"]')
    assert jump.count() == 1
    box = jump.bounding_box()
    assert box is not None and box["y"] + box["height"] <= height, "on the first screen"
    jump.click()
    page.wait_for_function("scrollY > 0")
    heading = page.locator("#decision").bounding_box()
    assert heading is not None and 0 <= heading["y"] < height / 2
    choices = page.locator("input[name=choice]")
    assert choices.count() == 4
    last = choices.last.bounding_box()
    assert last is not None and last["y"] <= height, "all answers on the screen that the jump leads to"

    said = Counter(
        sentence
        for text in page.get_by_role("main").locator("p, li, dd, dt, summary, legend, h1, h2, h3").all_inner_texts()
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text)
        if len(sentence.split()) >= WORDS
    )
    assert len(said) > 10, "else this test shows nothing"
    assert {sentence: times for sentence, times in said.items() if times > 1} == {}
