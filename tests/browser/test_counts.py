"""A researcher gets a table, a chart, rows and a model from a study that has no public dataset."""

import pytest
from ipate_client import Site
from playwright.sync_api import Page, expect

from consent.models import Role
from consent.services import membership_add
from ipate_web.tokens.models import ApiToken
from tests.browser.conftest import Site as Browsed
from tests.factories import user_create
from tests.training.asking import run_ask
from tests.training.runs import run_finish, study_with_table
from training.models import Dataset, Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study():
    study = study_with_table(title="Reading digits", holders=120)
    membership_add(study=study, user=user_create("rosa"), role=Role.RESEARCHER, acting_user=None)
    Dataset.objects.filter(study=study).exclude(kind="private").delete()
    return study


def new_run(rosa: Browsed) -> Page:
    """Page on which a run is proposed."""
    rosa.sign_in("rosa")
    rosa.open("/studies/table/runs/new/")
    return rosa.page


def approved(olga: Browsed, title: str) -> Run:
    run = Run.objects.get(title=title)
    olga.sign_in("olga")
    olga.open(f"/studies/table/runs/{run.pk}/approve/")
    olga.press("Yes, start the run")
    return run


def test_a_table_from_proposal_to_withdrawal(visit, study) -> None:
    rosa, olga = visit("phone"), visit()
    page = new_run(rosa)
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

    run = approved(olga, "How many")
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
    assert download.value.path().read_text().startswith("length,class,people,low_95,high_95,weighted,least_95,most_95")

    olga.open(f"/studies/table/runs/{run.pk}/")
    olga.press("Withdraw the table")
    olga.page.get_by_label("Reason").fill("The bins were too wide.")
    olga.press("Yes, withdraw the table")
    olga.says("The bins were too wide.")
    rosa.open(f"/studies/table/runs/{run.pk}/")
    rosa.says("The table was withdrawn on")
    expect(table).to_have_count(0)


def test_a_model_from_proposal_to_download(visit, study) -> None:
    rosa, olga = visit("phone"), visit()
    page = new_run(rosa)
    expect(page.locator("[name=method]")).to_have_value("sgd")
    expect(page.locator("[name=steps-variant]")).to_have_value("individual")
    page.get_by_label("Title").fill("A model")
    page.locator("[name=steps-steps]").fill("20")
    rosa.fits()
    rosa.press("Check the plan")
    rosa.says("There are no public points: 10 % of the run's share counts people first")
    rosa.is_in_order()
    rosa.press("Save as a draft")

    run = approved(olga, "A model")
    run_finish(run)

    rosa.open(f"/studies/table/runs/{run.pk}/")
    rosa.press("Model card")
    rosa.says("The rows take the place of public points.")
    steps = page.evaluate(
        "[...document.querySelectorAll('[data-chart]')]"
        ".flatMap((each) => Chart.getChart(each).data.datasets.map((line) => line.data.length))"
    )
    assert 20 in steps
    rosa.is_in_order()
    with page.expect_download() as download:
        page.get_by_role("link", name="ONNX").first.click()
    assert download.value.suggested_filename.endswith(".onnx")


def test_rows_from_proposal_to_download(visit, study) -> None:
    rosa, olga = visit("phone"), visit()
    page = new_run(rosa)
    page.locator("[name=method]").select_option("synthesis")
    page.get_by_label("Title").fill("Rows")
    page.locator("[name=synthesis-rows]").fill("300")
    rosa.fits()
    rosa.press("Check the plan")
    rosa.says("300 rows are drawn")
    rosa.is_in_order()
    rosa.press("Save as a draft")

    run = approved(olga, "Rows")
    run_ask(run)

    rosa.open(f"/studies/table/runs/{run.pk}/")
    rosa.says("300 rows of people who do not exist.")
    rosa.is_in_order()
    with page.expect_download() as download:
        rosa.press("Download as CSV")
    assert len(download.value.path().read_text().splitlines()) == 301


def test_all_of_it_with_the_client(live_server, study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    secrets = [ApiToken.objects.create(user_create(name), name="client")[1] for name in ("rosa", "olga")]
    with Site(live_server.url, secrets[0]) as rosa, Site(live_server.url, secrets[1]) as olga:
        about = {"study": "table", "private_dataset": rosa.study("table").dataset("private")}
        table = rosa.propose(title="How many", method="counts", choices={"column": "class"}, **about)
        rows = rosa.propose(title="Rows", method="synthesis", choices={"rows": 300}, **about)
        model = rosa.propose(title="A model", method="sgd", choices={"steps": 20}, **about)
        for run in (table, rows, model):
            olga.approve(run, share=0.3)
            run_finish(Run.objects.get(pk=run.id))
        assert len(rosa.counts(table)) == 3
        assert len(rosa.synthetic_rows(rows)) == 300
        shares = rosa.model(model).predict([{"length": 0.1, "width": 0.5}])
        assert shares.classes == ["a", "b", "c"] and shares.probabilities.shape == (1, 3)
