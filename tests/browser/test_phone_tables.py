"""What staff see on a phone: the columns that matter, sections that open, words that explain themselves."""

import pytest
from playwright.sync_api import expect

from tests import factories
from tests.browser.conftest import Site
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_columns_sections_and_words_on_a_phone(visit) -> None:
    run = run_finish(run_start(study_with_table("digits"), share=0.5, **TABLE_RUN))
    site: Site = visit("phone")
    site.sign_in("olga")
    site.open("/studies/digits/runs/")
    table = site.page.locator(".table-wrap")
    method = table.get_by_role("columnheader", name="Method")
    expect(method).to_be_hidden()
    assert table.evaluate("wrap => wrap.scrollWidth <= wrap.clientWidth"), "nothing to scroll sideways"
    table.get_by_label("All columns").check()
    expect(method).to_be_visible()

    site.page.set_viewport_size({"width": 360, "height": 780})
    site.page.context.add_cookies([{"name": "django_language", "value": "de", "url": site.address}])
    site.open("/studies/digits/models/")
    table = site.page.locator(".table-wrap")
    assert table.evaluate("wrap => wrap.scrollWidth <= wrap.clientWidth"), "nor in German, whose words are longer"
    expect(table.get_by_text("Log-Verlust")).to_be_hidden()
    table.get_by_label("Alle Spalten").check()
    expect(table.get_by_text("Log-Verlust")).to_be_visible()
    site.page.context.add_cookies([{"name": "django_language", "value": "en", "url": site.address}])
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


def test_a_part_that_asks_for_itself_keeps_what_the_reader_did(visit) -> None:
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


def test_what_is_said_of_a_field_makes_it_no_wider_than_its_card(visit) -> None:
    factories.steward_add(factories.study_open())
    site: Site = visit("phone")
    site.page.set_viewport_size({"width": 320, "height": 640})
    site.sign_in("sven")
    site.open("/studies/digits/invitations/")
    card = site.page.locator("section.card", has=site.page.locator("textarea"))
    edge = card.evaluate("card => card.getBoundingClientRect().right - parseFloat(getComputedStyle(card).paddingRight)")
    ends = card.locator("input, textarea, .help").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert max(ends) <= edge + 1
