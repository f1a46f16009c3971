"""Pages on which a data steward imports a dataset."""

import csv
import io
import re
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from consent.models import DataHolder, Role, Study
from consent.services import holders_register, membership_add
from tests.factories import members_add, study_create, user_create
from tests.pages import as_, text
from tests.reading import FOLDERS, commit, no_files, read_here  # noqa: F401
from tests.snapshots import built_once
from training.engine.records import records_load
from training.models import Dataset, DatasetImport
from training.services.imports import import_work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_files", "read_here")]

CSV = "who,age,sex,back\nada,50,f,no\nben,25,m,yes\nada,75,f,yes\n"
TYPED = {"columns-1-minimum": 0, "columns-1-maximum": 100, "columns-2-values": "f\nm", "classes": "no\nyes"}
"""The steward's declaration of these rows; for private rows, nothing is drafted from values."""


@pytest.fixture
@built_once
def study() -> Study:
    return members_add(study_create("ward"), sven="steward")


@pytest.fixture
def client(study: Study) -> Client:
    return as_("sven")


def work(begun: DatasetImport) -> None:
    """Do a worker's part."""
    commit()
    import_work(str(begun.pk))


def files() -> set[Path]:
    """Return files in private storage that contain someone's rows."""
    commit()
    return {path for folder in FOLDERS for path in folder.rglob("*") if path.is_file()}


def upload(client: Client, content: bytes | str = CSV, name: str = "rows.csv", **fields: Any) -> Any:
    raw = content.encode() if isinstance(content, str) else content
    data = {"name": "patients", "kind": "private", "schema_from": "draft", **fields}
    return client.post("/studies/ward/datasets/import/", {"file": SimpleUploadedFile(name, raw), **data})


def declared(client: Client, begun: DatasetImport, **changes: Any) -> dict[str, Any]:
    """Return the fields that the page's form sends, with changes."""
    page = client.get(reverse("staff:import", args=["ward", begun.pk]))
    forms = page.context["forms"]
    sent: dict[str, Any] = {"known": "on"}
    for form in (forms.form, *([forms.target] if forms.target else []), *(forms.columns or ())):
        for field in form:
            if field.value() is not None and field.value() is not False and field.value() != "":
                sent.setdefault(field.html_name, field.value())
    if forms.columns is not None:
        sent |= {f"columns-{name}": len(forms.columns) for name in ("TOTAL_FORMS", "INITIAL_FORMS")}
    return {name: value for name, value in (sent | changes).items() if value is not None}


def begin(client: Client, content: bytes | str = CSV, name: str = "rows.csv", **fields: Any) -> Any:
    """Upload a file; return the address of the page that declares it, and the import."""
    url = upload(client, content, name, **fields).headers["Location"]
    return url, DatasetImport.objects.get(pk=url.strip("/").rpartition("/")[2])


def check(client: Client, url: str, begun: DatasetImport, **changes: Any) -> str:
    """Submit the drafted declaration with ``changes``, check the rows, and return the page with the results."""
    assert client.post(url, declared(client, begun, **changes)).status_code == 302
    work(begun)
    begun.refresh_from_db()
    return client.get(url).text


def store(client: Client, url: str, begun: DatasetImport) -> Dataset | None:
    """Import the rows that were checked."""
    client.post(f"{url}store/")
    work(begun)
    return Dataset.objects.filter(study=begun.study, name=begun.name).first()


def test_a_file_is_uploaded_declared_checked_and_imported(client: Client, study: Study) -> None:
    url, begun = begin(client)
    assert begun.schema["columns"] == [
        {"name": "who", "role": "holder"},
        {"name": "age", "role": "feature", "type": "numeric", "missing": []},
        {"name": "sex", "role": "feature", "type": "categorical", "values": [], "missing": [], "other": False},
        {"name": "back", "role": "label", "labels": {}},
    ]
    assert "Take ranges, values and classes from a codebook or" in client.get(url).text
    assert client.post(url, declared(client, begun)).status_code == 422, "nothing is declared yet"
    assert client.post(url, declared(client, begun, **TYPED)).status_code == 302
    assert "Checking the file" in client.get(url).text
    work(begun)
    page = client.get(url).text
    assert "3 rows were checked and have no errors" in page
    assert "The import has records of 2 people" in page
    assert not Dataset.objects.exists() and not DataHolder.objects.exists()
    dataset = store(client, url, begun)
    assert records_load(dataset)["x"].tolist() == [[0.5, 1, 0], [0.25, 0, 1], [0.75, 1, 0]]
    assert (dataset.rows, dataset.holders, dataset.imported_by.username) == (3, 2, "sven")
    assert "3 rows have been imported" in client.get(url).text
    assert [path.name for path in files()] == [f"{begun.pk}.npz"]


def test_a_look_alike_that_was_registered_since_the_check_stops_the_import(client: Client, study: Study) -> None:
    url, begun = begin(client, b"who,age,sex,back\nP-17,50,f,yes\nP-0017,25,m,no\nQ-1,75,f,no\n")
    assert "“P-0017”" in check(client, url, begun, **TYPED)
    holders_register(study=study, pseudonyms=["q1"])
    assert store(client, url, begun) is None and study.holders.count() == 1
    page = client.get(url).text
    assert "since the file was checked" in page and "“Q-1”" in page and "“q1”" in page and "“P-17”" not in page
    assert "“q1”" in check(client, url, begun, **TYPED)
    assert store(client, url, begun) is not None, "people who confirm that they saw the similar names may continue"


def test_only_stewards_see_the_names_of_holders_with_too_many_rows(client: Client, study: Study, settings: Any) -> None:
    settings.MOST_RECORDS = 1
    DataHolder.objects.create(study=study, pseudonym="ADA-0")
    DataHolder.objects.create(study=study, pseudonym="A-d-a")
    membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
    url, begun = begin(client)
    found = check(client, url, begun, **TYPED)
    assert "People with too many rows" in found
    assert "Similar pseudonyms" in found and "“A-d-a”, “ada”" in " ".join(found.split()) and "ADA-0" not in found
    assert client.get(url).context["report"]["beyond"] == [["ada", 2]]
    assert as_("otto").get(url).status_code in (403, 404), "an operator, who decides about runs"
    dataset = store(client, url, begun)
    assert (dataset.rows, dataset.holders, dataset.most_records) == (2, 2, 1)
    assert records_load(dataset)["x"].tolist() == [[0.5, 1, 0], [0.25, 0, 1]]
    shown = text(as_("otto").get(reverse("staff:dataset", args=["ward", dataset.pk])))
    assert "only the first 1 in the file" in shown and "ada" not in shown


def test_a_dropped_import_leaves_nothing(client: Client, study: Study) -> None:
    _url, begun = begin(client)
    drop = reverse("staff:import_drop", args=["ward", begun.pk])
    assert files() and client.get(drop).status_code == 200
    client.post(drop)
    assert not DatasetImport.objects.exists() and not files()


AMOUNT = {"columns-2-use": "value", "learned": "numbers", "smallest": 30, "largest": 150, "unit": "kg"}
TIME = {"columns-2-use": "time", "learned": "times", "ends": "30\n60,5\n365", "unit": "days"}
TIME |= {"columns-3-use": "event", "columns-3-spellings": "dead = 1\nalive = 0"}
FLAGS = {"columns-2-use": "flag", "columns-3-use": "flag", "columns-3-called": "tired", "learned": "labels"}
FLAGS |= {"columns-3-spellings": "n = 0\ny = 1"}


@pytest.mark.parametrize(
    ("content", "answers", "wrong", "target", "learned"),
    [
        (
            "who,age,weight\nada,50,61.5\nben,25,200\n",
            AMOUNT,
            {"columns-2-use": "numeric"},
            {"kind": "numbers", "minimum": 30, "maximum": 150, "unit": "kg"},
            ["61.5 kg", "150 kg"],
        ),
        (
            "who,age,days,state\nada,50,61,dead\nben,25,200,alive\n",
            TIME,
            {"ends": "30\nsoon"},
            {"kind": "times", "ends": [30, 60.5, 365], "unit": "days"},
            ["61 days", "more than 200 days"],
        ),
        (
            "who,age,ill,x\nada,50,1,y\nben,25,1,n\n",
            FLAGS,
            {"columns-3-spellings": "y"},
            {"kind": "labels", "names": ["ill", "tired"]},
            ["ill, tired", "ill"],
        ),
    ],
    ids=["numbers", "times", "labels"],
)
def test_other_targets_are_declared_without_json(client, study, content, answers, wrong, target, learned) -> None:
    url, begun = begin(client, content)
    answers = answers | {"columns-1-minimum": 0, "columns-1-maximum": 100}
    refused = client.post(url, declared(client, begun, **answers | wrong))
    assert refused.status_code == 422 and 'class="errors"' in refused.text
    assert "2 rows were checked and have no errors" in check(client, url, begun, **answers)
    assert (begun.schema["target"], begun.schema["classes"]) == (target, [])
    shown = answers | ({"ends": "30\n60.5\n365"} if "ends" in answers else {})
    again = declared(client, begun)
    assert again == again | {name: value for name, value in shown.items() if name in again}
    dataset = store(client, url, begun)
    codes = records_load(dataset)["y"].tolist()
    assert [dataset.outcome.written(code) for code in codes] == learned


def test_columns_are_a_table_with_facts_from_public_files_only(client: Client, study: Study) -> None:
    content = "who,age,sex,back\n" + "".join(f"p{at},{at},f,no\n" for at in range(5)) + "p9,?,m,yes\n"
    url, _private = begin(client, content)
    assert "In the first rows" not in client.get(url).text
    assert not [path for path in files() if path.name == "facts"]
    url, _public = begin(client, content, kind="public", with_labels="on")
    page = text(client.get(url))
    assert "In the first rows" in page and "2 values" in page
    assert re.search(r"0 · 1 · 2 · 3 · 4, (16\.7|17)\s%\sunknown", page)


def test_identifiers_and_codes_are_not_drafted_as_numbers(client: Client, study: Study) -> None:
    columns: dict[str, tuple[str, Any]] = {
        "encounter_id": ("ignore", range(40)),
        "admission_type_id": ("categorical", [1, 2, 3]),
        "ZipCode": ("ignore", range(100, 140)),
        "zip": ("categorical", ["01067", "01069"]),
        "ward": ("categorical", ["007", "012"]),
        "row": ("ignore", range(7, 47)),
        "account": ("ignore", range(83_000_001, 83_000_281, 7)),
        "income": ("numeric", range(20_000, 59_880, 997)),
        "number_inpatient": ("numeric", [0, 1, 2]),
        "age": ("numeric", [*range(20, 59), 9999]),
        "icd_1": ("icd9", ["250.83", "V45", "E812"]),
        "icd_2": ("icd10", ["E11.9", "I50", "V45"]),
        "atc_code": ("atc", ["A10BA02", "C07", "N02BE01"]),
        "loinc": ("loinc", ["2345-7", "718-7", "12345-6"]),
        "medication": ("categorical", ["yes", "no"]),
    }
    table = zip(*(islice(cycle(values), 40) for _use, values in columns.values()), strict=True)
    lines = [["who", *columns, "back"], *([f"p{at}", *map(str, row), "yn"[at % 2]] for at, row in enumerate(table))]
    content = "\n".join(map(",".join, lines))
    for kind in ("public", "private"):
        upload(client, content, name=f"{kind}.csv", kind=kind)
        drafted = {each["name"]: each for each in DatasetImport.objects.get(kind=kind).schema["columns"]}
        uses = {name: drafted[name].get("type", drafted[name]["role"]) for name in columns}
        assert uses == {name: use for name, (use, _values) in columns.items()}, kind
        assert drafted["age"].get("maximum") == (100 if kind == "public" else None), "not an outlier"


def test_nothing_is_drafted_from_values_of_people(client: Client, study: Study) -> None:
    """Rows with the same columns give the same draft; declarations of public rows are copied."""
    drafts = []
    usual, odd = (
        "ada,5,f,2020-03-04,no\nben,8,m,2021-05-06,yes",
        "eve,-900,x,1999-01-02,a\nzoe,7e9,y,1999-01-02,b\n?,1,?,,c",
    )
    for rows in (usual, odd):
        _url, begun = begin(client, f"who,age,sex,seen,back\n{rows}\n")
        drafts.append((begun.schema, begun.remarks))
        begun.delete()
    assert drafts[0] == drafts[1] and drafts[0][0]["classes"] == []
    url, public = begin(client, "age,sex,back\n5,f,no\n70,m,yes\n", kind="public", with_labels="on")
    DatasetImport.objects.filter(pk=public.pk).update(name="published")
    check(client, url, public)
    store(client, url, public)
    _url, begun = begin(client, "who,age,sex,back\nada,300,x,a\nben,7,y,b\n")
    assert begun.schema["columns"][1:] == public.schema["columns"] and begun.schema["classes"] == ["no", "yes"]
    assert begun.schema["columns"][0] == {"name": "who", "role": "holder"}


def wide(columns: int = 120, rows: int = 30) -> str:
    """Return a table of many columns, with holders and classes."""
    names = ["who", *(f"lab_{number}" for number in range(columns - 2)), "back"]
    numbers = [[str((row + number) % 7 + 0.5) for number in range(columns - 2)] for row in range(rows)]
    lines = [[f"p{row}", *each, "ny"[row % 2]] for row, each in enumerate(numbers)]
    return "\n".join(",".join(line) for line in (names, *lines))


@pytest.mark.exhaustive
def test_many_columns_are_declared_page_by_page_and_several_at_once(client: Client, study: Study) -> None:
    url, begun = begin(client, wide(), kind="public", with_labels="on")
    page = client.get(f"{url}?from=50")
    assert len(page.context["forms"].columns) == 50 and "51–100" in page.text
    sent = declared(client, begun) | {"keep": "1", "columns-1-maximum": 12}
    assert client.post(url, sent).headers["Location"] == f"{url}?from=50"
    begun.refresh_from_db()
    assert (begun.state, begun.schema["columns"][1]["maximum"]) == ("draft", 12)
    many = reverse("staff:import_columns", args=["ward", begun.pk])
    changed = {"apply": "1", "of": "numeric", "called": "lab_1*", "maximum": 8, "missing": "(empty)\n?"}
    assert client.post(many, changed).status_code == 302
    begun.refresh_from_db()
    fields = {each["name"]: each for each in begun.schema["columns"]}
    assert (fields["lab_10"]["maximum"], fields["lab_10"]["missing"], fields["lab_10"]["minimum"]) == (8, ["", "?"], 0)
    assert (fields["lab_2"]["maximum"], fields["lab_2"]["missing"]) == (10, [])
    begun.schema["columns"][100]["minimum"] = 99
    begun.save()
    answer = client.post(url, declared(client, begun))
    assert answer.status_code == 422 and "lab_99: " in answer.text, "a column of another page"
    begun.schema["columns"][100]["minimum"] = 0
    begun.save()
    check(client, url, begun)
    assert (begun.state, begun.faults, begun.rows) == ("checked", 0, 30)


def test_columns_are_saved_edited_and_taken_over_as_a_file(client: Client, study: Study) -> None:
    upload(client, wide())
    begun = DatasetImport.objects.get()
    before, many = begun.schema, reverse("staff:import_columns", args=["ward", begun.pk])
    saved = client.get(reverse("staff:import_columns_file", args=["ward", begun.pk])).content.decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(saved)))
    assert len(rows) == 120 and rows[0]["use"] == "holder"

    def give(changed: list[dict[str, str]], delimiter: str = ",") -> Any:
        file = io.StringIO()
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(changed)
        upload = SimpleUploadedFile("columns.csv", ("\ufeff" + file.getvalue()).encode())
        return client.post(many, {"upload": "1", "file": upload})

    assert give(rows).status_code == 302
    begun.refresh_from_db()
    assert begun.schema == before, "other columns do not change"
    edited = [{**each, "maximum": "33", "rule": "mean"} if each["name"] == "lab_99" else each for each in rows]
    assert give(edited[90:], ";").status_code == 302
    begun.refresh_from_db()
    assert begun.schema["columns"][100] == before["columns"][100] | {"maximum": 33}
    assert begun.schema["one_record"] == {"rules": {"lab_99": "mean"}}
    wrong = [{**rows[1], "use": "number"}, {**rows[2], "name": "lab_2000"}, rows[3], rows[3]]
    answer = give(wrong)
    page = answer.text
    assert answer.status_code == 422
    assert "Row 2 (lab_0): Used as" in page and "Row 3: “lab_2000” is not a column" in page and "Row 5" in page
    begun.refresh_from_db()
    assert begun.schema["columns"][3] == before["columns"][3]
