"""Combination of a holder's records into one, according to rules declared in the schema.

The result depends only on the holder's records and the schema. A rule uses only known values; if there are none, the
holder's value is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from common.declarations import DECLARED, Pairs, Text
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.columns import (
    ALL,
    ANY,
    COUNT,
    LAST,
    MEAN,
    MINIMUM,
    SEVERAL,
    CategoricalColumn,
    CodeColumn,
    LabelColumn,
    NumericColumn,
    TargetColumn,
    shown,
)
from learning.formats.rows import DataError
from learning.formats.values import are_missing, day_number, key, number, numbers

Combinable = NumericColumn | CategoricalColumn | CodeColumn | LabelColumn | TargetColumn


def rules_of(column: object) -> tuple[str, ...]:
    """Return the rules that can combine values of ``column``; the first rule is the default.

    >>> rules_of(CodeColumn("diagnosis", "icd10", several=True))
    ('last', 'all')
    """
    rules: tuple[str, ...] = getattr(column, "rules", ())
    return rules if getattr(column, "several", True) else (LAST,)


By = Annotated[Text, Field(description="Column of dates or numbers to sort by; empty for the order of the file.")]


@dataclass(frozen=True)
class OneRecord:
    """Rules that combine the records of a holder into one."""

    __pydantic_config__ = DECLARED
    by: By = ""
    written: Annotated[Literal["ymd", "dmy", "mdy"], Field(description="Date format of this column.")] = "ymd"
    rules: Annotated[
        tuple[tuple[str, str], ...],
        Pairs(Literal["last", "mean", "minimum", "maximum", "count", "any", "all"]),
        Field(description="Rule for each column; columns not listed keep their last known value."),
    ] = ()

    def rule(self, name: str) -> str:
        return dict(self.rules).get(name, LAST)

    def check(self, columns: Mapping[str, object]) -> None:
        """Check the rules against the declared columns, by name.

        Raises:
            DataError: A column does not exist, or its rule cannot be used for it.
        """
        if self.by and self.by not in columns:
            problem = Sentence(_("Records are ordered by “%(name)s”, which is not a declared column."), name=self.by)
            raise DataError(problem, _("Name a declared column of dates or numbers, or none at all."))
        for name, rule in self.rules:
            allowed = rules_of(columns.get(name))
            if rule not in allowed:
                problem = Sentence(_("The rule “%(rule)s” cannot combine the values of this column."), rule=rule)
                remedy = Sentence(_("Use one of: %(names)s."), names=", ".join(allowed) or "–")
                raise DataError(problem, remedy, column=name)

    def moments(self, values: Sequence[object]) -> list[tuple[float, str] | None]:
        """Return each record's sort value (a day or a number) and its spelling; None if the value is neither."""
        return [_moment(value, self.written) for value in values]

    def faults(self, values: Sequence[object]) -> Iterator[DataError]:
        """Yield an error for every value that cannot be used to order records."""
        for place, moment in enumerate(self.moments(values)):
            if moment is None:
                problem = Sentence(_("“%(value)s” is neither a date nor a number."), value=shown(values[place]))
                yield DataError(
                    problem, _("Correct this value, because records are ordered by it."), row=place + 1, column=self.by
                )


def _moment(value: object, written: str) -> tuple[float, str] | None:
    text = str(value)
    if not text:
        return float("-inf"), ""
    if len(text) > len("2026-03-31"):
        with suppress(ValueError):
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:  # the day may be different in another time zone
                text = moment.astimezone(UTC).isoformat()
    day = day_number(text, written)
    if day is not None:
        return float(day), text
    moment_number = number(text)
    return None if moment_number != moment_number else (moment_number, "")


def combined(
    columns: Mapping[str, Sequence[Any]],
    holders: Sequence[str],
    declared: Sequence[Combinable],
    classes: Sequence[str],
    one: OneRecord,
) -> tuple[dict[str, list[object]], list[str]]:
    """Return the combined values by column, with one record per holder in order of first occurrence, and the holders.

    Args:
        columns: Allowed values by column; an empty value is unknown.
        classes: Class names in order, for the rule ``any`` of a label.
    """
    owners = list(dict.fromkeys(holders))
    number_of = {name: number for number, name in enumerate(owners)}
    owner = np.array([number_of[name] for name in holders], np.int64)
    moments = one.moments(columns[one.by]) if one.by else [(0.0, "")] * len(holders)
    order = sorted(range(len(holders)), key=lambda place: (owner[place], moments[place]))
    starts = np.searchsorted(owner[order], np.arange(len(owners)))
    made: dict[str, list[object]] = {}
    for column in declared:
        values = [columns[column.name][place] for place in order]
        made[column.name] = _values(column, values, owner[order], starts, one.rule(column.name), classes)
    return made, owners


def _values(
    column: Combinable,
    values: list[Any],
    owner: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    rule: str,
    classes: Sequence[str],
) -> list[object]:
    """Return one value per owner; an owner's values are contiguous and start at the index in ``starts``."""
    missing = getattr(column, "missing", ("",))
    unknown_ones = {"", *missing} - {written for written, _meant in getattr(column, "spellings", ())}
    known = ~are_missing(values, tuple(unknown_ones))
    if rule == ALL:
        ends = [*starts[1:].tolist(), len(values)]
        entries = [
            dict.fromkeys(np.array(values, object)[first:end][known[first:end]])
            for first, end in zip(starts, ends, strict=True)
        ]
        return [SEVERAL.join(codes) or (missing[0] if missing else "") for codes in entries]
    if rule in (LAST, ANY):
        rank = np.arange(len(values))
        if rule == ANY:
            rank += len(values) * _places(column, values, classes)
        chosen = np.maximum.reduceat(np.where(known, rank, -1), starts)
        unknown = missing[0] if missing else ""
        return [unknown if place < 0 else values[place % len(values)] for place in chosen.tolist()]
    count = np.bincount(owner[known], minlength=len(starts))
    if rule == COUNT:  # known values count as 1, others as 0
        return np.add.reduceat(np.array(values, np.int64), starts).tolist()
    present = [value for value, is_known in zip(values, known, strict=True) if is_known]
    if isinstance(column, TargetColumn):
        found = column.encode(present)
    else:
        assert isinstance(column, NumericColumn), "others have no such rule"
        found = numbers(present).clip(column.minimum, column.maximum)
    if rule == MEAN:  # added in order, so that every bit of the mean depends only on the owner's own numbers
        made = np.bincount(owner[known], found, len(starts)) / np.maximum(count, 1)
    else:
        made = np.full(len(starts), np.inf if rule == MINIMUM else -np.inf)
        (np.minimum if rule == MINIMUM else np.maximum).at(made, owner[known], found)
    return [
        value if some else (missing[0] if missing else "") for value, some in zip(made.tolist(), count, strict=True)
    ]


def _places(column: Combinable, values: list[Any], classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return each value's position in the declared order."""
    if isinstance(column, LabelColumn):
        place = {name: number for number, name in enumerate(classes)}
        spelled = {key(name): name for name in classes} | {key(each): meant for each, meant in column.spellings}
        return np.array([place.get(spelled.get(key(value), ""), 0) for value in values], np.int64)
    assert isinstance(column, CategoricalColumn), "others have no such rule"
    place = {key(name): number + 1 for number, name in enumerate(column.values)}
    return np.array([place.get(key(value), 0) for value in values], np.int64)
