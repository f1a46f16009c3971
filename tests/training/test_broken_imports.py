"""Imports on the site and by the command are complete or not made at all, and one report lists all errors."""

import csv
import gzip
import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.core.management import CommandError, call_command
from PIL import Image
from pyarrow import parquet
from scipy.io import savemat

from consent.models import DataHolder, Study
from tests.factories import holder_create, study_create, user_create
from tests.reading import FOLDERS, commit, no_files, read_here, zipped  # noqa: F401
from training.engine.records import records_load
from training.models import Dataset, DatasetImport
from training.services.imports import Upload, import_begin, import_confirm, import_declare, import_report, import_work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_files", "read_here")]

TABLE = {
    "kind": "table",
    "columns": [
        {"name": "who", "role": "holder"},
        {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100},
        {"name": "sex", "role": "feature", "type": "categorical", "values": ["f", "m"]},
        {"name": "back", "role": "label"},
    ],
    "classes": ["no", "yes"],
}
VISITS = {**TABLE, "one_record": {"by": "age"}}
IMAGES = {"kind": "image", "height": 2, "width": 3, "channels": 1, "classes": ["a", "b"]}
HEADER = "who,age,sex,back\n"
GOOD = "ada,50,f,no\n"

Fault = tuple[int | None, str, str]
"""Row, column and a part of the error message."""


def npz(**changes: Any) -> bytes:
    arrays = {"x": np.zeros((2, 2, 3)), "y": np.array([0, 1]), "holder": np.array(["ada", "ben"])} | changes
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    return buffer.getvalue()


def table(**columns: Any) -> bytes:
    named = {"who": ["ada", "ben"], "age": [50, 20], "sex": ["f", "m"], "back": ["no", "yes"]} | columns
    buffer = io.BytesIO()
    parquet.write_table(pa.table({name: values for name, values in named.items() if values is not None}), buffer)
    return buffer.getvalue()


def idx(*lengths: int, values: bytes) -> bytes:
    return struct.pack(f">BBBB{len(lengths)}I", 0, 0, 8, len(lengths), *lengths) + values


def mat(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, {"X": np.zeros((2, 3, 1, 2), np.uint8), "y": np.array([[1], [2]], np.uint8)} | arrays)
    return buffer.getvalue()


def photographs() -> bytes:
    """Return two images of other sizes, and the table of their classes and holders."""
    files: dict[str, str | bytes] = {"table.csv": "file,class,holder\none.jpg,a,ada\ntwo.tif,b,ben\n"}
    for name, kind, size in (("one.jpg", "JPEG", (90, 60)), ("two.tif", "TIFF", (3, 2))):
        picture = io.BytesIO()
        Image.new("RGB", size, "red").save(picture, kind)
        files[name] = picture.getvalue()
    return zipped(files)


WHOLE: None = None
#: Files with an error about the whole file; errors of the others name row and column.
UNREADABLE: dict[str, tuple[str, bytes, str]] = {
    "UTF-16": ("a.csv", (HEADER + GOOD).encode("utf-16"), "UTF-16"),
    "no rows": ("a.csv", HEADER.encode(), "contains no records"),
    "damaged gzip": ("a.csv.gz", gzip.compress((HEADER + GOOD * 2000).encode())[:40], "damaged or cut off"),
    "several members": (
        "a.zip",
        zipped({"a.csv": HEADER, "b.csv": HEADER}),
        "The archive must contain exactly one file, but contains",
    ),
    "broken Excel": ("a.xlsx", zipped({"xl/workbook.xml": ""}), "not a valid Excel file"),
    "old Excel": ("a.xls", b"\xd0\xcf\x11\xe0" + bytes(600), "not a valid Excel file"),
    "Word": ("a.docx", zipped({"word/document.xml": ""}), "format of the file is Word"),
    "PNG": ("a.csv", b"\x89PNG\r\n\x1a\n" + bytes(50), "format of the file is PNG"),
    "JPEG": ("photo.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(50), "file is JPEG"),
    "PDF": ("a.pdf", b"%PDF-1.7\n", "format of the file is PDF"),
    "JSON": ("a.json", b'[{"who": "ada"}]', "format of the file is JSON"),
    "web page": ("a.xls", b"<html><table>", "format of the file is HTML"),
    "binary": ("a.dat", bytes(range(256)), "The file is not a text file, and its"),
    "broken SPSS": ("a.sav", b"$FL2@(#) SPSS" + bytes(300), "not a valid SPSS file"),
    "broken Stata": ("a.dta", b"<stata_dta><header>" + bytes(300), "not a valid Stata file"),
    "broken SAS": ("a.sas7bdat", bytes(12) + b"\xc2\xea\x81\x60", "not a valid SAS file"),
    "broken ARFF": ("a.arff", b"@relation x\n@attribute\n", "not a valid ARFF file"),
    "truncated FHIR": ("a.json", b'{"resourceType": "Bundle", "entry": [{', "not valid JSON"),
    "CSV as Parquet": ("a.parquet", (HEADER + GOOD).encode(), "not a valid Parquet"),
    "truncated Parquet": ("a.parquet", table()[:-20], "not a valid Parquet"),
}
TEXTS: dict[str, tuple[str, list[Fault]]] = {
    "no header": (GOOD * 3, [(1, "", "contains none of the declared columns")]),
    "columns missing and unknown": (
        "patient,age,back\nada,x,no\nben,7,maybe\n",
        [
            *((1, "patient", "does not declare"), (1, "who", "is missing"), (1, "sex", "is missing")),
            *((2, "age", "“x” is not a number"), (3, "back", "“maybe” is not a class")),
        ],
    ),
    "ragged rows": (HEADER + "ada,5,f\nben,5,f,no,9\n" + GOOD, [(2, "", "has 3 values"), (3, "", "has 5 values")]),
    "not finite": (HEADER + "ada,nan,f,no\nben,inf,f,no\n", [(2, "age", "not finite"), (3, "age", "not finite")]),
    "text among numbers, values and classes": (
        HEADER + "ada,old,x,perhaps\n" + GOOD + "ben,,f,yes\n",
        [(2, "age", "“old”"), (2, "sex", "“x” is not"), (2, "back", "“perhaps”"), (4, "age", "“” is not a number")],
    ),
    "pseudonyms": (
        HEADER + f",5,f,no\n  ,5,f,no\n{'p' * 201},5,f,no\n",
        [(2, "who", "belong to anyone"), (3, "who", "belong to anyone"), (4, "who", "201 characters")],
    ),
    "formulas": (
        HEADER + "=1+1,=2,f,no\n@SUM(A1),3,=f,no\n",
        [(2, "age", "“=2” is not a number"), (2, "who", "formula"), (3, "sex", "“=f”"), (3, "who", "formula")],
    ),
    "null bytes": (
        HEADER + "a\0da,5,f,no\n" + GOOD + "ben,5\0,f,no\n",
        [(2, "who", "null byte"), (4, "age", "null byte")],
    ),
    "mixed separators": (HEADER + GOOD + "ben;5;m;yes\neve\t5\tm\tyes\n", [(3, "", "has 1 v"), (4, "", "has 1 v")]),
    "another separator": ((HEADER + GOOD).replace(",", ";"), [(1, "", "separated by ';'")]),
    "open quotes": (HEADER + 'ada,"5,f,no\nben,x,f,no\n', [(2, "", "cannot be read")]),
    "endless line": (HEADER + "a" * (3 << 20), [(2, "", "characters")]),
}
NO_PEOPLE: Fault = (WHOLE, "", "This format cannot store which person a record belongs")
BROKEN: dict[str, tuple[str, bytes, dict[str, Any], list[Fault]]] = {
    **{kind: (name, content, TABLE, [(WHOLE, "", words)]) for kind, (name, content, words) in UNREADABLE.items()},
    **{kind: ("a.csv", text.encode(), TABLE, faults) for kind, (text, faults) in TEXTS.items()},
    "Latin-1": (
        "a.csv",
        (HEADER + "jürgen,5,f,no\nada,5,ü,no\n").encode("latin-1"),
        TABLE,
        [(2, "who", "probably Latin-1 text (Windows) instead of UTF-8: “jürgen”")],
    ),
    "nobody's visit": ("a.csv", (HEADER + GOOD).replace("ada", "").encode(), VISITS, [(2, "who", "belong to anyone")]),
    "visits without a class": (
        "a.csv",
        (HEADER + "ada,5,f,\nada,6,f,\n" + "ben,7,f,no\n").encode(),
        VISITS,
        [(WHOLE, "", "The value to learn is missing for “ada”")],
    ),
    "wrong Parquet": (
        "a.parquet",
        table(who=["ada", None], age=[float("nan"), None], sex=None, back=["no", "?"], note=["", ""]),
        TABLE,
        [
            *((WHOLE, "note", "does not declare"), (WHOLE, "sex", "is missing"), (1, "age", "“” is not a number")),
            *((2, "age", "“” is not a number"), (2, "back", "“?” is not a class"), (2, "who", "belong to anyone")),
        ],
    ),
    "lists in Parquet": ("a.parquet", table(age=[[1], [2]]), TABLE, [(WHOLE, "age", "contains list")]),
    "Python objects": ("a.npz", npz(y=np.array([0, None], dtype=object)), IMAGES, [(WHOLE, "", "not a valid npz")]),
    "wrong arrays": (
        "a.npz",
        npz(x=np.zeros((2, 3, 3)), y=None, holder=np.array(["ada", ""])),
        IMAGES,
        [(WHOLE, "y", "is missing"), (WHOLE, "x", "has the shape (2, 3, 3)"), (2, "holder", "belong to anyone")],
    ),
    "huge idx": (
        "a.idx",
        idx(2**31, 1000, 1000, values=bytes(10)),
        IMAGES,
        [NO_PEOPLE, (WHOLE, "", "no labels"), (WHOLE, "", "at most")],
    ),
    "wrong mat": (
        "a.mat",
        mat(X=np.zeros((2, 4, 1, 2), np.uint8), y=np.array([[1], [7]])),
        IMAGES,
        [NO_PEOPLE, (WHOLE, "x", "has the shape"), (2, "y", "label 7 is not a class")],
    ),
}


@pytest.fixture
def study() -> Study:
    return study_create("ward")


def begin(study: Study, name: str, content: bytes, schema: dict[str, Any] | None, *, declared: bool = False) -> Any:
    upload = Upload("patients", "private", ContentFile(content, name), schema=schema)
    begun = import_begin(study=study, upload=upload, acting_user=user_create("sven"))
    if declared:
        import_declare(dataset_import=begun, schema=schema, acting_user=user_create("sven"))
    return begun


def confirm(begun: DatasetImport) -> None:
    import_confirm(dataset_import=begun, acting_user=user_create("sven"))


def work(begun: DatasetImport) -> dict[str, Any]:
    import_work(str(begun.pk))
    begun.refresh_from_db()
    return import_report(begun)


def rows_of_datasets() -> list[Path]:
    commit()
    return sorted(path for path in FOLDERS[0].rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", BROKEN)
def test_one_report_lists_all_errors_of_a_broken_file(study: Study, kind: str) -> None:
    name, content, schema, expected = BROKEN[kind]
    begun = begin(study, name, content, schema, declared=True)
    report = work(begun)
    entries = [(fault["row"], fault["column"], _text(fault["problem"])) for fault in report["faults"]]
    assert [fault[:2] for fault in entries] == [fault[:2] for fault in expected], entries
    for (_row, _column, problem), (_, _, words) in zip(entries, expected, strict=True):
        assert words in problem
    assert all(_text(fault["remedy"]) for fault in report["faults"])
    assert (begun.state, begun.faults) == ("checked", len(expected))
    with pytest.raises(Exception, match="Only a checked file without errors can be imported"):
        confirm(begun)
    assert not Dataset.objects.exists() and not DataHolder.objects.exists()
    assert rows_of_datasets() == []


def _text(sentence: Any) -> str:
    return sentence["template"] % sentence["values"] if isinstance(sentence, dict) else sentence


@pytest.mark.parametrize("work_at", ["draft", pytest.param("check", marks=pytest.mark.exhaustive)])
def test_a_file_that_takes_all_memory_is_stopped_in_a_process_of_its_own(study, settings, monkeypatch, work_at) -> None:
    """Columns contain 4 GB of text each, compressed to some kilobytes; tested at the site and in a worker."""
    monkeypatch.undo()  # of the reading process
    settings.READER_MEMORY = 250
    monkeypatch.setattr("learning.formats.isolation._PATIENCE", 1000)  # on a busy machine, it waits for the processor
    buffer, columns = io.BytesIO(), dict.fromkeys(("who", "age", "sex", "back"), 1000)
    parquet.write_table(unfolding(**columns), buffer, compression="zstd", store_schema=False)
    assert len(buffer.getvalue()) < 500_000
    if work_at == "draft":
        with pytest.raises(ValidationError, match="more than 250 MB of memory and was stopped"):
            begin(study, "a.parquet", buffer.getvalue(), None)
        assert not DatasetImport.objects.exists()
    else:
        [fault] = work(begin(study, "a.parquet", buffer.getvalue(), TABLE, declared=True))["faults"]
        assert "more than 250 MB of memory" in _text(fault["problem"])
    assert rows_of_datasets() == []


@pytest.mark.parametrize(
    ("name", "content", "schema"),
    [
        ("a.csv", b"\xef\xbb\xbf" + (HEADER + GOOD).encode(), TABLE),
        ("a.csv.gz", gzip.compress((HEADER + GOOD).encode()), TABLE),
        ("a.csv", table(), TABLE),
        ("a.npz", npz(), IMAGES),
        ("a.zip", photographs(), IMAGES),
    ],
    ids=["csv", "csv.gz", "parquet that is called csv", "npz", "zip"],
)
def test_sound_files_come_in(study: Study, name: str, content: bytes, schema: dict[str, Any]) -> None:
    begun = begin(study, name, content, schema, declared=True)
    assert work(begun)["faults"] == []
    confirm(begun)
    work(begun)
    assert begun.state == "done"
    assert [path.name for path in rows_of_datasets()] == [f"{begun.pk}.npz"]
    assert not [path for path in FOLDERS[1].rglob("*") if path.is_file()]


def test_a_name_longer_than_a_file_system_takes_is_cut_and_a_report_is_bounded_and_counts_the_rest(study) -> None:
    """Django accepts 200 letters that take 400 bytes."""
    begun = begin(study, "ü" * 196 + ".csv", (HEADER + "ada,x,f,no\n" * 10_001).encode(), TABLE, declared=True)
    assert begun.file.endswith("ü.csv")
    report = work(begun)
    assert (len(report["faults"]), report["count"]) == (10_000, 10_001)


@pytest.mark.parametrize("broken", ["training.services.datasets.records_store", "training.models.Dataset.save"])
def test_an_import_that_fails_in_the_middle_leaves_nothing_and_can_be_repeated(study, monkeypatch, broken) -> None:
    begun = begin(study, "a.csv", (HEADER + GOOD).encode(), TABLE, declared=True)
    work(begun)
    confirm(begun)
    with monkeypatch.context() as patch:
        patch.setattr(broken, Mock(side_effect=OSError("the disk is full")))
        work(begun)
    assert begun.state == "importing"
    assert not Dataset.objects.exists() and not DataHolder.objects.exists()
    assert rows_of_datasets() == []
    work(begun)
    work(begun)  # a message that was delivered twice
    assert begun.state == "done" and Dataset.objects.count() == 1


WARD = {**TABLE, "columns": [column for column in TABLE["columns"] if column["name"] != "sex"]}
CSV = "who,age,back\nada,50,no\nben,25,yes\nada,75,yes\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.json").write_text(json.dumps(WARD))
    (tmp_path / "images.json").write_text(json.dumps(IMAGES))
    (tmp_path / "rows.csv").write_text(CSV)
    return tmp_path


def run(*arguments: Any, **options: Any) -> str:
    out = io.StringIO()
    options = {"kind": "private", "name": "patients", **options}
    call_command("import_dataset", "ward", *map(str, arguments), stdout=out, **options)
    return out.getvalue()


def refused(*arguments: Any, **options: Any) -> str:
    """Return the message with which the import is refused, after checking that nothing of it remains."""
    before = rows_of_datasets(), Dataset.objects.count(), DataHolder.objects.count()
    with pytest.raises(CommandError) as error:
        run(*arguments, **options)
    assert (rows_of_datasets(), Dataset.objects.count(), DataHolder.objects.count()) == before
    return str(error.value)


def test_private_rows_come_in_with_their_holders_known_and_new(study: Study, folder: Path) -> None:
    ada = holder_create(study, "ada")
    user_create("olga")
    said = run(folder / "rows.csv", schema=folder / "table.json", user="olga", provenance="Survey of 2019")
    dataset = Dataset.objects.get(study=study, name="patients")
    arrays = records_load(dataset)
    ben = DataHolder.objects.get(study=study, pseudonym="ben")
    assert arrays["holder"].tolist() == [ada.pk, ben.pk, ada.pk]
    assert arrays["x"].ravel().tolist() == [0.5, 0.25, 0.75]
    assert arrays["y"].tolist() == [0, 1, 1]
    assert (dataset.rows, dataset.holders, dataset.imported_by.username) == (3, 2, "olga")
    assert dataset.provenance == "Survey of 2019" and "3 rows of 2 holders, 2 classes." in said


def test_a_dry_run_checks_everything_and_writes_nothing(study: Study, folder: Path) -> None:
    before = rows_of_datasets()
    assert "Nothing was imported" in run(folder / "rows.csv", schema=folder / "table.json", dry_run=True)
    assert not Dataset.objects.exists() and not DataHolder.objects.exists() and rows_of_datasets() == before
    run(folder / "rows.csv", schema=folder / "table.json")
    assert "already has a dataset" in refused(folder / "rows.csv", dry_run=True)
    (folder / "public.csv").write_text("age\n10\n20\n")
    run(folder / "public.csv", kind="public", name="points")
    assert Dataset.objects.get(name="points").seen_classes == [], "in the schema of the study, without labels"
    run(folder / "rows.csv", kind="public", name="labelled points", with_labels=True)
    assert Dataset.objects.get(name="labelled points").seen_classes == [0, 1]


def test_all_errors_of_several_files_are_reported_at_once_and_none_is_imported(study: Study, folder: Path) -> None:
    schema = folder / "table.json"
    (folder / "rows.csv").write_text(CSV.replace("25", "old").replace("75,yes", "75,maybe"))
    (folder / "more.csv").write_text("who,age,back\n=ben,1,no\n")
    report = folder / "report.csv"
    message = refused(folder / "rows.csv", folder / "more.csv", schema=schema, report=report)
    for words in (
        *("rows.csv, row 3, column age", "“old” is not a number", "Write a finite number", "row 4, column back"),
        *("more.csv, row 2, column who", "Nothing was imported"),
    ):
        assert words in message
    with report.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["row"], row["column"]) for row in rows] == [("3", "age"), ("4", "back"), ("2", "who")]
    packed = folder / "rows.csv.gz"
    packed.write_bytes(gzip.compress(CSV.encode()))
    (folder / "more.csv").write_text("who,age,back\ncleo,10,no\n")
    assert "SHA-256" in refused(packed, schema=schema, sha256=["0" * 64])
    digests = [hashlib.sha256(each.encode()).hexdigest() for each in (CSV, "who,age,back\ncleo,10,no\n")]
    run(packed, folder / "more.csv", schema=schema, sha256=digests)
    assert Dataset.objects.get().rows == 4


def unfolding(**columns: int) -> pa.Table:
    """Return a table whose columns repeat a text of 4 MB; it is written without a schema and stays small."""
    text = pa.array(["a" * 4_000_000])
    return pa.table(
        {name: pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), text) for name, rows in columns.items()}
    )
