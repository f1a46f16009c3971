"""An operator proposes a run, another approves it, and both watch a real worker take it to its end."""

from pathlib import Path

import pytest
from django.conf import settings
from django.urls import reverse
from playwright.sync_api import expect

from consent.models import Role
from consent.services import membership_add
from tests.factories import user_create
from tests.training.runs import study_with_data
from tests.workers import wait_until, worker
from training.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study():
    study = study_with_data(title="Reading digits")
    membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
    return study


def fill_in(site) -> None:
    page = site.page
    page.locator("[name=method]").select_option("pate")
    page.get_by_label("Title").fill("First vote")
    page.get_by_label("Teacher learner").select_option("nearest_neighbour")
    page.locator("[name=learner-nearest_neighbour-copies]").fill("2")
    page.locator("[name=teachers]").fill("20")
    page.locator("[name=student_learner-consistency-steps]").fill("30")  # it learns well enough, and soon
    for name, value in {"sigma": "12", "sigma_threshold": "24", "threshold": "8"}.items():
        page.locator(f"[name=aggregator-confident_gnmax-{name}]").fill(value)


def chart_points(site) -> int:
    """Number of points that the chart of costs shows."""
    return site.page.evaluate(
        "Chart.getChart(document.querySelector('[data-chart=costs]')).data.datasets[0].data.length"
    )


@pytest.mark.worker
def test_a_run_from_proposal_to_student(visit, study, tmp_path: Path) -> None:
    site = visit("phone")
    site.sign_in("olga")
    site.press("Reading digits")
    site.open("/studies/digits/runs/")
    site.press("Propose a run")
    expect(site.page.locator("[name=teachers]")).to_be_hidden()  # there are none where every holder votes
    for method in Run.Method.values:
        site.page.locator("[name=method]").select_option(method)
        site.fits()
    fill_in(site)
    expect(site.page.locator("[name=aggregator-lnmax-gamma]")).to_be_hidden()  # the chosen aggregator does not take it
    expect(site.page.locator("[name=asking-rounds]")).to_be_hidden()
    site.is_in_order()
    site.press("Check the plan")
    site.says("The plan")
    site.says("Numbers of holders are head counts")
    site.is_in_order()
    site.press("Save as a draft")
    site.says("The run is saved as a draft.")
    site.says("You proposed this run yourself. Another operator has to approve it.")
    site.press("See the plan")
    site.says("In this study that is: otto.")
    assert site.page.get_by_role("button", name="Yes, start the run").count() == 0
    site.is_in_order()

    site = visit("phone")
    site.sign_in("otto")
    site.open(f"/studies/digits/runs/{Run.objects.get().pk}/")
    site.press("Check and approve")
    site.is_in_order()
    site.page.get_by_label("Share of every holder's cap, in per cent").fill("90")
    site.press("Show the plan with this")
    site.says("answered queries at least")
    site.is_in_order()
    site.press("Yes, start the run")
    site.says("No worker has picked it up yet.")

    with worker(tmp_path / "worker.log"):
        wait_until(lambda: Run.objects.get().has_ended, tmp_path / "worker.log", pause=0.2)
        site.page.locator("#state").get_by_text("finished").wait_for()
        site.says("Download the model")
    run = Run.objects.get()
    assert run.status == Run.Status.FINISHED
    site.press("What it costs each group")
    site.page.locator("canvas[data-chart=costs]").wait_for()
    assert chart_points(site) == run.batches.count() + 1
    site.is_in_order()
    with site.page.expect_download() as download:
        site.press("Download the model")
    assert Path(download.value.path()).read_bytes() == (Path(settings.MODELS_DIR) / run.student.artifact).read_bytes()


@pytest.mark.worker
def test_every_holder_votes_from_proposal_to_student(visit, study, tmp_path: Path, settings) -> None:
    settings.LEAST_TEST_POINTS = 100  # more than there are: a person publishes the model
    site = visit()
    site.sign_in("olga")
    site.open("/studies/digits/runs/new/")
    page = site.page
    page.get_by_label("Title").fill("All are asked")
    page.locator("[name=student_learner-consistency-steps]").fill("30")
    fields = page.get_by_role("group", name="How holders are asked")
    statement = fields.get_by_label("I state: The embedding was made without the private data.")
    expect(statement).to_be_hidden()
    page.locator("[name=asking-representation]").select_option("embedding")
    expect(statement).to_be_visible()
    page.locator("[name=asking-representation]").select_option("whitened")
    expect(page.locator("[name=asking-first_queries]")).to_be_hidden()
    page.locator("[name=asking-rounds]").select_option("2")
    page.locator("[name=asking-first_queries]").fill("12")
    site.is_in_order()
    site.press("Check the plan")
    site.says("Votes of the first round")
    site.is_in_order()
    site.press("Save as a draft")
    site.says("The run is saved as a draft.")

    site = visit()
    site.sign_in("otto")
    site.open(f"/studies/digits/runs/{Run.objects.get().pk}/")
    site.press("Check and approve")
    site.page.get_by_label("Share of every holder's cap, in per cent").fill("90")
    site.press("Show the plan with this")
    site.says("45.0 %")  # of the cap, at most, in the first of two rounds
    site.is_in_order()
    site.press("Yes, start the run")
    site.says("No worker has picked it up yet.")
    site.is_in_order()

    with worker(tmp_path / "worker.log"):
        wait_until(lambda: Run.objects.get().has_ended, tmp_path / "worker.log", pause=0.2)
        site.page.locator("#state").get_by_text("finished").wait_for()
        site.says("The run has a model and did not publish it:")
    run = Run.objects.get()
    assert run.student is None
    site.open(reverse("staff:run_student_publish", args=["digits", run.pk, 1]))
    site.says("at least 100 are needed")
    site.is_in_order()
    page = site.page
    page.get_by_label("Reason", exact=False).fill("It is a demonstration.")
    site.press("Yes, publish version 1")
    site.says("Download the model")
    run.refresh_from_db()
    assert run.student.publication_reason == "It is a demonstration."
    assert (run.status, run.position) == (Run.Status.FINISHED, run.public_dataset.rows)
    site.press("Model card")
    site.says("Round 2: 28 queries")
    assert chart_points(site) == run.batches.count() + 1
    site.is_in_order()
    site.press("See the labels")
    site.says("Each comes with its noisy counts")
    site.is_in_order()


def test_a_run_is_proposed_without_scripts(visit, study) -> None:
    site = visit(javascript=False)
    site.sign_in("olga")
    site.open("/studies/digits/runs/new/")
    fill_in(site)
    site.page.locator("[name=learner-cnn-epochs]").fill("")  # a learner that was not chosen
    site.press("Check the plan")
    site.press("Save as a draft")
    site.says("You proposed this run yourself. Another operator has to approve it.")
    assert Run.objects.get().choices["aggregator"]["sigma"] == 12
