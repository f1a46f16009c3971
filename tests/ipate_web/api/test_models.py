"""Student models over the API: cards, files, predictions and further versions."""

import base64
import hashlib
from typing import Any

import jwt
import numpy as np
import pytest
from ipate_client import LocalModel

from accounting.models import Release
from learning.calibration import Calibration
from learning.published import published_load
from tests.ipate_web.api.conftest import SCHEMA, Client
from training.models import Run, StudentModel

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
    """Version 1 has no ONNX file, as in early versions of iPATE, and gets one when it is requested."""
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
            found = LocalModel.of(response.content).predictions([YOUNG, OLD]).probabilities
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
