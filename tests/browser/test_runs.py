"""Runs in a real browser: the form shows the chosen method's fields, and charts are drawn."""

import gzip
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import expect

from consent.models import Study
from ipate_web.staff.runs import TABS
from tests.browser.conftest import Site
from tests.everything import study_with_everything
from tests.pages import study_with_finished_run, url
from training.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_form_follows_the_chosen_method_and_a_page_draws_what_was_spent(visit: Any) -> None:
    study = study_with_finished_run()
    run, site = study.runs.get(), visit("phone", person="olga")
    site.open(url("run_new", study))
    site.page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
    for method in (*Run.Method.values, "pate"):
        site.page.locator("[name=method]").select_option(method)
        expect(site.page.locator("[name=teachers]")).to_be_visible(visible=method == "pate")
        site.fits()
    site.page.locator("[name=aggregator]").select_option("confident_gnmax")
    expect(site.page.locator("[name=aggregator-lnmax-gamma]")).to_be_hidden()
    expect(site.page.locator("[name=asking-rounds]")).to_be_hidden()
    site.open(url("run", run))
    site.press("Cost")
    site.page.locator("canvas[data-chart=costs]").wait_for()
    points = "Chart.getChart(document.querySelector('[data-chart=costs]')).data.datasets[0].data.length"
    assert site.page.evaluate(points) == run.batches.count() + 1
    site.resize("desktop")
    site.speak("de")
    site.open(url("study", study))
    site.scrolls_nowhere()


#: Distances in pixels from the top to the first number of a page and to its first row or note, without its heading,
#: errors and the note on rehearsals: 0 if it has none, and infinity for a row after a field, because the page is then
#: a form.
FIRST = """() => {
  const head = "nav, .page-head, .crumbs, script, .messages, [popover], .note-rehearsal, .error-summary";
  const main = document.querySelector("main"), edge = (of) => of.getBoundingClientRect().top;
  const less = [...main.querySelectorAll(".note-rehearsal, .error-summary")].reduce(
    (sum, each) => sum + edge(each.nextElementSibling) - edge(each), 0);
  const top = (of) => { const box = of.getBoundingClientRect(); return box.height > 2 ? box.top + scrollY - less : 0; };
  const rows = ".table, #state, .tasks > li, .steps > li, .card, .facts, ul, .tile, .empty, .note, canvas";
  const first = [...main.querySelectorAll(`input:not([type=hidden]), select, textarea, ${rows}`)].find(
    (each) => !each.closest(`${head}, .list-bar, .filters`) && top(each));
  const is_row = first && first.matches(rows) && !first.querySelector("input:not([type=hidden]), select, textarea");
  const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(text);
    if (/\\d/.test(text.textContent) && top(range) && !text.parentElement.closest(head)) {
      return [top(range), is_row ? top(first) : 1e9];
    }
  }
  return [0, is_row ? top(first) : 0];
}"""


def begins_at_once(site: Site) -> None:
    """Check that a page's first number or row is near its top (forms begin with an explanation)."""
    number, row = site.page.evaluate(FIRST)
    assert min(number or row, row) <= 200 or row == 1e9, (site.page.url, number, row)


def look_at_run(site: Site, run: Run) -> None:
    """Check that a run's state and number come first and that none of its tabs is long, apart from warnings."""
    for tab in TABS:
        site.open(url("run", run) if tab == "result" else url("run_tab", run, tab))
        site.page.evaluate("document.querySelectorAll('main .note-warn').forEach(note => { note.hidden = true })")
        height = site.page.evaluate("document.documentElement.scrollHeight")
        state = site.page.locator("#state").bounding_box()
        assert state["y"] + state["height"] <= 250 and height <= 1600, (site.page.url, height, state)
        assert site.page.evaluate(FIRST)[0] <= 200, site.page.url


def look_at_lists(site: Site, study: Study) -> None:
    for name in ("runs", "models", "datasets", "study", "ledger", "policies", "recruitment", "members"):
        site.open(url(name, study))
        begins_at_once(site)
    site.open("/")
    begins_at_once(site)
    site.open(url("run_new", study))
    assert site.page.evaluate("document.documentElement.scrollHeight") <= 1300


def test_runs_and_lists_begin_with_their_main_number(visit: Any) -> None:
    study = study_with_finished_run()
    site = visit(person="olga")
    for language in ("de", "en"):
        site.speak(language)
        look_at_run(site, study.runs.get())
        look_at_lists(site, study)
    site.page.keyboard.press("Control+K")
    site.page.keyboard.type("run")
    found = site.page.get_by_role("region", name="Found").get_by_role("link")
    expect(found.first).to_be_visible()
    site.page.keyboard.press("ArrowDown")
    expect(found.first).to_be_focused()
    site.open(url("runs", study))
    site.page.keyboard.press("j")
    site.page.keyboard.press("Enter")
    site.page.locator("#state").wait_for()
    site.is_in_order()


@pytest.mark.exhaustive
def test_no_tab_of_any_run_is_long(visit: Any) -> None:
    study = study_with_everything()
    site = visit(person="olga")
    for language in ("de", "en"):
        site.speak(language)
        for run in study.runs.exclude(status=Run.Status.DRAFT):
            look_at_run(site, run)
        look_at_lists(site, study)


def test_styles_and_scripts_are_small() -> None:
    """Files are compressed one by one, as they are sent, without libraries."""
    files = [path for kind in ("css", "js") for path in (settings.BASE_DIR / "static" / kind).iterdir()]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= 60_000
