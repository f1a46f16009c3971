"""Lists and comparisons of runs, and the results of finished runs: labels, reports, models, tables, rows."""

import hashlib
import io
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from accounting.models import Release
from consent.models import Role, Study
from consent.services import membership_add
from learning.mechanisms.counts.tables import CountTable
from learning.mechanisms.synthesis.rounds import SyntheticRows
from tests import factories
from tests.pages import as_, downloads, study_with_roles, url
from tests.snapshots import built_once
from tests.training.asking import CLEAR_RUN, COUNTS_RUN, STEPS_RUN, SYNTHESIS_RUN, run_ask
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_like, run_start, study_with_table
from training.comparison import fairness_of
from training.models import Run, StudentModel
from training.services.erasures import dataset_remove
from training.services.publication import model_stage_set
from training.services.students import student_withdraw
from training.verification import release_faults

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return study_with_roles()


@pytest.fixture
def runs(study: Study) -> dict[str, Run]:
    """Return drafts of two people on three days, the middle one with a model."""
    titles, found = {"Alpha vote": TABLE_RUN | {"purpose": "Few labels."}, "beta steps": STEPS_RUN}, {}
    for day, (title, fields) in enumerate({**titles, "Gamma vote": TABLE_RUN}.items(), start=10):
        found[title] = run_draft(study, title=title, **fields)
        Run.objects.filter(pk=found[title].pk).update(created_at=datetime(2026, 3, day, 12, tzinfo=UTC), labels=0)
    Run.objects.filter(pk=found["Gamma vote"].pk).update(created_by=factories.user_create("researcher"))
    file = {"artifact": "none", "learner": "shares", "digest": "0" * 64, "card": {}}
    for title, accuracy in (("beta steps", 0.5), ("Alpha vote", 0.75)):
        calibration = {"scale": 1.0, "offsets": []}
        model = StudentModel.objects.create(run=found[title], accuracy=accuracy, calibration=calibration, **file)
        Run.objects.filter(pk=found[title].pk).update(student=model)
    return found


def browse(address: str, user: str = "researcher") -> Any:
    return as_(user).get(address)


FOUND = {
    "": ["Gamma vote", "beta steps", "Alpha vote"],
    "search=VOTE": ["Gamma vote", "Alpha vote"],
    "search=few+labels": ["Alpha vote"],
    "search=few+steps": [],
    "method=sgd": ["beta steps"],
    "status=finished": [],
    "proposer=researcher": ["Gamma vote"],
    "since=2026-03-11": ["Gamma vote", "beta steps"],
    "until=2026-03-11": ["beta steps", "Alpha vote"],
    "since=2026-03-11&until=2026-03-11": ["beta steps"],
    "sort=title": ["Alpha vote", "beta steps", "Gamma vote"],
    "sort=proposed&method=pate": ["Alpha vote", "Gamma vote"],
    "sort=-accuracy": ["Alpha vote", "beta steps", "Gamma vote"],
}


def test_the_list_and_the_api_find_the_same(study: Study, runs: dict[str, Run]) -> None:
    for query, titles in FOUND.items():
        page = browse(f"{reverse('staff:runs', args=[study.slug])}?{query}")
        assert page.status_code == 200, query
        assert [run.title for run in page.context["list"].page] == titles, query
        answer = browse(f"{reverse('api:runs')}?{query}").json()
        assert [run["title"] for run in answer["results"]] == titles, query
        assert ("No matching runs" in page.text) is (not titles)


def compared(study: Study, *runs: Run, user: str = "researcher") -> Any:
    query = "&".join(f"run={run.pk}" for run in runs)
    return browse(f"{reverse('staff:run_compare', args=[study.slug])}?{query}", user)


def test_runs_side_by_side(study: Study) -> None:
    cheap = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 20.0}}
    first = run_finish(run_start(study, title="First", share=0.5, **cheap))
    cheaper = cheap | {"aggregator": {"name": "gnmax", "sigma": 25.0}}
    second = run_finish(run_start(study, title="Second", share=0.2, **cheaper))
    Run.objects.filter(pk=first.pk).update(
        approved_at=datetime(2026, 3, 1, 12, 0, 59, tzinfo=UTC), ended_at=datetime(2026, 3, 1, 12, 2, 1, tzinfo=UTC)
    )
    steps = run_ask(run_start(study, title="Steps", share=0.1, **STEPS_RUN))
    page = compared(study, second, first, steps)
    assert page.status_code == 200
    assert [title for title, _each in page.context["compared"]] == ["Second", "First", "Steps"], "in this order"
    parameters = dict(page.context["parameters"])
    assert parameters["σ, vote noise"] == ["25.0", "20.0", "–"]
    assert "Private dataset" not in parameters, "the same for all of them"
    assert page.context["compared"][1][1].minutes == 2, "like the difference of the times shown"
    chart = dict(page.context["charts"])["Share of the cap used, by number of labels released"]
    assert [series.name for series in chart.series] == ["Second", "First"]
    for each in (first, second):
        series = next(series for series in chart.series if series.name == each.title)
        assert max(value for value in series.values if value is not None) == pytest.approx(
            max(spent / budget["cap"] for spent, budget in zip(each.spent, each.plan["budgets"], strict=True))
        )
    document = browse(f"{reverse('api:run-comparison')}?runs={second.pk},{first.pk}").json()
    assert document["parameters"] == [{"name": "choices.aggregator.sigma", "values": [25.0, 20.0]}]
    assert [each["run"]["title"] for each in document["runs"]] == ["Second", "First"]
    assert document["runs"][1]["minutes"] == 2 and document["runs"][1]["share"] == 0.5


RUN = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 20.0}}


def table_of(address: str) -> Any:
    return pq.read_table(io.BytesIO(browse(address).content))


def arrays_of(address: str) -> Any:
    return np.load(io.BytesIO(browse(address).content), allow_pickle=False)


@pytest.fixture
@built_once
def finished() -> Run:
    return run_finish(run_start(study_with_roles(), title="First vote", share=0.5, **RUN))


def test_labels_as_parquet_and_with_the_public_points(study: Study) -> None:
    finished = run_ask(run_start(study, share=0.3, **CLEAR_RUN))
    table = table_of(url("run_labels_file", finished, "parquet"))
    assert table.column_names == ["row", "label", "count_a", "count_b", "count_c"]
    queries = list(finished.queries.exclude(label=None).order_by("row"))
    assert table.column("row").to_pylist() == [query.row for query in queries]
    assert table.column("label").to_pylist() == [finished.classes[query.label or 0] for query in queries]
    assert table.column("count_b").to_pylist() == [query.counts[1] for query in queries]
    arrays = arrays_of(url("run_labels_file", finished, "npz"))
    assert arrays["x"].shape == (12, 2) and "y" not in arrays.files
    api = f"{reverse('api:run-labels', args=[finished.pk])}?format=parquet"
    assert browse(api)["Content-Type"] == "application/vnd.apache.parquet"
    assert table_of(api).equals(table)
    assert browse(url("run_labels_file", finished, "xlsx")).status_code == 404
    dataset_remove(dataset=finished.public_points, reason="Not ours.", acting_user=factories.user_create("olga"))
    arrays = arrays_of(url("run_labels_file", finished, "npz"))
    assert set(arrays.files) == {"row", "label", "reinforced", "counts", "classes"}
    assert len(arrays["label"]) == finished.labels
    assert url("run_labels_file", finished, "npz") not in browse(url("run", finished)).text


def test_the_report_as_a_tagged_pdf(finished: Run) -> None:
    for language in ("en", "de"):
        client = as_("auditor")
        client.cookies["django_language"] = language
        answer = client.get(url("ledger_report_pdf", finished))
        assert answer["Content-Type"] == "application/pdf"
        assert answer["Content-Disposition"] == 'attachment; filename="table-first-vote-report.pdf"'
        assert f"/Lang({language})".encode() in answer.content
        for tagged in (b"/StructTreeRoot", b"/MarkInfo", b"pdfuaid:part>1<", b"/Title", b"/TH", b"/Table"):
            assert tagged in answer.content
    draft = run_draft(finished.study, title="手書き *not* markup #emph[x]", **RUN)
    answer = browse(url("ledger_report_pdf", draft), "auditor")
    assert answer.status_code == 200 and answer.content.startswith(b"%PDF-"), "of a finished run without releases"
    table = table_of(url("run_labels_file", draft, "parquet"))
    assert table.num_rows == 0 and table.column_names == ["row", "label"]


def test_classes_are_shown_next_to_public_numbers_of_the_levels(finished: Run) -> None:
    model = finished.student
    assert model is not None
    rows = [
        {"class": name, "points": 100, "recall": recall, "precision": 1.0, "interval": ends}
        for name, recall, ends in (("a", 0.9, [0.83, 0.95]), ("b", 0.2, [0.13, 0.29]), ("c", None, None))
    ]
    model.card["evaluation"]["classes"] = rows
    learned = [{**row, "recall": 0.85, "interval": [0.77, 0.91]} for row in rows]
    model.reference = {"accuracy": 0.9, "interval": [0.8, 1.0], "classes": learned}
    model.save()
    finished.refresh_from_db()
    found = fairness_of(finished, model)
    assert found is not None
    assert [each.name for each in found.classes] == ["b", "a", "c"]
    assert (found.lowest.name, found.highest.name, found.is_clear) == ("b", "a", True)
    assert found.lowest.reference == 0.85
    levels = [(each.level, each.epsilon, each.holders) for each in found.levels]
    assert levels == [("HIGH", 1.0, 10), ("AVERAGE", 2.0, 10), ("LOW", 3.0, 10)]
    assert found.levels[0].used == pytest.approx(finished.spent[0] / finished.plan["budgets"][0]["cap"])
    rows[1]["interval"] = [0.1, 0.9]
    assert fairness_of(finished, model).is_clear is False  # type: ignore[union-attr]
    for page in (url("run", finished), url("ledger_report", finished)):
        text = browse(page, "auditor").text
        assert "The student finds 20" in text and "finds 20." not in text
        assert "These results do not show whether a class is" in text
        assert "chance: 0.333, best: 1" in text, "the mean share of the three classes"
    assert {"readable", "unreadable"} == model.card["fairness"].keys()
    assert fairness_of(finished, None) is None
    for evaluation in ({**model.card["evaluation"], "classes": rows[:1]}, None):
        model.card["evaluation"] = evaluation
        assert fairness_of(finished, model) is None, "one class cannot be compared"


def test_a_models_stages_are_recorded(finished: Run) -> None:
    listed, model = reverse("staff:models", args=[finished.study.slug]), finished.student
    stage = url("model_stage", finished)
    page = browse(listed).text
    assert model is not None
    assert "candidate</span>" in page and model.digest in page and model.onnx_digest in page
    assert reverse("api:model-statement", args=[finished.pk]) in page and stage not in page
    client = as_("operator")
    assert "In production" in client.get(stage).text
    assert "is now: in production" in client.post(stage, {"stage": "production"}, follow=True).text
    client.post(stage, {"stage": "production"})
    entry = Release.objects.get(run=finished.pk, kind="stage")  # nothing was changed the second time
    assert entry.recorded_by == factories.user_create("operator") and entry.charge == 0
    assert (entry.content["before"], entry.content["stage"]) == ("candidate", "production")
    assert "No models at this stage" in browse(f"{listed}?stage=archived").text
    assert browse(f"{reverse('staff:ledger', args=[finished.study.slug])}?kind=stage", "auditor").status_code == 200

    api, models = reverse("api:model-stage", args=[finished.pk]), reverse("api:models")
    send = partial(client.post, api, content_type="application/json")
    answer = as_("researcher").post(api, {"stage": "archived"}, content_type="application/json")
    assert answer.status_code == 403
    assert send({"stage": "best"}).status_code == 400
    assert send({"stage": "archived"}).json()["stage"] == "archived"
    refused = send({"stage": "production"})
    assert refused.status_code == 409 and "candidate" in refused.json()["detail"]
    assert browse(f"{models}?stage=production").json()["count"] == 0
    assert browse(f"{models}?stage=archived").json()["results"][0]["id"] == str(finished.pk)


def test_one_row_is_tried_on_a_models_page_which_refuses_what_the_api_refuses(finished: Run) -> None:
    page = reverse("staff:model", args=[finished.study.slug, finished.pk])
    client, ask = as_("researcher"), reverse("api:model-predict", args=[finished.pk])
    first = client.get(page)
    for part in (ask, "No downloads yet", "ROC curve", "Try one row", "ipate_client"):
        assert part in first.text, part
    sent = {f"column-{place}": "0.25" for place in range(len(first.context["form"].columns))}
    row = dict.fromkeys((column["name"] for column in first.context["form"].columns), 0.25)
    told = client.post(ask, {"rows": [row]}, content_type="application/json").json()
    tried = client.post(page, sent)
    assert tried.context["prediction"].answer == told["predictions"][0]
    assert dict(tried.context["prediction"].values) == dict(zip(told["classes"], told["probabilities"][0], strict=True))
    assert "0.25" in tried.context["snippets"][0][2]
    assert client.post(page, sent | {"column-0": "9"}).context["prediction"].outside == ["length"]
    wrong = client.post(page, sent | {"column-0": "wide"})
    refused = client.post(ask, {"rows": [row | {"length": "wide"}]}, content_type="application/json").json()
    assert wrong.status_code == 422 and wrong.context["form"].errors["column-0"] == [refused["errors"][0]["message"]]
    assert "Try one row" not in as_("auditor").get(page).text and as_("auditor").post(page, sent).status_code == 403
    assert "researcher" in as_("auditor").get(page).text, "the register shows who requested predictions"


def test_a_withdrawn_model_has_no_stage(finished: Run) -> None:
    olga = factories.user_create("olga")
    student_withdraw(run=finished, version=1, reason="It was wrong.", acting_user=olga)
    assert "No models yet" in browse(reverse("staff:models", args=[finished.study.slug])).text
    with pytest.raises(ValidationError, match="withdrawn"):
        model_stage_set(run=finished, stage="production", acting_user=olga)
    assert StudentModel.objects.get(run=finished).stage == "candidate"
    api = APIClient()
    api.force_login(factories.user_create("operator"))
    answer = api.post(reverse("api:model-stage", args=[finished.pk]), {"stage": "production"}, format="json")
    assert answer.status_code == 410
    assert api.get(f"{reverse('api:models')}?stage=candidate").json()["count"] == 0


def browser(run: Run, role: str) -> Client:
    membership_add(study=run.study, user=factories.user_create(role), role=role, acting_user=None)
    return as_(role)


@pytest.fixture
@built_once
def run() -> Run:
    return run_ask(run_like(study_with_table(), COUNTS_RUN))


def test_the_file_matches_the_register_and_downloads_are_recorded(run: Run) -> None:
    rosa, committee = browser(run, Role.RESEARCHER), browser(run, Role.COMMITTEE)
    seen = rosa.get(url("run", run)).text
    assert "Number of people in each cell" in seen and "Withdraw the table" not in seen
    assert "Number of people in each cell" not in committee.get(url("run", run)).text
    assert committee.get(url("run_result_file", run)).status_code == 403
    rosa.head(url("run_result_file", run))
    assert downloads(run) == []
    file = rosa.get(url("run_result_file", run))
    assert file.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert hashlib.sha256(file.content).hexdigest() == run.result.digest
    rosa.get(url("run_result_file", run))
    assert downloads(run) == [("table", "researcher")]
    assert Release.objects.get(run=run.pk, kind="download").content["digest"] == run.result.digest
    api = rosa.get(f"{reverse('api:run-table', args=[run.pk])}?format=csv")
    assert api.content == file.content and len(downloads(run)) == 1


@pytest.mark.parametrize("where", ["page", "api"])
def test_a_withdrawn_table_cannot_be_downloaded(run: Run, where: str) -> None:
    rosa, oda = browser(run, Role.RESEARCHER), browser(run, Role.OPERATOR)
    withdraw, reason = reverse("staff:run_result_withdraw", args=[run.study.slug, run.pk]), "Its bins were wrong."
    api = partial(oda.post, reverse("api:run-table-withdraw", args=[run.pk]), content_type="application/json")
    if where == "page":
        assert oda.post(withdraw, {"reason": ""}).status_code == 422
        assert oda.post(withdraw, {"reason": reason}).status_code == 302
    else:
        assert api({"reason": reason}).json()["withdrawal_reason"] == reason
    for address in (url("run_result_file", run), reverse("api:run-table", args=[run.pk])):
        answer = rosa.get(address)
        assert answer.status_code == 410 and reason in answer.text
    assert "Number of people in each cell" not in rosa.get(url("run", run)).text
    assert api({"reason": "Again."}).status_code == 409
    assert oda.get(withdraw).status_code == 302


@pytest.fixture
@built_once
def drawn() -> Run:
    return run_ask(run_like(study_with_table(), SYNTHESIS_RUN, share=0.3))


@pytest.mark.parametrize("made", ["run", "drawn"])
def test_a_released_file_never_changes(made, request, monkeypatch) -> None:
    result = request.getfixturevalue(made).result
    for kind in (CountTable, SyntheticRows):
        monkeypatch.setattr(kind, "to_csv", lambda _table: "as a later version writes it")
    rosa = browser(result.run, Role.RESEARCHER)
    api = reverse("api:run-rows" if result.is_rows else "api:run-table", args=[result.run_id])
    for address in (url("run_result_file", result.run), f"{api}?format=csv"):
        assert hashlib.sha256(rosa.get(address).content).hexdigest() == result.digest
    assert list(release_faults(result.run)) == []
