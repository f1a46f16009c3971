"""Several records of a holder become one, by declared rules; pandas is the oracle."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from learning.formats import DataError, Report, Rows, read_file, records_alike, schema_from_json, schema_to_json

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


def test_the_order_of_the_file_counts_without_a_date_and_breaks_ties(tmp_path: Path) -> None:
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
    """Public points and rows for predictions without them say how often, not what."""
    frame = pd.DataFrame([{**drawn(1).iloc[0], "drug": count} for count in (2, 5)]).drop(columns=["who", "visited"])
    report = Report()
    rows = read(tmp_path, frame, schema(), holders=False, report=report)
    assert rows.x[:, schema().feature_names.index("drug")].tolist() == [np.float32(0.2), np.float32(0.5)]
    assert report.records == 0
    public, private = (read(tmp_path, drawn(90), schema(), holders=holders) for holders in (False, True))
    assert len(public) == drawn(90)["who"].nunique() and (public.x == private.x).all()


def test_an_answer_may_stand_in_one_record_alone_and_numbers_are_combined(tmp_path: Path) -> None:
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
        ({"columns": [each for each in DOCUMENT["columns"] if each["role"] != "holder"]}, "no column of pseudonyms"),
    ],
)
def test_wrong_rules_are_refused_with_the_right_ones(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as error:
        schema_from_json(DOCUMENT | change)
    assert words in str(error.value)


def test_rules_are_kept_in_the_schema_and_compared() -> None:
    made = schema_to_json(schema())
    assert schema_from_json(made) == schema()
    assert records_alike(made, made | {"one_record": made["one_record"] | {"by": ""}})
    assert not records_alike(made, made | {"one_record": {"rules": {"pulse": "last"}}})
    assert not records_alike(made, {name: value for name, value in made.items() if name != "one_record"})


def test_all_codes_of_a_person_are_in_their_record(tmp_path: Path) -> None:
    """Cells may name several themselves; pandas puts every code into a row of its own."""
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
        assert (read(tmp_path, frame[frame["who"] == person], made).x[0] == rows.x[place]).all(), "theirs alone"
