"""Runs in a real browser: the form shows what the chosen method asks, and charts are drawn."""

from typing import Any

import pytest
from playwright.sync_api import expect

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
