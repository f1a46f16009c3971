"""Runs in a real browser: one proposes, another approves, and both watch what becomes of it."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import expect

from consent.models import Role, Study
from consent.services import membership_add
from tests.browser.conftest import Site
from tests.factories import user_create
from tests.training.runs import study_with_data
from tests.workers import wait_until, worker
from training.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study() -> Study:
    study = study_with_data(title="Reading digits")
    membership_add(study=study, user=user_create("rosa"), role=Role.RESEARCHER, acting_user=None)
    return study


def fill_in(site: Site) -> None:
    page = site.page
    page.locator("[name=method]").select_option("pate")
    page.get_by_label("Title").fill("First vote")
    page.get_by_label("Teacher learner").select_option("nearest_neighbour")
    page.locator("[name=learner-nearest_neighbour-copies]").fill("2")
    page.locator("[name=teachers]").fill("20")
    page.locator("[name=aggregator]").select_option("confident_gnmax")
    page.locator("[name=student_learner]").select_option("logistic_regression")  # it learns well enough, and soon
    for name, value in {"sigma": "12", "sigma_threshold": "24", "threshold": "8"}.items():
        page.locator(f"[name=aggregator-confident_gnmax-{name}]").fill(value)


def draft(site: Site, plan: str) -> None:
    """Check a plan, which says ``plan``, and save it."""
    site.press("Check the plan")
    site.says(plan)
    site.is_in_order()
    site.press("Save as draft")
    site.says("The run starts when an operator approves")


@pytest.mark.worker
def test_a_run_from_proposal_to_student(visit: Any, study: Study, tmp_path: Path) -> None:
    rosa = visit("phone", person="rosa")
    rosa.open("/studies/digits/runs/new/")
    expect(rosa.page.locator("[name=teachers]")).to_be_hidden()  # there are none where every holder votes
    for method in Run.Method.values:
        rosa.page.locator("[name=method]").select_option(method)
        rosa.fits()
    fill_in(rosa)
    expect(rosa.page.locator("[name=aggregator-lnmax-gamma]")).to_be_hidden()  # the chosen aggregator does not take it
    expect(rosa.page.locator("[name=asking-rounds]")).to_be_hidden()
    draft(rosa, "Numbers of holders are head counts")
    run = Run.objects.get()

    olga = visit("phone", person="olga")
    olga.open(f"/studies/digits/runs/{run.pk}/")
    olga.press("Check and approve")
    olga.page.get_by_label("Share of every holder's cap, in percent").fill("90")
    olga.press("Show the plan with this share")
    olga.says("answered queries, or more if queries are")
    olga.is_in_order()
    olga.press("Approve and start")
    olga.says("No worker has picked it up yet.")
    with worker(tmp_path / "worker.log"):
        wait_until(lambda: Run.objects.get().has_ended, tmp_path / "worker.log", pause=0.2)
        olga.page.locator("#state").get_by_text("finished").wait_for()
        olga.says("Download the model")
    run = Run.objects.get()
    assert run.status == Run.Status.FINISHED

    rosa.open(f"/studies/digits/runs/{run.pk}/")
    rosa.press("Cost for each group")
    rosa.page.locator("canvas[data-chart=costs]").wait_for()
    points = "Chart.getChart(document.querySelector('[data-chart=costs]')).data.datasets[0].data.length"
    assert rosa.page.evaluate(points) == run.batches.count() + 1
    rosa.is_in_order()
    _name, path = rosa.saved("Download the model")
    assert path.read_bytes() == (Path(settings.MODELS_DIR) / run.student.artifact).read_bytes()


@pytest.mark.exhaustive
def test_a_run_is_proposed_without_scripts(visit: Any, study: Study) -> None:
    site = visit(javascript=False, person="olga")
    site.open("/studies/digits/runs/new/")
    fill_in(site)
    site.page.locator("[name=learner-cnn-epochs]").fill("")  # a learner that was not chosen
    draft(site, "The plan")
    site.says("You proposed this run yourself, so another operator must approve it.")
    assert site.page.get_by_role("button", name="Approve and start").count() == 0
    assert Run.objects.get().choices["aggregator"]["sigma"] == 12
