"""Reader for tables from spreadsheets and statistics programs: Parquet, Excel, Stata, SAS, SPSS and ARFF."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.progress import Progress
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.columns import shown
from learning.formats.extracts import MOMENT, Fact, flat
from learning.formats.fhir import fhir_facts
from learning.formats.files import sound
from learning.formats.omop import omop_facts
from learning.formats.records import Batch, Columns, check_names, header_place
from learning.formats.rows import ROWS, Balance, DataError, Report
from learning.formats.schema import TabularSchema
from learning.formats.values import Vector, blank_rows, cell, taken

if TYPE_CHECKING:  # importing it takes a tenth of a second, and most commands do not need it
    import pyarrow as pa
    from pyarrow import parquet

_CHUNK = 10_000


def parquet_batches(
    path: Path, schema: TabularSchema, wanted: set[str], report: Report, progress: Progress
) -> Iterator[Batch]:
    """Yield the records of a Parquet file, with rows counted from 1. A null is read as an empty value."""
    with open_parquet(path) as file, sound_parquet(path):
        check_names(file.schema_arrow.names, schema, wanted, report, row=None)
        present = _plain(file.schema_arrow, wanted, report)
        others = _Others(file, [name for name in file.schema_arrow.names if name not in present])
        row, size = 1, path.stat().st_size
        for batch in file.iter_batches(batch_size=_CHUNK, columns=present):
            columns: Columns = {name: Vector(batch.column(name)) for name in present}
            empty = [
                at for at in blank_rows(columns.values(), batch.num_rows).tolist() if others.are_empty(row - 1 + at)
            ]
            report.balance.empty([row + place for place in empty])
            kept = sorted(set(range(batch.num_rows)).difference(empty))
            if empty:
                columns = {name: taken(values, kept) for name, values in columns.items()}
            yield columns, [row + place for place in kept]
            row += batch.num_rows
            progress(size * (row - 1) // max(1, file.metadata.num_rows), size)


class _Others:
    """Columns of a file that were not requested. They are read only for rows whose requested columns are all empty."""

    def __init__(self, file: parquet.ParquetFile, names: list[str]) -> None:
        self._file, self._names = file, list(dict.fromkeys(names))
        groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        self._ends = np.cumsum(groups)
        self._empty: tuple[int, set[int]] = (-1, set())

    def are_empty(self, row: int) -> bool:
        """Return whether a row, counted from 0, is empty in all of these columns."""
        if not self._names:
            return True
        group = int(np.searchsorted(self._ends, row, side="right"))
        if self._empty[0] != group:
            table = self._file.read_row_group(group, columns=self._names).combine_chunks()
            start = int(self._ends[group]) - table.num_rows
            columns = (
                _nulls(column) if _is_opaque(column.type) else Vector(_whole(column)) for column in table.columns
            )
            self._empty = group, {start + place for place in blank_rows(columns, table.num_rows).tolist()}
        return row in self._empty[1]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _nulls(column: pa.ChunkedArray) -> list[object]:
    """Return placeholders for the cells of an unreadable column: an empty string for null, otherwise 1."""
    return ["" if is_null else 1 for is_null in column.is_null().to_pylist()]


def _is_opaque(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def open_parquet(path: Path) -> parquet.ParquetFile:
    """Open a Parquet file, unless it contains more values than allowed.

    Raises:
        DataError: The file cannot be opened, is not a valid Parquet file, or is too large.
    """
    from pyarrow import parquet

    with sound_parquet(path):
        file = parquet.ParquetFile(path)
    limits.check_numbers(file.metadata.num_rows, file.metadata.num_columns)
    return file


def sound_parquet(path: Path) -> AbstractContextManager[None]:
    """Convert the errors that pyarrow raises for a broken file to DataErrors."""
    import pyarrow as pa

    return sound(
        path,
        _("The file is not a valid Parquet file (%(error)s)."),
        _("Download or export the file again."),
        pa.ArrowException,
    )


def _plain(schema: pa.Schema, wanted: set[str], report: Report) -> list[str]:
    """Return the names of the requested columns that occur only once and contain plain values; report the others."""
    names = []
    for name in dict.fromkeys(schema.names):
        if name not in wanted or schema.names.count(name) > 1:
            continue
        kind = schema.field(name).type
        if _is_opaque(kind):
            problem = Sentence(_("The column contains %(type)s."), type=kind)
            report.add(DataError(problem, _("Save the column as numbers or text."), column=name))
        else:
            names.append(name)
    return names


def values_of(column: pa.Array) -> list[object]:
    return list(Vector(column))


#: Number of rows in which a header is searched for.
_FIRST = 100
_AGAIN = _("Save the file again with the program that made it, or as CSV.")


@dataclass(frozen=True)
class FileRecords:
    """Records of a file.

    Attributes:
        rows: Row number of each record, as counted by the program that created the file, and its cells: strings and
            numbers, with an empty string for unknown values.
        count: Number of records declared by the file, at least 1.
        remarks: Remarks for the person who declares the columns.
        ordered_by: Time column of an extract from a health system, used to combine a person's rows into one. The
            columns of such a file depend on its data, so columns that are missing from the schema are ignored, and
            columns that are missing from the file are treated as empty.
        counted: Columns of an extract that are filled if something was recorded, and otherwise empty.
        balance: Counts of the resources or rows of an extract that were used, refused or left out.
        above: Numbers of the non-empty rows above the header.
    """

    names: list[str]
    rows: Iterator[tuple[int, Sequence[object]]]
    count: int
    remarks: tuple[str, ...] = ()
    ordered_by: str = ""
    counted: tuple[str, ...] = ()
    balance: Balance | None = None
    above: tuple[int, ...] = ()


def open_records(path: Path, kind: str, declared: Collection[str] = ()) -> FileRecords:
    """Return the records of a file of one of `KINDS`; some errors are found only while the records are read.

    The names of ``declared`` columns are used to distinguish the header of a sheet from titles above it.

    Raises:
        DataError: The file is not valid.
    """
    with sound_cells(path, kind):
        return _sheet(path, declared) if kind == "Excel" else KINDS[kind](path)


def sound_cells(path: Path, kind: str) -> AbstractContextManager[None]:
    """Convert the errors that libraries raise for a broken file to DataErrors."""
    return sound(path, Sentence(_("The file is not a valid %(format)s file."), format=kind), _AGAIN, Exception)


def record_batches(
    path: Path, kind: str, schema: TabularSchema, wanted: set[str], report: Report, progress: Progress
) -> Iterator[Batch]:
    """Yield the records of a file of one of `KINDS`, finding columns by name."""
    records, size = open_records(path, kind, {column.name for column in schema.columns}), path.stat().st_size
    report.balance.above_header(records.above)
    if records.balance is not None:
        report.balance.take(records.balance)
    if not records.ordered_by:
        check_names(records.names, schema, wanted, report, row=None)
    places = {name: place for place, name in enumerate(records.names) if name in wanted}
    others = wanted - set(places) if records.ordered_by else set()
    done = 0
    while True:
        with sound_cells(path, kind):
            chunk = list(itertools.islice(records.rows, _CHUNK))
        if not chunk:
            return
        done += len(chunk)
        report.balance.empty([number for number, row in chunk if all(value == "" for value in row)])
        filled = [(number, row) for number, row in chunk if any(value != "" for value in row)]
        whole = [(number, row) for number, row in filled if _fits(number, row, len(records.names), report)]
        columns: dict[str, list[object]] = {name: [row[place] for _, row in whole] for name, place in places.items()}
        columns |= {name: [""] * len(whole) for name in others}
        yield columns, [number for number, _ in whole]
        progress(min(size, size * done // records.count), size)


def _fits(number: int, row: Sequence[object], columns: int, report: Report) -> bool:
    """Return whether a row has no more cells than there are named columns; otherwise report an error."""
    beyond = [value for value in row[columns:] if value != ""]
    if beyond:
        problem = Sentence(_("The row has a cell after the last named column: “%(value)s”."), value=shown(beyond[0]))
        report.add(DataError(problem, _("Name the cell's column in the header, or remove the cell."), row=number))
        report.balance.see(ROWS)
        report.balance.refuse(ROWS)
    return not beyond


def _sheet(path: Path, declared: Collection[str] = ()) -> FileRecords:
    """Return the records of a workbook's first sheet, which has a header. Rows are counted as in Excel."""
    from python_calamine import CalamineWorkbook

    workbook = CalamineWorkbook.from_path(path)
    sheet = workbook.get_sheet_by_index(0)
    limits.check_numbers(sheet.total_height, sheet.total_width)
    rows = ([cell(value) for value in row] for row in sheet.iter_rows())
    first = list(itertools.islice(rows, _FIRST))
    left = 0  # number of empty columns before the table in the sheet
    while first and left < len(first[0]) - 1 and all(row[left] == "" for row in first):
        left += 1
    if left:
        first, rows = [row[left:] for row in first], (row[left:] + row[:left] for row in rows)
    header = header_place([list(map(str, row)) for row in first], declared)
    names = list(map(str, first[header])) if first else []
    while names and not names[-1]:
        names.pop()
    if not names:
        raise DataError(_("The first sheet is empty."), _("Put the records on the first sheet."))
    remarks: list[str] = []
    if len(workbook.sheet_names) > 1:
        remarks.append(Sentence(_("Only the first sheet, “%(name)s”, is read."), name=sheet.name))
    if header:
        remarks.append(Sentence(_("The header is row %(row)d. Rows above it are not read."), row=header + 1))
    records = enumerate(itertools.chain(first[header + 1 :], rows), header + 2)
    above = tuple(place for place, row in enumerate(first[:header], 1) if any(value != "" for value in row))
    return FileRecords(names, records, sheet.height, tuple(remarks), above=above)


def _statistics(reader: str) -> Callable[[Path], FileRecords]:
    """Return a reader for files supported by pyreadstat, which replaces labelled values by their labels."""

    def records(path: Path) -> FileRecords:
        import pyreadstat

        read = getattr(pyreadstat, reader)
        _none, about = read(path, metadataonly=True)
        count = about.number_rows
        limits.check_numbers(max(count or 0, 0), len(about.column_names))
        labels = about.variable_value_labels
        return FileRecords(about.column_names, enumerate(_parts(read, path, count, labels), 1), max(count or 0, 1))

    return records


def _parts(
    read: Callable[..., Any], path: Path, count: int | None, labels: Mapping[str, Mapping[Any, str]]
) -> Iterator[list[object]]:
    """Yield records in parts; if a file does not declare the number of records, yield all of them at once."""
    start = 0
    while True:
        part = {"row_offset": start, "row_limit": _CHUNK} if count is not None else {}
        columns, _about = read(path, output_format="dict", **part)
        named = [[labels.get(name, {}).get(v, v) for v in values] for name, values in columns.items()]
        rows = [[cell(value) for value in row] for row in zip(*named, strict=True)]
        yield from rows
        start += len(rows)
        if not part or len(rows) < _CHUNK:
            return


def _arff(path: Path) -> FileRecords:
    """Return the records of an ARFF file; ``?`` is an unknown value."""
    import arff

    def rows() -> Iterator[list[object]]:
        with path.open(encoding="utf-8-sig") as file:
            for row in arff.load(file, return_type=arff.DENSE_GEN)["data"]:
                yield [cell(value) for value in row]

    with path.open(encoding="utf-8-sig") as file:
        names = [name for name, _kind in arff.load(file, return_type=arff.DENSE_GEN)["attributes"]]
    return FileRecords(names, enumerate(rows(), 1), max(1, path.stat().st_size // max(1, 4 * len(names))))


def _extract(facts: Callable[[Path, Balance], Iterator[Fact]]) -> Callable[[Path], FileRecords]:
    """Return a reader for files from a health system."""

    def records(path: Path) -> FileRecords:
        balance = Balance()
        names, rows, counted = flat(facts(path, balance))
        balance.check()
        limits.check_numbers(len(rows), len(names))
        listed = ([cell(row.get(name)) for name in names] for row in rows)
        numbered = enumerate(listed, 1)
        return FileRecords(
            names, numbered, max(1, len(rows)), ordered_by=MOMENT, counted=tuple(counted), balance=balance
        )

    return records


KINDS: dict[str, Callable[[Path], FileRecords]] = {
    "Excel": _sheet,
    "SPSS": _statistics("read_sav"),
    "SPSS portable": _statistics("read_por"),
    "Stata": _statistics("read_dta"),
    "SAS": _statistics("read_sas7bdat"),
    "SAS transport": _statistics("read_xport"),
    "ARFF": _arff,
    "FHIR": _extract(fhir_facts),
    "OMOP": _extract(omop_facts),
}
"""Readers by kind of file, which is a result of `files.kind_of` or a suffix."""
