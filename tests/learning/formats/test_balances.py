"""Every reader accounts for every item of a file, and gives a value to no one but the person whom it is about."""

import gzip
import json
import math
import random
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from scipy.io import savemat

from learning.formats import ImageSchema, Report, Schema, TabularSchema, read_file
from learning.formats.columns import HolderColumn, LabelColumn, NumericColumn
from learning.formats.combining import OneRecord
from learning.formats.rows import as_numbers
from tests.learning.formats.test_attribution import at, glucose, patient
from tests.learning.formats.test_cells import written
from tests.learning.formats.test_dicom import dicom
from tests.learning.formats.test_extracts import zipped
from tests.learning.formats.test_image_files import picture

TABLE = TabularSchema((HolderColumn("who"), NumericColumn("dose", 0, 255), LabelColumn("ill")), ("no", "yes"))
PIXELS = ImageSchema(2, 2, 1, ("no", "yes"))
Made = tuple[Path, Schema, dict[str, int], dict[str, Any]]
"""A file, its schema, the items that it holds by part, and options of the reader."""


def cells(chance: random.Random, number: int) -> list[str]:
    """Return a row about the person pN, whose dose is N; three in ten have a fault."""
    row = [f"p{number}", str(number), chance.choice(["no", "yes"])]
    if chance.random() < 0.3:
        place = chance.randrange(3)
        row[place] = chance.choice(["", " ", "=1+1", "a\u200bb", *(["maybe", "1_0"] if place else [])])
    return row if chance.random() < 0.9 else ["", "", ""]


def separated(folder: Path, chance: random.Random, mark: str) -> Made:
    lines = [mark.join(cells(chance, number)) for number in range(12)]
    for place in chance.sample(range(12), 3):
        broken = [f"{lines[place]}{mark}x", f"p{place}", "", f'{place}{mark}"1', f'"p"x{mark}', "# no row"]
        lines[place] = chance.choice(broken)
    above = chance.choice([[], [""], [mark * 2], ["A title", mark * 2]])
    text = "\n".join([*above, mark.join(["who", "dose", "ill"]), *lines, ""])
    path = folder / chance.choice(["a.csv", "a.csv.gz"])
    path.write_bytes(text.encode() if path.suffix == ".csv" else gzip.compress(text.encode()))
    return path, TabularSchema(TABLE.columns, TABLE.classes, delimiter=mark, comment="#"), {"rows": 12 + len(above)}, {}


def columns(folder: Path, chance: random.Random, kind: str) -> Made:
    rows = [cells(chance, number) for number in range(11)] + [["p11", "11", "no"]]  # a sheet ends with its last cell
    frame = pd.DataFrame(rows, columns=["who", "dose", "ill"])
    if kind == "xpt":
        pyreadstat.write_xport(frame, folder / "a.xpt")
    return folder / "a.xpt" if kind == "xpt" else written(folder, frame, kind), TABLE, {"rows": 12}, {}


def fhir(folder: Path, chance: random.Random, form: str) -> Made:
    subjects = [None, {}, {"display": "x"}, at("Patient/9"), at("Group/1"), at("#p1")]
    resources = [patient(f"p{number}") for number in range(6)]
    for number in range(12):
        subject = at(f"Patient/p{number % 6}") if chance.random() < 0.6 else chance.choice(subjects)
        odd = chance.choice(
            [{}, {}, {"status": "entered-in-error"}, {"valueQuantity": None}, {"code": {}}, {"id": "1"}]
        )
        resources.append(glucose(subject, number % 6, **odd))
    resources += [{"resourceType": "Encounter"}] * 2
    chance.shuffle(resources)
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": each} for each in resources]}
    text = json.dumps(bundle) if form == "json" else "\n".join(map(json.dumps, resources))
    content = zipped(**{"a__ndjson": text}) if form == "zip" else text.encode()
    (folder / f"a.{form}").write_bytes(content)
    return extracted(folder / f"a.{form}", "2345-7 [mg/dL]", Counter(each["resourceType"] for each in resources))


def omop(folder: Path, chance: random.Random, mark: str) -> Made:
    names = ["person_id", "measurement_concept_id", "measurement_date", "value_as_number", "operator_concept_id"]
    lines = [names]
    for number in range(12):
        row = [f"p{number % 6}", chance.choice("7777770"), "2024-01-01", str(number % 6), "0"]
        if chance.random() < 0.3:
            row[place] = chance.choice(["", "x", '"x']) if (place := chance.randrange(5)) else ""
        lines.append(chance.choice([row, row, row, row, row[:3], [*row, "1"], [""]]))
    people = [["person_id", "gender_concept_id"], *([f"p{number}", "8507"] for number in range(6)), ["", "1"]]
    tables = {"person__csv": people, "measurement__csv": lines, "visit__csv": [["visit_id"], ["1"]]}
    copies = chance.choice([1, 1, 1, 2])
    content = {name: "\n".join([*map(mark.join, rows), ""]) for name, rows in tables.items()}
    if copies == 2:
        content["more/Measurement__csv"] = content["measurement__csv"]
    (folder / "a.zip").write_bytes(zipped(**content))
    return extracted(folder / "a.zip", "7", {"person": 7, "measurement": 12 * copies, "visit.csv": 1})


def extracted(path: Path, name: str, parts: dict[str, int]) -> Made:
    dose = NumericColumn(name, 0, 255, missing=("",))
    schema = TabularSchema((HolderColumn("person"), dose), ("no", "yes"), one_record=OneRecord())
    return path, schema, parts, {"labels": False}


def pictures(folder: Path, chance: random.Random, kind: str) -> Made:
    files: list[tuple[str, bytes]] = []
    for number in range(10):
        seen = np.full((2, 2), number)
        whole = picture((2, 2), number) if kind == "png" else dicom(seen, bits=8, PatientID=f"p{number}")
        files.append((f"yes/{number}.{kind}", whole if chance.random() < 0.95 else whole[:40]))
    listed = [[f"{number}.{kind}", "yes", f"p{number}"] for number in range(10) if chance.random() < 0.9]
    broken = [None, None, [f'2.{kind}"'], [f"1.{kind}", "yes", '"p1'], [f"1.{kind}", "yes", "p", "1"]]
    if fault := chance.choice(broken):
        listed = [fault, *(row for row in listed if row[0] != fault[0])]
    if kind == "png" or chance.random() < 0.5:
        files.append(("table.csv", "\n".join(map(",".join, [["file", "class", "holder"], *listed])).encode()))
    files += chance.choice([[], [("readme.txt", b"x")], [(files[3][0], files[4][1])]])
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return folder / "a.zip", PIXELS, {"images": sum(name != "table.csv" for name, _content in files)}, {}


def arrays(folder: Path, chance: random.Random, kind: str) -> Made:
    numbers, path = np.arange(8, dtype=np.uint8), folder / f"a.{kind}"
    x, y = np.repeat(numbers, 4).reshape(-1, 2, 2), numbers % 2
    who = [f"p{number}" for number in numbers]
    who[3], y[5] = chance.choice(["p3", ""]), chance.choice([1, 1, 7])
    y, who = y[: chance.choice([7, 8, 8, 8])], who[: chance.choice([7, 8, 8])]
    if kind == "npz":
        scaled = x / np.float32(255)
        scaled[2] = chance.choice([2, np.nan, 2 / 255, 2 / 255])
        np.savez(path, x=scaled, y=y, holder=np.array(who))
        return path, PIXELS, {"images": 8}, {}
    if kind == "mat":
        savemat(path, {"X": np.moveaxis(x[..., None], 0, -1), "y": y[:, None]})
        return path, ImageSchema(2, 2, 1, ("no", "yes")), {"images": 8}, {"holders": False}
    for name, array in (("a.idx", x), ("labels", y)):
        head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / name).write_bytes(head + array.tobytes())
    return path, PIXELS, {"images": 8}, {"holders": False, "label_file": folder / "labels"}


MAKERS: dict[str, tuple[Callable[[Path, random.Random, str], Made], str]] = {
    **{f"separated by {mark!r}": (separated, mark) for mark in ",;\t"},
    **{kind: (columns, kind) for kind in ("xlsx", "parquet", "sav", "dta", "xpt", "arff")},
    **{f"FHIR {form}": (fhir, form) for form in ("json", "ndjson", "zip")},
    **{f"OMOP {mark!r}": (omop, mark) for mark in ",\t"},
    **{kind: (pictures, kind) for kind in ("png", "dcm")},
    **{kind: (arrays, kind) for kind in ("npz", "mat", "idx")},
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", MAKERS)
def test_every_item_is_used_left_out_or_refused(tmp_path: Path, kind: str) -> None:
    maker, form = MAKERS[kind]
    for seed in range(12):
        folder, report = tmp_path / str(seed), Report()
        folder.mkdir()
        path, schema, parts, options = maker(folder, random.Random(f"{kind} {seed}"), form)
        rows = read_file(path, schema, report=report, **options)
        found = {name: report.balance.parts[name] for name in parts if name in report.balance.parts}
        report.balance.check()
        if found or not report.count or maker is arrays:  # otherwise the file was refused as a whole
            assert {name: part.seen for name, part in found.items()} == parts, seed
        assert found or not len(rows)
        records = as_numbers(rows.x).reshape(len(rows), math.prod(schema.shape))
        values = np.round(records[:, 0] * 255).astype(int).tolist()
        if not isinstance(schema, TabularSchema) or schema.one_record is None:
            assert len(rows) == sum(part.used for part in found.values())
            assert len(set(values)) == len(values), (seed, values)
        pairs = zip(rows.holders or map("p{}".format, values), records.tolist(), values, strict=True)
        wrong = [(who, value) for who, record, value in pairs if who != f"p{value}" and record[1:] != [1]]  # not known
        assert not wrong, (seed, wrong)
