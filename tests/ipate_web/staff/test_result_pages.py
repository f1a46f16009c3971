"""Pages and API of a run that leads to a table: who sees it, what is on record, and what a withdrawal leaves."""

import hashlib

import pytest
from django.test import Client
from django.urls import reverse

from accounting.models import Release
from consent.models import Role
from consent.services import membership_add
from tests.factories import user_create
from tests.training.asking import COUNTS_RUN, run_ask
from tests.training.runs import rehearsal_with_table, run_draft, run_like, study_with_table
from training.models import Run
from training.services.results import result_withdraw

pytestmark = [pytest.mark.django_db]


def browser(run: Run, role: str) -> Client:
    user = user_create(role)
    membership_add(study=run.study, user=user, role=role, acting_user=None)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def run() -> Run:
    return run_ask(run_like(study_with_table(), COUNTS_RUN))


def page(run: Run) -> str:
    return reverse("staff:run", args=[run.study.slug, run.pk])


def csv(run: Run) -> str:
    return reverse("staff:run_result_file", args=[run.study.slug, run.pk])


def downloads(run: Run) -> list[dict[str, str]]:
    return list(Release.objects.filter(run=run.pk, kind=Release.Kind.DOWNLOAD).values_list("content", flat=True))


def test_the_file_is_the_one_in_the_register_and_who_took_it_is_on_record(run: Run) -> None:
    rosa = browser(run, Role.RESEARCHER)
    rosa.head(csv(run))
    assert downloads(run) == []
    file = rosa.get(csv(run))
    assert file.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert hashlib.sha256(file.content).hexdigest() == run.result.digest
    rosa.get(csv(run))
    assert downloads(run) == [{"what": "table", "digest": run.result.digest}]
    api = rosa.get(f"{reverse('api:run-table', args=[run.pk])}?format=csv")
    assert api.content == file.content and len(downloads(run)) == 1


def test_the_api_tells_cells_intervals_and_card(run: Run) -> None:
    table = browser(run, Role.RESEARCHER).get(reverse("api:run-table", args=[run.pk])).json()
    assert table["columns"] == ["class"] and [cell["values"] for cell in table["cells"]] == [["a"], ["b"], ["c"]]
    for cell in table["cells"]:
        assert cell["high"] - cell["low"] == pytest.approx(2 * table["error"])
        assert cell["people"] == pytest.approx(table["scale"] * cell["weighted"])
    assert table["card"]["privacy"]["mechanism"]["name"] == "counts"
    assert {group["epsilon"] for group in table["card"]["privacy"]["groups"]} == {1.0, 2.0, 3.0}


def test_page_and_api_tell_means_and_quartiles_of_each_group() -> None:
    choices = {"choices": {"column": "class", "across": "length", "bins": 4}}
    run = run_ask(run_like(study_with_table(holders=120), COUNTS_RUN | choices))
    rosa = browser(run, Role.RESEARCHER)
    told = rosa.get(reverse("api:run-table", args=[run.pk])).json()["summaries"]
    assert [(each["column"], each["group"]) for each in told] == [("length", name) for name in "abc"]
    for each in told:
        assert all(0 <= part["low"] <= part["value"] <= part["high"] <= 1 for part in each["quantiles"])
    html = rosa.get(page(run)).text
    assert "Mean and quartiles of length" in html
    median = told[0]["quantiles"][1]
    assert f"({median['low']:g}–{median['high']:g})" in html


def test_a_proposal_over_the_api_needs_no_public_dataset(run: Run) -> None:
    rosa = browser(run, Role.RESEARCHER)
    proposal = {
        **{"study": run.study.slug, "title": "Counts", "method": "counts", "choices": {"column": "width", "bins": 4}},
        "private_dataset": run.private_dataset_id,
    }
    plan = rosa.post(reverse("api:run-plan"), proposal, content_type="application/json").json()
    assert plan["rounds"][0]["table"]["cells"] == 4 and plan["rounds"][0]["table"]["error"] > 0
    answer = rosa.post(reverse("api:runs"), proposal, content_type="application/json")
    assert (answer.status_code, answer.json()["student_learner"]) == (201, "")
    methods = {each["name"]: each["outcome"] for each in rosa.get(reverse("api:methods")).json()}
    assert methods.pop("counts") == "table" and set(methods.values()) == {"model"}


def test_whoever_may_not_use_what_is_released_sees_no_numbers(run: Run) -> None:
    seen = browser(run, Role.RESEARCHER).get(page(run)).text
    assert "Numbers of people in each cell" in seen and "Withdraw the table" not in seen
    committee = browser(run, Role.COMMITTEE)
    assert "Numbers of people in each cell" not in committee.get(page(run)).text
    assert committee.get(csv(run)).status_code == 403


def test_a_withdrawn_table_is_given_to_nobody(run: Run) -> None:
    rosa, oda = browser(run, Role.RESEARCHER), browser(run, Role.OPERATOR)
    withdraw = reverse("staff:run_result_withdraw", args=[run.study.slug, run.pk])
    assert oda.post(withdraw, {"reason": ""}).status_code == 422
    assert oda.post(withdraw, {"reason": "Its bins were wrong."}).status_code == 302
    for address in (csv(run), reverse("api:run-table", args=[run.pk])):
        answer = rosa.get(address)
        assert answer.status_code == 410 and "Its bins were wrong." in answer.text
    assert "Numbers of people in each cell" not in rosa.get(page(run)).text
    again = oda.post(
        reverse("api:run-table-withdraw", args=[run.pk]), {"reason": "Again."}, content_type="application/json"
    )
    assert again.status_code == 409
    assert oda.get(withdraw).status_code == 302


def test_an_operator_withdraws_over_the_api(run: Run) -> None:
    address = reverse("api:run-table-withdraw", args=[run.pk])
    answer = browser(run, Role.OPERATOR).post(address, {"reason": "A defect."}, content_type="application/json")
    assert answer.status_code == 200 and answer.json()["withdrawal_reason"] == "A defect."


def test_a_table_of_a_rehearsal_is_shown_and_on_no_record() -> None:
    run = run_ask(run_like(rehearsal_with_table(), COUNTS_RUN, seed=1))
    olga = Client()
    olga.force_login(user_create("olga"))
    assert "nothing is promised" in olga.get(page(run)).text
    assert olga.get(csv(run)).status_code == 200
    result_withdraw(run=run, reason="Done.", acting_user=user_create("olga"))
    assert not Release.objects.filter(study=run.study).exists()


def test_a_large_table_is_cut_on_its_page_and_whole_in_its_file() -> None:
    choices = {"column": "length", "across": "width", "bins": 20}
    run = run_ask(run_like(study_with_table(), COUNTS_RUN, choices=choices))
    rosa = browser(run, Role.RESEARCHER)
    seen = rosa.get(page(run)).text
    assert "The first 200 of 400 cells" in seen and "table-chart" not in seen
    assert len(rosa.get(csv(run)).text.splitlines()) == 401


def test_a_form_begins_with_an_earlier_table(run: Run) -> None:
    form = browser(run, Role.OPERATOR).get(f"{reverse('staff:run_new', args=[run.study.slug])}?like={run.pk}")
    assert form.context["form"]["method"].value() == "counts"
    assert form.context["form"]["counts-column"].value() == "class"


def test_another_version_of_a_student_cannot_be_asked_of_a_table(run: Run) -> None:
    oda = browser(run, Role.OPERATOR)
    answer = oda.post(
        reverse("api:run-students", args=[run.pk]),
        {"student_learner": "logistic_regression"},
        content_type="application/json",
    )
    assert answer.status_code == 400
    assert oda.get(reverse("staff:run_student_new", args=[run.study.slug, run.pk])).status_code == 302
    assert oda.get(reverse("api:model", args=[run.pk])).status_code == 404
    draft = run_draft(run.study, **COUNTS_RUN)
    assert oda.get(reverse("api:run-table", args=[draft.pk])).status_code == 404
