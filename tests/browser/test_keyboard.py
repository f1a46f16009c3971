"""Every control of staff pages is reached with Tab, in sight, and visibly focused; menus open and close by keyboard."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site
from tests.pages import study_with_finished_run, url

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: Watches focus. A stop is wrong if its ring is missing, or if something covers its beginning.
WATCH = """() => {
  window.stops = new Map();
  document.addEventListener("focusin", ({ target }) => {
    const rings = [target, target.closest("label")].filter(Boolean).map((each) => getComputedStyle(each));
    const box = [...target.getClientRects()].find((each) => each.width > 1 && each.height > 1);
    const x = box && Math.max(box.left, 0) + Math.min(box.width / 2, 8);
    const y = box && Math.min(Math.max(box.top, 0) + Math.min(box.height / 2, 8), innerHeight - 1);
    const top = box && document.elementFromPoint(x, y);
    window.stops.set(target, [
      rings.some((style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2) || "no ring",
      (top && (target.contains(top) || top.contains(target))) || "out of sight",
    ].filter((each) => each !== true));
  });
}"""
#: Returns the number of stops, and the start of the HTML of controls that were not reached or whose stop is wrong.
FOUND = """() => {
  const controls = [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")];
  const start = (each) => each.outerHTML.replace(/\\s+/g, " ").slice(0, 120);
  const is_stop = (each) => window.stops.has(each) || each.type === "radio"
    && [...document.getElementsByName(each.name)].some((other) => window.stops.has(other));
  const is_usable = (each) => each.checkVisibility() && !each.disabled && each.tabIndex >= 0;
  const missed = controls.filter((each) => is_usable(each) && !is_stop(each)).map((each) => ["not reached", each]);
  const wrong = [...window.stops].filter(([, problems]) => problems.length).map(([each, problems]) => [problems, each]);
  return [window.stops.size, [...missed, ...wrong].map(([problem, each]) => `${problem}: ${start(each)}`)];
}"""
COUNT = "document.querySelectorAll(\"a[href], button, input, select, textarea, summary, [tabindex='0']\").length"


def walk(site: Site) -> list[str]:
    """Press Tab until the end of the page, and return controls that were missed or not in sight."""
    page = site.page
    page.wait_for_load_state("networkidle")
    page.evaluate(WATCH)
    for _ in range(page.evaluate(COUNT) + 2):
        page.keyboard.press("Tab")
    stops, problems = page.evaluate(FOUND)
    assert stops > 10, page.url
    return [f"{page.url}: {each}" for each in problems]


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_control_is_reached_by_keyboard(visit: Any, size: str) -> None:
    study = study_with_finished_run()
    run, site = study.runs.get(), visit(size, person="chair")
    problems = []
    for name, of in (("study", study), ("changes", study), ("policy_new", study), ("members", study), ("run", run)):
        site.open(url(name, of))
        site.page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
        problems += walk(site)
    assert problems == [], "\n".join(problems)


def test_menus_open_and_close_by_keyboard(visit: Any) -> None:
    study, site = study_with_finished_run(), visit("phone", person="operator")
    page = site.page
    site.open(url("runs", study))
    for name, inside in (("Menu", "Overview"), ("Account and language", "Sign out"), ("Help with this page", "Keys:")):
        button = page.get_by_role("button", name=name)
        button.focus()
        page.keyboard.press("Enter")
        part = page.locator(":popover-open")
        expect(part).to_contain_text(inside)
        page.keyboard.press("Tab")
        assert part.evaluate("part => part.contains(document.activeElement)"), name
        page.keyboard.press("Escape")
        expect(part).to_have_count(0)
        expect(button).to_be_focused()
    more = page.locator("summary", has_text="Filter and columns")
    more.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert more.evaluate("more => more.parentElement.open && more.parentElement.contains(document.activeElement)")
    page.keyboard.press("/")  # typed into the field, because it has focus
    page.keyboard.press("Control+K")
    expect(page.get_by_role("searchbox", name="Search")).to_be_focused()


def test_sliders_move_by_arrow_keys(visit: Any) -> None:
    study, site = study_with_finished_run(), visit(person="chair")
    site.open(url("policy_new", study))
    slider = site.page.locator("input[type=range]").first
    slider.focus()
    before = slider.input_value()
    site.page.keyboard.press("ArrowRight")
    assert slider.input_value() != before
    assert float(site.page.locator("[name=high]").input_value()) > 0
