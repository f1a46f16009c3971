"""Draft of a schema, made from the header and the first records of a file, for a person to correct.

A schema is public, so anything that its draft takes from private records, such as a largest value or a rare word, would
be published. A draft made from private records therefore contains only the names and kinds of columns. Ranges, values
and classes come from public records, or from the person who declares the schema.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import arrays, cells, image_files, limits
from learning.formats.arrays import array_missing
from learning.formats.cells import open_parquet, sound_parquet, values_of
from learning.formats.codes import CODE_SYSTEMS
from learning.formats.columns import DATE_UNITS, SEVERAL, shown
from learning.formats.files import open_content
from learning.formats.read import format_of
from learning.formats.records import header_place
from learning.formats.rows import DataError
from learning.formats.table import SEPARATORS, check_text, separator_line, text_of
from learning.formats.values import DATE_ORDERS, cell, day_number, has_thousands, number

_FIRST = 1000
_MOST_VALUES = 40
_MOST_CLASSES = 20
MOST_COLUMNS = 1000
_MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "k.A.", "-")
_HOLDER = re.compile(r"holder|pseudonym|patient|person|subject|participant|proband|\bwho\b|\bwer\b|user", re.IGNORECASE)
_LABEL = re.compile(r"label|class|target|outcome|diagnosis|result|krank|\by\b|income|readmitted", re.IGNORECASE)
#: Common names of code columns, with code systems. A column gets the first of these systems that contains all its
#: values.
_CODED = (
    (re.compile(r"diag|icd|cond", re.IGNORECASE), ("icd9", "icd10")),
    (re.compile(r"(?<![a-z])atc(?![a-z])|drug|medic|medik|wirkstoff", re.IGNORECASE), ("atc",)),
    (re.compile(r"loinc", re.IGNORECASE), ("loinc",)),
)
_IDENTIFIER = re.compile(r"(?<![a-z])(ids?|uuid|key|codes?|nr|plz|zip|postcode|phone|iban|mrn)(?![a-z])")
_BIRTH = re.compile(r"birth|born|geb|(?<![a-z])dob(?![a-z])", re.IGNORECASE)
#: Assumed maximum age in years, because dates of birth in a file do not show what the maximum is.
_AGES = 120
#: Numbers that begin with 0 are treated as text.
_CODE = re.compile(r"0\d+")
_FEW, _LONG, _FAR = 10, 7, 10
#: Negative numbers are treated as errors if at most one in this many cells is negative.
_RARE = 20
_LENGTH = 2000
_POINT, _COMMA = re.compile(r"[+-]?\d+\.\d+"), re.compile(r"[+-]?\d+,\d+")


@dataclass(frozen=True)
class Draft:
    """Schema as a JSON document, possibly not yet valid, with remarks about choices that a person must check.

    ``facts`` describe the first records by column: the share of unknown values (``missing``), and either the five
    ``quantiles`` of numbers or the number of different ``values``. For private records they are secret.
    """

    document: dict[str, Any]
    remarks: tuple[str, ...] = ()
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)


def schema_draft(path: Path, *, private: bool = False) -> Draft:
    """Return the draft of a schema for a file. For ``private`` records, it contains only names and kinds of columns.

    Raises:
        DataError: The file cannot be read, or contains too little information.
    """
    draft = _draft(path)
    return _without_values(draft) if private else draft


def schema_complete(document: dict[str, Any], public: dict[str, Any]) -> dict[str, Any]:
    """Return a private table's draft with the declarations for its columns from the schema of ``public`` records."""
    declared = {each["name"]: each for each in public.get("columns", []) if each["role"] != "holder"}
    columns = [declared.get(each["name"], each) for each in document.get("columns", [])]
    if not any(each["name"] in declared for each in columns):
        return document
    learned: dict[str, Any] = {name: public[name] for name in ("classes", "target") if name in public}
    return {**document, "columns": columns, **learned}


def _without_values(draft: Draft) -> Draft:
    """Return the draft without anything that reveals a record's values."""
    if _CLASSES in draft.remarks:  # the draft was made from the shapes of arrays
        return draft
    document = {name: value for name, value in draft.document.items() if name != "window"}
    extract = document.get("one_record")
    if "columns" in document:
        counted = extract["rules"] if extract else {}
        missing = [""] if extract else []
        document["columns"] = [
            each if each["name"] in counted else _kind_of(each, missing) for each in document["columns"]
        ]
    remarks = [each for each in draft.remarks if not isinstance(each, Sentence) or each.template not in OF_VALUES]
    return Draft(document if extract else {**document, "classes": []}, (_NAMES_ALONE, *remarks))


def _kind_of(column: dict[str, Any], missing: list[str]) -> dict[str, Any]:
    """Return a column's draft without its range, values and additional markers for unknown values."""
    if column["role"] != "feature":
        return column
    kept = {**column, "missing": missing}
    if column["type"] in ("numeric", "date"):
        del kept["minimum"], kept["maximum"]
    elif column["type"] == "categorical":
        kept["values"] = []
    return kept


_NAMES_ALONE = _(
    "For private rows, the draft contains only names and kinds of columns. Take ranges, values and classes from a "
    "codebook or a form, or import public rows first."
)


def _draft(path: Path) -> Draft:
    try:
        match format_of(path):
            case "npz":
                return _of_npz(path)
            case "MATLAB":
                return _of_mat(path)
            case "idx":
                return _of_idx(path)
            case "images":
                return _of_image_files(path)
            case "Parquet":
                return _of_parquet(path)
            case kind if kind in cells.KINDS:
                return _of_cells(path, kind)
        return _of_text(path)
    except DataError as error:
        raise error.at(file=path) from error


def _of_npz(path: Path) -> Draft:
    shapes = arrays.npz_shapes(path)
    if "x" not in shapes:
        raise array_missing("x", _("Save the records as an array named “x”."))
    shape, _dtype = shapes["x"]
    if len(shape) == 2:
        if shape[1] > MOST_COLUMNS:
            raise _too_wide(shape[1])
        columns = [
            {"name": f"x{number}", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 1, "missing": []}
            for number in range(1, shape[1] + 1)
        ]
        remark = _("The columns of “x” have no names. Give them readable names.")
        return Draft({"kind": "table", "columns": columns, "classes": ["0", "1"]}, (remark, _CLASSES))
    return _of_images(shape[1:])


def _of_mat(path: Path) -> Draft:
    shapes = arrays.mat_shapes(path)
    if "X" not in shapes:
        raise array_missing("X", arrays.NO_DIGITS)
    return _of_images(shapes["X"][:-1])


def _of_idx(path: Path) -> Draft:
    shape = arrays.idx_shape(path)
    if len(shape) < 3:
        raise DataError(_("This is not an idx file of images."), _("Choose the image file, not the label file."))
    return _of_images(shape[1:])


def _of_images(shape: Sequence[int]) -> Draft:
    if len(shape) not in (2, 3):
        problem = Sentence(_("A record has the shape %(shape)s."), shape=tuple(shape))
        raise DataError(problem, _("Save images as height × width, or height × width × channels."))
    height, width, channels = (*shape, 1)[:3]
    image = {"kind": "image", "height": height, "width": width, "channels": channels}
    return Draft({**image, "classes": [str(digit) for digit in range(10)]}, (_CLASSES,))


def _of_image_files(path: Path) -> Draft:
    seen = image_files.image_properties(path)
    [(size, count)] = seen.sizes.most_common(1)
    remarks = []
    if count < seen.sizes.total() or max(size) > _LARGEST:
        size = (_USUAL, _USUAL)
        remarks.append(_("The images are large or differ in size. All of them are resized to the size you declare."))
    if len(seen.classes) < 2:
        remarks.append(_("Fewer than two classes were found in folder names or a table. Name the classes."))
    image = {"kind": "image", "height": size[0], "width": size[1], "channels": seen.channels, "classes": seen.classes}
    return Draft(image | ({"window": list(seen.window)} if seen.window else {}), tuple(remarks))


_LARGEST, _USUAL = 256, 128
_CLASSES = _("The file numbers the classes from 0 without naming them. Enter their names.")


def _of_parquet(path: Path) -> Draft:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if len(names) > MOST_COLUMNS:
            raise _too_wide(len(names))
        with sound_parquet(path):
            batch = next(file.iter_batches(batch_size=_FIRST), None)
        records = [] if batch is None else zip(*map(values_of, batch.columns), strict=True)
        rows = [list(map(str, record)) for record in records]
    return _of_rows(names, rows, range(1, len(rows) + 1), {})


def _of_cells(path: Path, kind: str) -> Draft:
    records = cells.open_records(path, kind)
    if len(records.names) > MOST_COLUMNS:
        raise _too_wide(len(records.names))
    with cells.sound_cells(path, kind):
        first = [each for each in itertools.islice(records.rows, _FIRST) if any(value != "" for value in each[1])]
    rows = [list(map(str, row)) for _number, row in first]
    draft = _of_rows(records.names, rows, [number for number, _row in first], {})
    if records.ordered_by:
        draft = _of_extract(draft, records)
    return Draft(draft.document, (*records.remarks, *draft.remarks))


def _of_extract(draft: Draft, records: cells.FileRecords) -> Draft:
    """Return the draft with the declarations for columns of a health system's extract, and without a guessed class."""
    declared: dict[str, dict[str, Any]] = {
        records.ordered_by: {"name": records.ordered_by, "role": "ignore"},
        **{name: {"name": name, **_RECORDED} for name in records.counted},
    }
    columns = [declared.get(each["name"], each) for each in draft.document["columns"]]
    columns = [{"name": each["name"], "role": "ignore"} if each["role"] == "label" else each for each in columns]
    for each in columns:
        if each["role"] == "feature" and each["name"] not in declared:
            each["missing"] = sorted({"", *each["missing"]})
    one = {"by": records.ordered_by, "rules": dict.fromkeys(records.counted, "count")}
    remark = _("Each row describes a person at one moment. Choose how to combine a person's rows into one.")
    return Draft({**draft.document, "columns": columns, "classes": ["no", "yes"], "one_record": one}, (remark, _CHOOSE))


_CHOOSE = _(
    "Choose the class to learn. If the file mentions a condition only for people who have it, enter “(empty) = no” "
    "as another spelling. Then choose “the value that comes last in the schema”."
)
_RECORDED = {"role": "feature", "type": "numeric", "minimum": 0, "maximum": 1, "missing": []}


def _of_text(path: Path) -> Draft:
    with open_content(path) as content:
        text = text_of(content.stream)
        lines = list(itertools.islice(iter(lambda: text.readline(limits.LONGEST_LINE), ""), _FIRST))
    check_text(lines)
    declared = separator_line(lines[0]) if lines else ""
    if declared:
        lines[0] = "\n"
    if not any(line.strip() for line in lines):
        raise DataError(_("The file contains no records."), _("Add records."))
    delimiter = declared or _delimiter([line for line in lines if line.strip()])
    rows, places = _split(lines, delimiter)
    width = Counter(map(len, rows)).most_common(1)[0][0]
    if width > MOST_COLUMNS:
        raise _too_wide(width)
    first = header_place(rows)
    remarks: list[str] = []
    if first:
        remarks.append(Sentence(_("The header is row %(row)d. Rows above it are not read."), row=places[first]))
    header = _is_header(rows[first], rows[first + 1 :])
    names = rows[first] if header else [f"column {number}" for number in range(1, width + 1)]
    if not header:
        remarks.append(_("The file seems to have no header. Name the columns in order."))
    below = list(zip(rows, places, strict=True))[first + header :]
    other = [place for row, place in below if len(row) != len(names)]
    if other:
        template = _("%(count)d of %(total)d rows have more or fewer than %(columns)d cells (first: row %(row)d).")
        remarks.append(Sentence(template, count=len(other), total=len(below), columns=len(names), row=other[0]))
    cells = [row for row, _place in below if len(row) == len(names)]
    decimal = _decimal(cells, delimiter)
    options = {"delimiter": delimiter, "header": header, "comment": "", "decimal": decimal}
    draft = _of_rows(names, cells, [place for row, place in below if len(row) == len(names)], options)
    return Draft(draft.document, (*remarks, *draft.remarks), draft.facts)


def _split(lines: list[str], delimiter: str) -> tuple[list[list[str]], list[int]]:
    """Return the rows that are not blank, as cells, and the numbers of the lines where they begin."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    rows, places, start = [], [], 1
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                rows.append([str(cell(each)) for each in cells])
                places.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        problem = Sentence(_("The line cannot be read (%(error)s)."), error=error)
        raise DataError(problem, _("Check the line's quotes.")) from error
    return rows, places


def _too_wide(columns: int) -> DataError:
    problem = Sentence(
        _("There are %(count)s columns, but a draft can have at most %(most)s."), count=columns, most=MOST_COLUMNS
    )
    return DataError(problem, _("Write the schema yourself and upload it as a file."))


def _of_rows(names: list[str], rows: Sequence[Sequence[str]], places: Sequence[int], options: dict[str, Any]) -> Draft:
    """Return a draft made from records and their positions in the file."""
    if len(names) < 2:
        problem = Sentence(_("The file has only one column, “%(name)s”."), name=shown(names[0] if names else ""))
        raise DataError(problem, _("Separate the columns with commas, semicolons or tabs."))
    decimal = options.get("decimal", ".")
    values: dict[str, list[str]] = {}
    for place, name in enumerate(names):
        values.setdefault(name, [row[place] if len(row) > place else "" for row in rows])
    names = list(values)
    holder = next((name for name in names if _HOLDER.search(name)), None)
    label = _label(names, values, holder)
    columns = [_column(name, values[name], holder, label, decimal) for name in names]
    dated = [column for column in columns if column.get("type") == "date"]
    if not any(column["role"] == "feature" for column in columns):
        columns = [_text(column, values[column["name"]]) for column in columns]
    classes = sorted({value for value in values[label] if value}, key=_in_order)[:_MOST_CLASSES] if label else []
    remarks = [
        remark for column in columns for remark in column_remarks(column, values[column["name"]], places, decimal)
    ]
    unused = [column["name"] for column in columns if column["role"] == "ignore"]
    if unused:
        text = _("The draft does not use these columns: %(names)s. Give them another role if they should be used.")
        remarks.append(Sentence(text, names=shown(", ".join(unused))))
    if holder is None:
        remarks.append(_("No column seems to contain data holders' pseudonyms. If there is such a column, choose it."))
    if label is None:
        remarks.append(_("No column seems to contain classes to learn. If there is such a column, choose it."))
    if dated:
        remarks.append(
            _("Dates are converted to the time until another date. Choose that date, and the longest possible time.")
        )
    if not rows:
        remarks.append(_("There are no records to base a draft on. Declare every column yourself."))
    document = {"kind": "table", "columns": columns, "classes": classes, **options}
    return Draft(document, tuple(remarks), {name: _facts(values[name], decimal) for name in names})


def _text(column: dict[str, Any], values: Sequence[str]) -> dict[str, Any]:
    """Return the column as a text column if it contains sentences and has no other use."""
    if column["role"] != "ignore" or sum(" " in value for value in values) * 2 < len(values):
        return column
    return {"name": column["name"], "role": "text", "length": _LENGTH}


def _facts(values: list[str], decimal: str) -> dict[str, Any]:
    known = [value for value in values if value not in _MISSING]
    numbers = most_numbers(Counter(known), decimal)
    facts: dict[str, Any] = {"missing": 1 - len(known) / len(values) if values else 0.0}
    if numbers:
        return facts | {"quantiles": np.quantile(numbers, (0, 0.25, 0.5, 0.75, 1)).tolist()}
    return facts | {"values": len(set(known))}


def _label(names: list[str], values: dict[str, list[str]], holder: str | None) -> str | None:
    """Return the column with a name typical of class columns, or else the last column if it has few values."""
    named = [name for name in names if _LABEL.search(name)]
    for name in (*reversed(named), names[-1]):
        if name != holder and 2 <= len({value for value in values[name] if value}) <= _MOST_CLASSES:
            return name
    return None


def _column(name: str, values: list[str], holder: str | None, label: str | None, decimal: str) -> dict[str, Any]:
    if name == holder:
        return {"name": name, "role": "holder"}
    if name == label:
        return {"name": name, "role": "label", "labels": {}}
    counts = Counter(values)
    missing = [marker for marker in _MISSING if marker in counts]
    known = [value for value in counts if value not in missing]
    numbers = most_numbers(Counter({value: counts[value] for value in known}), decimal)
    feature: dict[str, Any] = {"name": name, "role": "feature"}
    if system := _code_system(name, known):
        return feature | {"type": system, "missing": missing}
    listed = [code.strip() for value in known for code in value.split(SEVERAL) if code.strip()]
    if system := _code_system(name, listed):
        return feature | {"type": system, "missing": missing, "several": True}
    if not numbers and (written := _written(known)):
        day = f"{datetime.now(tz=UTC).year + 1}-01-01"
        ends = {"minimum": 0, "maximum": _AGES} if _BIRTH.search(name) else _years_until(day, known, written)
        until = {"until": day, "unit": "years", "written": written}
        return feature | {"type": "date"} | until | ends | {"missing": missing}
    is_name = bool(numbers) and _is_identifier(name, values, known)
    if numbers and not is_name:
        cells = {value: each for value in known if (each := as_number(value, decimal)) is not None}
        negative = sum(counts[value] for value, each in cells.items() if each < 0)
        if 0 < negative * _RARE <= sum(counts[value] for value in cells):
            numbers = [number for number in numbers if number >= 0]
        low, high = round_range(*_usual(numbers))
        return feature | {"type": "numeric", "minimum": low, "maximum": high, "missing": missing}
    counts_rows = is_name and len(values) >= _FEW and len(known) == len(values)
    known += [word for word in missing if word in PERHAPS_VALUES]
    missing = [word for word in missing if word not in PERHAPS_VALUES]
    if 2 <= len(known) <= _MOST_VALUES and not counts_rows:
        return feature | {
            "type": "categorical",
            "values": sorted(known, key=_in_order),
            "missing": missing,
            "other": False,
        }
    return {"name": name, "role": "ignore"}


def _is_identifier(name: str, values: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether numbers are identifiers, judging by the column's name, their format, or their uniqueness.

    Such numbers only count or identify records, or they are codes without an order.
    """
    words = re.sub("([a-z])([A-Z])", r"\1 \2", name).lower()
    if _IDENTIFIER.search(words) or any(_CODE.fullmatch(value) for value in known):
        return True
    filled = [value for value in values if value]
    if len(filled) < _FEW or len(set(filled)) < len(filled) or not all(map(str.isdecimal, filled)):
        return False
    steps = {int(after) - int(before) for before, after in itertools.pairwise(filled)}
    return steps == {1} or min(map(len, filled)) >= _LONG


def _usual(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the range of the numbers without extreme outliers, which may be errors or codes for unknown values."""
    low, quarter, middle, high_quarter, high = np.quantile(numbers, (0.01, 0.25, 0.5, 0.75, 0.99))
    spread = _FAR * max(high_quarter - quarter, high - low if high_quarter == quarter else 0.0)
    near = [number for number in numbers if abs(number - middle) <= spread] if spread > 0 else []
    return (min(near), max(near)) if near else (min(numbers), max(numbers))


def round_range(low: float, high: float) -> tuple[int | float, int | float]:
    """Return a range widened to round numbers: from 0 if possible, up to 1, 2 or 5 times a power of ten.

    >>> round_range(18, 83), round_range(0.2, 0.7), round_range(-3, 4), round_range(5, 5)
    ((0, 100), (0, 1), (-5, 5), (0, 5))
    """
    return (0 if low >= 0 else -_rounded_up(-low)), (_rounded_up(high) if high > 0 else 0 if low < 0 else 1)


def _rounded_up(number: float) -> int | float:
    """Return a positive number rounded up to 1, 2 or 5 times a power of ten, as an integer if it is at least 1."""
    power = 10.0 ** math.floor(math.log10(number))
    least = next(step * power for step in (1, 2, 5, 10) if step * power >= number)
    return round(least) if least >= 1 else round(least, 12)


def _numbers(values: Iterable[str], decimal: str) -> list[float]:
    """Return all values as numbers; empty if any value is not a number."""
    found = [as_number(value, decimal) for value in values]
    return [] if None in found else [each for each in found if each is not None]


def _written(values: Sequence[str]) -> str | None:
    """Return the order of year, month and day in which all values are valid dates, or None."""
    fitting = (written for written in DATE_ORDERS if all(day_number(value, written) is not None for value in values))
    return next(fitting, None) if values else None


def _years_until(day: str, known: Sequence[str], written: str) -> dict[str, int]:
    """Return the shortest and longest time from the ``known`` dates to ``day``, in whole years."""
    end = day_number(day, "ymd")
    days = [number for value in known if (number := day_number(value, written)) is not None]
    assert end is not None and days, "the column contains dates"
    low, high = (float(end - each) / DATE_UNITS["years"] for each in (max(days), min(days)))
    least = min(0, math.floor(low))
    return {"minimum": least, "maximum": max(math.ceil(high), least + 1)}


def _code_system(name: str, values: Sequence[str]) -> str | None:
    """Return the classification that a column's name suggests and that contains all its values.

    Codes that begin with a letter can belong to ICD-9's supplementary factors or to ICD-10, which is more common.
    """
    for called, systems in _CODED:
        if not values or not called.search(name):
            continue
        for system in systems:
            lettered = system == "icd9" and not any(value[:1].isdigit() for value in values)
            if not lettered and all(CODE_SYSTEMS[system].place(value) is not None for value in values):
                return system
    return None


def _delimiter(lines: Sequence[str]) -> str:
    """Return the separator that splits the largest number of lines into an equal number of cells (more than one)."""

    def alike(separator: str) -> tuple[int, int]:
        try:
            widths = Counter(len(cells) for cells in csv.reader(lines, delimiter=separator) if cells)
        except csv.Error:
            return 0, 0
        [(width, count)] = widths.most_common(1)
        return (count, width) if width > 1 else (0, 0)

    return max(SEPARATORS, key=alike)


def _is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row is a header: it has no numbers, and few of its words occur in the rows below."""
    if any(_numbers([cell], decimal) for cell in first for decimal in (".", ",")):
        return False
    count = sum(
        bool(cell) and cell in {row[place] for row in rest if len(row) > place} for place, cell in enumerate(first)
    )
    return 2 * count < len(first)


def _decimal(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    cells = [cell for row in rows for cell in row]
    commas = sum(1 for cell in cells if _COMMA.fullmatch(cell) and not has_thousands(cell))
    points = sum(1 for cell in cells if _POINT.fullmatch(cell))
    return "," if delimiter != "," and commas > points else "."


def _in_order(value: str) -> tuple[int, float, str]:
    numbers = _numbers([value], ".")
    return (0, numbers[0], value) if numbers else (1, 0.0, value)


PERHAPS_VALUES = ("NA", "None")
"""Words that usually mean unknown, but are valid values in some columns, such as countries and complications."""
_PLACES = 5
#: A numeric column has at least `_FOR_EACH` numbers for each cell that is not a number, and at least `_DIFFERENT`
#: distinct numbers.
_FOR_EACH, _DIFFERENT = 4, 4
#: Numbers among other text are treated as codes if at most `_MORE_THAN_CODES` of them are distinct, and fewer than one
#: in `_FIFTH`.
_MORE_THAN_CODES, _FIFTH = 12, 5
_FEW_FILLED = 5


def as_number(value: str, decimal: str) -> float | None:
    """Return the finite number in a cell, with or without thousands commas; None if there is none."""
    if decimal == ",":
        value = "" if "." in value else value.replace(",", ".")
    elif has_thousands(value):
        value = value.replace(",", "")
    found = number(value)
    return found if math.isfinite(found) else None


def most_numbers(counts: Mapping[str, int], decimal: str) -> list[float]:
    """Return a numeric column's distinct numbers, ignoring a few cells of text; empty if the column is not numeric.

    Args:
        counts: Number of cells with each known value.
    """
    by_value = {value: as_number(value, decimal) for value in counts}
    found = [each for each in by_value.values() if each is not None]
    if len(found) == len(counts):
        return found
    cells = sum(counts[value] for value, each in by_value.items() if each is not None)
    others = sum(counts.values()) - cells
    are_codes = len(found) <= _MORE_THAN_CODES and len(found) * _FIFTH < cells
    return [] if len(found) < _DIFFERENT or others * _FOR_EACH > cells or are_codes else found


def column_remarks(column: dict[str, Any], values: Sequence[str], places: Sequence[int], decimal: str) -> Iterator[str]:
    """Yield remarks for the person who accepts the draft of a column.

    Args:
        places: Positions of the cells in the file.
    """
    name, missing = shown(column["name"]), column.get("missing", ())
    if column.get("type") == "numeric":
        numbers = [as_number(value, decimal) for value in values]
        none = [
            at for at, value, each in zip(places, values, numbers, strict=True) if each is None and value not in missing
        ]
        yield from _cells(_ONE_NO_NUMBER, _NO_NUMBERS, name, none, len(values))
        yield from _thousands(name, values, places)
        negative = [at for at, each in zip(places, numbers, strict=True) if each is not None and each < 0]
        known = sum(each is not None for each in numbers)
        if known > 1 and (len(negative) == 1 or len(negative) * _RARE <= known):
            yield from _cells(_ONE_NEGATIVE, _NEGATIVE, name, negative, known)
    if column.get("type") == "categorical":
        for word in PERHAPS_VALUES:
            if word in column["values"]:
                yield Sentence(_PERHAPS, column=name, word=word)
    if column["role"] == "label":
        once = [value for value, count in Counter(values).items() if count == 1]
        if len(values) >= _FEW_FILLED and len(once) == 1 and once[0]:
            place = places[values.index(once[0])]
            yield Sentence(_ONCE, column=name, row=place)


_ONE_NO_NUMBER = _("%(column)s: 1 of %(total)d cells is not a number (row %(rows)s).")
_NO_NUMBERS = _("%(column)s: %(count)d of %(total)d cells are not numbers (rows %(rows)s).")
_ONE_NEGATIVE = _("%(column)s: 1 of %(total)d cells is below 0 (row %(rows)s).")
_NEGATIVE = _("%(column)s: %(count)d of %(total)d cells are below 0 (rows %(rows)s).")
_PERHAPS = _(
    "%(column)s: “%(word)s” may be a value, or mean that the value is unknown. If it is unknown, declare it as missing."
)
_THOUSANDS = _(
    "%(column)s: “%(mark)s” in %(count)d cells (first: row %(row)d) may be a thousands separator or a decimal mark. "
    "Save the column without thousands separators."
)
_ONCE = _("%(column)s: one class occurs in only one row (row %(row)d).")
OF_VALUES = frozenset((_ONE_NEGATIVE, _NEGATIVE, _PERHAPS, _ONCE))
"""Templates of the remarks that reveal values of records. Other remarks only state what cannot be read."""


def _cells(one: str, several: str, name: str, places: Sequence[int], total: int) -> Iterator[str]:
    if places:
        rows = ", ".join(map(str, places[:_PLACES])) + (", …" if len(places) > _PLACES else "")
        yield Sentence(one if len(places) == 1 else several, column=name, count=len(places), total=total, rows=rows)


def _thousands(name: str, values: Sequence[str], places: Sequence[int]) -> Iterator[str]:
    """Yield a remark if every number with a point or comma may be a whole number with a thousands separator."""
    for mark in (",", "."):
        marked = [(at, value) for at, value in zip(places, values, strict=True) if mark in value]
        if marked and all(has_thousands(value.replace(".", ",")) for _at, value in marked):
            yield Sentence(_THOUSANDS, column=name, mark=mark, count=len(marked), row=marked[0][0])
