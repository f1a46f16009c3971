"""The client for researchers, with a real server."""

import asyncio
import base64
import hashlib
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from threading import Thread
from typing import Any
from xml.etree import ElementTree

import httpx
import ipate_client.connection
import numpy as np
import pandas as pd
import pytest
import yaml
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from ipate_client import AsyncSite, LocalModel, ProblemError, RowsError, RunEndedError, Site, __version__
from ipate_client.command import main
from ipate_client.frames import of_schema

from consent.models import Study
from learning.formats import TabularSchema
from learning.formats.columns import CategoricalColumn, NumericColumn
from learning.learners import learner_create
from tests.factories import user_create
from tests.hooks import receiver
from tests.ipate_web.api.test_runs import proposal
from tests.training.asking import COUNTS_RUN, SYNTHESIS_RUN, run_ask
from tests.training.runs import run_approve, run_draft, run_like
from training.models import DatasetImport, Run
from training.services.approvals import approval_fail
from training.services.imports import import_work
from training.services.runs import run_cancel

__all__ = ["receiver"]


YOUNG, OLD = {"age": 10, "smoker": "no"}, {"age": 95, "smoker": "yes"}


def test_a_draft_from_its_plan_to_its_end(study: Study, site: Site, site_of: Callable[[str], Site]) -> None:
    assert [each.slug for each in site.studies()] == ["ward"]
    ward = site.study("ward")
    assert {each.kind for each in ward.datasets} == {"private", "public", "test"} and ward.datasets[0].shape == (3,)
    with pytest.raises(LookupError, match="no spare dataset"):
        ward.dataset("spare")
    assert len(site.example_rows(ward, rows=3, seed=1)["rows"]) == 3
    plan = site.plan(**proposal(study), share=0.5)
    assert plan["answers"] > 0 and plan.forecasts["measure"].tolist() == ["share right"]
    assert plan.forecasts["majority"].tolist() == [each["majority"] for each in plan["forecasts"]] != [None]
    operator = site_of("operator")
    run, other = site.propose(**proposal(study)), site.propose(**proposal(study, title="Another"))
    assert (run.status, run.has_ended, run.done) == ("draft", False, 0.0)
    assert [each.id for each in site.runs(study="ward", status="draft")] == [other.id, run.id]
    assert site.runs(status="finished") == []
    changed = site.edit(run, **proposal(study, title="Better", teachers=25))
    assert (changed.id, changed.title, changed.document["revision"]) == (run.id, "Better", 2)
    assert site.withdraw(other).status == "withdrawn"
    mine, theirs = site.waiting(), operator.waiting()
    assert mine[["study", "kind", "text", "own"]].values.tolist() == [["ward", "run", "Run: Better", True]]
    assert theirs.loc[theirs["kind"] == "run", "own"].tolist() == [False]
    with pytest.raises(ProblemError, match="changed since") as caught:
        operator.approve(run, share=0.25, revision=1)
    assert caught.value.status == 409
    planned = operator.plan_of(run, share=0.25)
    approved = operator.approve(run, share=0.25, revision=2)
    assert (approved.status, approved.status_text) == ("planning", "approved: its plan is being calculated")
    assert operator.approval_undo(run).status == "draft"
    operator.approve(run, share=0.25)
    approval_fail(run.id, "No room.")
    assert operator.run(run).status_text == "draft: No room."
    run_approve(run=Run.objects.get(pk=run.id), acting_user=User.objects.get(username="operator"), share=0.25)
    assert operator.plan_of(run)["budgets"] == planned["budgets"]
    compared = site.compare(run, other)
    assert [each["run"]["title"] for each in compared["runs"]] == ["Better", "Another"]
    assert {"name": "choices.teachers", "values": [25, 20]} in compared["parameters"]
    assert operator.cancel(run).status == "cancelled"


def test_an_operator_gives_a_model_a_stage_and_withdraws_it(run, site, site_of) -> None:
    operator, pk = site_of("operator"), str(run.pk)
    assert [each["id"] for each in site.models(study="ward")] == [pk]
    found = site.run(pk)
    assert f"% right (most frequent class: {100 * found.majority:.4g} %)" in repr(found)
    assert found.forecasts["came"].notna().all()
    with pytest.raises(ProblemError, match="scope"):
        site.stage(pk, "production")
    assert operator.stage(pk, "production")["stage"] == "production"
    assert [each["id"] for each in site.models(stage="production")] == [pk]
    assert site.models(stage="candidate") == []
    versions = operator.withdraw_version(pk, version=1, reason="A defect in the data.")
    assert [each["version"] for each in versions] == [1]
    assert versions[0]["withdrawal_reason"] == "A defect in the data."
    with pytest.raises(ProblemError, match="A defect in the data") as caught:
        site.model(pk)
    assert caught.value.status == 410


def test_a_notebook_shows_each_document_with_its_chart(study: Study, run: Run, site: Site) -> None:
    Run.objects.filter(pk=run.pk).update(title="<b>A & B")
    pk = str(run.pk)
    views = {
        site.study("ward")._repr_html_(): ["Study ward", "HIGH", "public rows"],
        site.study("ward").budget_plot()._repr_svg_(): ["used: 23.5 %, ε 0.443"],
        site.run(pk)._repr_html_(): ["<b>A & B", "finished", "most frequent class", "Released labels"],
        site.plan(**proposal(study), share=0.5)._repr_html_(): ["Forecast", "0.6764", "no better than the baseline"],
        site.card(pk)._repr_html_(): ["<b>A & B", "ward, version 1, candidate", "data holder", "average precision"],
        site.model(pk)._repr_html_(): ["LocalClassifier", "healthy, ill", "accuracy: 0.65 (0.433 to 0.819)"],
    }
    for view, words in views.items():
        page = ElementTree.fromstring(view)
        assert [word for word in words if word not in "\n".join(page.itertext())] == [], view
        assert words[0] == "Study ward" or page.tag.endswith("svg") or page.find(".//{*}svg") is not None


def number(name: str, maximum: int) -> dict[str, object]:
    return {"name": name, "role": "feature", "type": "numeric", "minimum": 0, "maximum": maximum}


@pytest.mark.exhaustive
def test_data_and_decisions_of_a_study_that_asks_people(study, site_of, tmp_path, monkeypatch) -> None:
    steward, operator = site_of("steward"), site_of("operator")

    def work(_seconds: float) -> None:
        for found in DatasetImport.objects.filter(state__in=DatasetImport.BUSY):
            import_work(str(found.pk))

    monkeypatch.setattr(ipate_client.connection.time, "sleep", work)
    columns = [{"name": "who", "role": "holder"}, number("age", 100), {"name": "state", "role": "label"}]
    schema = {"kind": "table", "classes": ["healthy", "ill"], "columns": columns}
    rows = pd.DataFrame({"who": ["Q-1", "Q-2"], "age": [50, 60], "state": ["ill", "healthy"]})
    given = {"name": "more", "kind": "private", "schema": schema, "known": True}
    wrong = steward.import_records(study.slug, rows.assign(age="old"), **given)
    assert wrong["faults"] == 2 and wrong["problems"][0]["column"] == "age" and wrong["dataset"] is None
    done = steward.import_records(study.slug, rows, **given)
    assert done["state"] == "done" and done["dataset"] == study.datasets.get(name="more").pk
    scan, day = tmp_path / "a.pdf", timezone.localdate().isoformat()
    scan.write_bytes(b"%PDF-1.7")
    decisions = tmp_path / "list.csv"
    decisions.write_text(f"pseudonym,level,form_version,signed_on,evidence\nQ-1,LOW,1,{day},a.pdf\n")
    assert [steward.record_consents(study.slug, decisions, [scan], dry_run=dry) for dry in (True, False)] == [1, 1]
    newest = operator.study(study.slug).document["head_counts"]
    counts = operator.draw_head_counts(study.slug, follows=newest[0]["release"])
    assert set(counts["level"]) == {"HIGH", "AVERAGE", "LOW"} and (counts["sigma"] > 0).all()
    public = operator.draw_head_counts(study.slug, counts={"HIGH": 9, "AVERAGE": 8, "LOW": 7})
    assert sorted(public["count"]) == [7, 8, 9]


def test_a_refusal_says_what_is_wrong(study: Study, site: Site) -> None:
    with pytest.raises(ProblemError, match="learner: ") as caught:
        site.propose(**proposal(study, learner="oracle"))
    assert caught.value.status == 400 and caught.value.errors[0]["field"] == "choices.learner"
    with pytest.raises(ProblemError, match="no such run"):
        site.run("11111111-1111-4111-8111-111111111111")
    with pytest.raises(ValueError, match="IPATE_TOKEN"):
        Site("http://127.0.0.1:1")


def test_a_broken_connection_saves_no_second_draft(study: Study, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first response is lost."""
    request, lost = site._http.request, []

    def unlucky(*arguments: object, **more: object) -> httpx.Response:
        response = request(*arguments, **more)  # type: ignore[arg-type]
        if not lost:
            lost.append(response)
            raise httpx.ReadError("The connection broke.")
        return response

    monkeypatch.setattr(site._http, "request", unlucky)
    monkeypatch.setattr(ipate_client.connection.time, "sleep", lambda _seconds: None)
    run = site.propose(**proposal(study))
    assert lost[0].json()["id"] == run.id
    assert Run.objects.count() == 1


def test_it_waits_as_long_as_the_site_says(study: Study, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from rest_framework.throttling import UserRateThrottle

    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        monkeypatch.setattr(UserRateThrottle, "THROTTLE_RATES", {"user": "100/min"})

    monkeypatch.setattr(UserRateThrottle, "THROTTLE_RATES", {"user": "1/min"})
    monkeypatch.setattr(ipate_client.connection.time, "sleep", wait)
    site.studies()
    assert [each.slug for each in site.studies()] == ["ward"]
    assert len(waited) == 1 and 1 < waited[0] <= 61 * 1.25


def test_waiting_ends_with_the_run(study: Study, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_draft(study)
    with pytest.raises(TimeoutError, match="draft"):
        site.wait(str(run.pk), every=0.01, timeout=0.0, progress=False)

    def cancel() -> None:
        run_cancel(run=run, acting_user=user_create("olga"))
        connection.close()

    thread = Thread(target=cancel)
    thread.start()
    with pytest.raises(RunEndedError, match="An operator has cancelled the run"):
        site.wait(str(run.pk), every=0.05)
    thread.join()
    assert "cancelled: 100%" in capsys.readouterr().err
    failed = run_draft(study)
    Run.objects.filter(pk=failed.pk).update(status="failed", message="No label.", ended_at=timezone.now())
    with pytest.raises(RunEndedError, match=r"failed\. No label\."):
        site.wait(str(failed.pk), progress=False)
    Run.objects.filter(pk=failed.pk).update(status="finished", message="This run has no model.")
    with pytest.warns(UserWarning, match="has no model"):
        assert site.wait(str(failed.pk), progress=False).status_text == "finished, no model"


def test_labels_and_points(asking_run: Run, site: Site) -> None:
    labels = site.labels(str(asking_run.pk))
    assert labels.index.name == "row"
    assert list(labels.columns) == ["label", "count_healthy", "count_ill"]
    points = site.public_points(str(asking_run.pk))
    assert points.x is not None and points.counts is not None
    assert points.x.shape == (30, 3)
    assert [points.classes[label] for label in points.label] == labels["label"].tolist()
    assert (points.counts == labels[["count_healthy", "count_ill"]].to_numpy()).all()
    assert (points.row == labels.index).all()
    assert set(site.costs(str(asking_run.pk)).columns) >= {"name", "spent", "cap"}


@pytest.mark.exhaustive
def test_tables_and_synthetic_rows_are_data_frames(study: Study, site: Site) -> None:
    run = run_ask(
        run_like(study, COUNTS_RUN | {"choices": {"column": "age", "across": "smoker", "bins": 4}}, share=0.4)
    )
    cells = site.counts(str(run.pk))
    numbers = ["people", "low_95", "high_95", "weighted", "least_95", "most_95"]
    assert list(cells.columns) == ["age", "smoker", *numbers] and len(cells) == 8
    assert (cells["low_95"] < cells["people"]).all() and (cells["people"] < cells["high_95"]).all()
    drawn = site.counts_plot(str(run.pk))
    assert all(f'<text x="630" y="{47 + 34 * place}">' in drawn.svg for place in range(8))
    summaries = site.summaries(str(run.pk))
    assert summaries["group"].tolist() == ["no", "yes"] and (summaries["median_low"] <= summaries["median"]).all()
    rows = site.synthetic_rows(str(run_ask(run_like(study, SYNTHESIS_RUN)).pk))
    assert len(rows) == 200 and rows["age"].between(0, 120).all()
    assert list(rows["smoker"].cat.categories) == ["no", "yes"] and rows["age"].dtype == np.float64


def test_tables_have_the_types_of_the_schema() -> None:
    columns = [
        {"name": "ward", "role": "feature", "type": "categorical", "values": ["007", "01"]},
        {"name": "age", "role": "feature", "type": "numeric", "missing": ["?"]},
    ]
    read = pd.DataFrame({"ward": ["007", "01"], "age": ["1.5", "?"], "state": ["1", "0"]}, dtype=str)
    found = of_schema(read, {"columns": columns})
    assert found["ward"].tolist() == ["007", "01"] and found["state"].tolist() == ["1", "0"]
    assert found["age"].tolist()[0] == 1.5 and np.isnan(found["age"][1])


def test_local_predictions_equal_the_sites(run, site, tmp_path, monkeypatch) -> None:
    model = site.model(str(run.pk))
    model.save(tmp_path / "student.onnx")
    here = LocalModel.load(tmp_path / "student.onnx").predictions([YOUNG, OLD])
    there = site.predict(str(run.pk), pd.DataFrame([YOUNG, OLD] * 700))
    assert there.probabilities.shape == (1400, 2)
    assert (there.labels[:2] == here.labels).all()
    assert there.probabilities[:2] == pytest.approx(here.probabilities, abs=1e-6)
    assert list(here.frame().columns) == ["label", "healthy", "ill"]
    assert model.card["run"] == str(run.pk)
    assert site.card(str(run.pk), version=1)["files"][0]["format"] == "onnx"


BAD_ROWS: list[Any] = [
    [],
    [YOUNG, {**OLD, "age": "old"}],
    *([{**YOUNG, "age": age}] for age in (None, float("nan"), np.float32("inf"))),
    *([{**YOUNG, "smoker": smoker}] for smoker in ("maybe", None, np.str_("perhaps"))),
    [{**YOUNG, "weight": 70}],
    [{"age": 10}],
    [[10, "no"]],
    np.zeros((2, 3)),
    pd.DataFrame({"age": [1.0, np.nan], "smoker": ["no", "yes"]}),
    pd.DataFrame({"age": [1.0, 2.0], "smoker": ["no", pd.NA]}),
    pd.DataFrame({"age": [1.0], "smoker": ["no"], "extra": [1]}),
    pd.DataFrame([YOUNG] * 1100 + [{**YOUNG, "smoker": "maybe"}]),
]


def test_site_and_model_refuse_the_same_rows_with_the_same_words(run: Run, site: Site) -> None:
    model, pk = site.model(str(run.pk)), str(run.pk)
    for rows in BAD_ROWS:
        said = []
        for ask in (lambda rows: site.predict(pk, rows), model.predict):
            with pytest.raises(RowsError) as caught:
                ask(rows)
            said.append((str(caught.value), caught.value.errors, caught.value.row, caught.value.column))
        assert said[0] == said[1], rows
    good = [{"age": np.float32(10), "smoker": np.str_("no")}, {"age": np.int64(95), "smoker": "yes"}]
    arrays = np.array([[10, "no"], [95, "yes"]], object)
    for rows in (good, arrays, pd.DataFrame(good)):
        assert site.predict(pk, rows).probabilities == pytest.approx(model.predict_proba(rows), abs=1e-6)


def test_the_command(run, token, site, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("IPATE_SITE", str(site._http.base_url).removesuffix("/api/v1/"))
    monkeypatch.setenv("IPATE_TOKEN", token)
    assert main(["runs", "--study", "ward"]) == 0 and "finished" in capsys.readouterr().out
    assert main(["watch", str(run.pk)]) == 0 and "finished" in capsys.readouterr().out
    rows, model = tmp_path / "rows.csv", tmp_path / "student.onnx"
    rows.write_text("age,smoker\n10,no\n95,yes\n")
    site.model(str(run.pk)).save(model)
    ways = [str(run.pk)], ["--model", str(model)]
    said = [main(["predict", *way, str(rows)]) or capsys.readouterr().out for way in ways]
    assert said[0] == said[1] and said[0].startswith("label,healthy,ill,outside\n") and said[0].count("\n") == 3
    rows.write_text("age,smoker\nold,no\n")
    for which in ([str(run.pk)], ["--model", str(model)]):
        assert main(["predict", *which, str(rows)]) == 1 and "row 1, column age" in capsys.readouterr().err


def test_a_model_is_an_estimator_of_scikit_learn(run: Run, site: Site) -> None:
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model = site.model(str(run.pk))
    rows = pd.DataFrame([YOUNG, OLD, {"age": 20, "smoker": "yes"}])
    assert list(model.classes_) == ["healthy", "ill"]
    assert list(model.feature_names_in_) == ["age", "smoker"] and model.n_features_in_ == 2
    assert model.score(rows, model.predict(rows)) == 1.0 and is_classifier(model)
    for copy in (clone(model), pickle.loads(pickle.dumps(model))):
        assert type(copy) is type(model) and copy is not model
        np.testing.assert_array_equal(copy.predict_proba(rows), model.predict_proba(rows))
    renamed = FunctionTransformer(lambda frame: frame.rename(columns={"years": "age"}))
    pipeline = make_pipeline(renamed, model)
    assert (pipeline.predict(rows.rename(columns={"age": "years"})) == model.predict(rows)).all()
    scores = cross_val_score(model, rows, model.predict(rows), cv=KFold(3))
    assert scores.tolist() == [1.0] * 3 and "run" in repr(pipeline)


@pytest.mark.exhaustive
def test_it_can_be_installed_without_the_site(tmp_path: Path) -> None:
    """It is built from its folder, and imported without the rest of this project."""
    source, installed = tmp_path / "source", tmp_path / "installed"
    shutil.copytree(settings.BASE_DIR / "client", source)  # building leaves files behind
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*install, "--target", str(installed), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r}); import ipate_client; print(ipate_client.__file__); "
        "assert not {'django', 'training', 'ipate_web'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))
    assert (installed / "ipate_client" / "py.typed").exists()


ROWS = [{"age": float(age), "smoker": ("no", "yes")[age % 2]} for age in range(0, 100, 5)]
GROUPS = [{"level": "HIGH", "epsilon": 0.5}, {"level": "LOW", "epsilon": 2.0}]
CARD = {"run": "abc", "privacy": {"unit": "data holder", "delta": 1e-5, "method": "pate", "groups": GROUPS}}


@pytest.fixture(scope="module")
def model() -> LocalModel:
    from learning.exports.files import onnx_file

    schema = TabularSchema((NumericColumn("age", 0, 100), CategoricalColumn("smoker", ("no", "yes"))), ("a", "b"))
    x = schema.encode(ROWS)
    learned = learner_create("logistic_regression").fit(x, (x[:, 0] > 0.5).astype(int), classes=2, seed=1)
    return LocalModel.of(onnx_file(learned, schema, CARD | {"evaluation": {"accuracy": 0.9, "majority": None}}))


def test_a_folder_of_the_hub_states_the_privacy(model: LocalModel, tmp_path: Path) -> None:
    folder = model.to_hub_folder(tmp_path / "hub", licence="other", title="Hearts")
    _, metadata, text = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    found = yaml.safe_load(metadata)
    privacy = {"epsilon": 2.0, "delta": 1e-5, "unit": "data holder", "method": "pate", "groups": GROUPS, "note": ""}
    assert found["privacy"] == privacy
    assert (found["license"], found["pipeline_tag"]) == ("other", "tabular-classification")
    assert "| HIGH | 0.5 |" in text and "δ = 1e-05" in text
    np.testing.assert_array_equal(LocalModel.load(folder / "model.onnx").predict(ROWS), model.predict(ROWS))
    with pytest.raises(FileExistsError):
        model.to_hub_folder(folder, licence="other")


def test_skops_writes_the_estimator(model: LocalModel, tmp_path: Path) -> None:
    from skops.io import get_untrusted_types, load

    written, name = model.to_skops(tmp_path / "model.skops"), "ipate_client.local_model.LocalClassifier"
    assert get_untrusted_types(file=written) == [name]
    loaded = load(written, trusted=[name])
    np.testing.assert_array_equal(loaded.predict_proba(ROWS), model.predict_proba(ROWS))


@pytest.mark.exhaustive
def test_mlflow_and_the_hub_read_them(model: LocalModel, tmp_path: Path) -> None:
    """The libraries themselves are used, if they are installed."""
    mlflow, hub = pytest.importorskip("mlflow.pyfunc"), pytest.importorskip("huggingface_hub")
    loaded = mlflow.load_model(str(model.to_mlflow(tmp_path / "mlflow")))
    found = loaded.predict({name: np.array([row[name] for row in ROWS]) for name in ("age", "smoker")})
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(ROWS), atol=1e-9)
    assert loaded.metadata.metadata["privacy"]["groups"] == GROUPS
    card = hub.ModelCard.load(model.to_hub_folder(tmp_path / "hub", licence="other") / "README.md")
    assert card.data.library_name == "onnx" and card.data.eval_results[0].metric_value == 0.9


Handler = Callable[[httpx.Request], httpx.Response]


class Answers:
    """A site that gives these responses in turn: statuses with headers, contents, or a broken connection."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.requests = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(ipate_client.connection.time, "sleep", slept.append)
    return slept


def site_with(*answers: object) -> tuple[Site, Answers]:
    site, there = Site("https://ipate.example", "token"), Answers(*answers)
    site._http = httpx.Client(
        base_url=site._http.base_url, headers=site._http.headers, transport=httpx.MockTransport(there)
    )
    return site, there


def refused(status: int, **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=names, json={"detail": "Not now."})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_requests_are_repeated_after_the_requested_pause(status: int, slept: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    asked = (refused(status, Retry_After=pause) for pause in ("7", later, "0"))
    site, there = site_with(*asked, {"forecasts": []})
    assert site.plan(title="x") == {"forecasts": []} and len(there.requests) == 4
    assert 7 < slept[0] <= 7 * 1.25 and 50 < slept[1] <= 100 * 1.25 and 1 < slept[2] <= 1.25
    site, there = site_with(*[refused(status, Retry_After="999")] * 4)
    with pytest.raises(ProblemError, match="Not now"):
        site.study("ward")
    assert len(there.requests) == 1, "it does not wait for a quarter of an hour"


def test_only_repeatable_requests_are_sent_again(slept: list[float]) -> None:
    site, there = site_with(httpx.ReadError("broke"), refused(502), {"predictions": [], "classes": []} | PREDICTED)
    site.predict("run", [{"age": 1}])
    assert len(there.requests) == 3 and 1 < slept[0] <= 1.25 and 2 < slept[1] <= 2.5
    for answer in (refused(503), refused(502)):
        site, there = site_with(answer)
        with pytest.raises(ProblemError):
            site.cancel("run")
        assert len(there.requests) == 1
    site, there = site_with(httpx.ReadError("broke"))
    with pytest.raises(httpx.ReadError):
        site.remove_webhook("ward", 3)
    site, there = site_with(refused(503), RUN)
    site.propose(title="x")
    first, second = (request.headers["Idempotency-Key"] for request in there.requests)
    assert first == second and there.requests[0].headers["User-Agent"].startswith(f"ipate-client/{__version__} ")


PREDICTED = {"probabilities": [[1.0]], "predictions": ["a"], "classes": ["a"], "outside": [[]]}
RUN = {"id": "r", "study": "ward", "title": "x", "status": "draft"}


def test_a_redirect_is_an_error() -> None:
    site, _ = site_with(httpx.Response(301, headers={"Location": "https://ipate.example/api/v1/"}))
    with pytest.raises(ProblemError, match="/api/v1/, which the client does not follow"):
        site.remove_webhook("ward", 3)


def test_names_are_escaped_in_addresses() -> None:
    site, there = site_with({"groups": []})
    site.budget_groups("ward/../runs?x=1")
    assert there.requests[0].url.raw_path == b"/api/v1/studies/ward%2F..%2Fruns%3Fx%3D1/budget"
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="not a name or id"):
            site.study(name)


class Broken(httpx.SyncByteStream):
    """A response body whose end never arrives."""

    def __init__(self, part: bytes) -> None:
        self.part = part

    def __iter__(self) -> Iterator[bytes]:
        yield self.part
        raise httpx.ReadError("broke")


def test_a_broken_download_is_resumed(slept: list[float]) -> None:
    content = bytes(range(250))
    digest = {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"}
    headers = {"ETag": '"a"', **digest}
    begun = httpx.Response(200, headers=headers, stream=Broken(content[:100]))
    site, there = site_with(begun, refused(503), httpx.Response(206, headers=headers, content=content[100:]))
    assert site.model_file("run") == content
    assert there.requests[-1].headers["Range"] == "bytes=100-" and there.requests[-1].headers["If-Range"] == '"a"'
    changed = httpx.Response(200, headers=headers, content=content)
    site, there = site_with(httpx.Response(200, headers=headers, stream=Broken(content[:100])), changed)
    assert site.model_file("run") == content, "another file comes whole"
    site, _ = site_with(httpx.Response(200, headers=headers, content=content[:-1]))
    with pytest.raises(ValueError, match="does not match the site's digest"):
        site.model_file("run")


async def names_of(site: AsyncSite) -> list[str]:
    async with site:
        return [study.slug for study in await site.studies()]


def test_the_site_for_asyncio_is_the_same() -> None:
    document = {"slug": "ward", "title": "Ward", "delta": 1e-5, "rehearsal": False}
    site = AsyncSite("https://ipate.example", "token")
    site.site, _ = site_with({"results": [document], "next": None})
    with ThreadPoolExecutor(1) as pool:  # browser tests leave a running loop in the thread of all tests
        assert pool.submit(asyncio.run, names_of(site)).result() == ["ward"]


BARE = """
import sys
sys.modules |= dict.fromkeys(["pandas", "onnxruntime", "sklearn", "scipy", "mlflow", "onnx", "tokenizers", "tqdm"])
import httpx, ipate_client.command
from ipate_client import LocalModel, Plan, Site

answers = iter(ANSWERS)
site = Site("https://ipate.example", "token")
site._http = httpx.Client(
    base_url=site._http.base_url, transport=httpx.MockTransport(lambda _: httpx.Response(200, json=next(answers)))
)
assert site.study("ward").title == "Ward" and site.run("r").status == "draft" and site.budget_groups("ward") == []
predicted = site.predict("r", [{"age": 1}])
assert predicted.labels.tolist() == ["a"] and site.plan(study="ward")["outlook"] is None
tables = predicted.frame, lambda: site.budget("ward"), lambda: Plan(forecasts=[]).forecasts
for asked in (*tables, lambda: LocalModel.of(b"")):
    try:
        asked()
    except ImportError as error:
        print(error)
"""


def test_it_needs_only_httpx_and_numpy() -> None:
    """Without pandas and ONNX Runtime, the rest works, and errors name the missing extra."""
    study = {"slug": "ward", "title": "Ward", "delta": 1e-5, "rehearsal": False}
    answers = [study, RUN, {"groups": []}, PREDICTED | {"predictions": ["a"]}, {"outlook": None}, {"groups": []}]
    program = BARE.replace("ANSWERS", repr(answers))
    here = {"PYTHONPATH": str(Path(ipate_client.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tables, models = "Tables need pandas: pip install ipate-client[pandas]", "pip install ipate-client[models]"
    assert done.stdout.splitlines() == [*[tables] * 3, f"Models on this machine need onnxruntime: {models}"]
