"""Pages on a phone: decision pages are short, text and tables reflow, words stay whole (WCAG 2.2, 1.4.4 and 1.4.10)."""

from typing import Any

import pytest
from playwright.sync_api import expect

from consent.models import Study
from tests import factories
from tests.browser.conftest import Site, each_language
from tests.training.runs import TABLE_RUN, run_start, study_with_table
from training import demonstration

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive, pytest.mark.django_db(transaction=True)]

#: Words of the decisive sentences that are broken over more than one line.
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
#: Elements whose text is cut off at their edge, or extends beyond the screen.
CLIPPED = """() => [...document.querySelectorAll("main *")].filter((element) => {
  const style = getComputedStyle(element), box = element.getBoundingClientRect();
  if (!box.width || element.closest(".visually-hidden, .table-wrap, svg")) return false;
  const hides = style.overflowX !== "visible" || style.overflowY !== "visible";
  const wide = element.scrollWidth > element.clientWidth + 1, high = element.scrollHeight > element.clientHeight + 1;
  const cut = hides && (wide || high);
  return cut || box.right > document.documentElement.clientWidth + 1;
}).map((element) => element.outerHTML.slice(0, 120))"""


def enlarge(site: Site, percent: int) -> None:
    """Set a browser's preferred text size on its settings page."""
    session = site.page.context.new_cdp_session(site.page)
    session.send("Page.enable")
    session.send("Page.setFontSizes", {"fontSizes": {"standard": 16 * percent // 100}})
    session.detach()
    size = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
    site.wait_for(f"{size} === {16 * percent / 100}")


def look(site: Site) -> None:
    """Check the page at both sizes of text."""
    site.page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
    for percent in (150, 200):
        enlarge(site, percent)
        assert site.page.evaluate(CLIPPED) == [], (site.page.url, percent)
        assert site.page.evaluate(BROKEN_WORDS) == [], (site.page.url, percent)
        site.fits()


@pytest.fixture
def study() -> Study:
    """Return the demo's study of hospital stays, whose texts are as long as real ones."""
    users, _logins = demonstration.people()
    study = demonstration.demo_study("diabetes", users)
    factories.holder_create(study, user=factories.user_create("hanna"))
    return study


@pytest.fixture
def hanna(visit: Any, study: Study, language: str) -> Site:
    """Return the holder's phone, in the language of the test."""
    site = visit("phone", person="hanna")
    site.speak(language)
    return site


@each_language
def test_texts_for_decisions_reflow_when_enlarged(hanna: Site) -> None:
    submit = hanna.page.locator("main form .button-primary")
    hanna.open("/my/demo-diabetes/")
    look(hanna)
    hanna.page.locator("[value=AVERAGE]").check()
    submit.click()
    hanna.page.locator("input[type=radio]").first.wait_for(state="detached")
    look(hanna)
    submit.click()
    hanna.page.locator("#stands").wait_for()
    for page in ("choice/", "withdraw/", "uses/", "receipts/1/", "../"):
        hanna.open(f"/my/demo-diabetes/{page}")
        look(hanna)


def test_parts_that_refresh_themselves_keep_choices_and_focus(visit: Any) -> None:
    """Otherwise chosen columns would disappear after five seconds, and the focus would return to the top."""
    run_start(study_with_table("digits"), share=0.5, **TABLE_RUN)
    site: Site = visit("phone", person="olga")
    site.open("/queue/")
    box = site.page.get_by_label("All columns").first
    box.check()
    box.focus()
    waited = site.page.get_by_role("columnheader", name="Waiting for")
    expect(waited).to_be_visible()
    site.page.evaluate("new Promise(done => document.addEventListener('htmx:afterSettle', done, { once: true }))")
    expect(waited).to_be_visible()
    expect(box).to_be_focused()
