"""The one reading of a cell, whichever format it comes from: texts, whole numbers, other numbers, dates.

Whole columns are in `vectors`.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal

import numpy as np

from common.identities import spelling
from common.sentences import Sentence
from common.sentences import gettext_noop as _

#: What Python takes for numbers and a form would not is left out: 1_000, digits of other scripts, nan.
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
"""Orders in which a date is written, with an example. The separator does not matter."""
DATE_UNITS = {"years": 365.2425, "months": 365.2425 / 12, "days": 1.0}
"""Days of each unit, in the mean of the Gregorian calendar."""


def cell(value: object) -> object:
    """Return a cell as text or number: a date as ISO 8601 writes it, a whole number without a fraction.

    Unknown values become an empty text. A whole number that a float cannot represent exactly stays a float.

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
    """Return the key by which a cell is found among declared values: 1.0 is 1, and TRUE is true.

    >>> key("TRUE"), key(1.0), key("1.0"), key("no")
    ('true', '1', '1', 'no')
    """
    text = spelling(value)
    return lower if len(text) in (4, 5) and (lower := text.lower()) in ("true", "false") else text


def number(value: object) -> float:
    """Return the number in a cell, NaN if there is none.

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
    """Return problem and remedy of a number that stands for something and may have lost digits."""
    text = _("%(value)s has more than 15 digits, so the file may have lost some of them.")
    return Sentence(text, value=value), _("Save the column as text.")


def day_number(value: object, written: str) -> int | None:
    """Number of a day, counted without gaps; None if this is not a date. A time of the day is left out.

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
