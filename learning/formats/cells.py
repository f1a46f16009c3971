"""Tables of spreadsheets and statistics programs, record by record: Excel, Stata, SAS, SPSS and ARFF."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.progress import Progress
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.balance import ROWS, Balance
from learning.formats.columns import shown
from learning.formats.extracts import MOMENT, Fact, flat
from learning.formats.fhir import fhir_facts
from learning.formats.files import sound
from learning.formats.omop import omop_facts
from learning.formats.records import Batch, check_names, header_place
from learning.formats.report import Report
from learning.formats.rows import DataError
from learning.formats.schema import TabularSchema
from learning.formats.values import cell

_CHUNK = 10_000
#: Rows that are looked at to find a header.
_FIRST = 100
_AGAIN = _("Save it again with the program that made it, or as CSV.")


@dataclass(frozen=True)
class FileRecords:
    """Records of a file.

    Attributes:
        names: Of the columns.
        rows: Row of each record, as the program that made the file counts them, and its cells: texts, and numbers; an
            empty text where nothing is known.
        count: Number of records that the file announces, at least 1.
        remarks: What someone should know who declares the columns.
        ordered_by: Column of moments of an extract of a health system, whose rows of a person become one. Which columns
            such a file has follows from what occurs: others than the schema's are left out, and its others are empty.
        counted: Columns of an extract that say what was recorded, and nothing where it was not.
        balance: What became of the resources or rows of an extract.
        above: Rows above the header that are not empty.
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
    """Records of a file of one of `KINDS`; what is wrong may also show while they are read.

    The names of ``declared`` columns tell the header of a sheet from titles above it.

    Raises:
        DataError: the file is not sound.
    """
    with sound_cells(path, kind):
        return _sheet(path, declared) if kind == "Excel" else KINDS[kind](path)


def sound_cells(path: Path, kind: str) -> AbstractContextManager[None]:
    """Turn what the libraries raise about a broken file into DataErrors."""
    return sound(path, Sentence(_("The file is not a valid %(format)s file."), format=kind), _AGAIN, Exception)


def record_batches(
    path: Path, kind: str, schema: TabularSchema, wanted: set[str], report: Report, progress: Progress
) -> Iterator[Batch]:
    """Records of such a file, found by the names of its columns."""
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
    """Whether a row has no cells beyond the named columns; otherwise the report says so."""
    beyond = [value for value in row[columns:] if value != ""]
    if beyond:
        problem = Sentence(_("The row has a cell beyond the last named column: “%(value)s”."), value=shown(beyond[0]))
        report.add(DataError(problem, _("Name its column in the header, or remove the cell."), row=number))
        report.balance.see(ROWS)
        report.balance.refuse(ROWS)
    return not beyond


def _sheet(path: Path, declared: Collection[str] = ()) -> FileRecords:
    """The first sheet of a workbook; its header names the columns. Rows are counted as Excel does."""
    from python_calamine import CalamineWorkbook

    workbook = CalamineWorkbook.from_path(path)
    sheet = workbook.get_sheet_by_index(0)
    limits.check_numbers(sheet.total_height, sheet.total_width)
    rows = ([cell(value) for value in row] for row in sheet.iter_rows())
    first = list(itertools.islice(rows, _FIRST))
    left = 0  # columns without any cell, which a sheet may have before its table
    while first and left < len(first[0]) - 1 and all(row[left] == "" for row in first):
        left += 1
    if left:
        first, rows = [row[left:] for row in first], (row[left:] + row[:left] for row in rows)
    header = header_place([list(map(str, row)) for row in first], declared)
    names = list(map(str, first[header])) if first else []
    while names and not names[-1]:
        names.pop()
    if not names:
        raise DataError(_("The first sheet is empty."), _("Put the records into the first sheet."))
    remarks: list[str] = []
    if len(workbook.sheet_names) > 1:
        remarks.append(Sentence(_("Only the first sheet, “%(name)s”, is read."), name=sheet.name))
    if header:
        remarks.append(Sentence(_("The header is row %(row)d. Rows above it are not read."), row=header + 1))
    records = enumerate(itertools.chain(first[header + 1 :], rows), header + 2)
    above = tuple(place for place, row in enumerate(first[:header], 1) if any(value != "" for value in row))
    return FileRecords(names, records, sheet.height, tuple(remarks), above=above)


def _statistics(reader: str) -> Callable[[Path], FileRecords]:
    """Records of a file that pyreadstat reads; values that have a label are read as this."""

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
    """Records in parts; a file that does not announce their number is read at once."""
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
    """Records of an ARFF file; ``?`` is a value that is not known."""
    import arff

    def rows() -> Iterator[list[object]]:
        with path.open(encoding="utf-8-sig") as file:
            for row in arff.load(file, return_type=arff.DENSE_GEN)["data"]:
                yield [cell(value) for value in row]

    with path.open(encoding="utf-8-sig") as file:
        names = [name for name, _kind in arff.load(file, return_type=arff.DENSE_GEN)["attributes"]]
    return FileRecords(names, enumerate(rows(), 1), max(1, path.stat().st_size // max(1, 4 * len(names))))


def _extract(facts: Callable[[Path, Balance], Iterator[Fact]]) -> Callable[[Path], FileRecords]:
    """Records of a file of a health system."""

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
"""By what `files.kind_of` and the suffix call a file."""
