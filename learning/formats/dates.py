"""Dates as files write them, and the time between two of them."""

from __future__ import annotations

import re
from datetime import date

from common.sentences import gettext_noop as _

_PARTS = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2(\d{1,4})\.?(?:[T ].*)?", re.ASCII)
_TOGETHER = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)
WRITTEN = {
    "ymd": _("year, month, day: 2026-03-31"),
    "dmy": _("day, month, year: 31.03.2026"),
    "mdy": _("month, day, year: 03/31/2026"),
}
"""Orders in which a date is written, with an example. What separates the parts does not matter."""
UNITS = {"years": 365.2425, "months": 365.2425 / 12, "days": 1.0}
"""Days of each unit, in the mean of the Gregorian calendar."""


def day_number(value: object, written: str) -> int | None:
    """Number of a day, counted without gaps; None where this is no date. A time of the day is left out.

    >>> day_number("2026-03-01", "ymd") - day_number("28.02.2026", "dmy"), day_number("31.02.2026", "dmy")
    (1, None)
    """
    text = str(value).strip()
    together = _TOGETHER.fullmatch(text)
    if together and written == "ymd":
        parts = [int(part) for part in together.groups()]
    else:
        match = _PARTS.fullmatch(text)
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
