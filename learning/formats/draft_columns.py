"""Remarks of a draft about single columns: cells that do not match the others, and words that may be values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.columns import shown
from learning.formats.values import has_thousands, number

PERHAPS_VALUES = ("NA", "None")
"""Words for unknown values that are valid values of some columns, such as countries and complications."""
_PLACES = 5
#: A column is numeric if at least this many cells are numbers for each that is not, and this many are different.
_FOR_EACH, _DIFFERENT = 4, 4
#: More different numbers than a code has, or at least four in five numbers different.
_MORE_THAN_CODES, _FIFTH = 12, 5
_FEW, _RARE = 5, 20


def as_number(value: str, decimal: str) -> float | None:
    """Return the finite number in a cell, with or without thousands commas; None if there is none."""
    if decimal == ",":
        value = "" if "." in value else value.replace(",", ".")
    elif has_thousands(value):
        value = value.replace(",", "")
    found = number(value)
    return found if math.isfinite(found) else None


def most_numbers(counts: Mapping[str, int], decimal: str) -> list[float]:
    """Return the different numbers of a column; empty if it is not one of numbers. A few cells may contain other text.

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
        if len(values) >= _FEW and len(once) == 1 and once[0]:
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
    "%(column)s: “%(mark)s” in %(count)d cells (first: row %(row)d) may separate thousands or be a decimal mark. Save "
    "the column without marks between thousands."
)
_ONCE = _("%(column)s: one class occurs in a single row (row %(row)d).")
OF_VALUES = frozenset((_ONE_NEGATIVE, _NEGATIVE, _PERHAPS, _ONCE))
"""Templates of the remarks that reveal values of records; the others say what cannot be read."""


def _cells(one: str, several: str, name: str, places: Sequence[int], total: int) -> Iterator[str]:
    if places:
        rows = ", ".join(map(str, places[:_PLACES])) + (", …" if len(places) > _PLACES else "")
        yield Sentence(one if len(places) == 1 else several, column=name, count=len(places), total=total, rows=rows)


def _thousands(name: str, values: Sequence[str], places: Sequence[int]) -> Iterator[str]:
    """Yield a remark that every number with a mark in it may be a whole number of thousands."""
    for mark in (",", "."):
        marked = [(at, value) for at, value in zip(places, values, strict=True) if mark in value]
        if marked and all(has_thousands(value.replace(".", ",")) for _at, value in marked):
            yield Sentence(_THOUSANDS, column=name, mark=mark, count=len(marked), row=marked[0][0])
