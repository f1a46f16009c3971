"""Tests of schemas."""

import bisect
import json
import re
import string
from importlib.resources import files

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from learning.formats import DataError, ImageSchema, TabularSchema, json_schema, schema_from_json, schema_to_json
from learning.formats.codes import CODE_SYSTEMS

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
    assert (both[0] == encoded).all(), "nothing is learned from the records: it would tell about the others"


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
        (IMAGES | {"classes": ["a", "a"]}, "named twice"),
        (IMAGES | {"classes": "ab"}, "“classes” is 'ab'"),
        *((IMAGES | {"window": window}, "window") for window in ([40, 0], [40], "soft tissue")),
        ({**DOCUMENT, "delimiter": ""}, "delimiter '' is not a single character"),
        ({**DOCUMENT, "delimiter": ",", "decimal": ","}, "decimal mark ',' must be a point or a comma, and must"),
        ({**DOCUMENT, "columns": ["age"]}, "“columns.1” is not an object"),
        ({**DOCUMENT, "columns": [DOCUMENT["columns"][3]] * 2}, "column height: The column is declared twice"),
        ({**DOCUMENT, "columns": [DOCUMENT["columns"][0]]}, "No column has the role feature"),
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
        ([[0], [0, 0]], "no grid of numbers"),
        (1, "measures one number"),
    ]:
        with pytest.raises(DataError, match=f"row 2: .*{problem}"):
            schema.encode([good, wrong])


def chapter(system, code):
    place = CODE_SYSTEMS[system].place(code)
    return None if place is None else CODE_SYSTEMS[system].names[place]


#: First codes of the chapters as WHO lists them, in order; what stands between two belongs to the former.
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
    """The digit of Luhn's algorithm, over the digits before the hyphen."""
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
