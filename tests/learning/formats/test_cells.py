"""Cells mean the same in every format, and each row of a file is used, left out or refused."""

import json
from pathlib import Path
from typing import Any

import arff
import numpy as np
import pandas as pd
import pyreadstat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.formats import DataError, Report, TabularSchema, read_file, schema_draft, schema_from_json, table
from learning.formats.columns import CategoricalColumn, HolderColumn, IgnoredColumn, LabelColumn, NumericColumn
from learning.formats.table import _WholeBlocks
from learning.formats.values import number

FIELD = Path("tests", "field")
FORMATS = ("csv", "xlsx", "parquet", "sav", "dta", "arff")
COLUMNS = (
    HolderColumn("who"),
    NumericColumn("dose", 0, 10, missing=("", "-99")),
    CategoricalColumn("grade", ("1", "2", "NA"), missing=("-99",)),
    CategoricalColumn("smokes", ("TRUE", "FALSE")),
    LabelColumn("ill"),
)
SCHEMA = TabularSchema(COLUMNS, ("no", "yes"))
BOOLEANS_AS_TEXT = ("sav", "dta", "arff")  # these formats have none


def written(folder: Path, frame: pd.DataFrame, kind: str) -> Path:
    path = folder / f"a.{kind}"
    if kind in BOOLEANS_AS_TEXT:
        frame = frame.assign(**{name: frame[name].map(str) for name in frame if frame[name].dtype == bool})
    match kind:
        case "csv":
            frame.to_csv(path, index=False)
        case "xlsx":
            frame.to_excel(path, index=False)
        case "parquet":
            frame.to_parquet(path)
        case "sav":
            pyreadstat.write_sav(frame, path)
        case "dta":
            pyreadstat.write_dta(frame, path)
        case "arff":
            kinds = [(name, "REAL" if frame[name].dtype.kind in "if" else "STRING") for name in frame]
            rows = [[None if pd.isna(value) else value for value in row] for row in frame.itertuples(index=False)]
            path.write_text(arff.dumps({"relation": "a", "attributes": kinds, "data": rows}))
    return path


def reading(path: Path, schema: TabularSchema = SCHEMA) -> tuple[list[Any], list[tuple[Any, ...]], Report]:
    """Return records with their holders, errors by record with their columns, and the report."""
    report = Report()
    rows = read_file(path, schema, report=report)
    first = min(report.faults, key=lambda fault: fault.row or 0).row if report.faults else 0
    faults = [((each.row or 0) - (first or 0), each.column, each.problem, each.remedy) for each in report.faults]
    records = list(zip(rows.holders or [], rows.x.tolist(), (rows.y if rows.y is not None else ()), strict=True))
    return records, faults, report


FRAME = pd.DataFrame(
    {
        "who": [101.0, 102.0, 103.0, 104.0],
        "dose": [1.5, np.nan, -99.0, 3.0],
        "grade": [1.0, 2.0, -99.0, 2.0],
        "smokes": [True, False, True, True],
        "ill": ["yes", "no", "no", "yes"],
    }
)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_gives_the_same_records_in_every_format(tmp_path: Path, kind: str) -> None:
    records, faults, report = reading(written(tmp_path, FRAME, kind))
    found = [(holder, label) for holder, _x, label in records]
    assert not faults and found == [("101", 1), ("102", 0), ("103", 0), ("104", 1)]
    third = np.float32(0.3)
    assert [x for _holder, x, _label in records] == [
        [np.float32(0.15), 0, 1, 0, 0, 1, 0],
        [0, 1, 0, 1, 0, 0, 1],
        [0, 1, 0, 0, 0, 1, 0],
        [third, 0, 0, 1, 0, 1, 0],
    ]
    assert report.balance.parts["rows"].used == report.balance.parts["rows"].seen == 4


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_is_refused_for_the_same_reasons_in_every_format(tmp_path: Path, kind: str) -> None:
    frame = FRAME.assign(dose=["1", "1_0", "\uff11", "3"], ill=["yes", "no", "perhaps", ""])
    records, faults, report = reading(written(tmp_path, frame, kind))
    assert [holder for holder, _x, _label in records] == ["101"]
    assert [fault[:3] for fault in faults] == [
        (0, "dose", "“1_0” is not a number."),
        (1, "dose", "“１” is not a number."),
        (1, "ill", "“perhaps” is not a class."),
        (2, "ill", "“” is not a class."),
    ]
    assert report.balance.parts["rows"].refused == 3


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind not in ("csv", "arff")])  # texts are exact
@pytest.mark.parametrize("column", ["who", "grade", "ill"])
def test_numbers_that_may_have_lost_digits_are_refused(tmp_path: Path, kind: str, column: str) -> None:
    grade = CategoricalColumn("grade", ("1", "2"), other=True)
    schema = TabularSchema((*COLUMNS[:2], grade, *COLUMNS[3:]), ("no", "yes"))
    frame = FRAME.assign(**{column: [12345678901234567.0] * 4})
    records, faults, _report = reading(written(tmp_path, frame, kind), schema)
    assert not records and {fault[1] for fault in faults} == {column}
    assert {fault[3] for fault in faults} == {"Save the column as text."}


@pytest.mark.parametrize(
    "text", ["1_0", "\uff11", "nan", "inf", "-Infinity", "0x1f", "1,000", "1 000", "", "true", "1e999"]
)
def test_only_plain_numbers_are_numbers(text: str) -> None:
    assert not np.isfinite(number(text))
    assert list(NumericColumn("dose", 0, 1).faults(["1", text]))


def field(name: str, column: dict[str, Any], **options: Any) -> tuple[list[Any], list[tuple[Any, ...]], Report]:
    label = {"name": "y", "role": "label", "labels": options.pop("labels", {})}
    columns = [{"name": "who", "role": "holder"}, column, label]
    document = {"kind": "table", "columns": columns, "classes": ["no", "yes"], **options}
    schema = schema_from_json(document)
    assert isinstance(schema, TabularSchema)
    return reading(FIELD / name, schema)


V = {"name": "v", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 10, "missing": []}
INCOME = {**V, "name": "income"}


def test_rows_of_a_sheet_are_counted_as_excel_does() -> None:
    _records, _faults, report = field("excel-blank-rows.xlsx", V)
    assert [fault.row for fault in report.faults] == [6]
    assert report.balance.parts["rows"].left_out["The row is empty."].places == [3, 5]
    _records, _faults, report = field("excel-title-rows.xlsx", V)
    assert [(fault.row, fault.column) for fault in report.faults] == [(4, "v")]


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_titles_are_no_header(tmp_path: Path, kind: str) -> None:
    rows: list[list[Any]] = [["Study of 2026"], [], ["who", "dose", "ill"], ["ada", 1, "yes"]]
    rows += [["ben", "x", "no"], [], ["eve", 3, "no"]]
    path = tmp_path / f"a.{kind}"
    frame = pd.DataFrame([row + [""] * (3 - len(row)) for row in rows])
    frame.to_csv(path, index=False, header=False) if kind == "csv" else frame.to_excel(path, index=False, header=False)
    schema = TabularSchema((COLUMNS[0], COLUMNS[1], COLUMNS[4]), ("no", "yes"))
    records, _faults, report = reading(path, schema)
    assert [holder for holder, _x, _label in records] == ["ada", "eve"] and [each.row for each in report.faults] == [5]
    assert report.balance.parts["rows"].left_out["The row is above the header."].places == [1]
    draft = schema_draft(path)
    assert [each["name"] for each in draft.document["columns"]] == ["who", "dose", "ill"]
    assert "The header is row 3. Rows above it are not read." in draft.remarks


def test_a_table_whose_header_is_not_certain_is_not_drafted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Study,of,\nwho,dose,ill,\n" + "ada,1,yes,x\n" * 5)
    with pytest.raises(DataError, match="no header with the names of all 4 columns"):
        schema_draft(tmp_path / "a.csv")


def test_decimals_and_whole_floats_of_parquet_are_numbers() -> None:
    records, faults, _report = field("parquet-dec.parquet", V, labels={"TRUE": "yes", "False": "no"})
    assert not faults and [x for _holder, x, _label in records] == [[np.float32(0.15)], [np.float32(0.225)]]
    records, faults, _report = field("parquet-float-ids.parquet", V)
    assert [holder for holder, *_rest in records] == ["101", "102"]
    assert [fault[2] for fault in faults] == ["The record does not belong to anyone."]


def test_thousands_separators_are_never_decimal_marks() -> None:
    for name in ("thousands.tsv", "thousands2.tsv"):
        draft = schema_draft(FIELD / name)
        assert draft.document["decimal"] == "." and draft.document["columns"][1]["maximum"] == 20_000
        assert any(remark.startswith("income: “,” in") for remark in draft.remarks)
        records, faults, _report = field(name, INCOME, delimiter="\t")
        said = {fault[3].split(",")[0] for fault in faults}
        assert not records and said == {"Write the number without thousands separators and with a decimal point."}


def test_a_word_that_may_be_a_value_is_drafted_as_one() -> None:
    draft = schema_draft(FIELD / "namibia.csv")
    assert draft.document["columns"][1]["values"] == ["DE", "FR", "NA", "ZA"]
    assert draft.document["columns"][1]["missing"] == []
    assert [each.split(":")[0] for each in draft.remarks] == ["country"]


def test_numbers_of_a_record_have_names_of_their_own() -> None:
    schema = schema_from_json(json.loads((FIELD / "names-that-collide.json").read_text()))
    assert isinstance(schema, TabularSchema)
    assert len(set(schema.feature_names)) == len(schema.feature_names) == 4
    with pytest.raises(DataError, match="are both named “sex = f”"):
        TabularSchema((CategoricalColumn("sex", ("f", "m")), NumericColumn("sex = f", 0, 1)), ("no", "yes"))


def test_the_line_in_which_excel_names_the_separator_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeffsep=;\r\nwho;dose;ill\r\nada;1;yes\r\nben;x;no\r\n;;\r\n", "utf-8")
    schema = TabularSchema((COLUMNS[0], COLUMNS[1], COLUMNS[4]), ("no", "yes"), delimiter=";")
    records, _faults, report = reading(tmp_path / "a.csv", schema)
    assert [holder for holder, *_rest in records] == ["ada"] and [fault.row for fault in report.faults] == [4]
    assert report.balance.parts["rows"].left_out["The row is empty."].places == [5]
    assert schema_draft(tmp_path / "a.csv").document["delimiter"] == ";"


def test_a_cell_beyond_the_named_columns_is_refused(tmp_path: Path) -> None:
    rows = [["who", "dose", "ill", ""], ["ada", 1, "yes", "late"], ["ben", 2, "no", ""]]
    pd.DataFrame(rows).to_excel(tmp_path / "a.xlsx", index=False, header=False)
    schema = TabularSchema((COLUMNS[0], COLUMNS[1], COLUMNS[4]), ("no", "yes"))
    records, _faults, report = reading(tmp_path / "a.xlsx", schema)
    assert [holder for holder, *_rest in records] == ["ben"] and [fault.row for fault in report.faults] == [2]


def test_a_draft_says_what_does_not_fit(tmp_path: Path) -> None:
    lines = [f"p{place},{20 + place % 60},{18 + place % 20},{'yes' if place % 2 else 'no'}" for place in range(500)]
    lines[3] = lines[3].replace(",23,", ",seventy,")
    lines[5] = "p5,25,-5,yes"
    lines[7] += ",x"
    lines[9] = "p9,29,27,maybe"
    (tmp_path / "a.csv").write_text("\n".join(["who,age,bmi,ill", *lines]))
    draft = schema_draft(tmp_path / "a.csv")
    columns = {each["name"]: each for each in draft.document["columns"]}
    assert columns["age"]["type"] == columns["bmi"]["type"] == "numeric"
    assert (columns["age"]["maximum"], columns["bmi"]["minimum"]) == (100, 0)
    assert set(draft.remarks) == {
        "1 of 500 rows have more or fewer than 4 cells (first: row 9).",
        "age: 1 of 499 cells is not a number (row 5).",
        "bmi: 1 of 499 cells is below 0 (row 7).",
        "ill: one class occurs in only one row (row 11).",
    }


def test_a_column_that_most_records_leave_empty_is_drafted_from_the_numbers_that_are_there(tmp_path: Path) -> None:
    """For example the T-scores of a few people in a hospital's extract, all of them negative."""
    scores = {7: "-2.5", 90: "-1.1", 300: "-0.4", 301: "-3.2"}
    lines = [f"p{place},{scores.get(place, '')},{'yes' if place % 2 else 'no'}" for place in range(400)]
    (tmp_path / "a.csv").write_text("\n".join(["who,score,ill", *lines]))
    draft = schema_draft(tmp_path / "a.csv")
    column = draft.document["columns"][1]
    assert column["type"] == "numeric" and column["minimum"] < -3
    assert not any("below 0" in each for each in draft.remarks)


SHORT = TabularSchema((COLUMNS[0], COLUMNS[1], COLUMNS[4]), ("no", "yes"))


def test_blank_lines_comments_and_empty_records_are_left_out(tmp_path: Path) -> None:
    schema = TabularSchema(SHORT.columns, SHORT.classes, comment="#")
    (tmp_path / "a.csv").write_bytes(b"# by hand\n\nwho,dose,ill\r\nada,1,yes\r\n\r\n#\n,,\nben,2,no\n\n")
    records, faults, report = reading(tmp_path / "a.csv", schema)
    assert [holder for holder, *_rest in records] == ["ada", "ben"] and not faults
    rows = report.balance.parts["rows"]
    assert {reason: sorted(left.places) for reason, left in rows.left_out.items()} == {
        "The line is a comment.": [1, 6],
        "The row is empty.": [2, 5, 7, 9],
    }
    assert (rows.seen, rows.used) == (8, 2)
    columns = {"who": ["ada", None, None, None], "dose": [1.0, np.nan, None, None], "ill": ["yes", None, " ", None]}
    pd.DataFrame({**columns, "note": ["x", None, "", "y"], "seen": [[1], None, None, None]}).to_parquet(
        tmp_path / "a.parquet", row_group_size=2
    )
    schema = TabularSchema((*SHORT.columns, IgnoredColumn("note"), IgnoredColumn("seen")), SHORT.classes)
    records, _faults, report = reading(tmp_path / "a.parquet", schema)
    rows = report.balance.parts["rows"]
    assert (rows.seen, rows.used, rows.refused, rows.left_out["The row is empty."].places) == (4, 1, 1, [2, 3])


WRITTEN = {
    "who": [
        *("ada", "ben ", " cy", "101.0", "007", "M\u00fcller", "Mu\u0308ller", "", "=1", "x\u200by", "1E+5", "a" * 201)
    ],
    "dose": [
        *("5", "7.50", "1e0", "", "-99", "-99.0", "+3", "1_0", "nan", "inf", "1e999", "1,5", "7.", "1,000", "\uff11")
    ],
    "grade": ["1", "2.0", "NA", "-99", "3", "\u00e9"],
    "smokes": ["TRUE", "true", "False", "yes"],
    "ill": ["yes", "no", " yes", "maybe", ""],
}
ODD = [[], ["# no row"], ["", "", "", "", ""], ["ada"], ["ada", "1", "1", "true", "yes", "x"], [" ", "", "", "", ""]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.tuples(*map(st.sampled_from, WRITTEN.values())), st.sampled_from(ODD)), max_size=12),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", '"']),
    st.sampled_from(["", "#"]),
    st.sampled_from([1 << 22, 60]),
)
def test_whole_blocks_read_like_single_lines(tmp_path_factory, rows, mark, end, quote, comment, block) -> None:
    schema = TabularSchema(COLUMNS, ("no", "yes"), delimiter=mark, comment=comment)
    path, found = tmp_path_factory.mktemp("rows") / "a.csv", []
    cells = [[quote + each + quote if quote or mark in each else each for each in row] for row in [WRITTEN, *rows]]
    path.write_bytes(end.join(map(mark.join, cells)).encode())
    for is_usual in (_WholeBlocks._is_usual, lambda *_of: False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_WholeBlocks, "_is_usual", is_usual)
            patch.setattr(table, "_BLOCK", block)
            records, _faults, report = reading(path, schema)
        report.balance.check()
        notes = report.clipped, report.unknown, report.missing, report.balance.to_json()
        found.append((records, sorted(map(str, report.faults)), notes))
    assert found[0] == found[1]
