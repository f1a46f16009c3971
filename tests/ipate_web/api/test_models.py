"""Student models over the API: cards, files, predictions, and further versions of one."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import jwt
import numpy as np
import pytest
from ipate_client import LocalModel
from rest_framework.test import APIClient

from accounting.models import Release
from learning.calibration import Calibration
from learning.published import published_load
from tests import factories
from tests.ipate_web.api.conftest import SCHEMA, Client
from tests.pages import study_with_finished_run
from training.models import Run, StudentModel
from training.services.trainings import student_learn

pytestmark = pytest.mark.django_db

MODELS = "/api/v1/models"
YOUNG, OLD = {"age": 10, "smoker": "no"}, {"age": 95, "smoker": "yes"}


def test_the_list_and_the_card(run: Run, client: Client, django_assert_num_queries: Any) -> None:
    researcher = client("researcher")
    with django_assert_num_queries(4):
        page = researcher.get(MODELS).json()
    assert [model["id"] for model in page["results"]] == [str(run.pk)]
    assert researcher.get(MODELS, {"study": "elsewhere"}).json()["count"] == 0
    document = researcher.get(f"{MODELS}/{run.pk}").json()
    assert document["card"]["run"] == str(run.pk)
    assert [column["name"] for column in document["schema"]["columns"]] == ["age", "smoker"]


def test_the_file_comes_with_its_digest(run: Run, client: Client) -> None:
    researcher = client("researcher")
    response = researcher.get(f"{MODELS}/{run.pk}/file")
    digest = hashlib.sha256(response.content).digest()
    assert response["Repr-Digest"] == f"sha-256=:{base64.b64encode(digest).decode()}:"
    assert f'filename="ward-{run.pk}-v1.skops"' in response["Content-Disposition"]
    again = researcher.get(f"{MODELS}/{run.pk}/file", headers={"If-None-Match": response["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_every_file_predicts_the_same(run: Run, client: Client) -> None:
    """Version 1 as if it were from before there was ONNX: it gets its file when it is asked for."""
    StudentModel.objects.filter(run=run).update(onnx="", onnx_digest="")
    researcher = client("researcher")
    served = researcher.post(f"{MODELS}/{run.pk}/predict", {"rows": [YOUNG, OLD]}, format="json").json()
    assert served["classes"] == ["healthy", "ill"]
    assert served["predictions"] == [served["classes"][np.argmax(each)] for each in served["probabilities"]]
    files = {file["format"]: file for file in researcher.get(f"{MODELS}/{run.pk}").json()["files"]}
    assert set(files) == {"onnx", "skops"} and files["onnx"]["sha256"] is None
    for name, file in files.items():
        response = researcher.get(file["address"])
        digest = hashlib.sha256(response.content).hexdigest()
        answer = {each["format"]: each for each in researcher.get(f"{MODELS}/{run.pk}").json()["files"]}[name]
        assert answer["sha256"] == digest and response["ETag"] == f'"{digest}"'
        if name == "onnx":
            found = LocalModel(response.content).predict([YOUNG, OLD]).probabilities
        else:
            model = published_load(run.student_learner, response.content)
            calibration = Calibration.from_json(run.student.calibration)
            found = calibration.applied(model.predict_proba(SCHEMA.encode([YOUNG, OLD])))
        assert found == pytest.approx(np.array(served["probabilities"]), abs=1e-6)
    takes = Release.objects.filter(run=run.pk, kind=Release.Kind.DOWNLOAD, content__what="model")
    version = run.students.get()
    assert {take.content["digest"] for take in takes} == {version.digest, version.onnx_digest}


def test_a_signed_statement_names_the_files_and_the_card(run: Run, client: Client) -> None:
    researcher = client("researcher")
    document = researcher.get(f"{MODELS}/{run.pk}").json()
    [key] = client("").get("/api/v1/keys").json()["keys"]
    statement = researcher.get(f"{MODELS}/{run.pk}/statement").json()["statement"]
    entries = jwt.decode(statement, jwt.PyJWK.from_dict(key).key, algorithms=["EdDSA"])
    assert (entries["model"], entries["version"], entries["study"]) == (str(run.pk), 1, "ward")
    assert entries["card"] == document["card"]
    for file in entries["files"]:
        address = next(each["address"] for each in document["files"] if each["format"] == file["format"])
        assert hashlib.sha256(researcher.get(address).content).hexdigest() == file["sha256"]
    assert researcher.get(f"{MODELS}/{run.pk}/statement").json()["statement"] == statement


def test_a_bad_row_is_named(run: Run, client: Client) -> None:
    bad: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"rows": [YOUNG, {**OLD, "smoker": "maybe"}]}, {"row": 2, "column": "smoker"}, "maybe"),
        ({"rows": [{**YOUNG, "age": 10**400}]}, {"row": 1, "column": "age"}, "too large"),
        ({"rows": [3]}, {"row": 1}, "no object"),
        ({"rows": []}, {"field": "rows"}, "at least 1"),
        ({"rows": [YOUNG] * 1001}, {"field": "rows"}, "no more than 1000"),
        ({"row": [YOUNG]}, {"field": "row"}, "There is no such field"),
    ]
    researcher = client("researcher")
    for question, place, words in bad:
        response = researcher.post(f"{MODELS}/{run.pk}/predict", question, format="json")
        error = response.json()["errors"][0]
        assert response.status_code == 400 and words in error.pop("message")
        assert error == place


BOOSTED = {"student_learner": "boosting", "student_parameters": {"iterations": 2, "leaf": 1}}


@pytest.fixture
def other() -> Run:
    return study_with_finished_run().runs.get()


@pytest.fixture
def ask(other: Run) -> Callable[..., Any]:
    def send(person: str, path: str = "", data: Any = None, method: str = "post") -> Any:
        client = APIClient()
        client.force_authenticate(factories.user_create(person))
        return getattr(client, method)(f"/api/v1/runs/{other.pk}/students{path}", data, format="json")

    return send


def test_a_researcher_trains_another_version_and_an_operator_publishes_it(other: Run, ask: Callable[..., Any]) -> None:
    answer = ask("researcher", data=BOOSTED)
    assert answer.status_code == 202
    assert answer.json()["training"]["learner"] == "boosting"
    assert ask("researcher", data=BOOSTED).status_code == 409, "one at a time"
    assert ask("researcher", data={**BOOSTED, "seed": 3}).status_code == 400
    for training in other.trainings.all():
        student_learn(training.pk)
    document = ask("researcher", method="get").json()
    assert document["training"] is None
    first, second = document["versions"]
    assert (first["published"], second["published"]) == (True, False)
    assert (second["parameters"], second["requested_by"]) == (BOOSTED["student_parameters"], "researcher")
    assert first["score"] is not None and first["reference"]["accuracy"] <= 1
    low, high = second["evaluation"]["interval"]
    assert low <= second["evaluation"]["accuracy"] <= high

    client, address = APIClient(), f"/api/v1/models/{other.pk}"
    client.force_authenticate(factories.user_create("researcher"))
    assert [client.get(address, page).json()["version"] for page in ({}, {"version": 2})] == [1, 2]
    names = [client.get(f"{address}/file", {"version": number}).headers["Content-Disposition"] for number in (1, 2)]
    assert [name.rpartition("-")[2] for name in names] == ['v1.skops"', 'v2.skops"']
    rows = {"rows": [{"length": 0.1, "width": 0.5}]}
    assert client.post(f"{address}/predict?version=2", rows, format="json").status_code == 200
    assert [client.get(address, {"version": wrong}).status_code for wrong in (3, "second")] == [404, 400]
    assert len(client.get("/api/v1/models").json()["results"]) == 1, "a run has one model, the published one"

    assert ask("researcher", "/2/publish").status_code == 403
    assert ask("operator", "/3/publish").status_code == 404
    assert [each["published"] for each in ask("operator", "/2/publish").json()["versions"]] == [False, True]


def test_an_operator_withdraws_a_version_for_good(other: Run, ask: Callable[..., Any]) -> None:
    reason = {"reason": "It misreads the widths."}
    assert ask("researcher", "/1/withdraw", reason).status_code == 403
    assert ask("operator", "/2/withdraw", reason).status_code == 404
    for wrong in ({}, {"reason": " "}, {"reason": "x" * 501}, {"why": "a slip"}):
        assert ask("operator", "/1/withdraw", wrong).status_code == 400
    assert not Release.objects.filter(kind=Release.Kind.WITHDRAWAL).exists(), "what is refused changes nothing"
    (version,) = ask("operator", "/1/withdraw", reason).json()["versions"]
    assert version["withdrawal_reason"] == reason["reason"] and version["withdrawn_at"]
    assert Release.objects.get(kind=Release.Kind.WITHDRAWAL).content["version"] == 1
    client = APIClient()
    client.force_authenticate(factories.user_create("researcher"))
    gone = client.get(f"/api/v1/models/{other.pk}/file")
    assert (gone.status_code, reason["reason"] in gone.json()["detail"]) == (410, True)
    assert ask("operator", "/1/withdraw", reason).status_code == 409
    assert Release.objects.filter(kind=Release.Kind.WITHDRAWAL).count() == 1
