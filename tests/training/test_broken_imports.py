"""Broken files: each gets all its errors in one report, and nothing is half imported."""

import gzip
import io
import json
import shutil
import struct
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import arff
import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.db import connection
from PIL import Image
from pyarrow import parquet
from scipy.io import savemat

from consent.models import DataHolder, Study
from tests.factories import study_create, user_create
from tests.learning.formats.files import unfolding
from tests.reading import read_here  # noqa: F401
from training.models import Dataset, DatasetImport
from training.services.imports import (
    Upload,
    import_begin,
    import_confirm,
    import_declare,
    import_report,
    import_work,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("read_here")]

FOLDERS = (django_settings.PRIVATE_DIR / "datasets", django_settings.PRIVATE_DIR / "imports")
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
CODED = {
    **TABLE,
    "columns": [
        {"name": "who", "role": "holder"},
        {"name": "age", "role": "feature", "type": "date", "until": "2026-01-01", "minimum": 0, "maximum": 120},
        {"name": "sex", "role": "feature", "type": "icd10"},
        {"name": "back", "role": "label"},
    ],
}
VISITS = {**TABLE, "one_record": {"by": "age"}}
IMAGES = {"kind": "image", "height": 2, "width": 3, "channels": 1, "classes": ["a", "b"]}
HEADER = "who,age,sex,back\n"
GOOD = "ada,50,f,no\n"

Fault = tuple[int | None, str, str]
"""Row, column, and what its problem says."""


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


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), text)
    return buffer.getvalue()


def lying_npz() -> bytes:
    """An array whose header announces far more than follows."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(8))
    return buffer.getvalue()


def written(suffix: str) -> bytes:
    """The table as a spreadsheet or statistics program writes it."""
    rows = pd.DataFrame({"who": ["ada", "ben"], "age": [50.0, 20.0], "sex": [1.0, 2.0], "back": ["no", "yes"]})
    labels, named = {"sex": {1: "f", 2: "m"}}, rows.assign(sex=["f", "m"])
    with TemporaryDirectory() as folder:
        path = f"{folder}/a.{suffix}"
        match suffix:
            case "xlsx":
                named.to_excel(path, index=False)
            case "dta":
                pyreadstat.write_dta(rows, path, variable_value_labels=labels)
            case "sav":
                pyreadstat.write_sav(rows, path, variable_value_labels=labels)
            case "xpt":
                pyreadstat.write_xport(named, path)
            case "arff":
                kinds = {"who": "STRING", "age": "NUMERIC", "sex": ["f", "m"], "back": ["no", "yes"]}
                content = {"relation": "ward", "attributes": list(kinds.items()), "data": named.to_numpy().tolist()}
                Path(path).write_text(arff.dumps(content))
        return Path(path).read_bytes()


def photographs() -> bytes:
    """Two images of other sizes, and the table of their classes and holders."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, kind, size in (("one.jpg", "JPEG", (90, 60)), ("two.tif", "TIFF", (3, 2))):
            picture = io.BytesIO()
            Image.new("RGB", size, "red").save(picture, kind)
            archive.writestr(name, picture.getvalue())
        archive.writestr("table.csv", "file,class,holder\none.jpg,a,ada\ntwo.tif,b,ben\n")
    return buffer.getvalue()


WHOLE: None = None
BROKEN: dict[str, tuple[str, bytes, dict[str, Any], list[Fault]]] = {
    "Latin-1": (
        "a.csv",
        (HEADER + "jürgen,5,f,no\nada,5,ü,no\n").encode("latin-1"),
        TABLE,
        [(2, "who", "probably Latin-1 (Windows): “jürgen”")],
    ),
    "UTF-16": ("a.csv", (HEADER + GOOD).encode("utf-16"), TABLE, [(WHOLE, "", "UTF-16")]),
    "no header": ("a.csv", GOOD.encode() * 3, TABLE, [(1, "", "names none of the declared columns")]),
    "column twice": ("a.csv", b"who,age,sex,back,age\nada,5,f,no,6\n", TABLE, [(1, "age", "there twice")]),
    "columns missing and unknown": (
        "a.csv",
        b"patient,age,back\nada,x,no\nben,7,maybe\n",
        TABLE,
        [
            (1, "patient", "does not declare"),
            (1, "who", "is missing"),
            (1, "sex", "is missing"),
            (2, "age", "“x” is no number"),
            (3, "back", "“maybe” is no class"),
        ],
    ),
    "ragged rows": (
        "a.csv",
        (HEADER + "ada,5,f\nben,5,f,no,9\n" + GOOD).encode(),
        TABLE,
        [(2, "", "has 3 values"), (3, "", "has 5 values")],
    ),
    "empty file in an archive": (
        "a.csv.gz",
        gzip.compress(b""),
        TABLE,
        [(1, "who", "missing"), (1, "age", "missing"), (1, "sex", "missing"), (1, "back", "missing")],
    ),
    "no rows": ("a.csv", HEADER.encode(), TABLE, [(WHOLE, "", "holds no records")]),
    "not finite": (
        "a.csv",
        (HEADER + "ada,nan,f,no\nben,inf,f,no\neve,-Infinity,f,no\n").encode(),
        TABLE,
        [(2, "age", "not finite"), (3, "age", "not finite"), (4, "age", "not finite")],
    ),
    "text among numbers, values and classes": (
        "a.csv",
        (HEADER + "ada,old,x,perhaps\n" + GOOD + "ben,,f,yes\n").encode(),
        TABLE,
        [(2, "age", "“old”"), (2, "sex", "“x” is not among"), (2, "back", "“perhaps”"), (4, "age", "“” is no number")],
    ),
    "decimal commas": ("a.csv", (HEADER + 'ada,"7,5",f,no\n').encode(), TABLE, [(2, "age", "“7,5” is no number")]),
    "empty pseudonym": (
        "a.csv",
        (HEADER + ",5,f,no\n  ,5,f,no\n").encode(),
        TABLE,
        [(2, "who", "no holder"), (3, "who", "no holder")],
    ),
    "long pseudonym": ("a.csv", (HEADER + f"{'p' * 201},5,f,no\n").encode(), TABLE, [(2, "who", "201 characters")]),
    "formulas": (
        "a.csv",
        (HEADER + "=1+1,=2,f,no\n@SUM(A1),3,=f,no\n").encode(),
        TABLE,
        [(2, "age", "“=2” is no number"), (2, "who", "formula"), (3, "sex", "“=f”"), (3, "who", "formula")],
    ),
    "null bytes": (
        "a.csv",
        (HEADER + "a\0da,5,f,no\n" + GOOD + "ben,5\0,f,no\n").encode(),
        TABLE,
        [(2, "who", "null byte"), (4, "age", "null byte")],
    ),
    "mixed separators": (
        "a.csv",
        (HEADER + GOOD + "ben;5;m;yes\neve\t5\tm\tyes\n").encode(),
        TABLE,
        [(3, "", "has 1 values"), (4, "", "has 1 values")],
    ),
    "another separator": ("a.csv", (HEADER + GOOD).replace(",", ";").encode(), TABLE, [(1, "", "separated by ';'")]),
    "open quotes": ("a.csv", (HEADER + 'ada,"5,f,no\nben,x,f,no\n').encode(), TABLE, [(2, "", "cannot be read")]),
    "endless line": ("a.csv", HEADER.encode() + b"a" * (3 << 20), TABLE, [(2, "", "characters")]),
    "damaged gzip": (
        "a.csv.gz",
        gzip.compress((HEADER + GOOD * 2000).encode())[:40],
        TABLE,
        [(WHOLE, "", "damaged or cut off")],
    ),
    "several members": ("a.zip", zipped(a_csv=HEADER, b_csv=HEADER), TABLE, [(WHOLE, "", "not exactly one file")]),
    "header in Latin-1": (
        "a.csv",
        "who,größe,sex,back\nada,5,f,no\n".encode("latin-1"),
        TABLE,
        [(1, "", "probably Latin-1 (Windows): “who,größe,sex,back”")],
    ),
    "broken Excel": ("a.xlsx", zipped(xl__workbook_xml=""), TABLE, [(WHOLE, "", "no sound Excel file")]),
    "old Excel": ("a.xls", b"\xd0\xcf\x11\xe0" + bytes(600), TABLE, [(WHOLE, "", "no sound Excel file")]),
    "Word": ("a.docx", zipped(word__document_xml=""), TABLE, [(WHOLE, "", "format of the file is Word")]),
    "PNG": ("a.csv", b"\x89PNG\r\n\x1a\n" + bytes(50), TABLE, [(WHOLE, "", "format of the file is PNG")]),
    "JPEG": ("photo.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(50), TABLE, [(WHOLE, "", "file is JPEG")]),
    "PDF": ("a.pdf", b"%PDF-1.7\n", TABLE, [(WHOLE, "", "format of the file is PDF")]),
    "JSON": ("a.json", b'[{"who": "ada"}]', TABLE, [(WHOLE, "", "format of the file is JSON")]),
    "web page": ("a.xls", b"<html><table>", TABLE, [(WHOLE, "", "format of the file is HTML")]),
    "binary": ("a.dat", bytes(range(256)), TABLE, [(WHOLE, "", "no text, and of no format")]),
    "broken SPSS": ("a.sav", b"$FL2@(#) SPSS" + bytes(300), TABLE, [(WHOLE, "", "no sound SPSS file")]),
    "broken Stata": ("a.dta", b"<stata_dta><header>" + bytes(300), TABLE, [(WHOLE, "", "no sound Stata file")]),
    "broken SAS": ("a.sas7bdat", bytes(12) + b"\xc2\xea\x81\x60", TABLE, [(WHOLE, "", "no sound SAS file")]),
    "broken ARFF": ("a.arff", b"@relation x\n@attribute\n", TABLE, [(WHOLE, "", "no sound ARFF file")]),
    "a date that is none": ("a.csv", (HEADER + "ada,2026-02-30,I50,no\n").encode(), CODED, [(2, "age", "is no date")]),
    "a code that is none": (
        "a.csv",
        (HEADER + "ada,1970-01-01,428.0,no\n").encode(),
        CODED,
        [(2, "sex", "“428.0” is no code of ICD-10")],
    ),
    "nobody's visit": ("a.csv", (HEADER + GOOD).replace("ada", "").encode(), VISITS, [(2, "who", "no holder")]),
    "visits without a class": (
        "a.csv",
        (HEADER + "ada,5,f,\nada,6,f,\n" + "ben,7,f,no\n").encode(),
        VISITS,
        [(WHOLE, "", "Nothing says what is to be learned of “ada”")],
    ),
    "truncated FHIR": ("a.json", b'{"resourceType": "Bundle", "entry": [{', TABLE, [(WHOLE, "", "no sound JSON")]),
    "FHIR without patients": ("a.json", b'{"resourceType": "Bundle"}', TABLE, [(WHOLE, "", "no FHIR patients")]),
    "OMOP without a column": (
        "a.zip",
        zipped(person_csv="id\n1\n", measurement_csv=""),
        TABLE,
        [(WHOLE, "", "has no column person")],
    ),
    "CSV as Parquet": ("a.parquet", (HEADER + GOOD).encode(), TABLE, [(WHOLE, "", "no sound Parquet")]),
    "truncated Parquet": ("a.parquet", table()[:-20], TABLE, [(WHOLE, "", "no sound Parquet")]),
    "wrong Parquet": (
        "a.parquet",
        table(who=["ada", None], age=[float("nan"), None], sex=None, back=["no", "?"], note=["", ""]),
        TABLE,
        [
            (WHOLE, "note", "does not declare"),
            (WHOLE, "sex", "is missing"),
            (1, "age", "not finite"),
            (2, "age", "“” is no number"),
            (2, "back", "“?” is no class"),
            (2, "who", "no holder"),
        ],
    ),
    "lists in Parquet": ("a.parquet", table(age=[[1], [2]]), TABLE, [(WHOLE, "age", "holds list")]),
    "truncated npz": ("a.npz", npz()[:-40], IMAGES, [(WHOLE, "", "no sound npz")]),
    "Python objects": ("a.npz", npz(y=np.array([0, None], dtype=object)), IMAGES, [(WHOLE, "", "no sound npz")]),
    "npz that lies": ("a.npz", lying_npz(), IMAGES, [(WHOLE, "", "no sound npz")]),
    "wrong shapes": (
        "a.npz",
        npz(x=np.zeros((2, 3, 3)), y=np.array([0, 5, 1]), holder=np.array(["ada", ""])),
        IMAGES,
        [
            (WHOLE, "x", "has the shape (2, 3, 3)"),
            (WHOLE, "y", "in the shape (3,); there are 2"),
            (2, "y", "label 5 is no class"),
            (2, "holder", "no holder"),
        ],
    ),
    "arrays missing": (
        "a.npz",
        npz(y=None, holder=None),
        IMAGES,
        [(WHOLE, "y", "is missing"), (WHOLE, "holder", "is missing")],
    ),
    "values out of range": (
        "a.npz",
        npz(x=np.array([np.full((2, 3), 2.0), np.full((2, 3), np.nan)])),
        IMAGES,
        [(1, "x", "between 0 and 1"), (2, "x", "between 0 and 1")],
    ),
    "truncated idx": (
        "a.idx",
        idx(3, 2, 3, values=bytes(10)),
        IMAGES,
        [
            (WHOLE, "", "no place for holders"),
            (WHOLE, "", "no labels"),
            (WHOLE, "", "announces 18 values and holds 10"),
        ],
    ),
    "huge idx": (
        "a.idx",
        idx(2**31, 1000, 1000, values=bytes(10)),
        IMAGES,
        [(WHOLE, "", "no place for holders"), (WHOLE, "", "no labels"), (WHOLE, "", "at most")],
    ),
    "truncated mat": (
        "a.mat",
        mat()[:160],
        IMAGES,
        [(WHOLE, "", "no place for holders"), (WHOLE, "", "no sound MATLAB")],
    ),
    "wrong mat": (
        "a.mat",
        mat(X=np.zeros((2, 4, 1, 2), np.uint8), y=np.array([[1], [7]])),
        IMAGES,
        [(WHOLE, "", "no place for holders"), (WHOLE, "x", "has the shape"), (2, "y", "label 7 is no class")],
    ),
}


@pytest.fixture(autouse=True)
def _no_files() -> None:
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def study() -> Study:
    return study_create("ward")


def commit() -> None:
    while connection.run_on_commit:
        connection.run_on_commit.pop(0)[1]()


def begin(study: Study, name: str, content: bytes, schema: dict[str, Any] | None) -> DatasetImport:
    upload = Upload("patients", "private", ContentFile(content, name), schema=schema)
    return import_begin(study=study, upload=upload, acting_user=user_create("sven"))


def work(begun: DatasetImport) -> dict[str, Any]:
    import_work(str(begun.pk))
    begun.refresh_from_db()
    return import_report(begun)


def rows_of_datasets() -> list[Path]:
    commit()
    return [path for path in FOLDERS[0].rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", BROKEN)
def test_one_report_lists_all_errors_of_a_broken_file(study: Study, kind: str) -> None:
    name, content, schema, expected = BROKEN[kind]
    begun = begin(study, name, content, schema)
    import_declare(dataset_import=begun, schema=schema, acting_user=user_create("sven"))
    report = work(begun)
    entries = [(fault["row"], fault["column"], _text(fault["problem"])) for fault in report["faults"]]
    assert [fault[:2] for fault in entries] == [fault[:2] for fault in expected], entries
    for (_row, _column, problem), (_, _, words) in zip(entries, expected, strict=True):
        assert words in problem
    assert all(_text(fault["remedy"]) for fault in report["faults"])
    assert (begun.state, begun.faults) == ("checked", len(expected))
    with pytest.raises(Exception, match="no fault can be imported"):
        import_confirm(dataset_import=begun, acting_user=user_create("sven"))
    assert not Dataset.objects.exists()
    assert not DataHolder.objects.exists()
    assert rows_of_datasets() == []


def _text(sentence: Any) -> str:
    return sentence["template"] % sentence["values"] if isinstance(sentence, dict) else sentence


@pytest.mark.slow
@pytest.mark.parametrize("work_at", ["draft", "check"])
def test_a_file_that_takes_all_memory_is_stopped_in_a_process_of_its_own(
    study: Study, settings: Any, monkeypatch: pytest.MonkeyPatch, work_at: str
) -> None:
    """Columns of 4 GB of text each, in some kilobytes, at the site and at a worker."""
    monkeypatch.undo()  # of what reads here
    settings.READER_MEMORY = 250
    buffer, columns = io.BytesIO(), dict.fromkeys(("who", "age", "sex", "back"), 1000)
    parquet.write_table(unfolding(**columns), buffer, compression="zstd", store_schema=False)
    assert len(buffer.getvalue()) < 500_000
    if work_at == "draft":
        with pytest.raises(ValidationError, match="more than 250 MB of memory and was stopped"):
            begin(study, "a.parquet", buffer.getvalue(), None)
        assert not DatasetImport.objects.exists()
    else:
        begun = begin(study, "a.parquet", buffer.getvalue(), TABLE)
        import_declare(dataset_import=begun, schema=TABLE, acting_user=user_create("sven"))
        [fault] = work(begun)["faults"]
        assert "more than 250 MB of memory" in _text(fault["problem"])
    assert rows_of_datasets() == []


def test_there_are_enough_kinds() -> None:
    assert len(BROKEN) >= 30


@pytest.mark.slow
def test_a_report_is_bounded_and_counts_the_rest(study: Study) -> None:
    begun = begin(study, "a.csv", (HEADER + "ada,x,f,no\n" * 12_345).encode(), TABLE)
    import_declare(dataset_import=begun, schema=TABLE, acting_user=user_create("sven"))
    report = work(begun)
    assert (len(report["faults"]), report["count"]) == (10_000, 12_345)


@pytest.mark.parametrize(
    ("name", "content", "schema"),
    [
        ("a.csv", b"\xef\xbb\xbf" + (HEADER + GOOD).encode(), TABLE),
        ("a.csv.gz", gzip.compress((HEADER + GOOD).encode()), TABLE),
        ("a.parquet", table(), TABLE),
        ("a.csv", table(), TABLE),
        ("a.npz", npz(), IMAGES),
        ("a.zip", photographs(), IMAGES),
        *((f"a.{suffix}", written(suffix), TABLE) for suffix in ("xlsx", "dta", "sav", "xpt", "arff")),
    ],
    ids=["csv", "csv.gz", "parquet", "parquet that is called csv", "npz", "zip", "xlsx", "dta", "sav", "xpt", "arff"],
)
def test_sound_files_come_in(study: Study, name: str, content: bytes, schema: dict[str, Any]) -> None:
    begun = begin(study, name, content, schema)
    import_declare(dataset_import=begun, schema=schema, acting_user=user_create("sven"))
    assert work(begun)["faults"] == []
    import_confirm(dataset_import=begun, acting_user=user_create("sven"))
    work(begun)
    assert begun.state == "done"
    assert [path.name for path in rows_of_datasets()] == [f"{begun.pk}.npz"]
    assert not [path for path in FOLDERS[1].rglob("*") if path.is_file()]


def test_a_name_longer_than_a_file_system_takes_is_cut(study: Study) -> None:
    """Of 200 letters that are 400 bytes, Django lets all through."""
    file = ContentFile((HEADER + GOOD).encode(), "ü" * 196 + ".csv")
    begun = import_begin(study=study, upload=Upload("rows", "private", file), acting_user=user_create("olga"))
    assert begun.schema["columns"] and begun.file.endswith("ü.csv")


@pytest.mark.parametrize("broken", ["records_store", "save"])
def test_an_import_that_fails_in_the_middle_leaves_nothing_and_can_be_repeated(
    study: Study, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    begun = begin(study, "a.csv", (HEADER + GOOD).encode(), TABLE)
    import_declare(dataset_import=begun, schema=TABLE, acting_user=user_create("sven"))
    work(begun)
    import_confirm(dataset_import=begun, acting_user=user_create("sven"))

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        if broken == "save":
            patch.setattr(Dataset, "save", fail)
        else:
            patch.setattr("training.services.datasets.records_store", fail)
        work(begun)
    assert begun.state == "importing"
    assert not Dataset.objects.exists()
    assert not DataHolder.objects.exists()
    assert rows_of_datasets() == []
    work(begun)
    work(begun)  # a message that was delivered twice
    assert begun.state == "done"
    assert Dataset.objects.count() == 1


def test_a_duplicate_name_makes_the_import_a_draft_again(study: Study) -> None:
    first, second = (begin(study, "a.csv", (HEADER + GOOD).encode(), TABLE) for _ in range(2))
    for begun in (first, second):
        import_declare(dataset_import=begun, schema=TABLE, acting_user=user_create("sven"))
        work(begun)
        import_confirm(dataset_import=begun, acting_user=user_create("sven"))
    work(first)
    work(second)
    assert (first.state, second.state) == ("done", "draft")
    assert "already has a dataset" in json.dumps(second.message)
    assert [path.name for path in rows_of_datasets()] == [f"{first.pk}.npz"]
