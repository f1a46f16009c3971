"""Dates become durations, against a reference that the schema declares."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learning.formats import DataError, Report, read_file, schema_draft, schema_from_json, schema_to_json
from learning.formats.columns import DateColumn
from learning.formats.values import day_number

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
    """Against Python's calendar: leap years of all kinds, and the days around every change of the month in others."""
    days = [date(year, 1, 1) + timedelta(day) for year in (1899, 1900, 2000, 2024, 2100) for day in range(366)]
    changes = [date(year, month, 1) for year in range(1901, 2101, 9) for month in (1, 3)]
    days += [*changes, *(day - timedelta(1) for day in changes)]
    for day in days:
        for written, text in (("ymd", "%Y-%m-%d"), ("dmy", "%d.%m.%Y"), ("mdy", "%m/%d/%Y"), ("ymd", "%Y%m%d")):
            assert day_number(day.strftime(text), written) == day.toordinal(), (day, written)
    same = [day_number(text, "ymd") for text in ("2026-02-03T23:59:00Z", "2026-02-03 00:00:00", "2026-02-03")]
    assert set(same) == {day_number("3.2.2026", "dmy")}, "the time of the day is left out"


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
    assert found == ["?", 2.0], "an unknown reference is the date's first marker"


def test_a_number_within_the_range_is_the_duration_already_and_an_error_says_what_to_do(tmp_path: Path) -> None:
    """As synthetic rows and rows for predictions have it; a year of birth is not."""
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
    assert any("Dates become the time" in remark for remark in draft.remarks)
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
        ("?", "2026-01-01", "count from is “\\?”"),
        ("2026-02-01", "", "“” is not a value of “time”"),
    ):
        report = Report()
        path.write_text(f"who,age,came,seen,dead\na,50,{came},{seen},J\nb,50,2026-01-01,2026-02-01,N\n")
        read_file(path, timed(), report=report)
        assert report.count == 1
        with pytest.raises(DataError, match=message):
            report.raise_faults()
