"""Pages and API of a run that leads to a table: who sees it, what is on record, and what a withdrawal leaves."""

import hashlib
from functools import partial

import pytest
from django.test import Client
from django.urls import reverse

from accounting.models import Release
from consent.models import Role
from consent.services import membership_add
from learning.mechanisms.counts.table import CountTable
from learning.mechanisms.synthesis.rows import SyntheticRows
from tests.factories import user_create
from tests.pages import as_, url
from tests.snapshots import built_once
from tests.training.asking import COUNTS_RUN, SYNTHESIS_RUN, run_ask
from tests.training.runs import rehearsal_with_table, run_draft, run_like, study_with_table
from training.models import Run
from training.services.results import result_withdraw
from training.services.runs import run_cancel
from training.verification import release_faults

pytestmark = [pytest.mark.django_db]


def browser(run: Run, role: str) -> Client:
    membership_add(study=run.study, user=user_create(role), role=role, acting_user=None)
    return as_(role)


@pytest.fixture
@built_once
def run() -> Run:
    return run_ask(run_like(study_with_table(), COUNTS_RUN))


def page(run: Run) -> str:
    return reverse("staff:run", args=[run.study.slug, run.pk])


def csv(run: Run) -> str:
    return reverse("staff:run_result_file", args=[run.study.slug, run.pk])


def downloads(run: Run) -> list[dict[str, str]]:
    return list(Release.objects.filter(run=run.pk, kind=Release.Kind.DOWNLOAD).values_list("content", flat=True))


def test_the_file_is_the_one_in_the_register_and_who_took_it_is_on_record(run: Run) -> None:
    rosa, committee = browser(run, Role.RESEARCHER), browser(run, Role.COMMITTEE)
    seen = rosa.get(page(run)).text
    assert "Numbers of people in each cell" in seen and "Withdraw the table" not in seen
    assert "Numbers of people in each cell" not in committee.get(page(run)).text
    assert committee.get(csv(run)).status_code == 403
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
    assert sum(level["people"] for level in table["levels"]) == 30
    assert all(cell["least"] <= cell["low"] + 0.1 and cell["high"] <= cell["most"] + 0.1 for cell in table["cells"])
    assert table["card"]["privacy"]["mechanism"]["name"] == "counts"
    assert {group["epsilon"] for group in table["card"]["privacy"]["groups"]} == {1.0, 2.0, 3.0}


@pytest.mark.slow
def test_page_and_api_tell_means_and_quartiles_of_each_group() -> None:
    choices = {"choices": {"column": "class", "across": "length", "bins": 4}}
    run = run_ask(run_like(study_with_table(), COUNTS_RUN | choices))
    rosa = browser(run, Role.RESEARCHER)
    summaries = rosa.get(reverse("api:run-table", args=[run.pk])).json()["summaries"]
    assert [(each["column"], each["group"]) for each in summaries] == [("length", name) for name in "abc"]
    for each in summaries:
        assert all(0 <= part["low"] <= part["value"] <= part["high"] <= 1 for part in each["quantiles"])
    html, median = rosa.get(page(run)).text, summaries[0]["quantiles"][1]
    assert "Mean and quartiles of length" in html and f"({median['low']:g}–{median['high']:g})" in html


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
    assert {methods.pop(name) for name in ("counts", "synthesis")} == {"table"} and set(methods.values()) == {"model"}


@pytest.mark.parametrize("where", ["page", "api"])
def test_a_withdrawn_table_is_given_to_nobody(run: Run, where: str) -> None:
    rosa, oda = browser(run, Role.RESEARCHER), browser(run, Role.OPERATOR)
    withdraw, reason = reverse("staff:run_result_withdraw", args=[run.study.slug, run.pk]), "Its bins were wrong."
    api = partial(oda.post, reverse("api:run-table-withdraw", args=[run.pk]), content_type="application/json")
    if where == "page":
        assert oda.post(withdraw, {"reason": ""}).status_code == 422
        assert oda.post(withdraw, {"reason": reason}).status_code == 302
    else:
        assert api({"reason": reason}).json()["withdrawal_reason"] == reason
    for address in (csv(run), reverse("api:run-table", args=[run.pk])):
        answer = rosa.get(address)
        assert answer.status_code == 410 and reason in answer.text
    assert "Numbers of people in each cell" not in rosa.get(page(run)).text
    assert api({"reason": "Again."}).status_code == 409
    assert oda.get(withdraw).status_code == 302


def test_a_table_of_a_rehearsal_is_shown_and_on_no_record() -> None:
    run = run_ask(run_like(rehearsal_with_table(), COUNTS_RUN, seed=1))
    olga = as_("olga")
    assert "nothing is promised" in olga.get(page(run)).text
    assert olga.get(csv(run)).status_code == 200
    result_withdraw(run=run, reason="Done.", acting_user=user_create("olga"))
    assert not Release.objects.filter(study=run.study).exists()


@pytest.mark.slow
def test_a_large_table_is_cut_on_its_page_and_whole_in_its_file() -> None:
    choices = {"column": "length", "across": "width", "bins": 20}
    run = run_ask(run_like(study_with_table(), COUNTS_RUN, choices=choices))
    rosa = browser(run, Role.RESEARCHER)
    seen = rosa.get(page(run)).text
    assert "The first 200 of 400 cells" in seen and "table-chart" not in seen
    assert len(rosa.get(csv(run)).text.splitlines()) == 401


def test_a_table_has_no_student_versions_and_begins_a_similar_form(run: Run) -> None:
    oda = browser(run, Role.OPERATOR)
    form = oda.get(f"{reverse('staff:run_new', args=[run.study.slug])}?like={run.pk}").context["form"]
    assert (form["method"].value(), form["counts-column"].value()) == ("counts", "class")
    sent = {"student_learner": "logistic_regression"}
    answer = oda.post(reverse("api:run-students", args=[run.pk]), sent, content_type="application/json")
    assert answer.status_code == 400
    assert oda.get(reverse("staff:run_student_new", args=[run.study.slug, run.pk])).status_code == 302
    assert oda.get(reverse("api:model", args=[run.pk])).status_code == 404
    draft = run_draft(run.study, **COUNTS_RUN)
    assert oda.get(reverse("api:run-table", args=[draft.pk])).status_code == 404


def test_a_draft_that_was_cancelled_has_a_page() -> None:
    study = study_with_table()
    for fields in (COUNTS_RUN, SYNTHESIS_RUN):
        draft = run_cancel(run=run_draft(study, **fields), acting_user=user_create("olga"))
        assert "An operator has cancelled the run." in as_("olga").get(url("run", draft)).text


@pytest.fixture
@built_once
def drawn() -> Run:
    return run_ask(run_like(study_with_table(), SYNTHESIS_RUN, share=0.3))


@pytest.mark.slow
@pytest.mark.parametrize("made", ["run", "drawn"])
def test_a_file_stays_as_it_was_released_however_tables_are_written_later(
    made: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = request.getfixturevalue(made).result
    for kind in (CountTable, SyntheticRows):
        monkeypatch.setattr(kind, "to_csv", lambda _table: "as a later version writes it")
    rosa = browser(result.run, Role.RESEARCHER)
    api = reverse("api:run-rows" if result.is_rows else "api:run-table", args=[result.run_id])
    for address in (csv(result.run), f"{api}?format=csv"):
        assert hashlib.sha256(rosa.get(address).content).hexdigest() == result.digest
    assert list(release_faults(result.run)) == []


@pytest.mark.slow
def test_the_page_of_synthetic_rows_tells_what_was_counted_and_gives_the_file(drawn: Run) -> None:
    rosa = browser(drawn, Role.RESEARCHER)
    shown = rosa.get(page(drawn)).text
    assert "200 rows of people who do not exist" in shown and drawn.result.dataset.name in shown
    file = rosa.get(csv(drawn))
    assert hashlib.sha256(file.content).hexdigest() == drawn.result.digest
    assert downloads(drawn) == [{"what": "table", "digest": drawn.result.digest}]
    address = reverse("api:run-rows", args=[drawn.pk])
    assert rosa.get(f"{address}?format=csv").content == file.content
    answer = rosa.get(address).json()
    assert answer["rows"] == 200 and answer["columns"] == ["length", "width", "class"]
    assert answer["dataset"] == drawn.result.dataset_id and len(answer["marginals"]) == 2
    assert answer["card"]["privacy"]["mechanism"]["tables"] == [2, 1, 2]
    assert rosa.get(reverse("api:run-table", args=[drawn.pk])).status_code == 404
    result_withdraw(run=drawn, reason="A bin was wrong.", acting_user=user_create("olga"))
    assert {rosa.get(each).status_code for each in (csv(drawn), address)} == {410}
    assert "A bin was wrong." in rosa.get(page(drawn)).text


def test_the_plan_of_synthetic_rows_is_shown_before_the_approval(drawn: Run) -> None:
    draft = run_draft(drawn.study, **SYNTHESIS_RUN)
    olga = browser(draft, Role.OPERATOR)
    shown = olga.get(reverse("staff:run_approve", args=[draft.study.slug, draft.pk])).text
    assert "along the strongest tree" in shown and "Part of the share, so far" in shown
    counts = run_draft(drawn.study, **COUNTS_RUN)
    shown = olga.get(reverse("staff:run_approve", args=[counts.study.slug, counts.pk])).text
    assert "Error of a number of people, 95 times in 100" in shown


@pytest.mark.slow
def test_plausible_deniability_stands_beside_counts_in_a_rehearsal_alone() -> None:
    study = rehearsal_with_table(holders=400)
    olga = as_("olga")
    new = reverse("staff:run_new", args=[study.slug])
    form = olga.get(new).context["form"]
    assert {name for name, _label in form["synthesis-variant"].field.choices} == {"marginals", "deniability"}
    real = study_with_table()
    other = browser(run_draft(real, **SYNTHESIS_RUN), Role.OPERATOR).get(reverse("staff:run_new", args=[real.slug]))
    assert not {"synthesis-variant", "synthesis-plausible"} & set(other.context["form"].fields)

    chosen = {"released": 40, "plausible": 20, "epsilon0": 2.0, "fewest": 2, "most": 3, "values": 4}
    recipe = SYNTHESIS_RUN | {"variant": "deniability", "choices": chosen}
    draft = run_draft(study, **recipe)
    planned = olga.get(reverse("staff:run_approve", args=[study.slug, draft.pk])).text
    assert "What released rows cost together" in planned and "nobody could be promised that" in planned
    run = run_ask(run_like(study, recipe, seed=1))
    shown = olga.get(page(run)).text
    assert "40 rows were released" in shown and "Rows that pass the test" in shown and "k = 500" in shown
    answer = olga.get(reverse("api:run-rows", args=[run.pk])).json()
    assert answer["deniability"]["least"] == [10, 50, 100, 500] and "marginals" not in answer
    assert answer["card"]["privacy"]["mechanism"]["name"] == "deniability"
