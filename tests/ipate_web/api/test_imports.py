"""Data, decisions on paper and head counts of a study that asks people, over the API."""

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from accounting.models import HeadCount
from consent.models import ConsentEvent, Role, Study
from consent.services import membership_add
from ipate_web.tokens.models import ApiToken, Scope
from tests.factories import holder_create, user_create
from tests.ipate_web.api.conftest import SCHEMA, Client
from tests.ipate_web.api.test_runs import errors
from tests.reading import read_here  # noqa: F401
from training.models import Dataset, DatasetImport
from training.services.imports import import_work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("read_here")]

DOCUMENT = {
    "kind": "table",
    "columns": [
        {"name": "who", "role": "holder"},
        {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100},
        {"name": "smoker", "role": "feature", "type": "categorical", "values": ["no", "yes"]},
        {"name": "state", "role": "label"},
    ],
    "classes": ["healthy", "ill"],
}
TEXT = "who,age,smoker,state\nada,50,no,healthy\nben,70,yes,ill\n"


@pytest.fixture
def steward(study: Study, client: Client) -> Any:
    membership_add(study=study, user=user_create("stella"), role=Role.STEWARD, acting_user=None)
    return client("stella")


def begin(steward: Any, text: str = TEXT, **fields: Any) -> Any:
    sent = {"name": "more", "kind": "private", "schema": json.dumps(DOCUMENT), "known": "true", **fields}
    file = SimpleUploadedFile("rows.csv", text.encode())
    return steward.post("/api/v1/studies/ward/imports", {"file": file, **sent}, format="multipart")


def test_a_steward_uploads_looks_and_stores(study: Study, steward: Any) -> None:
    answer = begin(steward)
    assert (answer.status_code, answer.json()["state"]) == (202, "checking")
    address = f"/api/v1/studies/ward/imports/{answer.json()['id']}"
    assert steward.post(f"{address}/store").status_code == 409
    import_work(answer.json()["id"])
    checked = steward.get(address).json()
    assert (checked["state"], checked["rows"], checked["faults"], checked["dataset"]) == ("checked", 2, 0, None)
    assert not Dataset.objects.filter(name="more").exists()
    assert steward.post(f"{address}/store").status_code == 202
    import_work(answer.json()["id"])
    done = steward.get(address).json()
    stored = Dataset.objects.get(study=study, name="more")
    assert (done["state"], done["dataset"]) == ("done", stored.pk)
    assert (stored.rows, stored.imported_by.username) == (2, "stella")


def test_faults_of_rows_are_reported_and_nothing_is_stored(steward: Any, client: Client) -> None:
    begun = begin(steward, TEXT + "eve,old,no,ill\n").json()
    import_work(begun["id"])
    address = f"/api/v1/studies/ward/imports/{begun['id']}"
    found = steward.get(address).json()
    assert (found["faults"], found["problems"][0]["row"], found["problems"][0]["column"]) == (1, 4, "age")
    assert "no number" in found["problems"][0]["message"]
    program = client("stella")
    ApiToken.objects.update(scopes=[scope for scope in Scope.values if scope != Scope.RECORDS])
    assert program.get(address).status_code == 403, "errors tell of people"
    ApiToken.objects.update(scopes=[Scope.RECORDS])
    assert steward.post(f"{address}/store").status_code == 409
    assert steward.delete(address).status_code == 204
    assert steward.get(address).status_code == 404
    assert not DatasetImport.objects.exists()


def test_a_wrong_request_leaves_no_import(steward: Any) -> None:
    wrong = {"known": "false", "kind": "secret", "colour": "red"}
    for field, value in wrong.items():
        answer = begin(steward, **{field: value})
        assert answer.status_code == 400 and field in errors(answer), field
    assert begin(steward, schema=json.dumps({"kind": "table"})).status_code == 400
    assert not DatasetImport.objects.exists()


def test_a_schema_may_be_that_of_the_last_dataset(study: Study, steward: Any) -> None:
    sent = {"name": "more", "kind": "test", "file": SimpleUploadedFile("a.csv", b"age,smoker\n5,no\n")}
    begun = steward.post("/api/v1/studies/ward/imports", sent, format="multipart").json()
    assert DatasetImport.objects.get(pk=begun["id"]).schema["classes"] == list(SCHEMA.classes)


def paper(steward: Any, rows: str, **fields: Any) -> Any:
    head = "pseudonym,level,form_version,signed_on,evidence\n"
    files = {
        "list": SimpleUploadedFile("list.csv", (head + rows).encode()),
        "scans": [SimpleUploadedFile(name, b"%PDF-1.7") for name in ("a.pdf", "b.pdf")],
    }
    return steward.post("/api/v1/studies/ward/consents", {**files, **fields}, format="multipart")


def test_decisions_on_paper_are_recorded_all_or_none(study: Study, steward: Any) -> None:
    for name in ("Q-1", "Q-2"):
        holder_create(study, name)
    day, before = timezone.now().date().isoformat(), ConsentEvent.objects.count()
    rows = f"Q-1,LOW,1,{day},a.pdf\nQ-2,NONE,1,{day},b.pdf\n"
    wrong = paper(steward, rows + f"Q-3,LOW,1,{day},a.pdf\n")
    assert wrong.status_code == 400 and "Row 4" in errors(wrong)["list"]
    assert paper(steward, rows, dry_run="true").json() == {"decisions": 2, "recorded": False}
    assert ConsentEvent.objects.count() == before
    assert paper(steward, rows).json() == {"decisions": 2, "recorded": True}
    assert ConsentEvent.objects.count() == before + 2


def test_head_counts_are_drawn_and_entered(study: Study, client: Client) -> None:
    address, olga = "/api/v1/studies/ward/head-counts", client("operator")
    public = {"HIGH": 3, "AVERAGE": 2, "LOW": 1}
    entered = olga.post(address, {"counts": public}, format="json")
    assert entered.status_code == 200
    assert {each["level"]: each["count"] for each in entered.json()} == public
    for wrong in ({"HIGH": 3}, public | {"HIGH": 2**40}, public | {"HIGH": 2**70}):
        assert olga.post(address, {"counts": wrong}, format="json").status_code == 400
    before = HeadCount.objects.count()
    drawn = olga.post(address, {}, format="json")
    assert drawn.status_code == 200 and all(each["sigma"] > 0 for each in drawn.json())
    assert HeadCount.objects.count() > before
