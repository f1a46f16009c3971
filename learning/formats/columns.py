"""Declared columns of a table, and their encoding as numbers.

Everything here is declared in public before any private row is read: category lists, value ranges, scaling. What is
learned from private rows (a mean, the categories that occur) would be a release of its own, outside the ledger.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.icd9 import ICD9_GROUPS, icd9_group
from learning.formats.rows import DataError


@dataclass(frozen=True)
class HolderColumn:
    """Column of pseudonyms: the holder of each record."""

    name: str


@dataclass(frozen=True)
class LabelColumn:
    """Column of classes to learn; ``spellings`` maps values of the file to classes (classes map to themselves)."""

    name: str
    spellings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TargetColumn:
    """Column of numbers to learn, where a schema declares a target in place of classes.

    ``part`` is which number of the target it holds, see `learning.outcomes.Target.asked`; ``spellings`` maps values of
    the file to numbers, such as “dead” to 1.
    """

    name: str
    part: str
    spellings: tuple[tuple[str, float], ...] = ()

    def encode(self, values: Sequence[object]) -> npt.NDArray[np.float64]:
        """Numbers (n,); NaN where a value is none."""
        known = dict(self.spellings)
        found = np.full(len(values), np.nan)
        for place, value in enumerate(values):
            if isinstance(value, str) and value in known:
                found[place] = known[value]
                continue
            try:
                found[place] = float(value)  # type: ignore[arg-type]
            except (TypeError, ValueError, OverflowError):
                continue
        return found


@dataclass(frozen=True)
class IgnoredColumn:
    """Column that is present in the file but not used."""

    name: str


class Notes(NamedTuple):
    """Numbers of values that are clipped to the range, unknown to the schema (“other”), and missing."""

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
    def encode(self, values: Sequence[object]) -> npt.NDArray[np.float32]:
        """Encode values of the column.

        Returns:
            Features, shape (len(values), len(features)).

        Raises:
            DataError: the first value that the column does not allow; its row is the 1-based place within ``values``.
        """
        ...

    def faults(self, values: Sequence[object]) -> Iterator[DataError]:
        """Every value that the column does not allow, as ``encode`` raises it."""
        ...

    def notes(self, values: Sequence[object]) -> Notes:
        """Count the values, all allowed, that encoding changes or leaves open."""
        ...

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        """Whether each value, all allowed, lies outside of what the column declares."""
        ...


@dataclass(frozen=True)
class NumericColumn:
    """Column of numbers, clipped to the declared range and scaled to [0, 1].

    Where ``missing`` markers are declared, a second feature marks missing values, and the first is then 0.

    >>> NumericColumn("age", 0, 100, missing=("?",)).encode(["25", "?", "300"]).tolist()
    [[0.25, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """

    name: str
    minimum: float
    maximum: float
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.minimum) and math.isfinite(self.maximum) and self.minimum < self.maximum):
            raise DataError(
                Sentence(_("The declared range is %(low)s to %(high)s."), low=self.minimum, high=self.maximum),
                _("Declare two finite numbers with minimum < maximum."),
                column=self.name,
            )

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} not known") if self.missing else (self.name,)

    def encode(self, values: Sequence[object]) -> npt.NDArray[np.float32]:
        encoded = np.zeros((len(values), len(self.features)), np.float32)
        unknown = np.array([value in self.missing for value in values], bool) if self.missing else None
        known = values if unknown is None else [v for v, skip in zip(values, unknown, strict=True) if not skip]
        try:
            numbers = np.array(known, np.float64) if not any(isinstance(v, bool) for v in known) else None
        except (TypeError, ValueError, OverflowError):
            numbers = None
        if numbers is None or numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise next(self.faults(values), DataError(_("A value is no number."), self._remedy, column=self.name))
        scaled = (numbers.clip(self.minimum, self.maximum) - self.minimum) / (self.maximum - self.minimum)
        if unknown is None:
            encoded[:, 0] = scaled
        else:
            encoded[~unknown, 0] = scaled
            encoded[:, 1] = unknown
        return encoded

    def faults(self, values: Sequence[object]) -> Iterator[DataError]:
        for place, value in enumerate(values, 1):
            if value in self.missing:
                continue
            told = self._fault(value)
            if told is not None:
                yield DataError(*told, row=place, column=self.name)

    def notes(self, values: Sequence[object]) -> Notes:
        known = np.array([value for value in values if value not in self.missing], np.float64)
        clipped = np.count_nonzero((known < self.minimum) | (known > self.maximum))
        return Notes(clipped=int(clipped), missing=len(values) - len(known))

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        known = np.array([np.nan if value in self.missing else value for value in values], np.float64)
        return (known < self.minimum) | (known > self.maximum)

    def _fault(self, value: object) -> tuple[str, str] | None:
        """Problem and remedy of a value that is no number."""
        if not isinstance(value, int | float | str | np.number) or isinstance(value, bool):
            return Sentence(_("%(value)s is no number."), value=repr(value)), self._remedy
        try:
            finite = math.isfinite(float(value))
        except OverflowError:
            return _("A whole number is too large."), self._remedy
        except ValueError:
            comma = isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value)
            told = _("Declare “decimal”: “,” in the schema.") if comma else self._remedy
            return Sentence(_("“%(value)s” is no number."), value=shown(value)), told
        return None if finite else (Sentence(_("“%(value)s” is not finite."), value=value), self._remedy)

    @property
    def _remedy(self) -> str:
        if not self.missing:
            return _NO_MARKERS
        markers = " / ".join(marker or "“”" for marker in self.missing)
        return Sentence(_("Write a finite number, or %(markers)s if not known."), markers=markers)


class _OneHotColumn(ABC):
    """Column whose values have places: each sets the feature of its place, a declared ``missing`` marker none."""

    name: str

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
            yield DataError(*self._fault(shown(values[place])), row=place + 1, column=self.name)

    def notes(self, values: Sequence[object]) -> Notes:
        return Notes(missing=int((self._places(values) == _NONE).sum()))

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(values), np.bool_)

    @abstractmethod
    def _places(self, values: Sequence[object]) -> npt.NDArray[np.int64]:
        """Number of the feature of each value, ``_NONE`` or ``_UNDECLARED``."""

    @abstractmethod
    def _fault(self, value: str) -> tuple[str, str]:
        """Problem and remedy of a value that is not declared."""


@dataclass(frozen=True)
class CategoricalColumn(_OneHotColumn):
    """Column of declared values, one-hot encoded.

    A declared ``missing`` marker sets none of the features. With ``other``, one more feature stands for every
    undeclared value; without it such a value is an error.

    >>> CategoricalColumn("sex", ("Female", "Male"), missing=("?",)).encode(["Male", "?"]).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    name: str
    values: tuple[str, ...]
    missing: tuple[str, ...] = ()
    other: bool = False

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values) | set(self.missing)) < len(self.values) + len(self.missing):
            raise DataError(
                _("The declared values are empty, or one is named twice."),
                _("Declare every value once, and no missing marker among them."),
                column=self.name,
            )

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.name} = {value}" for value in (*self.values, *(("other",) if self.other else ())))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {value: i for i, value in enumerate(self.values)} | dict.fromkeys(self.missing, _NONE)

    def notes(self, values: Sequence[object]) -> Notes:
        return super().notes(values)._replace(unknown=int(self.outside(values).sum()))

    def outside(self, values: Sequence[object]) -> npt.NDArray[np.bool_]:
        return self._places(values) == len(self.values)

    def _places(self, values: Sequence[object]) -> npt.NDArray[np.int64]:
        default = len(self.values) if self.other else _UNDECLARED
        return np.array([self._positions.get(str(value), default) for value in values], np.int64)

    def _fault(self, value: str) -> tuple[str, str]:
        declared = ", ".join(self.values[:_SHOWN]) + (", …" if len(self.values) > _SHOWN else "")
        text = _("“%(value)s” is not among the declared values (%(declared)s).")
        problem = Sentence(text, value=value, declared=declared)
        return problem, _("Correct the value, or declare it in the schema.")


@dataclass(frozen=True)
class Icd9Column(_OneHotColumn):
    """Column of ICD-9-CM diagnoses, one-hot by group of ``learning.formats.icd9``; ``missing`` markers set none.

    >>> int(Icd9Column("diagnosis").encode(["250.83"]).sum())
    1
    """

    name: str
    missing: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.name} = {group}" for group in ICD9_GROUPS)

    def _places(self, values: Sequence[object]) -> npt.NDArray[np.int64]:
        known = dict.fromkeys(self.missing, _NONE)
        positions = np.empty(len(values), np.int64)
        for place, value in enumerate(map(str, values)):
            if value not in known:
                try:
                    known[value] = ICD9_GROUPS.index(icd9_group(value))
                except ValueError:
                    known[value] = _UNDECLARED
            positions[place] = known[value]
        return positions

    def _fault(self, value: str) -> tuple[str, str]:
        return Sentence(_("“%(value)s” is no ICD-9 code."), value=value), _("Write a code such as 250.83, V45 or E812.")


_NONE, _UNDECLARED = -1, -2
_NO_MARKERS = _("Write a finite number, or declare in the schema's “missing” how a value that is not known is written.")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_SHOWN = 12
_LONGEST = 60


def shown(value: object) -> str:
    r"""A value as messages show it: cut, and with a mark for whatever cannot be printed.

    >>> shown("a" * 100) == "a" * 60 + "…", shown("a\x00b")
    (True, 'a�b')
    """
    text = str(value)
    cut = text[:_LONGEST] + ("…" if len(text) > _LONGEST else "")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cut)
