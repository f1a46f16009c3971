"""Tests of schemas."""

import bisect
import json
import re
import string
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from learning.formats import (
    DataError,
    ImageSchema,
    Report,
    TabularSchema,
    json_schema,
    read_file,
    schema_draft,
    schema_from_json,
    schema_to_json,
)
from learning.formats.codes import CODE_SYSTEMS
from learning.formats.columns import DateColumn
from learning.formats.values import day_number

DOCUMENT = {
    "kind": "table",
    "columns": [
        {"name": "who", "role": "holder"},
        {"name": "note", "role": "ignore"},
        {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100, "missing": ["?"]},
        {"name": "height", "role": "feature", "type": "numeric", "minimum": -1.5, "maximum": 2.5},
        {"name": "colour", "role": "feature", "type": "categorical", "values": ["red", "blue"], "other": True},
        {"name": "kind", "role": "feature", "type": "categorical", "values": ["1", "2"], "missing": ["?"]},
        {"name": "diagnosis", "role": "feature", "type": "icd9", "missing": ["?"]},
        {"name": "ill", "role": "label", "labels": {"N": "no", "Y": "yes"}},
    ],
    **{"classes": ["no", "yes"], "delimiter": ";", "header": True, "comment": "#"},
}
RECORD = {"age": 50, "height": "0.5", "colour": "blue", "kind": 2, "diagnosis": "428"}


@pytest.fixture
def schema() -> TabularSchema:
    schema = schema_from_json(DOCUMENT)
    assert isinstance(schema, TabularSchema)
    for each in (schema, ImageSchema(8, 9, 3, ("a", "b"))):
        assert schema_from_json(json.loads(json.dumps(schema_to_json(each)))) == each
    return schema


def test_a_record_becomes_scaled_numbers_and_one_hot_values(schema):
    [encoded] = schema.encode([RECORD])
    expected = {"age": 0.5, "age not known": 0, "height": 0.5, "colour = red": 0, "colour = blue": 1}
    expected |= {"colour = other": 0, "kind = 1": 0, "kind = 2": 1}
    expected |= {f"diagnosis = {group}": float(group == "circulatory") for group in CODE_SYSTEMS["icd9"].names}
    assert dict(zip(schema.feature_names, encoded.tolist(), strict=True)) == expected
    assert encoded.dtype == np.float32 and schema.shape == encoded.shape
    [unknown] = schema.encode([{**RECORD, "age": "?", "kind": "?", "diagnosis": "?"}])
    marked = {name for name, value in zip(schema.feature_names, unknown, strict=True) if value}
    assert marked == {"age not known", "height", "colour = blue"}, "nothing is guessed"
    both = schema.encode([RECORD, {**RECORD, "age": 1e9, "height": -1e9, "colour": "red"}])
    assert both[1, [0, 2]].tolist() == [1, 0], "clipped"
    assert (both[0] == encoded).all(), "nothing is learned from the records, which would reveal something about others"


@pytest.mark.parametrize(
    ("change", "place", "problem"),
    [
        ({"age": "old"}, "row 2, column age", "“old” is not a number"),
        ({"age": "nan"}, "row 2, column age", "not finite"),
        ({"height": float("inf")}, "row 2, column height", "not finite"),
        *(({"height": wrong}, "row 2, column height", "not a number") for wrong in (None, True, [1, 2])),
        ({"kind": "3"}, "row 2, column kind", "not among the declared values (1, 2)"),
        *(({"diagnosis": wrong}, "row 2, column diagnosis", "not a valid ICD-9 code") for wrong in ("X99", ["428"])),
        ({"shoe": 1}, "row 2", "Unknown columns: shoe"),
    ],
)
def test_a_wrong_value_is_refused_by_row_and_column(schema, change, place, problem):
    with pytest.raises(DataError) as error:
        schema.encode([RECORD, {**RECORD, **change}])
    assert str(error.value).startswith(place) and problem in str(error.value)
    assert error.value.remedy


def test_records_and_labels_must_be_whole_and_declared(schema):
    with pytest.raises(DataError, match=r"row 1, column kind: The column is missing"):
        schema.encode([{name: value for name, value in RECORD.items() if name != "kind"}])
    with pytest.raises(DataError, match="row 1: A record is not an object"):
        schema.encode(["age"])
    assert schema.encode_labels(["N", "yes", "Y", "no"]).tolist() == [0, 1, 1, 0]
    with pytest.raises(DataError, match=r"row 2, column ill: “maybe” is not a class\. Use one of: no, yes, N, Y\."):
        schema.encode_labels(["no", "maybe"])


def _with_column(role="feature", **column):
    declared = {"name": "x", "role": role, **column}
    return {"kind": "table", "columns": [declared, DOCUMENT["columns"][3]], "classes": ["a", "b"]}


IMAGES = {"kind": "image", "height": 8, "width": 8, "channels": 1, "classes": ["a", "b"]}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (None, "is not an object"),
        ({"kind": "sound"}, "“kind”"),
        ({name: value for name, value in IMAGES.items() if name != "channels"}, "“channels” is missing"),
        (IMAGES | {"height": 0}, "height of the images is 0"),
        (IMAGES | {"classes": ["a"]}, "fewer than two classes"),
        (IMAGES | {"classes": ["a", "=cmd|' /C calc'!A0"]}, "starts like a spreadsheet formula"),
        (IMAGES | {"classes": ["a", "b\r\nc"]}, "on one line"),
        (IMAGES | {"classes": ["a", "a"]}, "listed twice"),
        (IMAGES | {"classes": "ab"}, "“classes” is 'ab'"),
        *((IMAGES | {"window": window}, "window") for window in ([40, 0], [40], "soft tissue")),
        ({**DOCUMENT, "delimiter": ""}, "delimiter '' is not a single character"),
        ({**DOCUMENT, "delimiter": ",", "decimal": ","}, "decimal mark ',' must be a point or a comma, and must"),
        ({**DOCUMENT, "columns": ["age"]}, "“columns.1” is not an object"),
        ({**DOCUMENT, "columns": [DOCUMENT["columns"][3]] * 2}, "column height: The column is declared twice"),
        ({**DOCUMENT, "columns": [DOCUMENT["columns"][0]]}, "No column has the role “feature”"),
        (DOCUMENT | {"columns": [*DOCUMENT["columns"], {"name": "id", "role": "holder"}]}, "Two columns have the role"),
        (_with_column(type="numeric", minimum=0), "column x: “maximum” is missing"),
        (_with_column(type="numeric", minimum=1, maximum=1), "column x: The declared range"),
        (_with_column(type="numeric", minimum="0", maximum=1), "“minimum” is '0'"),
        (_with_column(type="categorical", values=[]), "No values are declared, or one is declared twice"),
        (_with_column(type="categorical", values=["a"], other=1), "“other” is 1. This must be true or false"),
        (_with_column(type="time"), "type 'time' is unknown"),
        (_with_column("label", labels={"1": "c"}), "contains “c”, which is not a class"),
        (_with_column("label", labels=["1"]), "“labels” is ['1']. This must be an object whose values are text"),
    ],
)
def test_a_wrong_schema_is_refused_with_what_to_do(document, problem):
    with pytest.raises(DataError) as error:
        schema_from_json(document)
    assert problem in str(error.value) and error.value.remedy


def test_a_schema_error_lists_all_errors():
    columns = [
        {"name": "x", "role": "feature", "type": "numeric", "minimum": True, "maximum": 1, "colour": "red"},
        {"name": "y", "role": "feature", "type": "numeric", "minimum": 3, "maximum": 2},
        {"name": "z", "role": "teacher"},
    ]
    with pytest.raises(DataError) as error:
        schema_from_json({"kind": "table", "columns": columns, "header": "yes"})
    assert [(fault.column, str(fault.problem)) for fault in error.value.report.faults] == [
        *(("x", "“minimum” is True."), ("x", "“colour” is unknown."), ("y", "The declared range is 3 to 2.")),
        ("z", "Role 'teacher' with type None is unknown."),
        *((None, "“classes” is missing."), (None, "“header” is 'yes'.")),
    ]


def test_the_json_schema_is_published_and_allows_what_is_read(settings):
    published = json.loads((settings.BASE_DIR / "docs" / "dataset.schema.json").read_text("utf-8"))
    assert published == json_schema(), "run: python manage.py dataset_schema > docs/dataset.schema.json"
    validator, schemas = Draft202012Validator(published), files("learning.formats").joinpath("schemas")
    shipped = [json.loads(schemas.joinpath(f"{name}.json").read_text("utf-8")) for name in ("adult", "diabetes")]
    for right in (DOCUMENT, schema_to_json(ImageSchema(8, 8, 3, ("a", "b"))), *shipped):
        assert validator.is_valid(right)
    for wrong in ({}, {**DOCUMENT, "colour": 1}, {**DOCUMENT, "columns": [{"name": "x", "role": "teacher"}]}):
        assert not validator.is_valid(wrong)


def test_images_are_checked_one_by_one():
    schema = ImageSchema(2, 2, 1, ("a", "b"))
    good = [[0, 0.5], [1, 0]]
    assert schema.encode([good, good]).shape == (2, 2, 2)
    for wrong, problem in [
        ([[0, 1]], "measures 1 × 2"),
        ([[0, 2], [0, 0]], "not between 0 and 1"),
        ([[0, float("nan")], [0, 0]], "not between 0 and 1"),
        ([[0], [0, 0]], "not a grid of numbers"),
        (1, "measures one number"),
    ]:
        with pytest.raises(DataError, match=f"row 2: .*{problem}"):
            schema.encode([good, wrong])


def chapter(system, code):
    place = CODE_SYSTEMS[system].place(code)
    return None if place is None else CODE_SYSTEMS[system].names[place]


#: First codes of the chapters in WHO's order; codes between two belong to the former.
ICD10_CHAPTERS = [
    *("A00", "C00", "D50", "E00", "F00", "G00", "H00", "H60", "I00", "J00", "K00", "L00", "M00", "N00", "O00", "P00"),
    *("Q00", "R00", "S00", "V00", "Z00"),
]


def test_icd10_codes_fall_into_the_chapters_that_begin_before_them():
    names = CODE_SYSTEMS["icd10"].names
    codes = [f"{letter}{number:02}" for letter in string.ascii_uppercase for number in range(100)]
    for code in codes:
        if code.startswith("U"):
            assert chapter("icd10", code) == "special purposes"
        elif code.startswith("D9"):
            assert chapter("icd10", code) is None
        else:
            assert chapter("icd10", code) == names[bisect.bisect_right(ICD10_CHAPTERS, code) - 1], code


def test_icd9_codes_fall_into_the_chapters_that_begin_before_them():
    starts = [1, 140, 240, 280, 290, 320, 390, 460, 520, 580, 630, 680, 710, 740, 760, 780, 800]
    names = CODE_SYSTEMS["icd9"].names
    for number in range(1, 1000):
        wanted = "diabetes mellitus" if number == 250 else names[bisect.bisect_right(starts, number) - 1]
        assert {chapter("icd9", written) for written in (str(number), f"{number:03}", f"{number}.1")} == {wanted}
    assert (chapter("icd9", "V57"), chapter("icd9", "E909")) == ("supplementary factors", "external causes")


def test_invalid_codes_are_refused():
    for system, codes in (
        ("icd9", ("", "0", "1000", "25O", "V", "E1.x", "250.8x", "-1", "²50")),
        ("icd10", ("", "e11", "E1", "250.0", "E11.9 ", "E11.12345", "E11\n")),
        ("atc", ("", "E01", "A1", "A10B2", "A10BA0", "a10", "A10BA022")),
        ("loinc", ("", "2345", "2345-77", "LP123-4")),
    ):
        assert [code for code in codes if chapter(system, code) is not None] == [], system


def test_codes_are_read_at_every_level_and_as_countries_write_them():
    for system, group, codes in (
        ("atc", "alimentary tract and metabolism", "A A10 A10B A10BA A10BA02"),
        ("atc", "cardiovascular system", "C07AB02"),
        ("icd10", "endocrine, nutritional, metabolic", "E11 E11.9 E119 E11.90G E11.- E11.90+ E11.90! E11.3X12"),
        *(("loinc", "chemistry", "2345-7"), ("loinc", "haematology", "718-7"), ("loinc", "other", "12345-6")),
        ("loinc", "vital signs", "8480-6"),
    ):
        assert {chapter(system, code) for code in codes.split()} == {group}, codes


def test_a_code_is_in_one_group_alone_and_listed_loinc_codes_have_their_check_digit():
    """The check digit is that of Luhn's algorithm over the digits before the hyphen."""
    listed = [code for _name, pattern in CODE_SYSTEMS["loinc"].groups for code in pattern.split("|")]
    for code in listed:
        digits, check = code.split("-")
        doubled = [int(d) * (2 if place % 2 == 0 else 1) for place, d in enumerate(reversed(digits))]
        assert (sum(divmod(n, 10)[0] + n % 10 for n in doubled) + int(check)) % 10 == 0, code
    codes = [f"{letter}{number:02}" for letter in ("", *string.ascii_uppercase) for number in range(100)]
    codes += [str(number) for number in range(1, 1000)] + list(string.ascii_uppercase) + listed
    for system in CODE_SYSTEMS.values():
        patterns = [re.compile(pattern) for _name, pattern in system.groups]
        assert [code for code in codes if sum(bool(each.fullmatch(code)) for each in patterns) > 1] == [], system.name


BORN = {"name": "born", "role": "feature", "type": "date", "minimum": 0, "maximum": 100, "until": "2026-01-01"}
STAY = {"name": "left", "role": "feature", "type": "date", "since": "came", "minimum": 0, "maximum": 20}
CAME = {"name": "came", "role": "ignore"}


def table(*columns: dict[str, Any], **options: Any) -> Any:
    label = {"name": "back", "role": "label"}
    return schema_from_json({"kind": "table", "columns": [*columns, label], "classes": ["no", "yes"], **options})


def encoded(tmp_path: Path, schema: Any, text: str, report: Report | None = None) -> np.ndarray:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    return read_file(path, schema, holders=False, report=report).x


def test_days_are_numbered_as_a_calendar_does() -> None:
    """Compared with Python's calendar in all kinds of leap years, and around the ends of months in other years."""
    days = [date(year, 1, 1) + timedelta(day) for year in (1899, 1900, 2000, 2024, 2100) for day in range(366)]
    changes = [date(year, month, 1) for year in range(1901, 2101, 9) for month in (1, 3)]
    days += [*changes, *(day - timedelta(1) for day in changes)]
    for day in days:
        for written, text in (("ymd", "%Y-%m-%d"), ("dmy", "%d.%m.%Y"), ("mdy", "%m/%d/%Y"), ("ymd", "%Y%m%d")):
            assert day_number(day.strftime(text), written) == day.toordinal(), (day, written)
    same = [day_number(text, "ymd") for text in ("2026-02-03T23:59:00Z", "2026-02-03 00:00:00", "2026-02-03")]
    assert set(same) == {day_number("3.2.2026", "dmy")}, "the time of day is ignored"


@pytest.mark.parametrize(
    ("written", "texts"),
    [
        ("ymd", ("", "2026-02-30", "26-02-03", "2026-02", "soon", "٢٠٢٦-٠٢-٠٣")),
        ("dmy", ("03.02.26", "1.2/2026", "2026-02-03", "20260203")),
        ("mdy", ("13/13/2026",)),
    ],
)
def test_text_in_another_order_is_no_date(written: str, texts: tuple[str, ...]) -> None:
    assert [text for text in texts if day_number(text, written) is not None] == []


def test_an_age_follows_from_a_fixed_date_in_every_kind_of_file(tmp_path: Path) -> None:
    written = encoded(tmp_path, table(BORN), "born,back\n1976-01-01,no\n2025-01-01,yes\n")
    days = (date(2026, 1, 1) - date(1976, 1, 1)) / timedelta(days=1)
    assert written[0, 0] == pytest.approx(days / 365.2425 / 100, abs=1e-7)
    frame = pd.DataFrame({"born": [date(1976, 1, 1), date(2025, 1, 1)], "back": ["no", "yes"]})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.xlsx", "a.parquet"):
        assert (read_file(tmp_path / name, table(BORN), holders=False).x == written).all(), name


def test_a_duration_follows_from_another_column_that_is_not_used_itself(tmp_path: Path) -> None:
    schema = table(CAME, STAY | {"unit": "days", "written": "dmy", "missing": ["", "?"]})
    rows = "1.3.2026,11.3.2026,no\n28.02.2024,1.3.2024,no\n,11.3.2026,no\n1.3.2026,?,no\n1.3.2026,1.3.2030,no\n"
    report = Report()
    x = encoded(tmp_path, schema, f"came,left,back\n{rows}", report)
    np.testing.assert_allclose(x, [[0.5, 0], [0.1, 0], [0, 1], [0, 1], [1, 0]], atol=1e-7)
    assert (report.count, report.missing["left"], report.clipped["left"]) == (0, 2, 1)
    column = DateColumn("left", 0, 9, ("?", ""), since="came", unit="days")
    found = column.durations(["2026-01-03", "2026-01-03"], ["", "2026-01-01"])
    assert found == ["?", 2.0], "an unknown reference becomes the date's first marker"


def test_a_number_within_the_range_is_the_duration_already_and_an_error_says_what_to_do(tmp_path: Path) -> None:
    """Synthetic rows and rows for predictions contain durations; a year of birth is not one."""
    report, other = Report(), Report()
    assert encoded(tmp_path, table(BORN), "born,back\n50,no\n1960,no\n", report).tolist() == [[0.5]]
    [fault] = report.faults
    assert (fault.row, fault.column, str(fault.problem)) == (3, "born", "“1960” is not a date.")
    assert table(BORN).encode([{"born": 50}]).tolist() == [[0.5]]
    with pytest.raises(DataError, match="as a number"):
        table(BORN).encode([{"born": "1976-01-01"}])
    rows = "came,left,back\n2026-03-01,11.3.2026,no\n?,2026-03-01,no\n2026-03-01,2026-03-02,no\n,2026-03-01,no\n"
    assert len(encoded(tmp_path, table(CAME, STAY), rows, other)) == 1
    assert [(fault.row, fault.column) for fault in other.faults] == [(2, "left"), (3, "left"), (5, "left")]
    assert "2026-03-31" in other.faults[0].remedy and "column came" in other.faults[1].problem


def test_a_schema_says_what_dates_are_counted_from_and_is_written_as_it_was_read() -> None:
    for change, words in (
        *(({"until": value}, "which date to count from") for value in (None, "born")),
        ({"since": "2026-01-01"}, "which date to count from"),
        *(({"until": value}, "which is not a date column") for value in ("back", "2026-02-30")),
        *(({name: value}, name) for name, value in (("unit", "weeks"), ("written", "iso"))),
    ):
        with pytest.raises(DataError) as error:
            table(BORN | change)
        assert words in str(error.value) and error.value.column == "born", change
    schema = table(BORN | {"missing": ["?"], "written": "mdy"}, STAY | {"since": "born", "unit": "days"})
    assert schema_from_json(schema_to_json(schema)) == schema
    assert schema.dates[1].reference_column == "born" and schema.dates[0].reference_column is None


def test_dates_of_a_file_are_drafted_with_the_years_that_they_span(tmp_path: Path) -> None:
    path, days = tmp_path / "a.csv", [n % 28 + 1 for n in range(30)]
    rows = [f"p{n},{day}.{n % 12 + 1}.19{40 + n},2026-01-{day:02},{'yn'[n % 2]}" for n, day in enumerate(days)]
    path.write_text("\n".join(["who,geburtsdatum,visited,back", *rows]))
    draft = schema_draft(path)
    _who, born, visited, _back = draft.document["columns"]
    assert (born["type"], born["written"], born["minimum"], born["maximum"]) == ("date", "dmy", 0, 120)
    assert (visited["type"], visited["written"], visited["minimum"]) == ("date", "ymd", 0)
    assert 1 <= visited["maximum"] < 20
    assert any("Dates are converted to the time until another date" in remark for remark in draft.remarks)
    schema_from_json(draft.document)


def timed(**seen: Any) -> Any:
    age = {"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100}
    columns = [
        *({"name": "who", "role": "holder"}, age, CAME),
        {"name": "seen", "role": "target", "part": "time", "since": "came", "unit": "days", **seen},
        {"name": "dead", "role": "target", "part": "event", "numbers": {"J": 1, "N": 0}},
    ]
    target = {"kind": "times", "ends": [30, 90, 365], "unit": "days"}
    return schema_from_json({"kind": "table", "columns": columns, "classes": [], "target": target})


def test_a_time_to_learn_follows_from_two_dates(tmp_path: Path) -> None:
    schema, path = timed(written="dmy"), tmp_path / "rows.csv"
    lines = "a,50,1.2.2026,1.3.2026,J\nb,60,31.12.2024,1.1.2026,N\nc,70,1.2.2026,45,J\n"
    path.write_text(f"who,age,came,seen,dead\n{lines}")
    rows = read_file(path, schema)
    wanted = schema.target.coded([np.array([28.0, 366.0, 45.0]), np.array([1.0, 0.0, 1.0])])
    assert rows.y is not None and rows.y.tolist() == wanted.tolist()
    assert schema_from_json(schema_to_json(schema)) == schema
    path.write_text("age\n50\n")  # rows to predict have neither date
    assert len(read_file(path, schema, labels=False, holders=False)) == 1
    for came, seen, message in (
        ("2026-02-01", "soon", "“soon” is not a date"),
        ("2026-02-01", "2026-01-01", "“-31.0” is not a value of “time”"),
        ("?", "2026-01-01", "but “\\?” is not a date"),
        ("2026-02-01", "", "“” is not a value of “time”"),
    ):
        report = Report()
        path.write_text(f"who,age,came,seen,dead\na,50,{came},{seen},J\nb,50,2026-01-01,2026-02-01,N\n")
        read_file(path, timed(), report=report)
        assert report.count == 1
        with pytest.raises(DataError, match=message):
            report.raise_faults()
