"""A researcher asks how many people there are, without a public dataset, and reads the table where they asked."""

import pytest
from playwright.sync_api import expect

from consent.models import Role
from consent.services import membership_add
from tests.browser.conftest import each_size
from tests.factories import user_create
from tests.training.asking import run_ask
from tests.training.runs import study_with_table
from training.models import Dataset, Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study():
    study = study_with_table(title="Reading digits", holders=120)
    membership_add(study=study, user=user_create("rosa"), role=Role.RESEARCHER, acting_user=None)
    Dataset.objects.filter(study=study).exclude(kind="private").delete()
    return study


@each_size
def test_a_table_from_proposal_to_withdrawal(visit, study, size: str) -> None:
    rosa, olga = visit(size), visit()
    rosa.sign_in("rosa")
    rosa.open("/studies/table/runs/new/")
    page = rosa.page
    page.locator("[name=method]").select_option("counts")
    expect(page.locator("[name=student_learner]")).to_be_hidden()
    expect(page.locator("[name=public_dataset]")).to_be_hidden()
    page.get_by_label("Title").fill("How many")
    page.locator("[name=counts-column]").select_option("length")
    page.locator("[name=counts-across]").select_option("class")
    page.locator("[name=counts-bins]").fill("2")
    rosa.fits()
    rosa.press("Check the plan")
    rosa.says("Cells of the table")
    rosa.is_in_order()
    rosa.press("Save as a draft")

    run = Run.objects.get(title="How many")
    olga.sign_in("olga")
    olga.open(f"/studies/table/runs/{run.pk}/approve/")
    olga.press("Yes, start the run")
    run_ask(run)

    rosa.open(f"/studies/table/runs/{run.pk}/")
    rosa.says("Counting ended: everything that was planned was counted.")
    table = page.get_by_role("region", name="Numbers of people in each cell")
    expect(table.locator("tbody tr")).to_have_count(2 * 3)
    bars = page.evaluate(
        "Chart.getChart(document.querySelector('[data-chart=counted]')).data.datasets.map((each) => each.data.length)"
    )
    assert bars == [2, 2, 2]
    rosa.is_in_order()
    rosa.fits()
    with page.expect_download() as download:
        rosa.press("Download as CSV")
    assert download.value.path().read_text().startswith("length,class,people,low_95,high_95,weighted")

    olga.open(f"/studies/table/runs/{run.pk}/")
    olga.press("Withdraw the table")
    olga.page.get_by_label("Reason").fill("The bins were too wide.")
    olga.press("Yes, withdraw the table")
    olga.says("The bins were too wide.")
    rosa.open(f"/studies/table/runs/{run.pk}/")
    rosa.says("The table was withdrawn on")
    expect(table).to_have_count(0)
