"""Rehearsal studies over the API: set up by an administrator, filled with data, used by two people."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from consent.models import Role, RoleChange, Study
from consent.services.accounts import administrator_set
from ipate_web.api import parsing
from tests.factories import user_create
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_runs import errors, proposal
from tests.training.runs import run_finish
from training.models import Dataset, Run

pytestmark = pytest.mark.django_db

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
SCHEMA = (
    '{"kind": "table", "classes": ["low", "high"], "columns": ['
    '{"name": "who", "role": "holder"}, {"name": "size", "role": "feature", "type": "numeric", "minimum": 0, '
    '"maximum": 1}, {"name": "kind", "role": "label"}]}'
)


def rows(count: int, *, holders: bool = True) -> SimpleUploadedFile:
    """A table in which large things are of the class high."""
    lines = ["who,size,kind"] if holders else ["size,kind"]
    for row in range(count):
        size = row / count
        cells = [f"{size}", "high" if size > 0.5 else "low"]
        lines.append(",".join([f"P-{row % 60}", *cells] if holders else cells))
    return SimpleUploadedFile("rows.csv", "\n".join(lines).encode())


@pytest.fixture
def ada(client: Client) -> Any:
    """An administrator of the installation, who has no role in any study."""
    administrator_set(user=user_create("ada"), appointed=True, acting_user=None)
    return client("ada")


@pytest.fixture
def rehearsal(ada: Any) -> Study:
    members = [{"username": user_create("ben").username, "role": "operator"}]
    assert ada.post(STUDIES, {**STUDY, "members": members}, format="json").status_code == 201
    return Study.objects.get(slug="dry-run")


def datasets_send(client: Any) -> None:
    for kind, content in (
        ("private", rows(200)),
        ("public", rows(40, holders=False)),
        ("test", rows(20, holders=False)),
    ):
        sent = {"name": f"{kind} rows", "kind": kind, "file": content}
        answer = client.post(DATASETS, sent | ({"schema": SCHEMA} if kind == "private" else {}))
        assert answer.status_code == 201, answer.content


def test_set_up_needs_an_administrator_and_an_approver(rehearsal: Study, ada: Any) -> None:
    roles = sorted(rehearsal.memberships.values_list("user__username", "role"))
    assert roles == [("ada", Role.OPERATOR), ("ada", Role.STEWARD), ("ben", Role.OPERATOR)]
    assert RoleChange.objects.filter(study=rehearsal, user__username="ben", changed_by__username="ada").exists()
    assert (rehearsal.rehearsal, rehearsal.delta) == (True, 1e-5)
    assert "slug" in errors(ada.post(STUDIES, STUDY, format="json")), "there is one of that name"


@pytest.mark.slow
def test_one_person_sends_data_and_proposes_and_the_other_approves(rehearsal: Study, ada: Any, client: Client) -> None:
    datasets_send(ada)
    answer = {each["kind"]: each for each in ada.get(f"{STUDIES}/dry-run").json()["datasets"]}
    assert {kind: each["rows"] for kind, each in answer.items()} == {"private": None, "public": 40, "test": 20}
    private = Dataset.objects.get(study=rehearsal, kind="private")
    assert (private.rows, private.holders, private.imported_by) == (200, 60, user_create("ada"))
    body = proposal(rehearsal, aggregator={"name": "gnmax", "sigma": 3.0}, learner="nearest_neighbour")
    rehearsed = {"levels": {"LOW": {"share": 1, "epsilon": 8}}, "method": "data_dependent", "conversion": "improved"}
    body |= {"seed": 5, "variant": "standard", "rehearsed": rehearsed}
    proposed = ada.post("/api/v1/runs", body, format="json").json()
    assert (proposed["status"], proposed["rehearsal"]) == ("draft", True)
    address = f"/api/v1/runs/{proposed['id']}"
    assert ada.post(f"{address}/approve").status_code == 403
    assert client("ben").post(f"{address}/approve").json()["status"] == "approved"
    run_finish(Run.objects.get(pk=proposed["id"]))
    read = ada.get(address).json()
    assert (read["status"], read["seed"]) == ("finished", 5)
    assert read["labels"] > 0
    assert ada.get(f"{address}/costs").json()["groups"] == []
    assert ada.get(f"{address}/labels").json()["count"] == read["labels"]


@pytest.mark.slow
def test_each_row_can_belong_to_its_own_person(rehearsal: Study, ada: Any) -> None:
    sent = {"name": "rows", "kind": "private", "schema": SCHEMA.replace('{"name": "who", "role": "holder"}, ', "")}
    sent |= {"file": rows(30, holders=False), "holder_prefix": "P"}
    assert ada.post(DATASETS, sent).status_code == 201
    assert rehearsal.datasets.get().holders == 30
    assert errors(ada.post(DATASETS, {**sent, "kind": "public", "file": rows(3)})).keys() == {"holder_prefix"}


@pytest.mark.slow
def test_a_wrong_file_or_field_is_named_and_nothing_is_stored(
    rehearsal: Study, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"name": "rows", "kind": "private", "schema": SCHEMA}
    content = b"who,size,kind\nP-1,large,low\nP-2,0.5,middle\n,0.5,low\n"
    answer = ada.post(DATASETS, good | {"file": SimpleUploadedFile("rows.csv", content)})
    assert answer.status_code == 400
    document = [(error.get("row"), error.get("column")) for error in answer.json()["errors"]]
    assert document == [(2, "size"), (3, "kind"), (4, "who")]
    assert "/" not in answer.json()["detail"], "the path is the server's"
    for wrong in (
        {"schema": "{"},
        {"schema": ""},
        {"kind": "secret"},
        {"name": ""},
        {"file": "no file"},
        {"weight": 3},
    ):
        answer = ada.post(DATASETS, {**good, "file": rows(10), **wrong})
        assert answer.status_code == 400 and wrong.keys() <= errors(answer).keys(), wrong
    del good["schema"]
    assert errors(ada.post(DATASETS, good | {"file": rows(10)})).keys() == {"schema"}, "there is no earlier one"
    monkeypatch.setattr(parsing, "MAX_BYTES", 1000)
    assert ada.post(DATASETS, good | {"file": rows(100)}).status_code == 413
    assert not rehearsal.datasets.exists() and not rehearsal.holders.exists()


def test_a_study_that_cannot_be_is_not_set_up(ada: Any) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        *(({"rehearsal": value}, "rehearsal") for value in (False, "true")),
        *(({"slug": value}, "slug") for value in ("new", "a b", 0)),
        ({"contact": "nobody"}, "contact"),
        ({"delta": 0.5}, "delta"),
        ({"jurisdiction": "Germany"}, "jurisdiction"),
        ({"members": [{"username": "nobody", "role": "operator"}]}, "members.0.username"),
        ({"members": [{"username": "ada", "role": "chair"}]}, "members.0.role"),
    ]
    for change, field in wrong:
        answer = ada.post(STUDIES, {**STUDY, **change}, format="json")
        assert answer.status_code == 400 and field in errors(answer), change
    assert not Study.objects.exists()


def test_only_administrators_set_up_rehearsals(tryout: Study, client: Client) -> None:
    for role in ("operator", "researcher", "stranger"):
        assert client(role).post(STUDIES, STUDY, format="json").status_code == 403
    assert not Study.objects.filter(slug="dry-run").exists()


def test_records_of_people_do_not_come_this_way(study: Study, client: Client) -> None:
    sent = {"name": "more", "kind": "public", "file": SimpleUploadedFile("a.csv", b"age,smoker\n3,no\n")}
    assert client("steward").post(f"{STUDIES}/ward/datasets", sent).status_code == 409
    assert not study.datasets.filter(name="more").exists()
