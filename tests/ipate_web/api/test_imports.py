"""Data, decisions on paper and head counts over the API, in studies that ask people and in rehearsals."""

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from accounting.models import HeadCount
from accounting.shares import share_free
from consent.models import ConsentEvent, Role, RoleChange, Study
from consent.services import membership_add
from consent.services.accounts import administrator_set
from ipate_web.api import requests
from tests.factories import holder_create, user_create
from tests.ipate_web.api.conftest import SCHEMA, Client
from tests.ipate_web.api.test_runs import errors
from tests.reading import read_here  # noqa: F401
from training.models import Dataset, DatasetImport
from training.services.imports import _stored_note, import_work

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
    answer = begin(steward, TEXT.replace("50", "150").replace("\nben", "\n\nben"))
    assert (answer.status_code, answer.json()["state"], answer.json()["balance"]) == (202, "checking", [])
    address = f"/api/v1/studies/ward/imports/{answer.json()['id']}"
    assert steward.post(f"{address}/store").status_code == 409
    import_work(answer.json()["id"])
    checked = steward.get(address).json()
    assert (checked["state"], checked["rows"], checked["faults"], checked["dataset"]) == ("checked", 2, 0, None)
    assert not Dataset.objects.filter(name="more").exists()
    empty = [{"reason": "The row is empty.", "count": 1, "places": [3]}]
    assert checked["balance"] == [{"part": "rows", "seen": 3, "used": 2, "refused": 0, "left_out": empty}]
    assert checked["changed"] == [{"column": "age", "clipped": 1, "unknown": 0, "missing": 0}] and not checked["beyond"]
    assert steward.post(f"{address}/store").status_code == 202
    _stored_note(DatasetImport.objects.get(pk=answer.json()["id"]), 0.5)
    assert steward.get(address).json()["progress"] == 0.65
    import_work(answer.json()["id"])
    done = steward.get(address).json()
    stored = Dataset.objects.get(study=study, name="more")
    assert (done["state"], done["dataset"]) == ("done", stored.pk)
    assert (stored.rows, stored.imported_by.username) == (2, "stella")


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
    assert olga.post(address, {}, format="json").status_code == 409, "a draw names the counts that it follows"
    drawn = olga.post(address, {"follows": entered.json()[0]["release"]}, format="json")
    assert drawn.status_code == 200 and all(each["sigma"] > 0 for each in drawn.json())
    assert HeadCount.objects.count() > before
    free = share_free(study)
    assert olga.post(address, {}, format="json").status_code == 409 and share_free(study) == free


STUDIES = "/api/v1/studies"
DATASETS = f"{STUDIES}/dry-run/datasets"
STUDY = {
    "slug": "dry-run",
    "title": "Dry run",
    "purpose": "Compare variants on flowers.",
    "controller": "University Hospital",
    "contact": "study@example.org",
    "rehearsal": True,
}
FLOWERS = (
    '{"kind": "table", "classes": ["low", "high"], "columns": ['
    '{"name": "who", "role": "holder"}, {"name": "size", "role": "feature", "type": "numeric", "minimum": 0, '
    '"maximum": 1}, {"name": "kind", "role": "label"}]}'
)


def rows(count: int, *, holders: bool = True) -> SimpleUploadedFile:
    """Return a table whose rows are labelled "high" if their size is above 0.5, and "low" otherwise."""
    lines = ["who,size,kind"] if holders else ["size,kind"]
    for row in range(count):
        size = row / count
        cells = [f"{size}", "high" if size > 0.5 else "low"]
        lines.append(",".join([f"P-{row % 60}", *cells] if holders else cells))
    return SimpleUploadedFile("rows.csv", "\n".join(lines).encode())


@pytest.fixture
def ada(client: Client) -> Any:
    """Return an administrator of the installation, who has no role in any study."""
    administrator_set(user=user_create("ada"), appointed=True, acting_user=None)
    return client("ada")


@pytest.fixture
def rehearsal(ada: Any) -> Study:
    members = [{"username": user_create("ben").username, "role": "operator"}]
    assert ada.post(STUDIES, {**STUDY, "members": members}, format="json").status_code == 201
    return Study.objects.get(slug="dry-run")


def test_set_up_needs_an_administrator_and_an_approver(rehearsal: Study, ada: Any) -> None:
    roles = sorted(rehearsal.memberships.values_list("user__username", "role"))
    assert roles == [("ada", Role.OPERATOR), ("ada", Role.STEWARD), ("ben", Role.OPERATOR)]
    assert RoleChange.objects.filter(study=rehearsal, user__username="ben", changed_by__username="ada").exists()
    assert (rehearsal.rehearsal, rehearsal.delta) == (True, 1e-5)
    assert "slug" in errors(ada.post(STUDIES, STUDY, format="json")), "the name is already used"


def test_each_row_can_belong_to_its_own_person(rehearsal: Study, ada: Any) -> None:
    sent = {"name": "rows", "kind": "private", "schema": FLOWERS.replace('{"name": "who", "role": "holder"}, ', "")}
    sent |= {"file": rows(30, holders=False), "holder_prefix": "P"}
    assert ada.post(DATASETS, sent).status_code == 201
    private = rehearsal.datasets.get()
    assert (private.holders, private.imported_by) == (30, user_create("ada"))
    assert [each["rows"] for each in ada.get(f"{STUDIES}/dry-run").json()["datasets"]] == [None]
    assert errors(ada.post(DATASETS, {**sent, "kind": "public", "file": rows(3)})).keys() == {"holder_prefix"}


def test_a_wrong_file_or_field_is_named_and_nothing_is_stored(rehearsal, ada, monkeypatch) -> None:
    good = {"name": "rows", "kind": "private", "schema": FLOWERS}
    content = b"who,size,kind\nP-1,large,low\nP-2,0.5,middle\n,0.5,low\n"
    answer = ada.post(DATASETS, good | {"file": SimpleUploadedFile("rows.csv", content)})
    assert answer.status_code == 400
    document = [(error.get("row"), error.get("column")) for error in answer.json()["errors"]]
    assert document == [(2, "size"), (3, "kind"), (4, "who")]
    assert "/" not in answer.json()["detail"], "the path is the server's"
    for wrong in ({"schema": "{"}, {"schema": ""}, {"kind": "secret"}, {"name": ""}, {"file": "none"}, {"weight": 3}):
        answer = ada.post(DATASETS, {**good, "file": rows(10), **wrong})
        assert answer.status_code == 400 and wrong.keys() <= errors(answer).keys(), wrong
    del good["schema"]
    assert errors(ada.post(DATASETS, good | {"file": rows(10)})).keys() == {"schema"}, "there is no earlier one"
    monkeypatch.setattr(requests, "MAX_BYTES", 1000)
    assert ada.post(DATASETS, good | {"file": rows(100)}).status_code == 413
    assert not rehearsal.datasets.exists() and not rehearsal.holders.exists()


def test_only_administrators_set_up_rehearsals(tryout: Study, client: Client) -> None:
    for role in ("operator", "researcher", "stranger"):
        assert client(role).post(STUDIES, STUDY, format="json").status_code == 403
    assert not Study.objects.filter(slug="dry-run").exists()


def test_imports_for_rehearsals_are_refused_in_studies_of_people(study: Study, client: Client) -> None:
    sent = {"name": "more", "kind": "public", "file": SimpleUploadedFile("a.csv", b"age,smoker\n3,no\n")}
    assert client("steward").post(f"{STUDIES}/ward/datasets", sent).status_code == 409
    assert not study.datasets.filter(name="more").exists()
