"""Table records, which are checked and encoded column by column while they are read from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from common.identities import PseudonymError, canonical, spelling
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.columns import NumericColumn, TargetColumn, shown
from learning.formats.combining import COUNT, Combinable, OneRecord, combined
from learning.formats.rows import MOST, ROWS, DataError, Report, Rows
from learning.formats.schema import TabularSchema
from learning.formats.values import Vector, are_missing, taken

Labels = npt.NDArray[np.int64]
#: Number of lines that are decoded at once from a file of names.
_LINES = 1000


class Keeper(Protocol):
    """Storage for encoded records, which are added part by part."""

    def add(self, x: npt.NDArray[Any], y: Labels | None, holders: Sequence[str] | None) -> None:
        """Add more records, with labels and holders if there are any."""


class RowLists:
    """Records kept in memory."""

    def __init__(self) -> None:
        self._x: list[npt.NDArray[Any]] = []
        self._y: list[Labels] = []
        self._holders: list[str] = []

    def add(self, x: npt.NDArray[Any], y: Labels | None, holders: Sequence[str] | None) -> None:
        self._x.append(x)
        self._y += [] if y is None else [y]
        self._holders += holders or ()

    def rows(self, empty: npt.NDArray[Any], *, labels: bool, holders: bool) -> Rows:
        """Return the records, or ``empty`` if there are none.

        Labels and holders are included only if all records have them.
        """
        x = np.concatenate(self._x) if self._x else empty
        y = np.concatenate(self._y) if self._y else np.empty(0, np.int64)
        has_labels, has_holders = labels and len(y) == len(x), holders and len(self._holders) == len(x)
        return Rows(x, y if has_labels else None, self._holders if has_holders else None)


class RowFiles:
    """Records kept in files of a folder. One object writes them, and another reads them through a memory map."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kind = ""
        self.shape: tuple[int, ...] = ()
        self.counts = {"x": 0, "y": 0, "holders": 0}

    def add(self, x: npt.NDArray[Any], y: Labels | None, holders: Sequence[str] | None) -> None:
        self.kind, self.shape = x.dtype.str, x.shape[1:]
        self._append("x", len(x), np.ascontiguousarray(x).data if x.size else b"")
        if y is not None:
            self._append("y", len(y), y.astype(np.int64, copy=False).tobytes())
        if holders is not None:
            self._append("holders", len(holders), "".join(f"{name}\n" for name in holders).encode())

    def _append(self, name: str, count: int, content: bytes | memoryview) -> None:
        self.counts[name] += count
        with (self._folder / name).open("ab") as file:
            file.write(content)

    def to_json(self) -> dict[str, Any]:
        """Return the information about written records that `rows` needs."""
        return {"kind": self.kind, "shape": self.shape, "counts": self.counts}

    def rows(self, written: dict[str, Any], empty: npt.NDArray[Any], *, labels: bool, holders: bool) -> Rows:
        """Return the records that were written; the arguments are those of `RowLists.rows`."""
        counts = written["counts"]
        has_labels, has_holders = labels and counts["y"] == counts["x"], holders and counts["holders"] == counts["x"]
        if not counts["x"]:
            return Rows(empty, np.empty(0, np.int64) if has_labels else None, [] if has_holders else None)
        x = np.memmap(self._folder / "x", written["kind"], "c", shape=(counts["x"], *written["shape"]))
        y = np.fromfile(self._folder / "y", np.int64) if has_labels else None
        return Rows(x, y, NameFile(self._folder / "holders") if has_holders else None)


class NameFile(Sequence[str]):
    """Names in the lines of a memory-mapped file, decoded when accessed, several lines at once."""

    def __init__(self, path: Path) -> None:
        self._content = np.memmap(path, np.uint8, "r")
        ends = np.flatnonzero(self._content == ord("\n")) + 1
        self._count = len(ends)
        self._starts = np.concatenate([[0], ends[_LINES - 1 :: _LINES], ends[-1:]]).tolist()
        self._known: tuple[int, list[str]] = (-1, [])

    def _block(self, number: int) -> list[str]:
        if number != self._known[0]:
            content = self._content[self._starts[number] : self._starts[number + 1]].tobytes()
            self._known = (number, content.decode("utf-8").split("\n")[:-1])
        return self._known[1]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for number in range(-(-self._count // _LINES)):
            yield from self._block(number)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> list[str]: ...
    def __getitem__(self, which: int | slice) -> str | list[str]:
        places = range(self._count)[which]
        if isinstance(places, int):
            return self._block(places // _LINES)[places % _LINES]
        return [self._block(place // _LINES)[place % _LINES] for place in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


Columns = Mapping[str, Sequence[object]]
Batch = tuple[Columns, Sequence[int]]
"""Records column by column, and their row numbers in the file."""
_NO_ROLE = {
    "label": _("Declare which column has this role."),
    "target": _("Declare the columns with the parts of the target."),
    "holder": _(
        "Declare which column has this role, or use --holder-per-row if every row belongs to a different person."
    ),
}


def wanted_names(schema: TabularSchema, *, labels: bool, holders: bool) -> set[str]:
    """Return the names of the columns to read.

    Raises:
        DataError: No column has a requested role.
    """
    names = {column.name for column in schema.features}
    dated = [column for column in schema.dates if column.name in names or labels]
    names |= {column.reference_column for column in dated if column.reference_column is not None}
    answer = "label" if schema.target is None else "target"
    owners = (schema.holder,) if schema.holder else ()
    for wants, role, columns in ((labels, answer, schema.answers), (holders, "holder", owners)):
        if wants and not columns:
            raise DataError(Sentence(_("No column in the schema has the role “%(role)s”."), role=role), _NO_ROLE[role])
        names |= {column.name for column in columns} if wants else set()
    return names | _of_persons(schema)


def _of_persons(schema: TabularSchema) -> set[str]:
    """Return the columns used to combine and order a person's records; empty if records are not combined."""
    if schema.one_record is None or schema.holder is None:
        return set()
    return {schema.holder.name, *([schema.one_record.by] if schema.one_record.by else [])}


ABOVE = 20
"""Number of rows in which a header is searched for."""


def declared_header(rows: Sequence[Sequence[str]], declared: Collection[str]) -> int | None:
    """Return the index of the header: the first row if it has a declared name, or else a row of declared names only."""
    for place, row in enumerate(rows[:ABOVE]):
        names = [cell for cell in row if cell]
        named = sum(name in declared for name in names)
        if named and (not place or named == len(names) > min(1, len(declared) - 1)):
            return place
    return None


def header_place(rows: Sequence[Sequence[str]], declared: Collection[str] = ()) -> int:
    """Return the index of the header among the first rows, which may include empty rows and titles.

    If no row contains the names of declared columns, the header is the first row with too many cells to be a title. In
    a table of several columns, a title fills one cell, or fewer than half of the columns.

    >>> header_place([["Study 7"], [], ["who", "age"], ["ada", "5"]])
    2

    Raises:
        DataError: The first row that could be the header does not name all columns.
    """
    filled = [[place for place, cell in enumerate(row) if cell] for row in rows]
    if (place := declared_header(rows, declared)) is not None:
        return place
    width = Counter(map(len, filter(None, filled))).most_common(1)[0][0] if any(filled) else 0
    for place, places in enumerate(filled[:ABOVE]):
        if not places or (width > 1 and places[0] == 0 and (len(places) == 1 or 2 * len(places) < width)):
            continue
        if len(places) < width and places != list(range(1, width)):  # an index column needs no name
            problem = Sentence(_("The file has no header with the names of all %(count)d columns."), count=width)
            raise DataError(problem, _("Keep one row of names above the records, without a title."))
        return place
    return 0


def check_names(
    names: Sequence[str], schema: TabularSchema, wanted: set[str], report: Report, *, row: int | None
) -> None:
    """Check the names of a file's columns, and add errors to the report."""
    declared = [column.name for column in schema.columns]
    for name in sorted(set(names) - set(declared)):
        problem, remedy = (
            _("The schema does not declare this column."),
            _("Declare the column, even if it is not used."),
        )
        report.add(DataError(problem, remedy, row=row, column=shown(name)))
    optional = _of_persons(schema)
    for name in (name for name in declared if name in wanted and name not in names and name not in optional):
        problem, remedy = _("The column is missing."), _("Add the column, or correct the header.")
        report.add(DataError(problem, remedy, row=row, column=name))
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        problem, remedy = _("The column appears twice."), _("Remove one of these columns.")
        report.add(DataError(problem, remedy, row=row, column=name))


class RecordEncoder:
    """Encoder for a file's records, chunk by chunk. Records with errors are left out and reported."""

    def __init__(self, schema: TabularSchema, report: Report, keeper: Keeper, *, labels: bool, holders: bool) -> None:
        self.schema, self.report, self.labels, self.holders = schema, report, labels, holders
        self._count, self._read, self._keeper = 0, False, keeper
        self._found: list[DataError] = []
        self._single: list[Columns] = []

    def add(self, columns: Columns, rows: Sequence[int]) -> None:
        """Add records with their row numbers.

        Raises:
            DataError: There are too many records.
        """
        self._read = self._read or bool(rows)
        self._count += len(rows)
        self.report.balance.see(ROWS, len(rows))
        limits.check_numbers(self._count, *self.schema.shape)
        faulty: set[int] = set()
        combining = self._combining(columns)
        if combining is not None:
            columns = self._counted(columns, combining)
            if combining.by in columns:
                self._note(combining.faults(columns[combining.by]), rows, faulty)
        columns, incomplete = self._decimal(self._durations(columns, rows, faulty), rows, faulty), False
        if (text := self.schema.text) is not None and text.name in columns:
            columns = {**columns, text.name: list(map(str, columns[text.name]))}
        for column in self.schema.features:
            if column.name not in columns:
                incomplete = True
                continue
            self._note(column.faults(columns[column.name]), rows, faulty)
        holder = self.schema.holder
        if self._has_answers(columns):
            faults = self.schema.answer_faults(columns)
            if combining is not None:  # an empty value is unknown
                faults = (fault for fault in faults if columns[fault.column or ""][(fault.row or 1) - 1] != "")
            self._note(faults, rows, faulty)
        if (self.holders or combining is not None) and holder and holder.name in columns:
            self._note(pseudonym_faults(columns[holder.name], holder.name), rows, faulty)
        self.report.add(*sorted(self._found, key=lambda fault: fault.row or 0))
        self._found.clear()
        places = [place for place in range(len(rows)) if place not in faulty]
        used = 0 if incomplete else len(places)
        self.report.balance.use(ROWS, used)
        self.report.balance.refuse(ROWS, len(rows) - used)
        if not used:
            return
        if faulty:
            columns = {name: taken(values, places) for name, values in columns.items()}
        if combining is not None:
            self._single.append(columns)
        else:
            self._encode(columns, len(places))

    def _combining(self, columns: Columns) -> OneRecord | None:
        """Return the rule for combining a person's records; None if no column of the file identifies people."""
        one, holder = self.schema.one_record, self.schema.holder
        if one is None or holder is None:
            return None
        for name, is_wanted in ((holder.name, self.holders), (one.by, one.by and holder.name in columns)):
            if is_wanted and name not in columns:
                raise DataError(_("The column is missing."), _("Add the column, or correct the header."), column=name)
        return one if holder.name in columns else None

    def _counted(self, columns: Columns, one: OneRecord) -> Columns:
        """Return columns for counting, with 1 for each known value and an empty value for each unknown one."""
        changed: dict[str, Sequence[object]] = {}
        for column in self.schema.features:
            if one.rule(column.name) == COUNT and column.name in columns:
                unknown = ("", *column.missing)
                changed[column.name] = (~are_missing(columns[column.name], unknown)).astype(int).tolist()
        return {**columns, **changed}

    def _combine(self) -> None:
        """Combine the records of each holder into one, and encode them."""
        one, holder, schema = self.schema.one_record, self.schema.holder, self.schema
        assert one is not None and holder is not None
        columns = {name: [value for part in self._single for value in part[name]] for name in self._single[0]}
        self._single.clear()
        names = [spelling(value) for value in columns[holder.name]]
        answers = schema.answers if self._has_answers(columns) else ()
        features = [column for column in schema.features if isinstance(column, Combinable)]
        made, owners = combined(columns, names, [*features, *answers], schema.classes, one)
        made[holder.name] = list(owners)
        if answers:
            spelled = {each.name for each in answers if "" in dict(each.spellings)}
            needs = [each.name for each in answers if each.name not in spelled]
            unknown = [place for place in range(len(owners)) if any(made[name][place] == "" for name in needs)]
            problem = _("The value to learn is missing for “%(name)s”.")
            remedy = _("Add the value to one of this person's records.")
            faults = (DataError(Sentence(problem, name=owners[place]), remedy) for place in unknown)
            self.report.add(*faults)
            left = set(unknown)
            made = {name: [v for place, v in enumerate(each) if place not in left] for name, each in made.items()}
        self.report.records += len(names)
        if count := len(made[holder.name]):
            self._encode(made, count)

    def _encode(self, columns: Columns, count: int) -> None:
        holder = self.schema.holder
        self._keeper.add(
            self.schema.encode_columns(columns, count),
            self.schema.encode_answers(columns) if self._has_answers(columns) else None,
            list(map(spelling, columns[holder.name])) if self.holders and holder and holder.name in columns else None,
        )
        for column in self.schema.features:
            notes = column.notes(columns[column.name])
            for counter, number in zip(
                (self.report.clipped, self.report.unknown, self.report.missing), notes, strict=True
            ):
                if number:
                    counter[column.name] += number

    def _has_answers(self, columns: Columns) -> bool:
        answers = self.schema.answers
        return self.labels and bool(answers) and all(column.name in columns for column in answers)

    def end(self) -> None:
        """Store records that can be built only from the whole file; report an error if the file has no records."""
        if not self._read and not self.report.count:
            self.report.add(DataError(_("The file contains no records."), _("Add records.")))
        if self._single:
            self._combine()

    def _note(self, faults: Iterable[DataError], rows: Sequence[int], faulty: set[int]) -> None:
        for fault in faults:
            assert fault.row is not None
            faulty.add(fault.row - 1)
            if len(self._found) < MOST:
                self._found.append(fault.at(row=rows[fault.row - 1]))
            else:
                self.report.count += 1

    def _durations(self, columns: Columns, rows: Sequence[int], faulty: set[int]) -> Columns:
        """Convert dates to numbers, once for all later steps; reference columns remain unchanged."""
        changed: dict[str, Sequence[object]] = {}
        for column in self.schema.dates:
            reference = column.reference_column
            if column.name not in columns or (reference is not None and reference not in columns):
                continue
            values, references = columns[column.name], columns[reference] if reference is not None else ()
            durations = column.durations(values, references)
            self._note(column.date_faults(values, durations, references), rows, faulty)
            changed[column.name] = [column.least if each is None else each for each in durations]  # already reported
        return {**columns, **changed}

    def _decimal(self, columns: Columns, rows: Sequence[int], faulty: set[int]) -> Columns:
        """Convert decimal commas to points. A point in a number is an error, because it could separate thousands."""
        if self.schema.decimal != ",":
            return columns
        changed: dict[str, Sequence[object]] = {}
        for column in (*self.schema.features, *self.schema.targets):
            if not isinstance(column, NumericColumn | TargetColumn) or column.name not in columns:
                continue
            given = columns[column.name]
            words = column.missing if isinstance(column, NumericColumn) else tuple(dict(column.spellings))
            if isinstance(given, Vector) and (converted := given.with_point(words)) is not None:
                changed[column.name] = converted
                continue
            values = list(given)
            for place, value in enumerate(values):
                if not isinstance(value, str) or value in words:
                    continue
                if "." in value:
                    text = _("“%(value)s” contains a point, but the decimal mark is a comma.")
                    fault = DataError(
                        Sentence(text, value=shown(value)),
                        _("Write the number without the point."),
                        row=place + 1,
                        column=column.name,
                    )
                    self._note([fault], rows, faulty)
                    values[place] = 0  # already reported
                else:
                    values[place] = value.replace(",", ".")
            changed[column.name] = values
        return {**columns, **changed}


def pseudonym_faults(names: Iterable[object], column: str) -> Iterator[DataError]:
    """Yield an error, with the 1-based position as its row, for every invalid pseudonym.

    >>> [str(fault) for fault in pseudonym_faults(["ada", "", "=1+1"], "who")][0]
    "row 2, column who: The record does not belong to anyone. Enter its holder's pseudonym, or remove the record."
    """
    for place, name in enumerate(names, 1):
        try:
            canonical(name)
        except PseudonymError as error:
            yield DataError(error.problem, error.remedy, row=place, column=column)
