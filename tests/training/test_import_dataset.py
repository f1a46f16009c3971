"""``manage.py import_dataset``: in whole, or not at all, with the place of what is wrong."""

import csv
import gzip
import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from consent.models import DataHolder, Study
from tests.factories import holder_create, study_create, user_create
from training.engine.records import records_load
from training.models import Dataset

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

TABLE = {
    "kind": "table",
    "columns": [
        {"name": "who", "role": "holder"},
        {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100},
        {"name": "back", "role": "label"},
    ],
    "classes": ["no", "yes"],
}
IMAGES = {"kind": "image", "height": 2, "width": 3, "channels": 1, "classes": ["a", "b"]}
CSV = "who,age,back\nada,50,no\nben,25,yes\nada,75,yes\n"


@pytest.fixture
def study() -> Study:
    return study_create("ward")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    (tmp_path / "images.json").write_text(json.dumps(IMAGES))
    (tmp_path / "rows.csv").write_text(CSV)
    return tmp_path


def run(*arguments: Any, **options: Any) -> str:
    out = io.StringIO()
    options = {"kind": "private", "name": "patients", **options}
    call_command("import_dataset", "ward", *map(str, arguments), stdout=out, **options)
    return out.getvalue()


def stored() -> set[Path]:
    return {path for path in (settings.PRIVATE_DIR / "datasets").rglob("*") if path.is_file()}


def refused(*arguments: Any, **options: Any) -> str:
    """The message with which the import is refused; afterwards nothing is left of it."""
    before = stored(), Dataset.objects.count(), DataHolder.objects.count()
    with pytest.raises(CommandError) as error:
        run(*arguments, **options)
    assert (stored(), Dataset.objects.count(), DataHolder.objects.count()) == before
    return str(error.value)


def test_private_rows_come_in_with_their_holders_known_and_new(study: Study, folder: Path) -> None:
    ada = holder_create(study, "ada")
    user_create("olga")
    said = run(folder / "rows.csv", schema=folder / "table.json", user="olga")
    dataset = Dataset.objects.get(study=study, name="patients")
    arrays = records_load(dataset)
    ben = DataHolder.objects.get(study=study, pseudonym="ben")
    assert arrays["holder"].tolist() == [ada.pk, ben.pk, ada.pk]
    assert arrays["x"].ravel().tolist() == [0.5, 0.25, 0.75]
    assert arrays["y"].tolist() == [0, 1, 1]
    assert (dataset.rows, dataset.holders, dataset.imported_by.username) == (3, 2, "olga")
    assert "3 rows of 2 holders, 2 classes." in said


def test_the_operator_says_where_rows_come_from(study: Study, folder: Path) -> None:
    run(folder / "rows.csv", schema=folder / "table.json", kind="public", name="points", provenance="Survey of 2019")
    assert Dataset.objects.get().provenance == "Survey of 2019"


def test_several_files_become_one_dataset(study: Study, folder: Path) -> None:
    (folder / "more.csv.gz").write_bytes(gzip.compress(b"who,age,back\ncleo,10,no\n"))
    run(folder / "rows.csv", folder / "more.csv.gz", schema=folder / "table.json")
    assert Dataset.objects.get().rows == 4


def test_a_dry_run_checks_everything_and_writes_nothing(study: Study, folder: Path) -> None:
    before = stored()
    said = run(folder / "rows.csv", schema=folder / "table.json", dry_run=True)
    assert "nothing was written" in said
    assert not Dataset.objects.exists()
    assert not DataHolder.objects.exists()
    assert stored() == before
    run(folder / "rows.csv", schema=folder / "table.json")
    assert "already has a dataset" in refused(folder / "rows.csv", dry_run=True)


def test_public_rows_follow_the_schema_of_the_study_and_need_no_labels(study: Study, folder: Path) -> None:
    run(folder / "rows.csv", schema=folder / "table.json")
    (folder / "public.csv").write_text("age\n10\n20\n")
    run(folder / "public.csv", kind="public", name="points")
    assert Dataset.objects.get(name="points").seen_classes == []
    run(folder / "rows.csv", kind="public", name="labelled points", with_labels=True)
    assert Dataset.objects.get(name="labelled points").seen_classes == [0, 1]


def test_idx_images_with_labels_each_owned_by_a_person_of_its_own(study: Study, folder: Path) -> None:
    images, labels = folder / "images.idx", folder / "labels.idx"
    images.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 2, 3) + bytes([0] * 6 + [255] * 6))
    labels.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 2) + bytes([1, 0]))
    run(images, schema=folder / "images.json", labels=[labels], holder_per_row="child")
    arrays = records_load(Dataset.objects.get())
    assert arrays["x"].shape == (2, 2, 3)
    assert arrays["y"].tolist() == [1, 0]
    assert set(DataHolder.objects.values_list("pseudonym", flat=True)) == {"child-1", "child-2"}


def test_npz_arrays(study: Study, folder: Path) -> None:
    np.savez(folder / "a.npz", x=np.zeros((2, 2, 3)), y=np.array([0, 1]), holder=np.array(["ada", "ben"]))
    run(folder / "a.npz", schema=folder / "images.json")
    assert Dataset.objects.get().holders == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CSV.replace("25", "old"), ["rows.csv, row 3, column age", "“old” is no number", "Write a finite number"]),
        (CSV.replace("ben", ""), ["rows.csv, row 3, column who", "has no holder"]),
        (CSV.replace("25,yes", "25,maybe"), ["rows.csv, row 3, column back", "“maybe” is no class"]),
        (CSV.replace("25", "nan"), ["row 3, column age", "not finite"]),
        (CSV.replace("who", "patient"), ["column patient", "does not declare"]),
        ("who,age,back\n", ["no records"]),
    ],
)
def test_errors_name_row_and_column(study: Study, folder: Path, content: str, expected: list[str]) -> None:
    (folder / "rows.csv").write_text(content)
    message = refused(folder / "rows.csv", schema=folder / "table.json")
    for words in [*expected, "Nothing was imported"]:
        assert words in message


def test_an_error_in_the_last_of_several_files_imports_none(study: Study, folder: Path) -> None:
    (folder / "more.csv").write_text("who,age,back\ncleo,ten,no\n")
    message = refused(folder / "rows.csv", folder / "more.csv", schema=folder / "table.json")
    assert "more.csv, row 2, column age" in message


def test_all_errors_are_reported_at_once_and_written_to_a_file(study: Study, folder: Path) -> None:
    (folder / "rows.csv").write_text(CSV.replace("25", "old").replace("75,yes", "75,maybe"))
    (folder / "more.csv").write_text("who,age,back\n=ben,1,no\n")
    report = folder / "report.csv"
    message = refused(folder / "rows.csv", folder / "more.csv", schema=folder / "table.json", report=report)
    assert "row 3, column age" in message
    assert "row 4, column back" in message
    assert "more.csv, row 2, column who" in message
    with report.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["row"], row["column"]) for row in rows] == [("3", "age"), ("4", "back"), ("2", "who")]


def test_a_checksum_is_held_against_the_uncompressed_content(study: Study, folder: Path) -> None:
    packed = folder / "rows.csv.gz"
    packed.write_bytes(gzip.compress(CSV.encode()))
    assert "SHA-256" in refused(packed, schema=folder / "table.json", sha256=["0" * 64])
    run(packed, schema=folder / "table.json", sha256=[hashlib.sha256(CSV.encode()).hexdigest()])
    assert Dataset.objects.exists()


def test_the_schema_is_needed_and_must_be_sound(study: Study, folder: Path) -> None:
    assert "Give --schema" in refused(folder / "rows.csv")
    assert "cannot be read" in refused(folder / "rows.csv", schema=folder / "none.json")
    (folder / "broken.json").write_text("{\n  nonsense")
    assert "enclosed in double quotes: line 2" in refused(folder / "rows.csv", schema=folder / "broken.json")


def test_rows_without_holders_are_refused_with_what_can_be_done(study: Study, folder: Path) -> None:
    columns = [column for column in TABLE["columns"] if column["role"] != "holder"]
    (folder / "nobody.json").write_text(json.dumps(TABLE | {"columns": columns}))
    (folder / "nobody.csv").write_text("age,back\n50,no\n25,yes\n")
    assert "give --holder-per-row" in refused(folder / "nobody.csv", schema=folder / "nobody.json")
    (folder / "images").write_bytes(struct.pack(">IIII", 2051, 1, 2, 3) + bytes(6))
    assert "give --holder-per-row" in refused(folder / "images", schema=folder / "images.json")
    assert "2 rows of 2 holders" in run(folder / "nobody.csv", schema=folder / "nobody.json", holder_per_row="P")


def test_unknown_studies_users_and_files_are_named(study: Study, folder: Path) -> None:
    with pytest.raises(CommandError, match=r"no study “wrd”\. Studies: ward"):
        call_command("import_dataset", "wrd", str(folder / "rows.csv"), kind="private", name="a")
    assert "no user “nobody”" in refused(folder / "rows.csv", user="nobody")
    assert "none.csv" in refused(folder / "none.csv", schema=folder / "table.json")


def test_options_that_contradict_each_other_are_refused(study: Study, folder: Path) -> None:
    schema = folder / "table.json"
    assert "Leave --holder-per-row out" in refused(
        folder / "rows.csv", schema=schema, kind="public", holder_per_row="person"
    )
    assert "Give one for each file" in refused(folder / "rows.csv", schema=schema, labels=["a", "b"])
    assert "Leave" not in run(folder / "rows.csv", schema=schema, holder_per_row="person")
