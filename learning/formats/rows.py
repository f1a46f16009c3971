"""Results of readers: records, and a report of errors and changed values that accounts for every row or resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TextIO, overload

import numpy as np
import numpy.typing as npt

from common.identities import PseudonymError, canonical
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from common.spreadsheets import CsvWriter


class DataError(ValueError):
    """Error in data, with its place (file, row, column), the problem, and the remedy.

    ``row`` counts from 1, like line numbers in an editor; ``remedy`` is a sentence with instructions. Pages translate
    both if they are a ``Sentence`` or marked for translation.

    >>> print(DataError("“x” is not a number.", "Write a number.", file="a.csv", row=3, column="age"))
    a.csv, row 3, column age: “x” is not a number. Write a number.
    """

    def __init__(
        self,
        problem: str,
        remedy: str = "",
        *,
        file: str | PathLike[str] | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.problem, self.remedy, self.file, self.row, self.column = problem, remedy, file, row, column
        place = [str(file)] if file is not None else []
        place += [f"row {row}"] if row is not None else []
        place += [f"column {column}"] if column is not None else []
        message = " ".join(part for part in (problem, remedy) if part)
        super().__init__(f"{', '.join(place)}: {message}" if place else message)

    def at(self, *, file: str | PathLike[str] | None = None, row: int | None = None) -> DataError:
        """Return the same error with file and row filled in by the reader."""
        return DataError(
            self.problem,
            self.remedy,
            file=self.file if file is None else file,
            row=self.row if row is None else row,
            column=self.column,
        )


def as_numbers(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return records in the form used for learning: image bytes become pixels in [0, 1], others remain unchanged.

    >>> as_numbers(np.full((1, 1, 2), 255, np.uint8)).tolist()
    [[[1.0, 1.0]]]
    """
    if x.dtype != np.uint8 or is_text(x):
        return x
    return x.astype(np.float32) / np.float32(255)


def is_text(x: npt.NDArray[Any]) -> bool:
    """Return whether records are texts, that is, bytes of UTF-8 instead of numbers.

    >>> is_text(np.zeros((1, 4), np.uint8)), is_text(np.zeros((1, 2, 2), np.uint8))
    (True, False)
    """
    return x.dtype == np.uint8 and x.ndim == 2


@dataclass(frozen=True)
class Rows:
    """Records of a dataset.

    Attributes:
        x: (n, features) float32 for tables; (n, height, width) or (n, height, width, channels) for images, float32 in
            [0, 1] or uint8 as in files; (n, bytes) uint8 for texts, UTF-8 padded with 0.
        y: int64 class numbers (n,), or None if unknown.
        holders: Pseudonyms, one per record, or None for public data.

    >>> rows = Rows(np.zeros((2, 3), np.float32), np.array([0, 1]), ["ada", "ben"])
    >>> len(rows), rows[np.array([1])].holders
    (2, ['ben'])
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64] | None = None
    holders: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name, values in (("labels", self.y), ("holders", self.holders)):
            if values is not None and len(values) != len(self.x):
                raise DataError(f"There are {len(self.x)} records but {len(values)} {name}.", "Give one per record.")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: slice | npt.NDArray[np.bool_] | npt.NDArray[np.integer]) -> Rows:
        """Return the records at these positions, in this order."""
        positions = np.arange(len(self))[which]
        return Rows(
            self.x[positions],
            None if self.y is None else self.y[positions],
            None if self.holders is None else [self.holders[position] for position in positions],
        )

    def one_holder_per_row(self, prefix: str) -> Rows:
        """Return the same records, each with its own holder, named by position: ``prefix-00001`` and so on.

        Raises:
            DataError: The pseudonym is invalid.
        """
        try:
            prefix = canonical(f"{prefix}-1").removesuffix("-1")
        except PseudonymError as error:
            raise DataError(error.problem, error.remedy) from error
        return replace(self, holders=_Numbered(prefix, len(self)))

    def without_holders(self) -> Rows:
        """Return the same records as public data, without holders."""
        return replace(self, holders=None)


class _Numbered(Sequence[str]):
    """Pseudonyms for a given number of people, ``prefix-01`` and so on, generated when accessed."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix, self._places, self._width = prefix, range(1, count + 1), len(str(count))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> list[str]: ...
    def __getitem__(self, which: int | slice) -> str | list[str]:
        places = self._places[which]
        return self._named(places) if isinstance(places, int) else list(map(self._named, places))

    def _named(self, place: int) -> str:
        return f"{self._prefix}-{place:0{self._width}d}"


#: Number of places stored for each reason for leaving items out.
_PLACES = 20


@dataclass
class OmittedItems:
    """Items that were left out for the same reason: their number, and the places of the first ones in the file."""

    count: int = 0
    places: list[int] = field(default_factory=list)


@dataclass
class BalancePart:
    """Counts for one table, or for one kind of resource, in a file."""

    seen: int = 0
    used: int = 0
    refused: int = 0
    left_out: dict[str, OmittedItems] = field(default_factory=dict)

    @property
    def decided(self) -> int:
        """Number of items that were used, refused or left out."""
        return self.used + self.refused + sum(each.count for each in self.left_out.values())


@dataclass
class Balance:
    """Counts by part of a file: the name of a table, a kind of resource, or `ROWS`.

    >>> balance = Balance()
    >>> balance.see("Observation", 3)
    >>> balance.use("Observation", 2)
    >>> balance.leave_out("Observation", "It has no value.", place=3)
    >>> balance.check()
    >>> balance.parts["Observation"].left_out["It has no value."].places
    [3]
    """

    parts: dict[str, BalancePart] = field(default_factory=dict)

    def see(self, part: str, count: int = 1) -> None:
        """Count items that the reader found."""
        self._part(part).seen += count

    def use(self, part: str, count: int = 1) -> None:
        """Count items that became part of a record."""
        self._part(part).used += count

    def refuse(self, part: str, count: int = 1) -> None:
        """Count items whose errors are in the report."""
        self._part(part).refused += count

    def leave_out(self, part: str, reason: str, *, place: int | None = None) -> None:
        """Count items that are not used, with the reason and the 1-based place in the file."""
        left_out = self._part(part).left_out.setdefault(reason, OmittedItems())
        left_out.count += 1
        if place is not None and len(left_out.places) < _PLACES:
            left_out.places.append(place)

    def empty(self, places: Sequence[int]) -> None:
        """Count empty rows of a table, given their places in the file."""
        for place in places:
            self.see(ROWS)
            self.leave_out(ROWS, _("The row is empty."), place=place)

    def comment(self, place: int) -> None:
        """Count a line of a table that is not a row, given its place in the file."""
        self.see(ROWS)
        self.leave_out(ROWS, _("The line is a comment."), place=place)

    def above_header(self, places: Sequence[int]) -> None:
        """Count rows of a table above its header, given their places in the file."""
        for place in places:
            self.see(ROWS)
            self.leave_out(ROWS, _("The row is above the header."), place=place)

    def take(self, other: Balance) -> None:
        """Add the counts of another file."""
        for name, part in other.parts.items():
            own = self._part(name)
            own.seen += part.seen
            own.used += part.used
            own.refused += part.refused
            for reason, left_out in part.left_out.items():
                sum_ = own.left_out.setdefault(reason, OmittedItems())
                sum_.count += left_out.count
                sum_.places = (sum_.places + left_out.places)[:_PLACES]

    @property
    def left_out(self) -> int:
        """Number of items that were left out."""
        return sum(each.count for part in self.parts.values() for each in part.left_out.values())

    def check(self) -> None:
        """Check that every item is accounted for.

        Raises:
            DataError: The number of items found differs from the number used, refused or left out.
        """
        for name, part in self.parts.items():
            if part.seen != part.decided:
                text = _("The reader found %(seen)d items (%(part)s), but accounted for only %(decided)d.")
                problem = Sentence(text, seen=part.seen, part=name, decided=part.decided)
                raise DataError(
                    problem,
                    _("This is an error in iPATE. Please report it, and import the file as CSV until it is fixed."),
                )

    def to_json(self) -> list[dict[str, Any]]:
        """Return the balance as JSON; `from_json` is the inverse."""
        return [
            {
                "part": name,
                "seen": part.seen,
                "used": part.used,
                "refused": part.refused,
                "left": sum(each.count for each in part.left_out.values()),
                "left_out": [
                    {"reason": _written(reason), "count": each.count, "places": each.places}
                    for reason, each in part.left_out.items()
                ],
            }
            for name, part in self.parts.items()
        ]

    @classmethod
    def from_json(cls, document: list[dict[str, Any]]) -> Balance:
        """Return the balance from the result of `to_json`."""
        balance = cls()
        for each in document:
            left_out = {_read(line["reason"]): OmittedItems(line["count"], line["places"]) for line in each["left_out"]}
            balance.parts[each["part"]] = BalancePart(each["seen"], each["used"], each["refused"], left_out)
        return balance

    def lines(self) -> Iterator[str]:
        """Yield the balance as English text, with a line for each part and reason."""
        for name, part in self.parts.items():
            yield f"{name}: {part.seen:,} seen, {part.used:,} used, {part.refused:,} refused."
            for reason, each in part.left_out.items():
                rows = ", ".join(map(str, each.places))
                yield f"{name}: {each.count:,} left out: {reason}{f' (first: {rows})' if rows else ''}"

    def _part(self, name: str) -> BalancePart:
        return self.parts.setdefault(name, BalancePart())


ROWS = _("rows")
"""Part for the rows of a single table, or of the table made from an extract."""

IMAGES = _("images")
"""Part for images, in files or arrays."""


def _written(reason: str) -> Any:
    return reason.to_json() if isinstance(reason, Sentence) else reason


def _read(reason: Any) -> str:
    return Sentence.from_json(reason) if isinstance(reason, dict) else reason


MOST = 10_000
"""Number of errors that a report stores; further errors are only counted."""

_SHOWN = 20


class DataErrors(DataError):
    """Several errors at once; place, problem and remedy are taken from the first error."""

    def __init__(self, report: Report) -> None:
        first = report.faults[0]
        super().__init__(first.problem, first.remedy, file=first.file, row=first.row, column=first.column)
        self.report = report

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.report.faults[:_SHOWN]]
        if (rest := self.report.count - len(lines)) > 0:
            lines.append(f"And {rest:,} more.")
        return "\n".join(lines)


def write_faults(file: TextIO, faults: Iterable[DataError], count: int) -> None:
    """Write errors as CSV, in English, with cells that spreadsheet programs cannot mistake for formulas."""
    writer = CsvWriter(file)
    writer.writerow(["file", "row", "column", "problem", "what to do"])
    written = 0
    for fault in faults:
        cells = (fault.file or "", fault.row or "", fault.column or "", fault.problem, fault.remedy)
        writer.writerow(cells)
        written += 1
    if count > written:
        writer.writerow(["", "", "", f"And {count - written:,} more.", ""])


@dataclass
class Report:
    """Errors in files with their places, and changes made while reading the files.

    Attributes:
        faults: The first `MOST` errors.
        clipped: Number of values per column that were set to the end of their range.
        unknown: Number of values per column that are treated as “other” because they are undeclared.
        missing: Number of unknown values per column.
        records: Number of records in the file, before each holder's records were combined.
        balance: Counts of the rows or resources that were used, refused or left out.

    >>> report = Report()
    >>> report.add(DataError("“x” is not a number.", row=3), DataError("“y” is not a number.", row=4))
    >>> report.count, [fault.row for fault in report.faults]
    (2, [3, 4])
    """

    faults: list[DataError] = field(default_factory=list)
    count: int = 0
    clipped: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    records: int = 0
    balance: Balance = field(default_factory=Balance)

    def add(self, *faults: DataError) -> None:
        for fault in faults:
            self.count += 1
            if len(self.faults) < MOST:
                self.faults.append(fault)

    def add_rows(
        self, places: Iterable[int], problem: Callable[[int], str], remedy: Sentence | str, column: str | None = None
    ) -> None:
        """Add an error for each record in ``places`` (from 0). Messages are built only for errors that are stored."""
        for place in places:
            if len(self.faults) < MOST:
                self.add(DataError(problem(place), remedy, row=place + 1, column=column))
            else:
                self.count += 1

    @contextmanager
    def noting(self, file: Path | None = None) -> Iterator[None]:
        """Add any DataError raised in this block to the report, with the file if one is given."""
        try:
            yield
        except DataError as error:
            self.add(error.at(file=file))

    def take(self, other: Report, file: Path) -> None:
        """Copy the content of another report about a file."""
        self.add(*(fault.at(file=file if fault.file is None else None) for fault in other.faults))
        self.count += other.count - len(other.faults)
        self.clipped += other.clipped
        self.unknown += other.unknown
        self.missing += other.missing
        self.records += other.records
        self.balance.take(other.balance)

    def raise_faults(self) -> None:
        """Raise a single error as a DataError, or several errors as DataErrors; do nothing if there are none."""
        if self.count == 1:
            raise self.faults[0]
        if self.count:
            raise DataErrors(self)
