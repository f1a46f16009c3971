"""Interpretation of single cells and whole columns, the same for all formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from common.identities import spelling
from common.sentences import Sentence
from common.sentences import gettext_noop as _

if TYPE_CHECKING:  # importing it takes a tenth of a second, and most commands do not need it
    import pyarrow as pa

#: Stricter than Python's float(), which also accepts 1_000, digits of other scripts and nan.
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_DIGITS_16 = 10**15

_DATE = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2(\d{1,4})\.?(?:[T ].*)?", re.ASCII)
_DATE_TOGETHER = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)
DATE_ORDERS = {
    "ymd": _("year, month, day: 2026-03-31"),
    "dmy": _("day, month, year: 31.03.2026"),
    "mdy": _("month, day, year: 03/31/2026"),
}
"""Orders of year, month and day in a date, with an example. The separator does not matter."""
DATE_UNITS = {"years": 365.2425, "months": 365.2425 / 12, "days": 1.0}
"""Number of days in each unit, averaged over the Gregorian calendar."""


def cell(value: object) -> object:
    """Return a cell as a string or number: dates in ISO 8601 format, and whole numbers as integers.

    Unknown values become an empty string. A whole number so large that floats are inexact stays a float.

    >>> cell(None), cell(" a "), cell(2.0), cell(True), cell(date(2026, 3, 1)), cell(datetime(2026, 3, 1))
    ('', 'a', 2, 'true', '2026-03-01', '2026-03-01')
    """
    match value:
        case None:
            return ""
        case str():
            return value.strip() if value.isascii() else spelling(value)
        case bool() | np.bool_():
            return "true" if value else "false"
        case float():
            is_whole = value.is_integer() and abs(value) < _DIGITS_16
            return "" if value != value else int(value) if is_whole else float(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return (value.date() if value.time() == time() else value).isoformat()
        case date() | time():
            return value.isoformat()
        case np.generic():
            return cell(value.item())
    return value if isinstance(value, int) else str(value)


def key(value: object) -> str:
    """Return the key used to look up a cell among declared values: 1.0 equals 1, and TRUE equals true.

    >>> key("TRUE"), key(1.0), key("1.0"), key("no")
    ('true', '1', '1', 'no')
    """
    text = spelling(value)
    return lower if len(text) in (4, 5) and (lower := text.lower()) in ("true", "false") else text


def number(value: object) -> float:
    """Return the number in a cell, or NaN if there is none.

    >>> number("1.5"), number(2), number("1_0"), number("nan"), number(True)
    (1.5, 2.0, nan, nan, nan)
    """
    try:
        if isinstance(value, str):
            return float(value) if NUMBER.fullmatch(value.strip()) else np.nan
        is_number = isinstance(value, int | float | Decimal | np.number) and not isinstance(value, bool)
        return float(value) if is_number else np.nan  # type: ignore[arg-type]
    except OverflowError:
        return np.inf


def has_thousands(value: object) -> bool:
    """Return whether a text may be a number with commas as thousands separators.

    >>> has_thousands("1,000"), has_thousands("12,500.5"), has_thousands("0,125"), has_thousands("7,5")
    (True, True, False, False)
    """
    return isinstance(value, str) and _THOUSANDS.fullmatch(value) is not None


def inexact_fault(value: str) -> tuple[str, str]:
    """Return the problem and remedy for a code stored as a number, which may have lost digits."""
    text = _("%(value)s has more than 15 digits, so the file may have lost some of them.")
    return Sentence(text, value=value), _("Save the column as text.")


def day_number(value: object, written: str) -> int | None:
    """Return the day of a date as a consecutive number, ignoring the time of day; None if the value is not a date.

    >>> day_number("2026-03-01", "ymd") - day_number("28.02.2026", "dmy"), day_number("31.02.2026", "dmy")
    (1, None)
    """
    text = str(value).strip()
    together = _DATE_TOGETHER.fullmatch(text)
    if together and written == "ymd":
        parts = [int(part) for part in together.groups()]
    else:
        match = _DATE.fullmatch(text)
        if not match:
            return None
        by_name = dict(zip(written, (match[1], match[3], match[4]), strict=True))
        if len(by_name["y"]) != 4:
            return None
        parts = [int(by_name[name]) for name in "ymd"]
    try:
        return date(*parts).toordinal()
    except ValueError:
        return None


Value = TypeVar("Value")


class Vector(Sequence[object]):
    """Cells of an Arrow column of plain values. Single cells are read in the same way as by `values.cell`.

    >>> import pyarrow as pa
    >>> column = Vector(pa.array([" 1.5", "x", None]))
    >>> list(column), column.numbers.tolist()
    (['1.5', 'x', ''], [1.5, nan, nan])
    """

    def __init__(self, array: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            array = array.fill_null("") if array.null_count else array
            if pc.all(pc.string_is_ascii(array)).as_py() is not False:
                array = pc.ascii_trim_whitespace(array)
        self._array = array

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> Vector:
        import pyarrow as pa

        return cls(pa.array(texts, pa.string()))

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, place: int) -> object: ...
    @overload
    def __getitem__(self, place: slice) -> Vector: ...
    def __getitem__(self, place: int | slice) -> object:
        return Vector(self._array[place]) if isinstance(place, slice) else cell(self._array[place].as_py())

    def __iter__(self) -> Iterator[object]:
        cells, codes = self.distinct
        return map(cells.__getitem__, codes.tolist())

    def take(self, places: Sequence[int] | npt.NDArray[np.integer]) -> Vector:
        import pyarrow as pa

        return Vector(self._array.take(pa.array(places, pa.int64())))

    @cached_property
    def distinct(self) -> tuple[list[object], npt.NDArray[np.integer]]:
        """List that contains every different cell at least once, and each cell's position in this list."""
        encoded = self._array.dictionary_encode(null_encoding="encode")
        return [cell(value) for value in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """Number of each cell (n,), NaN if there is none."""
        import pyarrow as pa

        kind = self._array.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        if pa.types.is_string(kind):
            try:
                found = self._array.cast(pa.float64()).to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                return self._numbers_among_texts()
            return found if np.isfinite(found).all() else self._numbers_among_texts()  # “nan” is read as a string
        return mapped(self, number, np.float64)

    def _numbers_among_texts(self) -> npt.NDArray[np.float64]:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_number = pc.match_substring_regex(self._array, f"^(?:{NUMBER.pattern})$").to_numpy(zero_copy_only=False)
        found = np.full(len(self), np.nan)
        found[is_number] = self._array.filter(pa.array(is_number)).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return found

    def with_point(self, words: Sequence[str]) -> Vector | None:
        """Return the strings with commas replaced by points; None if a cell already has a point and must be examined.

        Cells in ``words`` stay unchanged.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pa.types.is_string(self._array.type) or any("," in word or "." in word for word in words):
            return None
        has_point = pc.any(pc.match_substring(self._array, ".")).as_py()
        return None if has_point else Vector(pc.replace_substring(self._array, ",", "."))


def mapped(values: Sequence[object], function: Callable[[Any], object], kind: type) -> npt.NDArray[Any]:
    """Return a function's result for each cell (n,), calling it once for equal strings or equal cells of a `Vector`."""
    if isinstance(values, Vector):
        cells, codes = values.distinct
        return np.array([function(each) for each in cells], kind)[codes]
    return np.array(by_text(values, function), kind)


def by_text(values: Sequence[object], function: Callable[[object], Value]) -> list[Value]:
    """Return a function's result for each cell; for a column of strings, call it once per distinct string."""
    if set(map(type, values)) != {str}:
        return [function(value) for value in values]
    made = {value: function(value) for value in set(values)}
    return [made[value] for value in values]


def are_missing(values: Sequence[object], markers: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return a mask of the cells that contain a declared marker for a missing value."""
    missing = np.zeros(len(values), bool)
    keys = {key(marker) for marker in markers}
    if not keys:
        return missing
    if not isinstance(values, Vector):
        return mapped(values, lambda value: key(value) in keys, bool)
    perhaps = np.isnan(values.numbers)
    if amounts := [amount for marker in keys if (amount := number(marker)) == amount]:
        perhaps |= np.isin(values.numbers, amounts)
    if perhaps.any():
        missing[perhaps] = mapped(values.take(np.flatnonzero(perhaps)), lambda value: key(value) in keys, bool)
    return missing


def numbers(values: Sequence[object]) -> npt.NDArray[np.float64]:
    """Return the number of each cell (n,), NaN if there is none."""
    return values.numbers if isinstance(values, Vector) else mapped(values, number, np.float64)


def taken(values: Sequence[object], places: Sequence[int] | npt.NDArray[np.integer]) -> Sequence[object]:
    return values.take(places) if isinstance(values, Vector) else [values[place] for place in places]


def blank_rows(columns: Iterable[Sequence[object]], count: int) -> npt.NDArray[np.int64]:
    """Return the indices of rows, out of ``count``, whose cells are all empty; none for a table without columns."""
    places = None
    for column in columns:
        part = column if places is None else taken(column, places)
        blank = mapped(part, lambda cell: cell == "", bool)
        places = np.arange(count)[blank] if places is None else places[blank]
        if not len(places):
            break
    return np.empty(0, np.int64) if places is None else places
