"""An operator proposes a run, approves it, and watches a real worker take it to its end."""

from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import expect

from tests.training.runs import study_with_data
from tests.training.test_worker import worker
from training.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study():
    return study_with_data(title="Reading digits")


def fill_in(site) -> None:
    page = site.page
    page.get_by_label("Title").fill("First vote")
    page.get_by_label("Teacher learner").select_option("nearest_neighbour")
    page.locator("[name=learner-nearest_neighbour-copies]").fill("2")
    for name, value in {"teachers": "20", "sigma": "12", "sigma_threshold": "24", "threshold": "8"}.items():
        page.locator(f"[name={name}]").fill(value)


def chart_points(site) -> int:
    """How many points the chart of costs shows."""
    return site.page.evaluate(
        "Chart.getChart(document.querySelector('[data-chart=costs]')).data.datasets[0].data.length"
    )


@pytest.mark.worker
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_a_run_from_proposal_to_student(visit, study, size: str, tmp_path: Path) -> None:
    site = visit(size)
    site.sign_in("olga")
    site.press("Reading digits")
    site.open("/studies/digits/runs/")
    site.press("Propose a run")
    expect(site.page.locator("[name=gamma]")).to_be_hidden()  # the chosen aggregator does not take it
    fill_in(site)
    site.is_in_order()
    site.press("Check the plan")
    site.says("The plan, on the consents of this moment")
    site.is_in_order()
    site.press("Save as a draft")
    site.says("The run is saved as a draft.")
    site.press("Check and approve")
    site.is_in_order()
    site.press("Yes, start the run")
    site.says("No worker has picked it up yet.")

    with worker(tmp_path / "worker.log"):
        site.page.locator("#state").get_by_text("finished").wait_for(timeout=90_000)
        site.says("Download the model")
    run = Run.objects.get()
    assert run.status == Run.Status.FINISHED
    site.page.locator("canvas[data-chart=costs]").wait_for()
    assert chart_points(site) == run.batches.count() + 1
    site.is_in_order()
    with site.page.expect_download() as download:
        site.press("Download the model")
    assert Path(download.value.path()).read_bytes() == (Path(settings.MODELS_DIR) / run.student.artifact).read_bytes()


def test_a_run_is_proposed_without_scripts(visit, study) -> None:
    site = visit(javascript=False)
    site.sign_in("olga")
    site.open("/studies/digits/runs/new/")
    fill_in(site)
    site.page.locator("[name=learner-cnn-epochs]").fill("")  # a learner that was not chosen
    site.press("Check the plan")
    site.press("Save as a draft")
    site.says("A draft: nothing happens until an operator approves it.")
    assert Run.objects.get().aggregator["sigma"] == 12
