"""Report on files that were read: everything that is wrong with them, and what reading changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from common.sentences import Sentence
from common.spreadsheets import CsvWriter
from learning.formats.balance import Balance
from learning.formats.rows import DataError

MOST = 10_000
"""Faults that a report keeps; the rest is counted."""

_SHOWN = 20


class DataErrors(DataError):
    """Several faults at once; place, problem and remedy are those of the first."""

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
    """Write faults as CSV, in English; no cell can be mistaken for a formula by a spreadsheet program."""
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
    """Faults of files, with their places, and what reading them changed.

    Attributes:
        faults: The first `MOST` faults.
        count: How many there are.
        clipped: Number of values by column that were set to the end of their range.
        unknown: Number of values by column that stand for “other”, being undeclared.
        missing: Number of values by column that are not known.
        records: Number of records before those of each holder became one.
        balance: Outcome of each row or resource that was read.

    >>> report = Report()
    >>> report.add(DataError("“x” is no number.", row=3), DataError("“y” is no number.", row=4))
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
        """Add a fault for each of these records, counted from 0; their problems are worded only as far as kept."""
        for place in places:
            if len(self.faults) < MOST:
                self.add(DataError(problem(place), remedy, row=place + 1, column=column))
            else:
                self.count += 1

    @contextmanager
    def noting(self, file: Path | None = None) -> Iterator[None]:
        """Add a raised DataError as a fault, of this file if one is given."""
        try:
            yield
        except DataError as error:
            self.add(error.at(file=file))

    def take(self, other: Report, file: Path) -> None:
        """Take over what another report says of a file."""
        self.add(*(fault.at(file=file if fault.file is None else None) for fault in other.faults))
        self.count += other.count - len(other.faults)
        self.clipped += other.clipped
        self.unknown += other.unknown
        self.missing += other.missing
        self.records += other.records
        self.balance.take(other.balance)

    def raise_faults(self) -> None:
        """Raise what was found, as one DataError or several as DataErrors; do nothing if nothing was found."""
        if self.count == 1:
            raise self.faults[0]
        if self.count:
            raise DataErrors(self)
