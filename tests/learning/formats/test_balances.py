"""Every reader accounts for every item of a file, and assigns values only to the person they are about.

Declared rules combine a holder's records into one; pandas is the oracle.
"""

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

from learning.formats import (
    DataError,
    ImageSchema,
    Report,
    Rows,
    Schema,
    TabularSchema,
    encodes_alike,
    read_file,
    schema_from_json,
    schema_to_json,
)
from learning.formats.columns import HolderColumn, LabelColumn, NumericColumn
from learning.formats.combining import OneRecord
from learning.formats.rows import as_numbers
from tests.learning.formats.test_attribution import at, glucose, patient
from tests.learning.formats.test_cells import written
from tests.learning.formats.test_image_files import dicom, picture
from tests.reading import zipped

TABLE = TabularSchema((HolderColumn("who"), NumericColumn("dose", 0, 255), LabelColumn("ill")), ("no", "yes"))
PIXELS = ImageSchema(2, 2, 1, ("no", "yes"))
Made = tuple[Path, Schema, dict[str, int], dict[str, Any]]
"""A file, its schema, the items it contains by part, and options of the reader."""


def cells(chance: random.Random, number: int) -> list[str]:
    """Return a row about the person pN, whose dose is N; three in ten have an error."""
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
    content = zipped({"a.ndjson": text}) if form == "zip" else text.encode()
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
    tables = {"person.csv": people, "measurement.csv": lines, "visit.csv": [["visit_id"], ["1"]]}
    copies = chance.choice([1, 1, 1, 2])
    content = {name: "\n".join([*map(mark.join, rows), ""]) for name, rows in tables.items()}
    if copies == 2:
        content["more/Measurement.csv"] = content["measurement.csv"]
    (folder / "a.zip").write_bytes(zipped(content))
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


DOCUMENT: dict[str, Any] = {
    "kind": "table",
    "columns": [
        {"name": "who", "role": "holder"},
        {"name": "visited", "role": "ignore"},
        *(
            {"name": name, "role": "feature", "type": "numeric", "minimum": 0, "maximum": 200, "missing": [""]}
            for name in ("pulse", "lowest", "highest", "latest")
        ),
        {"name": "drug", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 10},
        {"name": "smokes", "role": "feature", "type": "categorical", "values": ["no", "yes"], "missing": [""]},
        {"name": "code", "role": "feature", "type": "icd10", "missing": [""]},
        {"name": "ill", "role": "label", "labels": {"J": "yes", "N": "no"}},
    ],
    "classes": ["no", "yes"],
}
RULES = {"pulse": "mean", "lowest": "minimum", "highest": "maximum", "drug": "count", "smokes": "any", "ill": "any"}
DOCUMENT["one_record"] = {"by": "visited", "rules": RULES}


def schema(**changes: Any) -> Any:
    return schema_from_json(DOCUMENT | changes)


def read(tmp_path: Path, frame: pd.DataFrame, made: Any, **options: Any) -> Rows:
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    return read_file(path, made, **options)


def drawn(count: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(4)

    def numbers() -> Any:
        return np.where(rng.random(count) < 0.3, "", rng.integers(-20, 240, count).astype(str))

    columns: dict[str, Any] = {"who": [f"p{number}" for number in rng.integers(0, 70, count)]}
    columns["visited"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.permutation(count), "D")
    columns |= {name: numbers() for name in ("pulse", "lowest", "highest", "latest")}
    for name, values in (("drug", ["", "A10", "C07"]), ("smokes", ["", "no", "yes"]), ("code", ["", "I50", "E11.9"])):
        columns[name] = rng.choice(values, count)
    return pd.DataFrame(columns | {"ill": rng.choice(["J", "N"], count, p=[0.2, 0.8])})


def test_records_are_combined_as_pandas_does(tmp_path: Path) -> None:
    frame, made, report = drawn(), schema(), Report()
    rows = read(tmp_path, frame, made, report=report)
    assert (report.count, report.records, len(rows)) == (0, 300, frame["who"].nunique())
    ordered = frame.sort_values("visited").replace("", np.nan)
    numbers = ordered[["pulse", "lowest", "highest", "latest"]].astype(float).clip(0, 200)
    of, by_who = numbers.groupby(ordered["who"]), ordered.groupby("who")
    found = pd.DataFrame(rows.x, index=rows.holders, columns=made.feature_names).sort_index()
    for name, rule in (("pulse", "mean"), ("lowest", "min"), ("highest", "max"), ("latest", "last")):
        wanted = of[name].agg(rule)
        np.testing.assert_allclose(found[name], wanted.fillna(0) / 200, atol=1e-6)
        assert (found[f"{name} not known"] == wanted.isna()).all()
    np.testing.assert_allclose(found["drug"], by_who["drug"].count() / 10, atol=1e-6)
    assert (found["smokes = yes"] == by_who["smokes"].agg(lambda each: (each == "yes").any())).all()
    assert (found["code = circulatory"] == (by_who["code"].last() == "I50")).all()
    ill = by_who["ill"].agg(lambda each: (each == "J").any())
    assert rows.y is not None and dict(zip(rows.holders or [], rows.y == 1, strict=True)) == ill.to_dict()
    for place, person in list(enumerate(rows.holders or []))[:5]:
        alone = read(tmp_path, frame[frame["who"] == person], made)
        assert alone.holders == [person] and (alone.x[0] == rows.x[place]).all(), "bit for bit, without the others"


def test_without_a_date_rows_have_the_order_of_the_file_which_also_breaks_ties(tmp_path: Path) -> None:
    rules = {"rules": {"ill": "any", "drug": "count"}}
    frame = pd.DataFrame([{**drawn(1).iloc[0], "latest": latest} for latest in (10, 20, 30)])
    for one, visited, latest in (
        (rules, frame["visited"].tolist(), 30),
        (rules | {"by": "visited", "written": "dmy"}, ["1.3.2026", "2.2.2026", "28.02.2026"], 10),
        (DOCUMENT["one_record"], ["2026-03-01T09:00", "2026-03-01T11:00", "2026-03-01T10:00"], 20),
    ):
        rows = read(tmp_path, frame.assign(visited=visited), schema(one_record=one))
        assert rows.x[0, schema().feature_names.index("latest")] == np.float32(latest / 200)


def test_public_rows_are_combined_where_they_have_pseudonyms(tmp_path: Path) -> None:
    """Without pseudonyms, rows for predictions and public points contain the number of codes instead of the codes."""
    frame = pd.DataFrame([{**drawn(1).iloc[0], "drug": count} for count in (2, 5)]).drop(columns=["who", "visited"])
    report = Report()
    rows = read(tmp_path, frame, schema(), holders=False, report=report)
    assert rows.x[:, schema().feature_names.index("drug")].tolist() == [np.float32(0.2), np.float32(0.5)]
    assert report.records == 0
    public, private = (read(tmp_path, drawn(90), schema(), holders=holders) for holders in (False, True))
    assert len(public) == drawn(90)["who"].nunique() and (public.x == private.x).all()


def test_an_answer_may_be_in_one_record_only_and_numbers_are_combined(tmp_path: Path) -> None:
    frame, report = drawn(4).assign(who=["a", "a", "b", "b"], ill=["", "J", "", ""]), Report()
    rows = read(tmp_path, frame, schema(), report=report)
    assert rows.holders == ["a"] and rows.y is not None and rows.y.tolist() == [1]
    assert [str(fault.problem) for fault in report.faults] == ["The value to learn is missing for “b”."]
    columns = [each for each in DOCUMENT["columns"] if each["name"] != "ill"]
    columns += [{"name": "ill", "role": "target", "part": "value", "numbers": {"J": 10, "N": 20}}]
    target = {"kind": "numbers", "minimum": 0, "maximum": 100}
    made = schema(columns=columns, classes=[], target=target, one_record={"rules": {"ill": "mean", "drug": "count"}})
    rows = read(tmp_path, drawn(2).assign(who="a", ill=["J", "N"]), made)
    assert rows.y is not None and made.outcome.written(int(rows.y[0])).startswith("15")


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("visited", "soon", "is neither a date nor a number"),
        ("who", "", "belong to anyone"),
        ("pulse", "high", "not a number"),
    ],
)
def test_errors_name_their_row_and_a_missing_column_once(tmp_path: Path, column: str, value: str, words: str) -> None:
    frame, wrong, missing = drawn(3).astype({column: object}), Report(), Report()
    frame.loc[1, column] = value
    read(tmp_path, frame, schema(), report=wrong)
    [fault] = wrong.faults
    assert (fault.row, fault.column) == (3, column) and words in fault.problem
    read(tmp_path, frame.drop(columns=column), schema(), report=missing)
    assert [(fault.column, fault.problem) for fault in missing.faults] == [(column, "The column is missing.")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"one_record": {"rules": {"code": "mean"}}}, "Use one of: last."),
        ({"one_record": {"rules": {"smokes": "count"}}}, "Use one of: last, any."),
        ({"one_record": {"rules": {"who": "last"}}}, "Use one of: –."),
        ({"one_record": {"rules": {"code": "all"}}}, "“all”"),
        ({"one_record": {"rules": {"pulse": "median"}}}, "one_record.rules.pulse"),
        ({"one_record": {"by": "date"}}, "not a declared column"),
        ({"columns": [each for each in DOCUMENT["columns"] if each["role"] != "holder"]}, "no pseudonym column"),
    ],
)
def test_wrong_rules_are_refused_with_the_right_ones(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as error:
        schema_from_json(DOCUMENT | change)
    assert words in str(error.value)


def test_rules_are_kept_in_the_schema_and_compared() -> None:
    made = schema_to_json(schema())
    assert schema_from_json(made) == schema()
    assert encodes_alike(made, made | {"one_record": made["one_record"] | {"by": ""}})
    assert not encodes_alike(made, made | {"one_record": {"rules": {"pulse": "last"}}})
    assert not encodes_alike(made, {name: value for name, value in made.items() if name != "one_record"})


def test_all_codes_of_a_person_are_in_their_record(tmp_path: Path) -> None:
    """A cell may contain several codes; pandas puts every code into a separate row."""
    frame = drawn()
    rng = np.random.default_rng(8)
    codes = ["", "I50", "E11.9", "I10; E11.9", "C50;", "J45 ;I10"]
    frame["code"] = rng.choice(codes, len(frame))
    several = [each | {"several": True} if each["name"] == "code" else each for each in DOCUMENT["columns"]]
    made = schema(columns=several, one_record={"by": "visited", "rules": RULES | {"code": "all"}})
    rows = read(tmp_path, frame, made)
    found = pd.DataFrame(rows.x, index=rows.holders, columns=made.feature_names).sort_index()
    each = frame.assign(code=frame["code"].str.split(";")).explode("code")
    each["code"] = each["code"].str.strip()
    for chapter, wanted in (("circulatory", ("I50", "I10")), ("neoplasms", ("C50",)), ("respiratory", ("J45",))):
        has = each["code"].isin(wanted).groupby(each["who"]).any()
        assert (found[f"code = {chapter}"] == has).all()
    assert schema_from_json(schema_to_json(made)) == made
    for place, person in list(enumerate(rows.holders or []))[:3]:
        assert (read(tmp_path, frame[frame["who"] == person], made).x[0] == rows.x[place]).all(), "only theirs"
