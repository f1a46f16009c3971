"""Pages on which a data steward imports a dataset."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings as django_settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.urls import reverse

from common.artifacts import arrays_load
from consent.models import DataHolder, Role, Study
from consent.services import membership_add
from tests.factories import steward_add, study_create, user_create
from tests.pages import as_
from training.models import Dataset, DatasetImport
from training.services.imports import import_work

pytestmark = pytest.mark.django_db

FOLDERS = (django_settings.PRIVATE_DIR / "datasets", django_settings.PRIVATE_DIR / "imports")
CSV = "who,age,sex,back\nada,50,f,no\nben,25,m,yes\nada,75,f,yes\n"


@pytest.fixture
def study() -> Study:
    return steward_add(study_create("ward"))


@pytest.fixture(autouse=True)
def _no_files() -> None:
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)


def commit() -> None:
    """Do what waits for the test's transaction to commit."""
    while connection.run_on_commit:
        connection.run_on_commit.pop(0)[1]()


@pytest.fixture
def client(study: Study) -> Client:
    return as_("sven")


def work(begun: DatasetImport) -> None:
    """Do a worker's part."""
    commit()
    import_work(str(begun.pk))


def files() -> set[Path]:
    """Files in private storage that hold rows of somebody."""
    commit()
    return {path for folder in FOLDERS for path in folder.rglob("*") if path.is_file()}


def upload(client: Client, content: bytes | str = CSV, name: str = "rows.csv", **fields: Any) -> Any:
    raw = content.encode() if isinstance(content, str) else content
    data = {"name": "patients", "kind": "private", "schema_from": "draft", **fields}
    return client.post("/studies/ward/datasets/import/", {"file": SimpleUploadedFile(name, raw), **data})


def declared(client: Client, begun: DatasetImport, **changes: Any) -> dict[str, Any]:
    """Fields that the page's form sends, with what somebody changes in it."""
    page = client.get(reverse("staff:import", args=["ward", begun.pk]))
    forms = page.context["forms"]
    sent: dict[str, Any] = {"known": "on"}
    for form in (forms.form, *(forms.columns or ())):
        for field in form:
            if field.value() is not None and field.value() is not False and field.value() != "":
                sent.setdefault(field.html_name, field.value())
    if forms.columns is not None:
        sent |= {f"columns-{name}": len(forms.columns) for name in ("TOTAL_FORMS", "INITIAL_FORMS")}
    return {name: value for name, value in (sent | changes).items() if value is not None}


def test_a_file_is_uploaded_declared_checked_and_imported(client: Client, study: Study) -> None:
    begun_at = upload(client)
    begun = DatasetImport.objects.get()
    assert begun_at.headers["Location"] == reverse("staff:import", args=["ward", begun.pk])
    assert begun.schema["columns"] == [
        {"name": "who", "role": "holder"},
        {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100, "missing": []},
        {"name": "sex", "role": "feature", "type": "categorical", "values": ["f", "m"], "missing": [], "other": False},
        {"name": "back", "role": "label", "labels": {}},
    ]
    url = begun_at.headers["Location"]
    assert client.post(url, declared(client, begun)).status_code == 302
    assert "being checked" in client.get(url).content.decode()
    work(begun)
    page = client.get(url).content.decode()
    assert "3 rows were checked, and none has an error" in page
    assert "belong to 2 people" in page
    assert not Dataset.objects.exists()
    assert not DataHolder.objects.exists()
    client.post(f"{url}store/")
    work(begun)
    dataset = Dataset.objects.get(study=study, name="patients")
    assert arrays_load(dataset.artifact)["x"].tolist() == [[0.5, 1, 0], [0.25, 0, 1], [0.75, 1, 0]]
    assert (dataset.rows, dataset.holders, dataset.imported_by.username) == (3, 2, "sven")
    assert "3 rows are imported" in client.get(url).content.decode()
    assert [path.name for path in files()] == [f"{begun.pk}.npz"]


def test_all_errors_are_on_the_page_and_in_a_file(client: Client, study: Study) -> None:
    lines = "".join(f"p{number},x{number},f,no\n" for number in range(60))
    upload(client, CSV + lines + "=cmd,1,d,maybe\n")
    begun = DatasetImport.objects.get()
    url = reverse("staff:import", args=["ward", begun.pk])
    client.post(
        url,
        declared(
            client,
            begun,
            **{
                "columns-1-use": "numeric",
                "columns-1-minimum": 0,
                "columns-1-maximum": 50,
                "columns-2-values": "f\nm",
                "classes": "no\nyes",
            },
        ),
    )
    work(begun)
    page = client.get(url).content.decode()
    assert "63 errors: nothing is imported" in page
    assert "“x0” is no number." in page
    assert "And 13 more." in page
    told = client.get(f"{url}errors.csv").content.decode("utf-8-sig").splitlines()
    assert len(told) == 64
    assert "rows.csv,5,age,“x0” is no number." in told[1]
    assert "65,who" in told[-1] or "65,who" in told[-2] or "65,who" in told[-3]
    client.post(f"{url}store/")
    work(begun)
    assert not Dataset.objects.exists()
    assert not DataHolder.objects.exists()


def test_clipped_and_other_values_are_named(client: Client, study: Study) -> None:
    upload(client)
    begun = DatasetImport.objects.get()
    url = reverse("staff:import", args=["ward", begun.pk])
    client.post(
        url, declared(client, begun, **{"columns-1-maximum": 60, "columns-2-values": "f", "columns-2-other": "on"})
    )
    work(begun)
    assert client.get(url).context["notes"] == [("age", 1, 0, 0), ("sex", 0, 1, 0)]
    assert "outside their range" in client.get(url).content.decode()


def test_holders_with_too_many_rows_are_named_to_stewards_alone(client: Client, study: Study, settings: Any) -> None:
    settings.MOST_RECORDS = 1
    membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
    upload(client)
    begun = DatasetImport.objects.get()
    url = reverse("staff:import", args=["ward", begun.pk])
    client.post(url, declared(client, begun))
    work(begun)
    page = client.get(url)
    assert page.context["report"]["beyond"] == [["ada", 2]]
    assert "People with more rows than count" in page.content.decode()
    assert as_("otto").get(url).status_code in (403, 404), "an operator, who decides about runs"
    client.post(f"{url}store/")
    work(begun)
    dataset = Dataset.objects.get(study=study, name="patients")
    assert (dataset.rows, dataset.holders, dataset.most_records) == (2, 2, 1)
    assert arrays_load(dataset.artifact)["x"].tolist() == [[0.5, 1, 0], [0.25, 0, 1]]
    shown = as_("otto").get(reverse("staff:dataset", args=["ward", dataset.pk])).content.decode()
    assert "at most 1 count" in shown and "ada" not in shown


def test_everything_wrong_with_a_schema_is_told_at_once(client: Client, study: Study) -> None:
    upload(client)
    begun = DatasetImport.objects.get()
    url = reverse("staff:import", args=["ward", begun.pk])
    changes = {"columns-1-minimum": 9, "columns-1-maximum": 3, "columns-2-values": None, "known": None}
    page = client.post(url, declared(client, begun, **changes))
    assert page.status_code == 422
    assert "taken from these rows" in page.content.decode()
    page = client.post(url, declared(client, begun, **{**changes, "known": "on"})).content.decode()
    assert "age: The declared range is 9 to 3." in page
    assert "sex: The declared values are empty" in page
    begun.refresh_from_db()
    assert begun.state == "draft"


def test_what_is_dropped_leaves_nothing(client: Client, study: Study) -> None:
    upload(client)
    begun = DatasetImport.objects.get()
    assert files()
    assert client.get(reverse("staff:import_drop", args=["ward", begun.pk])).status_code == 200
    client.post(reverse("staff:import_drop", args=["ward", begun.pk]))
    assert not DatasetImport.objects.exists()
    assert not files()


@pytest.mark.parametrize(
    ("content", "name", "fields", "told"),
    [
        ("", "rows.csv", {}, "The submitted file is empty."),
        ("one\ntwo\n", "rows.csv", {}, "The file has one column"),
        (b"PK\x03\x04junk", "rows.zip", {}, "damaged or cut off"),
        (CSV, "rows.csv", {"kind": "public", "holder_prefix": "P"}, "Only private rows belong to anybody"),
        (CSV, "rows.csv", {"schema_file": SimpleUploadedFile("s.json", b"{")}, "This is no JSON"),
        (CSV, "rows.csv", {"schema_file": SimpleUploadedFile("s.json", b"{}")}, "neither “kind”"),
    ],
)
def test_an_upload_that_cannot_be_used_is_refused_and_not_kept(
    client: Client, study: Study, content: Any, name: str, fields: dict[str, Any], told: str
) -> None:
    page = upload(client, content, name, **fields)
    assert page.status_code == 422
    assert told in page.content.decode()
    assert not DatasetImport.objects.exists()
    assert not files()


def test_images_are_drafted_and_shown(client: Client, study: Study) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.full((3, 4, 4), 7, np.uint8), y=np.array([0, 1, 9]), holder=np.array(["a", "b", "c"]))
    upload(client, buffer.getvalue(), "digits.npz")
    begun = DatasetImport.objects.get()
    assert (begun.schema["kind"], begun.schema["height"]) == ("image", 4)
    url = reverse("staff:import", args=["ward", begun.pk])
    client.post(url, declared(client, begun))
    work(begun)
    assert "data:image/png;base64," in client.get(url).content.decode()


def test_a_schema_comes_from_a_file_or_from_another_dataset(client: Client, study: Study) -> None:
    document = {
        "kind": "table",
        "columns": [
            {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 120},
            {"name": "back", "role": "label"},
        ],
        "classes": ["no", "yes"],
    }
    schema_file = SimpleUploadedFile("schema.json", json.dumps(document).encode())
    upload(client, "age,back\n5,no\n", kind="test", schema_file=schema_file)
    begun = DatasetImport.objects.get()
    assert begun.schema == document
    client.post(reverse("staff:import", args=["ward", begun.pk]), declared(client, begun))
    work(begun)
    client.post(reverse("staff:import_store", args=["ward", begun.pk]))
    work(begun)
    known = Dataset.objects.get()
    upload(client, "age,back\n7,yes\n", name="more.csv", kind="test", schema_from=str(known.pk))
    # The form's own name is taken.
    assert DatasetImport.objects.filter(state="draft").count() == 0
