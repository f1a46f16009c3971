"""Pages and files that a finished run leads to: labels, report as a PDF, fairness, stage of its model."""

import io
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse
from rest_framework.test import APIClient

from accounting.models import Release
from consent.models import Study
from tests import factories
from tests.pages import as_, study_with_finished_run, study_with_roles, url
from tests.snapshots import built_once
from tests.training.asking import CLEAR_RUN, run_ask
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start
from training.fairness import fairness_of
from training.models import Run, StudentModel
from training.services.closing import dataset_remove
from training.services.stages import model_stage_set
from training.services.students import student_withdraw
from training.services.trainings import student_learn

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

RUN = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 20.0}}


@pytest.fixture
def study() -> Study:
    return study_with_roles()


def table_of(address: str) -> Any:
    return pq.read_table(io.BytesIO(browse("researcher", address).content))


def arrays_of(address: str) -> Any:
    return np.load(io.BytesIO(browse("researcher", address).content), allow_pickle=False)


@pytest.fixture
@built_once
def run() -> Run:
    return run_finish(run_start(study_with_roles(), title="First vote", share=0.5, **RUN))


def browse(name: str, address: str) -> Any:
    return as_(name).get(address)


# --- Files ------------------------------------------------------------------------------------------------------------


def test_the_page_of_a_run_leads_to_its_records_and_files(run: Run) -> None:
    records = [url("ledger_report", run), url("ledger_report_pdf", run), f'/ledger/?run={run.pk}"']
    files = [url("run_labels_file", run, kind) for kind in ("csv", "parquet", "npz")]
    shown = {name: browse(name, url("run", run)).text for name in ("operator", "researcher", "auditor")}
    assert [all(each in shown["operator"] for each in part) for part in (records, files)] == [True, True]
    assert [any(each in shown["researcher"] for each in part) for part in (records, files)] == [False, True]
    assert [any(each in shown["auditor"] for each in part) for part in (records, files)] == [True, False]


def test_labels_as_parquet_and_with_the_public_points(study: Study) -> None:
    run = run_ask(run_start(study, share=0.3, **CLEAR_RUN))
    table = table_of(url("run_labels_file", run, "parquet"))
    assert table.column_names == ["row", "label", "count_a", "count_b", "count_c"]
    queries = list(run.queries.exclude(label=None).order_by("row"))
    assert table.column("row").to_pylist() == [query.row for query in queries]
    assert table.column("label").to_pylist() == [run.classes[query.label or 0] for query in queries]
    assert table.column("count_b").to_pylist() == [query.counts[1] for query in queries]
    arrays = arrays_of(url("run_labels_file", run, "npz"))
    assert arrays["x"].shape == (12, 2) and "y" not in arrays.files
    api = f"{reverse('api:run-labels', args=[run.pk])}?format=parquet"
    assert browse("researcher", api)["Content-Type"] == "application/vnd.apache.parquet"
    assert table_of(api).equals(table)
    assert browse("researcher", url("run_labels_file", run, "xlsx")).status_code == 404
    dataset_remove(dataset=run.public_points, reason="Not ours.", acting_user=factories.user_create("olga"))
    arrays = arrays_of(url("run_labels_file", run, "npz"))
    assert set(arrays.files) == {"row", "label", "counts", "classes"} and len(arrays["label"]) == run.labels
    assert url("run_labels_file", run, "npz") not in browse("researcher", url("run", run)).text


# --- Report -----------------------------------------------------------------------------------------------------------


def test_the_report_as_a_tagged_pdf(run: Run) -> None:
    for language in ("en", "de"):
        client = as_("auditor")
        client.cookies["django_language"] = language
        answer = client.get(url("ledger_report_pdf", run))
        assert answer["Content-Type"] == "application/pdf"
        assert answer["Content-Disposition"] == 'attachment; filename="table-first-vote-report.pdf"'
        assert f"/Lang({language})".encode() in answer.content
        for tagged in (b"/StructTreeRoot", b"/MarkInfo", b"pdfuaid:part>1<", b"/Title", b"/TH", b"/Table"):
            assert tagged in answer.content
    draft = run_draft(run.study, title="手書き *not* markup #emph[x]", **RUN)
    answer = browse("auditor", url("ledger_report_pdf", draft))
    assert answer.status_code == 200 and answer.content.startswith(b"%PDF-"), "of a run that released nothing"
    table = table_of(url("run_labels_file", draft, "parquet"))
    assert table.num_rows == 0 and table.column_names == ["row", "label"]


# --- Fairness ---------------------------------------------------------------------------------------------------------


def test_classes_stand_beside_what_is_public_of_the_levels(run: Run) -> None:
    model = run.student
    assert model is not None
    rows = [
        {"class": name, "points": 100, "recall": recall, "precision": 1.0, "interval": ends}
        for name, recall, ends in (("a", 0.9, [0.83, 0.95]), ("b", 0.2, [0.13, 0.29]), ("c", None, None))
    ]
    model.card["evaluation"]["classes"] = rows
    learned = [{**row, "recall": 0.85, "interval": [0.77, 0.91]} for row in rows]
    model.reference = {"accuracy": 0.9, "interval": [0.8, 1.0], "classes": learned}
    model.save()
    run.refresh_from_db()
    found = fairness_of(run, model)
    assert found is not None
    assert [each.name for each in found.classes] == ["b", "a", "c"]
    assert (found.lowest.name, found.highest.name, found.is_clear) == ("b", "a", True)
    assert found.lowest.reference == 0.85
    levels = [(each.level, each.epsilon, each.holders) for each in found.levels]
    assert levels == [("HIGH", 1.0, 10), ("AVERAGE", 2.0, 10), ("LOW", 3.0, 10)]
    assert found.levels[0].used == pytest.approx(run.spent[0] / run.plan["budgets"][0]["cap"])
    rows[1]["interval"] = [0.1, 0.9]
    assert fairness_of(run, model).is_clear is False  # type: ignore[union-attr]
    for page in (url("run", run), url("ledger_report", run)):
        text = browse("auditor", page).text
        assert "The student finds 20.0" in text and "What cannot be read" in text
    assert {"readable", "unreadable"} == model.card["fairness"].keys()
    assert fairness_of(run, None) is None
    for evaluation in ({**model.card["evaluation"], "classes": rows[:1]}, None):
        model.card["evaluation"] = evaluation
        assert fairness_of(run, model) is None, "one class alone cannot be compared"


# --- Stages -----------------------------------------------------------------------------------------------------------


def test_a_model_goes_from_candidate_to_production_on_record(run: Run) -> None:
    listed = reverse("staff:models", args=[run.study.slug])
    page = browse("researcher", listed).text
    model = run.student
    assert model is not None
    assert "candidate</span>" in page and model.digest in page and model.onnx_digest in page
    assert reverse("api:model-statement", args=[run.pk]) in page
    assert url("model_stage", run) not in page
    client = as_("operator")
    assert "In production" in client.get(url("model_stage", run)).text
    answer = client.post(url("model_stage", run), {"stage": "production"}, follow=True)
    assert "in production now" in answer.text
    entry = Release.objects.get(run=run.pk, kind="stage")
    assert entry.recorded_by == factories.user_create("operator") and entry.charge == 0
    assert (entry.content["before"], entry.content["stage"]) == ("candidate", "production")
    client.post(url("model_stage", run), {"stage": "production"})
    assert Release.objects.filter(kind="stage").count() == 1, "nothing was changed"
    assert "No model is in this stage" in browse("researcher", f"{listed}?stage=archived").text
    assert browse("auditor", f"{reverse('staff:ledger', args=[run.study.slug])}?kind=stage").status_code == 200


def test_stages_over_the_api(run: Run) -> None:
    operator, researcher = APIClient(), APIClient()
    operator.force_login(factories.user_create("operator"))
    researcher.force_login(factories.user_create("researcher"))
    address = reverse("api:model-stage", args=[run.pk])
    assert researcher.post(address, {"stage": "production"}, format="json").status_code == 403
    assert operator.post(address, {"stage": "best"}, format="json").status_code == 400
    assert operator.post(address, {"stage": "archived"}, format="json").json()["stage"] == "archived"
    refused = operator.post(address, {"stage": "production"}, format="json")
    assert refused.status_code == 409 and "candidate" in refused.json()["detail"]
    models = reverse("api:models")
    assert researcher.get(f"{models}?stage=production").json()["count"] == 0
    assert researcher.get(f"{models}?stage=archived").json()["results"][0]["id"] == str(run.pk)


def test_a_withdrawn_model_has_no_stage(run: Run) -> None:
    olga = factories.user_create("olga")
    student_withdraw(run=run, version=1, reason="It was wrong.", acting_user=olga)
    assert "No models yet" in browse("researcher", reverse("staff:models", args=[run.study.slug])).text
    with pytest.raises(ValidationError, match="withdrawn"):
        model_stage_set(run=run, stage="production", acting_user=olga)
    assert StudentModel.objects.get(run=run).stage == "candidate"
    api = APIClient()
    api.force_login(factories.user_create("operator"))
    answer = api.post(reverse("api:model-stage", args=[run.pk]), {"stage": "production"}, format="json")
    assert answer.status_code == 410
    assert api.get(f"{reverse('api:models')}?stage=candidate").json()["count"] == 0


# --- Versions of a student ------------------------------------------------------------------------------------------


def test_another_version_is_trained_compared_and_published() -> None:
    run = study_with_finished_run().runs.get()
    researcher, operator = as_("researcher"), as_("operator")
    page, new = url("run", run), url("run_student_new", run)
    first, second = (url("run_student_publish", run, number) for number in (1, 2))
    shown = researcher.get(page).text
    assert "being computed" in shown and "Choose by the agreement" not in shown
    assert "hx-get" in researcher.get(url("run_students", run)).text
    assert 'value="nearest_neighbour" selected' in researcher.get(new).text
    zeros = dict.fromkeys(("rotation", "shift", "stretch", "bend", "erase"), 0)
    network = {"steps": 1, "filters": 4, "batch": 8, "learning_rate": 0.1, "doubt": 0.1, "threshold": 0.9} | zeros
    boosting = {"iterations": 2, "leaves": 3, "leaf": 1, "learning_rate": 0.1}
    for learner, given, field, words in (
        ("boosting", boosting | {"leaf": 0}, "student_learner-boosting-leaf", "greater than"),
        ("consistency", network, "student_learner", "images"),
    ):
        wrong = researcher.post(new, student_sent(learner, given))
        assert wrong.status_code == 422 and words in str(wrong.context["form"].errors[field]), learner
    assert not run.trainings.filter(version=None).exists()
    assert researcher.post(new, student_sent("boosting", boosting)).headers["Location"] == page
    shown = researcher.get(page).text
    assert "Another version is being trained: Gradient boosting" in shown
    assert new not in shown, "one at a time"
    for _ in range(2):  # the second time the new version is assessed, too
        for training in run.trainings.all():
            student_learn(training.pk)
    done = researcher.get(url("run_students", run))
    assert done.headers["HX-Refresh"] == "true" and "being computed" not in done.text
    shown = operator.get(page).text
    assert "Choose by the agreement with held-out releases" in shown and "95 % confidence interval" in shown
    assert "The same student, when it learns from the true labels" in shown
    assert all(url("run_student_model", run, number) in shown for number in (1, 2))
    assert second in shown and first not in shown and second not in researcher.get(page).text
    assert "Version 1 stays and can be downloaded" in operator.get(second).text
    assert operator.get(url("run_student_publish", run, 7)).status_code == 404
    operator.post(second)
    assert Run.objects.get(pk=run.pk).student.version == 2
    assert "version 2: Gradient boosting" in as_("auditor").get(url("ledger_report", run)).text


def student_sent(learner: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"student_learner": learner} | {f"student_learner-{learner}-{name}": each for name, each in given.items()}


def test_a_run_without_a_student_has_nothing_to_train_anew(study: Study) -> None:
    run = run_start(study, **TABLE_RUN)
    assert as_("researcher").get(url("run_student_new", run)).headers["Location"] == url("run", run)
