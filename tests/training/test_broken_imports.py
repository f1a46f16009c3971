"""Broken files: each gets all its errors in one report, and nothing is half imported."""

import gzip
import io
import json
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from django.conf import settings
from django.core.files.base import ContentFile
from django.db import connection
from pyarrow import parquet
from scipy.io import savemat

from consent.models import DataHolder, Study
from learning.formats import limits
from tests.factories import study_create, user_create
from training.models import Dataset, DatasetImport
from training.services.imports import import_begin, import_confirm, import_declare, import_report, import_work

pytestmark = pytest.mark.django_db

FOLDERS = (settings.PRIVATE_DIR / "datasets", settings.PRIVATE_DIR / "imports")
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


WHOLE: None = None
BROKEN: dict[str, tuple[str, bytes, dict[str, Any], list[Fault]]] = {
    "Latin-1": (
        "a.csv",
        (HEADER + "jürgen,5,f,no\nada,5,ü,no\n").encode("latin-1"),
        TABLE,
        [(2, "who", "not UTF-8"), (3, "sex", "not UTF-8")],
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
    "bomb": (
        "a.csv.gz",
        gzip.compress(HEADER.encode() + b"\n" * (1 << 20)),
        TABLE,
        [(WHOLE, "", "when it is unpacked")],
    ),
    "several members": ("a.zip", zipped(a_csv=HEADER, b_csv=HEADER), TABLE, [(WHOLE, "", "not exactly one file")]),
    "Excel": ("a.csv", zipped(xl__workbook_xml="", mimetype=""), TABLE, [(WHOLE, "", "holds .xlsx")]),
    "picture": ("a.csv", b"\x89PNG\r\n\x1a\n" + bytes(50), TABLE, [(WHOLE, "", "holds .png")]),
    "Parquet as CSV": ("a.csv", table(), TABLE, [(WHOLE, "", "holds .parquet")]),
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
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file may hold little, so that a test's own is too large."""
    monkeypatch.setattr(limits, "LEAST_CONTENT", 1 << 18)
    monkeypatch.setattr(limits, "MOST_GROWTH", 2)
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def study() -> Study:
    return study_create("ward")


def commit() -> None:
    while connection.run_on_commit:
        connection.run_on_commit.pop(0)[1]()


def begin(study: Study, name: str, content: bytes, schema: dict[str, Any]) -> DatasetImport:
    return import_begin(
        study=study,
        name="patients",
        kind="private",
        file=ContentFile(content, name),
        schema=schema,
        acting_user=user_create("sven"),
    )


def work(begun: DatasetImport) -> dict[str, Any]:
    import_work(str(begun.pk))
    begun.refresh_from_db()
    return import_report(begun)


def rows_of_datasets() -> list[Path]:
    commit()
    return [path for path in FOLDERS[0].rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_gets_all_its_errors_in_one_report_and_nothing_is_imported(study: Study, kind: str) -> None:
    name, content, schema, expected = BROKEN[kind]
    begun = begin(study, name, content, schema)
    import_declare(dataset_import=begun, schema=schema, acting_user=user_create("sven"))
    report = work(begun)
    told = [(fault["row"], fault["column"], _text(fault["problem"])) for fault in report["faults"]]
    assert [fault[:2] for fault in told] == [fault[:2] for fault in expected], told
    for (_row, _column, problem), (_, _, words) in zip(told, expected, strict=True):
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


def test_there_are_enough_kinds() -> None:
    assert len(BROKEN) >= 20


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
        ("a.npz", npz(), IMAGES),
    ],
    ids=["csv", "csv.gz", "parquet", "npz"],
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
    begun = import_begin(study=study, name="rows", kind="private", file=file, acting_user=user_create("olga"))
    assert begun.schema["columns"] and begun.file.endswith("ü.csv")


@pytest.mark.parametrize("broken", ["arrays_save", "save"])
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
            patch.setattr("training.services.datasets.arrays_save", fail)
        work(begun)
    assert begun.state == "importing"
    assert not Dataset.objects.exists()
    assert not DataHolder.objects.exists()
    assert rows_of_datasets() == []
    work(begun)
    work(begun)  # a message that was delivered twice
    assert begun.state == "done"
    assert Dataset.objects.count() == 1


def test_a_name_that_was_taken_meanwhile_is_told(study: Study) -> None:
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
