"""Larger text on a phone: what a holder decides by reflows (WCAG 2.2, 1.4.4 and 1.4.10)."""

import pytest

from consent.models import ConsentEvent
from tests import factories
from tests.browser.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

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


def enlarge(site: Site, percent: int) -> None:
    """Set the size of text that a person has chosen in their browser, from the page that is open on."""
    session = site.page.context.new_cdp_session(site.page)
    session.send("Page.enable")
    session.send("Page.setFontSizes", {"fontSizes": {"standard": 16 * percent // 100}})
    session.detach()
    size = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
    site.page.wait_for_function(f"{size} === {16 * percent / 100}")


def look(site: Site) -> None:
    """Look at the page at both sizes of text."""
    site.page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
    for percent in (150, 200):
        enlarge(site, percent)
        assert site.page.evaluate(CLIPPED) == [], (site.page.url, percent)
        assert site.page.evaluate(BROKEN_WORDS) == [], (site.page.url, percent)
        site.fits()


@pytest.mark.parametrize("language", ["en", "de"])
def test_what_a_holder_decides_by_reflows(visit, language: str) -> None:
    study = factories.study_open(title="Reading digits")
    factories.holder_create(study, user=factories.user_create("hanna"))
    site = visit("phone", language="en")
    site.sign_in("hanna")
    site.page.context.add_cookies([{"name": "django_language", "value": language, "url": site.address}])
    submit = site.page.locator("main form .button-primary")
    site.open("/my/digits/")
    look(site)
    site.page.locator("[value=AVERAGE]").check()
    submit.click()
    look(site)
    submit.click()
    site.page.locator("#stands").wait_for()
    assert ConsentEvent.objects.get().level == "AVERAGE"
    for page in ("choice", "withdraw", "uses", "receipts/1"):
        site.open(f"/my/digits/{page}/")
        look(site)
    site.open("/my/")
    look(site)
