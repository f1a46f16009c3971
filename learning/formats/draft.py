"""Draft of a schema from the header and the first records of a file, for somebody to correct.

A schema is public. What a draft takes from private records, a largest value or a rare word, would become public with
it: ranges are widened to round numbers, and whoever declares the schema has to say that they know them from elsewhere.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import idx, limits, mat, npz
from learning.formats.arrays import array_missing
from learning.formats.columns import shown
from learning.formats.files import open_content
from learning.formats.icd9 import icd9_group
from learning.formats.parquet import open_parquet, sound_parquet
from learning.formats.read import format_of
from learning.formats.rows import DataError
from learning.formats.table import SEPARATORS, text_of

_FIRST = 1000
_MOST_VALUES = 40
_MOST_CLASSES = 20
MOST_COLUMNS = 1000
_MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "k.A.", "-")
_HOLDER = re.compile(r"holder|pseudonym|patient|person|subject|participant|proband|\bwho\b|\bwer\b|user", re.IGNORECASE)
_LABEL = re.compile(r"label|class|target|outcome|diagnosis|result|krank|\by\b|income|readmitted", re.IGNORECASE)
_DIAGNOSIS = re.compile(r"diag|icd", re.IGNORECASE)
_POINT, _COMMA = re.compile(r"[+-]?\d+\.\d+"), re.compile(r"[+-]?\d+,\d+")


@dataclass(frozen=True)
class Draft:
    """Schema as a JSON document, perhaps not yet sound, and what could not be told from the file."""

    document: dict[str, Any]
    remarks: tuple[str, ...] = ()


def schema_draft(path: Path) -> Draft:
    """Draft of a schema for a file.

    Raises:
        DataError: the file cannot be read, or tells too little.
    """
    try:
        match format_of(path):
            case "npz":
                return _of_npz(path)
            case "mat":
                return _of_mat(path)
            case "idx":
                return _of_idx(path)
            case "parquet":
                return _of_parquet(path)
        return _of_text(path)
    except DataError as error:
        raise error.at(file=path) from error


def _of_npz(path: Path) -> Draft:
    found = npz.shapes(path)
    if "x" not in found:
        raise array_missing("x", _("Save the records as the array x."))
    shape, _dtype = found["x"]
    if len(shape) == 2:
        if shape[1] > MOST_COLUMNS:
            raise _too_wide(shape[1])
        columns = [
            {"name": f"x{number}", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 1, "missing": []}
            for number in range(1, shape[1] + 1)
        ]
        remark = _("The columns of x have no names and are taken as they are: name them, so that people can read them.")
        return Draft({"kind": "table", "columns": columns, "classes": ["0", "1"]}, (remark, _CLASSES))
    return _of_images(shape[1:])


def _of_mat(path: Path) -> Draft:
    found = mat.shapes(path)
    if "X" not in found:
        raise array_missing("X", mat.NO_DIGITS)
    return _of_images(found["X"][:-1])


def _of_idx(path: Path) -> Draft:
    shape = idx.shape_of(path)
    if len(shape) < 3:
        raise DataError(_("This is no idx file of images."), _("Choose the file of images, not of labels."))
    return _of_images(shape[1:])


def _of_images(shape: Sequence[int]) -> Draft:
    if len(shape) not in (2, 3):
        problem = Sentence(_("A record has the shape %(shape)s."), shape=tuple(shape))
        raise DataError(problem, _("Save images as height × width, or height × width × channels."))
    height, width, channels = (*shape, 1)[:3]
    image = {"kind": "image", "height": height, "width": width, "channels": channels}
    return Draft({**image, "classes": [str(digit) for digit in range(10)]}, (_CLASSES,))


_CLASSES = _("The file numbers the classes from 0 and does not name them: correct their names.")


def _of_parquet(path: Path) -> Draft:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if len(names) > MOST_COLUMNS:
            raise _too_wide(len(names))
        with sound_parquet(path):
            batch = next(file.iter_batches(batch_size=_FIRST), None)
        records = [] if batch is None else zip(*(column.to_pylist() for column in batch.columns), strict=True)
        rows = [["" if value is None else str(value) for value in record] for record in records]
    return _of_rows(list(dict.fromkeys(names)), rows, {})


def _of_text(path: Path) -> Draft:
    with open_content(path) as content:
        text = text_of(content.stream)
        lines = list(itertools.islice(iter(lambda: text.readline(limits.LONGEST_LINE), ""), _FIRST))
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise DataError(_("The file holds no records."), _("Add some."))
    delimiter = _delimiter(lines)
    try:
        rows = [[cell.strip() for cell in cells] for cells in csv.reader(lines, delimiter=delimiter) if cells]
    except csv.Error as error:
        problem = Sentence(_("The line cannot be read (%(error)s)."), error=error)
        raise DataError(problem, _("Check its quotes.")) from error
    width = Counter(map(len, rows)).most_common(1)[0][0]
    if width > MOST_COLUMNS:
        raise _too_wide(width)
    header = _is_header(rows[0], rows[1:])
    names = rows[0] if header else [f"column {number}" for number in range(1, width + 1)]
    cells = [row for row in rows[1 if header else 0 :] if len(row) == len(names)]
    decimal = _decimal(cells, delimiter)
    options = {"delimiter": delimiter, "header": header, "comment": "", "decimal": decimal}
    draft = _of_rows(list(dict.fromkeys(names)), cells, options)
    if header:
        return draft
    return Draft(
        draft.document, (_("The file seems to have no header: name its columns, in their order."), *draft.remarks)
    )


def _too_wide(columns: int) -> DataError:
    problem = Sentence(
        _("There are %(count)s columns; a draft has at most %(most)s."), count=columns, most=MOST_COLUMNS
    )
    return DataError(problem, _("Write the schema yourself and give it as a file."))


def _of_rows(names: list[str], rows: Sequence[Sequence[str]], options: dict[str, Any]) -> Draft:
    if len(names) < 2:
        problem = Sentence(_("The file has one column, “%(name)s”."), name=shown(names[0] if names else ""))
        raise DataError(problem, _("Separate the columns by commas, semicolons or tabs."))
    decimal = options.get("decimal", ".")
    values = {name: [row[place] for row in rows if len(row) > place] for place, name in enumerate(names)}
    holder = next((name for name in names if _HOLDER.search(name)), None)
    label = _label(names, values, holder)
    columns = [_column(name, values[name], holder, label, decimal) for name in names]
    classes = sorted({value for value in values[label] if value}, key=_in_order)[:_MOST_CLASSES] if label else []
    remarks = []
    if holder is None:
        remarks.append(_("No column looks like pseudonyms of data holders: choose it if there is one."))
    if label is None:
        remarks.append(_("No column looks like classes to learn: choose it if there is one."))
    if not rows:
        remarks.append(_("There are no records to draft from: declare every column yourself."))
    return Draft({"kind": "table", "columns": columns, "classes": classes, **options}, tuple(remarks))


def _label(names: list[str], values: dict[str, list[str]], holder: str | None) -> str | None:
    """The column that is named like classes, or else the last one, if it has few values."""
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
    found = Counter(values)
    missing = [marker for marker in _MISSING if marker in found]
    known = [value for value in found if value not in missing]
    numbers = _numbers(known, decimal)
    feature: dict[str, Any] = {"name": name, "role": "feature"}
    if known and _DIAGNOSIS.search(name) and all(map(_is_icd9, known)):
        return feature | {"type": "icd9", "missing": missing}
    if numbers:
        low, high = round_range(min(numbers), max(numbers))
        return feature | {"type": "numeric", "minimum": low, "maximum": high, "missing": missing}
    if 2 <= len(known) <= _MOST_VALUES:
        return feature | {"type": "categorical", "values": sorted(known), "missing": missing, "other": False}
    return {"name": name, "role": "ignore"}


def round_range(low: float, high: float) -> tuple[int | float, int | float]:
    """A range of round numbers around one: it begins at 0 where it can, and ends at 1, 2 or 5 times a power of ten.

    >>> round_range(18, 83), round_range(0.2, 0.7), round_range(-3, 4), round_range(5, 5)
    ((0, 100), (0, 1), (-5, 5), (0, 5))
    """
    return (0 if low >= 0 else -_rounded_up(-low)), (_rounded_up(high) if high > 0 else 0 if low < 0 else 1)


def _rounded_up(number: float) -> int | float:
    """The next of 1, 2, 5, 10, … above a positive number, whole where it is 1 or more."""
    power = 10.0 ** math.floor(math.log10(number))
    found = next(step * power for step in (1, 2, 5, 10) if step * power >= number)
    return round(found) if found >= 1 else round(found, 12)


def _numbers(values: Iterable[str], decimal: str) -> list[float]:
    """All values as numbers; empty where one is none."""
    numbers = []
    for value in values:
        try:
            number = float(value.replace(",", ".") if decimal == "," else value)
        except ValueError:
            return []
        if math.isfinite(number):
            numbers.append(number)
    return numbers


def _is_icd9(value: str) -> bool:
    try:
        icd9_group(value)
    except ValueError:
        return False
    return True


def _delimiter(lines: Sequence[str]) -> str:
    """The separator that splits most lines alike, into more than one cell."""

    def alike(separator: str) -> tuple[int, int]:
        try:
            widths = Counter(len(cells) for cells in csv.reader(lines, delimiter=separator) if cells)
        except csv.Error:
            return 0, 0
        [(width, count)] = widths.most_common(1)
        return (count, width) if width > 1 else (0, 0)

    return max(SEPARATORS, key=alike)


def _is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: it holds no number, and no word that the rows below it hold, too."""
    if any(_numbers([cell], decimal) for cell in first for decimal in (".", ",")):
        return False
    return not any(
        cell and cell in {row[place] for row in rest if len(row) > place} for place, cell in enumerate(first)
    )


def _decimal(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    cells = [cell for row in rows for cell in row]
    commas = sum(1 for cell in cells if _COMMA.fullmatch(cell))
    points = sum(1 for cell in cells if _POINT.fullmatch(cell))
    return "," if delimiter != "," and commas > points else "."


def _in_order(value: str) -> tuple[int, float, str]:
    numbers = _numbers([value], ".")
    return (0, numbers[0], value) if numbers else (1, 0.0, value)
