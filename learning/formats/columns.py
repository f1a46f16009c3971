"""Declared columns of a table: their form in a document, and the encoding of their values as numbers.

Each kind of column is a class; its fields also define its JSON document, the JSON Schema and the import page.

Everything here is declared publicly before any private row is read: category lists, value ranges, scaling. Anything
learned from private rows, such as a mean or the categories that occur, would be a separate release outside the ledger.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from common.declarations import DECLARED, OMITTED, Flag, Number, Pairs, Text, Texts, Whole
from common.identities import is_inexact
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.codes import CODE_SYSTEMS, CodeSystem
from learning.formats.rows import DataError
from learning.formats.values import (
    DATE_ORDERS,
    DATE_UNITS,
    are_missing,
    day_number,
    has_thousands,
    inexact_fault,
    key,
    mapped,
    number,
    numbers,
)

LAST, ANY, ALL, MEAN, MINIMUM, MAXIMUM, COUNT = "last", "any", "all", "mean", "minimum", "maximum", "count"
RULES = {
    LAST: _("the last value"),
    MEAN: _("the mean"),
    MINIMUM: _("the smallest value"),
    MAXIMUM: _("the largest value"),
    COUNT: _("the number of values"),
    ANY: _("the value that comes last in the schema"),
    ALL: _("all codes that occur"),
}
"""Descriptions of the rules that combine a holder's values in a column into one."""

SPELLINGS = _("Other spellings, one per line")
Missing = Annotated[
    Texts, Field(title=_("Unknown values, one per line"), description="Values in the file that mean “unknown”.")
]
Other = Annotated[
    Flag,
    Field(
        title=_("other values become “other”"),
        description="Whether an undeclared value counts as “other” or is an error.",
    ),
]
Length = Annotated[
    Whole, Field(title=_("Bytes to keep"), description="Number of UTF-8 bytes of a text that are kept, from its start.")
]
Several = Annotated[
    Flag,
    OMITTED,
    Field(
        title=_("several codes per cell, separated by semicolons"),
        description="Whether a value may contain several codes, separated by semicolons.",
    ),
]
Until = Annotated[
    Text | None,
    OMITTED,
    Field(description="End of the period: a date (2026-01-01) or a column of dates."),
]
Since = Annotated[
    Text | None, OMITTED, Field(description="Instead of “until”: measure the time from this reference to the date.")
]
Unit = Annotated[Literal["years", "months", "days"], Field(title=_("Unit"))]
Written = Annotated[
    Literal["ymd", "dmy", "mdy"], Field(title=_("Date format"), description="Order of year, month and day.")
]


@dataclass(frozen=True)
class _Column:
    """Column of a table.

    Attributes:
        uses: Possible uses of such a column on the import page, by name, with descriptions.
        rules: Names in ``RULES`` of the rules that can combine several values of a holder; the first is the default.
    """

    __pydantic_config__ = DECLARED
    uses: ClassVar[Mapping[str, str]]
    rules: ClassVar[tuple[str, ...]] = ()
    name: Annotated[Text, Field(description="Name as in the file's header.")]


@dataclass(frozen=True)
class HolderColumn(_Column):
    """Pseudonym of the person to whom a record belongs."""

    uses = {"holder": _("holder's pseudonym")}
    role: Literal["holder"] = field(default="holder", kw_only=True, repr=False)


@dataclass(frozen=True)
class IgnoredColumn(_Column):
    """Column of the file that is not used."""

    uses = {"ignore": _("not used")}
    role: Literal["ignore"] = field(default="ignore", kw_only=True, repr=False)


@dataclass(frozen=True)
class LabelColumn(_Column):
    """Class of a record."""

    uses = {"label": _("class to learn")}
    rules = (LAST, ANY)
    role: Literal["label"] = field(default="label", kw_only=True, repr=False)
    spellings: Annotated[
        tuple[tuple[str, str], ...],
        Pairs(Text),
        Field(
            alias="labels", title=SPELLINGS, description="Spellings in the file, with the class that each stands for."
        ),
    ] = ()


class Dated:
    """Base class of columns that may contain dates. Each date is converted to the time between it and a reference date.

    Attributes:
        until: Reference date at which the counted time ends: a date (year, month, day), or the name of a date column.
        since: Reference date at which the counted time starts, declared instead of ``until``.
        unit: One of ``DATE_UNITS``.
        written: One of ``DATE_ORDERS``, used for the dates of this column and of its reference column.
    """

    name: str
    until: str | None
    since: str | None
    unit: Unit
    written: Written

    @property
    def missing(self) -> tuple[str, ...]:
        """Markers for unknown values."""
        raise NotImplementedError

    @property
    def least(self) -> float:
        """Allowed time that temporarily replaces values that are not dates."""
        raise NotImplementedError

    def check_reference(self) -> None:
        """Check the declaration. Raises DataError if it is invalid."""
        problem = _("The schema does not say which date to count from.")
        if self.until and self.since:
            raise DataError(problem, _("Specify either “until” or “since”."), column=self.name)
        if not self.reference or self.reference == self.name:
            raise DataError(
                problem, _("Declare a date such as 2026-01-01, or another column of dates."), column=self.name
            )

    @property
    def reference(self) -> str:
        """Reference date: a date, or the name of a date column; empty if this column has no dates."""
        return self.since or self.until or ""

    @property
    def reference_column(self) -> str | None:
        """Name of the column with each record's reference date; None if all records have the same reference date."""
        return self.reference if day_number(self.reference, "ymd") is None else None

    def durations(self, values: Sequence[object], references: Sequence[object] = ()) -> list[object]:
        """Convert each date to a time in the column's unit. Numbers within the range are times already and are kept.

        Markers for unknown values remain unchanged, and values that are not dates become None. If the reference is
        unknown, the time is unknown, too.

        Args:
            references: Values of the reference column, if there is one.
        """
        fixed = day_number(self.reference, "ymd")
        days = {value: day_number(value, self.written) for value in {*map(str, values), *map(str, references)}}
        sign, unit = (1 if self.since else -1), DATE_UNITS[self.unit]
        durations: list[object] = []
        for place, value in enumerate(values):
            day, start = days[str(value)], fixed
            if value in self.missing:
                durations.append(value)
                continue
            if day is None:
                durations.append(value if self._is_duration(value) else None)
                continue
            if start is None:
                start = days[str(references[place])]
            if start is None:
                unknown = str(references[place]) in ("", *self.missing)
                durations.append(self.missing[0] if unknown and self.missing else None)
                continue
            durations.append(sign * (day - start) / unit)
        return durations

    def date_faults(
        self, values: Sequence[object], durations: Sequence[object], references: Sequence[object] = ()
    ) -> Iterator[DataError]:
        """Yield an error for every value that `durations` cannot convert."""
        for place, duration in enumerate(durations):
            if duration is not None:
                continue
            if day_number(values[place], self.written) is None:
                problem = Sentence(_("“%(value)s” is not a date."), value=shown(values[place]))
                remedy: str = Sentence(_("Write %(written)s, or change the schema."), written=DATE_ORDERS[self.written])
            else:
                text = _("The column %(reference)s contains the date to count from, but “%(value)s” is not a date.")
                problem = Sentence(text, value=shown(references[place]), reference=self.reference)
                remedy = _("Correct the date, or declare under “missing” how unknown dates are written.")
            yield DataError(problem, remedy, row=place + 1, column=self.name)

    def _is_duration(self, value: object) -> bool:
        """Return whether a value is already a time."""
        raise NotImplementedError


@dataclass(frozen=True)
class TargetColumn(_Column, Dated):
    """Column of the target: a number to learn, or the later of two dates whose difference is to be learned.

    ``part`` is the part of the target in this column; see `learning.outcomes.Target.parts`. ``spellings`` maps values
    in the file to numbers, for example “dead” to 1.

    >>> seen = TargetColumn("seen", "time", since="came")
    >>> seen.durations(["2026-03-01"], ["2026-02-01"])
    [28.0]
    """

    uses = {
        "value": _("number to learn"),
        "time": _("time to the event or to the end of follow-up"),
        "event": _("whether the event happened"),
        "flag": _("yes/no label to learn"),
    }
    rules = (LAST, MEAN, MINIMUM, MAXIMUM)
    role: Literal["target"] = field(default="target", kw_only=True, repr=False)
    part: Annotated[
        Text,
        Field(
            description="Part of the outcome: “value” of a number, “time” or “event” of a time, or the name of a label."
        ),
    ]
    spellings: Annotated[
        tuple[tuple[str, float], ...],
        Pairs(Number),
        Field(
            alias="numbers", title=SPELLINGS, description="Spellings in the file, with the number that each stands for."
        ),
    ] = ()
    until: Until = None
    since: Since = None
    unit: Annotated[Unit, Field(description="Unit of the time between dates.")] = "days"
    written: Written = "ymd"
    least: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.reference:
            self.check_reference()

    def encode(self, values: Sequence[object]) -> npt.NDArray[np.float64]:
        """Return numbers (n,); NaN for values that are not numbers."""
        known = {key(written): meant for written, meant in self.spellings}
        if not known:
            return numbers(values)
        return mapped(values, lambda value: known[k] if (k := key(value)) in known else number(value), np.float64)

    @property
    def missing(self) -> tuple[str, ...]:
        """Values that are never read as dates: the empty value and the column's ``spellings`` of numbers."""
        return ("", *dict(self.spellings))

    def _is_duration(self, value: object) -> bool:
        return bool(np.isfinite(self.encode([value])[0]))

    @model_serializer(mode="wrap")
    def _without_dates(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = written(self)
        return document if self.reference else {name: document[name] for name in ("name", "role", "part", "numbers")}


@dataclass(frozen=True)
class TextColumn(_Column):
    """Text. If a schema has a text column, models learn only from its texts.

    The first ``length`` bytes of UTF-8 are kept.

    >>> TextColumn("note", 4).encode(["née", "a"]).tolist()
    [[110, 195, 169, 101], [97, 0, 0, 0]]
    """

    uses = {"text": _("free text to learn from")}
    role: Literal["text"] = field(default="text", kw_only=True, repr=False)
    length: Length = 2000
    missing: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.length <= LONGEST_TEXT:
            problem = Sentence(_("The length of the texts is %(length)s."), length=self.length)
            remedy = Sentence(_("Declare a whole number of bytes from 1 to %(most)s."), most=f"{LONGEST_TEXT:,}")
            raise DataError(problem, remedy, column=self.name)

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, values: Sequence[object]) -> npt.NDArray[np.uint8]:
        encoded = np.zeros((len(values), self.length), np.uint8)
        for place, value in enumerate(values):
            if not isinstance(value, str):
                raise next(self.faults(values))
            content = np.frombuffer(text_bytes(value, self.length), np.uint8)
            encoded[place, : len(content)] = content
        return encoded

    def faults(self, values: Sequence[object]) -> Iterator[DataError]:
        for place, value in enumerate(values, 1):
            if not isinstance(value, str):
                problem = Sentence(_("%(value)s is not text."), value=shown(repr(value)))
                yield DataError(
                    problem, _("Provide text, or an empty string if there is none."), row=place, column=self.name
                )

    def notes(self, values: Sequence[object]) -> Notes:
        empty = sum(not str(value).strip() for value in values)
        return Notes(clipped=int(self.outside(values).sum()), missing=empty)

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        return np.array([len(str(value).encode(errors="replace")) > self.length for value in values], np.bool_)


LONGEST_TEXT = 1 << 16
"""Maximum number of bytes of a text that can be kept."""


def text_bytes(text: str, length: int) -> bytes:
    """Return the UTF-8 of a text without null bytes, cut between two characters to at most ``length`` bytes.

    >>> text_bytes("née", 2)
    b'n'
    """
    content = text.replace("\0", " ").encode(errors="replace")[: length + 3]
    return content[:length].decode(errors="ignore").encode() if len(content) > length else content


def texts(x: npt.NDArray[np.uint8]) -> list[str]:
    """Return the texts of encoded records.

    >>> texts(TextColumn("note", 4).encode(["née", "a"]))
    ['née', 'a']
    """
    return [record.tobytes().rstrip(b"\0").decode(errors="ignore") for record in x]


class Notes(NamedTuple):
    """Numbers of values that are clipped to the range, undeclared (and so treated as “other”), or missing."""

    clipped: int = 0
    unknown: int = 0
    missing: int = 0


class FeatureColumn(Protocol):
    """Column encoded as ``len(features)`` numbers between 0 and 1."""

    @property
    def name(self) -> str: ...
    @property
    def missing(self) -> tuple[str, ...]: ...
    @property
    def features(self) -> tuple[str, ...]: ...
    def encode(self, values: Sequence[object]) -> npt.NDArray[Any]:
        """Encode values of the column.

        Returns:
            Features, shape (len(values), len(features)).

        Raises:
            DataError: A value is not allowed; the error's row is the 1-based position in ``values``.
        """
        ...

    def faults(self, values: Sequence[object]) -> Iterator[DataError]:
        """Yield the error that ``encode`` would raise for each value that the column does not allow."""
        ...

    def notes(self, values: Sequence[object]) -> Notes:
        """Count allowed values that are undeclared, missing, or clipped by encoding."""
        ...

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        """Return whether each allowed value is out of range, undeclared or too long, so that encoding changes it."""
        ...


@dataclass(frozen=True)
class NumericColumn(_Column):
    """Number, clipped to the range and scaled to [0, 1].

    If ``missing`` markers are declared, missing values are encoded as 0, and as 1 in a second feature.

    >>> NumericColumn("age", 0, 100, missing=("?",)).encode(["25", "?", "300"]).tolist()
    [[0.25, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """

    uses = {"numeric": _("number")}
    rules: ClassVar[tuple[str, ...]] = (LAST, MEAN, MINIMUM, MAXIMUM, COUNT)
    role: Literal["feature"] = field(default="feature", kw_only=True, repr=False)
    type: Literal["numeric"] = field(default="numeric", kw_only=True, repr=False)
    minimum: Annotated[Number, Field(title=_("Smallest value"))]
    maximum: Annotated[Number, Field(title=_("Largest value"))]
    missing: Missing = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.minimum) and math.isfinite(self.maximum) and self.minimum < self.maximum):
            raise DataError(
                Sentence(_("The declared range is %(low)s to %(high)s."), low=self.minimum, high=self.maximum),
                _("Declare two finite numbers, the first smaller than the second."),
                column=self.name,
            )

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} not known") if self.missing else (self.name,)

    def encode(self, values: Sequence[object]) -> npt.NDArray[np.float32]:
        encoded = np.zeros((len(values), len(self.features)), np.float32)
        unknown = are_missing(values, self.missing)
        known = numbers(values)[~unknown]
        if not np.isfinite(known).all():
            raise next(self.faults(values), DataError(_("A value is not a number."), self._remedy, column=self.name))
        scaled = (known.clip(self.minimum, self.maximum) - self.minimum) / (self.maximum - self.minimum)
        encoded[~unknown, 0] = scaled
        if self.missing:
            encoded[:, 1] = unknown
        return encoded

    def faults(self, values: Sequence[object]) -> Iterator[DataError]:
        wrong = ~np.isfinite(numbers(values)) & ~are_missing(values, self.missing)
        for place in np.flatnonzero(wrong).tolist():
            yield DataError(*self._fault(values[place]), row=place + 1, column=self.name)

    def notes(self, values: Sequence[object]) -> Notes:
        unknown = are_missing(values, self.missing)
        return Notes(clipped=int(np.count_nonzero(self._beyond(values, unknown))), missing=int(unknown.sum()))

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        return self._beyond(values, are_missing(values, self.missing))

    def _beyond(self, values: Sequence[object], unknown: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        found = numbers(values)
        return ~unknown & ((found < self.minimum) | (found > self.maximum))

    def _fault(self, value: object) -> tuple[str, str]:
        """Return the problem and remedy for a value that is not a finite number."""
        if not isinstance(value, int | float | str | np.number) or isinstance(value, bool):
            return Sentence(_("%(value)s is not a number."), value=repr(value)), self._remedy
        if isinstance(value, int):
            return _("A whole number is too large."), self._remedy
        if isinstance(value, float) or _INFINITE.fullmatch(str(value)) or math.isinf(number(value)):
            return Sentence(_("“%(value)s” is not finite."), value=shown(value)), self._remedy
        remedy = self._remedy
        if has_thousands(value):
            remedy = _("Write the number without thousands separators and with a decimal point.")
        elif _DECIMAL_COMMA.fullmatch(str(value)):
            remedy = _("Declare “decimal”: “,” in the schema.")
        return Sentence(_("“%(value)s” is not a number."), value=shown(value)), remedy

    @property
    def _remedy(self) -> str:
        if not self.missing:
            return _NO_MARKERS
        markers = " / ".join(marker or "“”" for marker in self.missing)
        return Sentence(_("Write a finite number, or %(markers)s if it is unknown."), markers=markers)


@dataclass(frozen=True)
class DateColumn(NumericColumn, Dated):
    """Date, converted to the time until or since a reference. The time is clipped and scaled like other numbers.

    >>> born = DateColumn("born", 0, 120, until="2026-01-01")
    >>> [round(float(number), 1) for number in born.durations(["1976-01-01", "50"])]
    [50.0, 50.0]
    """

    uses = {"date": _("date: the time until or since another date")}
    rules = (LAST, MEAN, MINIMUM, MAXIMUM)
    type: Literal["date"] = field(default="date", kw_only=True, repr=False)  # type: ignore[assignment]
    until: Until = None
    since: Since = None
    unit: Unit = "years"
    written: Written = "ymd"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_reference()

    @property
    def least(self) -> float:
        """Allowed time that temporarily replaces values that are not dates."""
        return self.minimum

    @property
    def _remedy(self) -> str:
        return _("Write the time as a number, calculated as the schema declares, instead of the date.")

    def _is_duration(self, value: object) -> bool:
        return self.minimum <= number(value) <= self.maximum

    @model_serializer(mode="wrap")
    def _ends_last(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = written(self)
        return document | {name: document.pop(name) for name in ("minimum", "maximum", "missing")}


@dataclass(frozen=True)
class _OneHotColumn(_Column, ABC):
    """Column in which each value sets the feature at its position; a declared ``missing`` marker sets no feature."""

    role: Literal["feature"] = field(default="feature", kw_only=True, repr=False)

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]: ...

    def encode(self, values: Sequence[object]) -> npt.NDArray[np.float32]:
        positions = self._places(values)
        if (positions == _UNDECLARED).any():
            raise next(self.faults(values))
        encoded = np.zeros((len(positions), len(self.features)), np.float32)
        known = np.flatnonzero(positions >= 0)
        encoded[known, positions[known]] = 1.0
        return encoded

    def faults(self, values: Sequence[object]) -> Iterator[DataError]:
        for place in np.flatnonzero(self._places(values) == _UNDECLARED).tolist():
            value = values[place]
            fault = inexact_fault(shown(value)) if is_inexact(value) else self._fault(shown(value))
            yield DataError(*fault, row=place + 1, column=self.name)

    def notes(self, values: Sequence[object]) -> Notes:
        return Notes(missing=int((self._places(values) == _NONE).sum()))

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(values), np.bool_)

    @abstractmethod
    def _places(self, values: Sequence[object]) -> npt.NDArray[np.int64]:
        """Return the index of each value's feature, or ``_NONE`` or ``_UNDECLARED``."""

    @abstractmethod
    def _fault(self, value: str) -> tuple[str, str]:
        """Return the problem and remedy for a value that is not declared."""


@dataclass(frozen=True)
class CategoricalColumn(_OneHotColumn):
    """One of the declared values, one-hot encoded.

    A declared ``missing`` marker sets no feature. With ``other``, an additional feature represents all undeclared
    values; without it, such a value is an error.

    >>> CategoricalColumn("sex", ("Female", "Male"), missing=("?",)).encode(["Male", "?"]).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    uses = {"categorical": _("one of several values")}
    rules = (LAST, ANY)
    type: Literal["categorical"] = field(default="categorical", kw_only=True, repr=False)
    values: Annotated[Texts, Field(title=_("Values, one per line"))]
    other: Other = field(default=False, kw_only=True)
    missing: Missing = ()

    def __post_init__(self) -> None:
        if not self.values or len({*map(key, (*self.values, *self.missing))}) < len(self.values) + len(self.missing):
            raise DataError(
                _("No values are declared, or one is declared twice."),
                _("Declare every value once, without the markers for missing values."),
                column=self.name,
            )

    @property
    def features(self) -> tuple[str, ...]:
        rest = next(word for word in ("other", "any other", "not declared") if word not in self.values)
        return tuple(f"{self.name} = {value}" for value in (*self.values, *((rest,) if self.other else ())))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {key(value): i for i, value in enumerate(self.values)} | dict.fromkeys(map(key, self.missing), _NONE)

    def notes(self, values: Sequence[object]) -> Notes:
        return super().notes(values)._replace(unknown=int(self.outside(values).sum()))

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        return self._places(values) == len(self.values)

    def _places(self, values: Sequence[object]) -> npt.NDArray[np.int64]:
        default = len(self.values) if self.other else _UNDECLARED
        positions = self._positions

        def place(value: object) -> int:
            return _UNDECLARED if is_inexact(value) else positions.get(key(value), default)

        return mapped(values, place, np.int64)

    def _fault(self, value: str) -> tuple[str, str]:
        declared = ", ".join(self.values[:_SHOWN]) + (", …" if len(self.values) > _SHOWN else "")
        text = _("“%(value)s” is not among the declared values (%(declared)s).")
        problem = Sentence(text, value=value, declared=declared)
        return problem, _("Correct the value, or declare it in the schema.")


@dataclass(frozen=True)
class CodeColumn(_OneHotColumn):
    """Code of a classification, represented by its chapter or main group.

    The code is one-hot encoded by its group in one of ``CODE_SYSTEMS``; values in ``missing`` set no feature. With
    ``several``, a value may contain several codes separated by semicolons, and sets the feature of each code's group.

    >>> int(CodeColumn("diagnosis", "icd9").encode(["250.83"]).sum())
    1
    >>> CodeColumn("diagnosis", "icd10", several=True).encode(["I50; E11.9; I10"]).sum()
    np.float32(2.0)
    """

    uses = {name: system.label for name, system in CODE_SYSTEMS.items()}
    rules = (LAST, ALL)
    type: Literal["icd9", "icd10", "atc", "loinc"]
    missing: Missing = ()
    several: Several = False

    def __post_init__(self) -> None:
        if self.several and any(self.codes.place(marker) is not None for marker in self.missing):
            problem = _("A marker for missing values looks the same as one of the codes.")
            raise DataError(problem, _("Declare a different spelling, or one code per row."), column=self.name)

    @property
    def codes(self) -> CodeSystem:
        """Classification to which the codes belong."""
        return CODE_SYSTEMS[self.type]

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.name} = {group}" for group in self.codes.names)

    def encode(self, values: Sequence[object]) -> npt.NDArray[np.float32]:
        if not self.several or not len(values):
            return super().encode(values)
        if (self._places(values) == _UNDECLARED).any():
            raise next(self.faults(values))
        named = [self._named(str(value)) for value in values]
        each = replace(self, several=False).encode([code for codes in named for code in codes])
        return np.maximum.reduceat(each, np.cumsum([0, *map(len, named[:-1])]))

    def _places(self, values: Sequence[object]) -> npt.NDArray[np.int64]:
        """Return the position of each value's group.

        If several groups match, this is the last one. ``_UNDECLARED`` means that a code is misspelled.
        """
        return mapped(values, self._place, np.int64)

    def _place(self, cell: object) -> int:
        value = str(cell)
        if value in self.missing:
            return _NONE
        if is_inexact(cell):
            return _UNDECLARED
        groups = [_NONE if code in self.missing else self.codes.place(code) for code in self._named(value)]
        known = [group for group in groups if group is not None]
        return max(known) if len(known) == len(groups) else _UNDECLARED

    def _named(self, value: str) -> list[str]:
        """Return the codes and the markers for unknown values that a value contains, at least one."""
        if not self.several or value in self.missing:
            return [value]
        return [code for part in value.split(SEVERAL) if (code := part.strip(" \t"))] or [""]

    def _fault(self, value: str) -> tuple[str, str]:
        problem = Sentence(_("“%(value)s” is not a valid %(system)s code."), value=value, system=self.codes.name)
        return problem, Sentence(_("Write a code such as %(examples)s."), examples=self.codes.examples)


_Feature = Annotated[NumericColumn | DateColumn | CategoricalColumn | CodeColumn, Field(discriminator="type")]
Column = Annotated[
    HolderColumn | LabelColumn | TargetColumn | _Feature | TextColumn | IgnoredColumn, Field(discriminator="role")
]
KINDS: tuple[Any, ...] = (
    *(HolderColumn, LabelColumn, TargetColumn, NumericColumn, DateColumn, CategoricalColumn, CodeColumn),
    *(TextColumn, IgnoredColumn),
)
"""Kinds of columns, in the order of the import page."""

SEVERAL = ";"
"""Separator between several codes in a value."""
_NONE, _UNDECLARED = -1, -2
_NO_MARKERS = _("Write a finite number, or declare under “missing” in the schema how unknown values are written.")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_INFINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_SHOWN = 12
_LONGEST = 60


def shown(value: object) -> str:
    r"""Return a value as shown in messages: shortened, with a placeholder for each character that cannot be printed.

    >>> shown("a" * 100) == "a" * 60 + "…", shown("a\x00b")
    (True, 'a�b')
    """
    text = str(value)
    cut = text[:_LONGEST] + ("…" if len(text) > _LONGEST else "")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cut)
