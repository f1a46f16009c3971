"""Tables of separated values (CSV), plain, gzip or inside a zip file."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from common.progress import Progress
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.balance import ROWS
from learning.formats.columns import shown
from learning.formats.files import open_content
from learning.formats.records import ABOVE, Batch, Columns, check_names, declared_header
from learning.formats.report import Report
from learning.formats.rows import DataError
from learning.formats.schema import TabularSchema
from learning.formats.values import cell

_CHUNK = 10_000
SEPARATORS = (",", ";", "\t", "|")
#: What bytes that are no UTF-8 are read as, so that they can be found by row and column.
_NO_TEXT = re.compile("[\udc80-\udcff]")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BEGINNING = 4096
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_BEFORE = 20
_AS_UTF8 = _("Save it as UTF-8: Excel calls this “CSV UTF-8”.")

Line = tuple[int, list[str]]
"""The line of the file where a record starts (from 1), and its cells."""


def table_batches(
    path: Path, member: str | None, schema: TabularSchema, wanted: set[str], report: Report, progress: Progress
) -> Iterator[Batch]:
    """Records of a CSV file, with the lines where they start; ``progress`` counts bytes.

    Columns are found by the names in the header, in any order; without header by their order in the schema.
    """
    with open_content(path, member) as content:
        text = text_of(content.stream)
        lines = _lines(text, schema, report)
        header = _header(lines, schema, wanted, report)
        if header is None:
            return
        names, read = header
        lines = itertools.chain(read, lines)
        while chunk := list(itertools.islice(lines, _CHUNK)):
            filled = [line for line in chunk if any(map(str.strip, line[1]))]
            report.balance.empty([row for row, cells in chunk if not any(map(str.strip, cells))])
            whole = [line for line in filled if _fits(line, names, schema, report)]
            report.balance.see(ROWS, len(filled) - len(whole))
            report.balance.refuse(ROWS, len(filled) - len(whole))
            yield _columns(whole, names, wanted), [row for row, _cells in whole]
            progress(content.position(), content.size)


def text_of(stream: IO[bytes]) -> io.TextIOWrapper:
    """Text of a file; bytes that are no UTF-8 become surrogates.

    Raises:
        DataError: it is text of another kind, or none.
    """
    buffered = cast(io.BufferedReader, stream)
    start = buffered.peek(_BEGINNING)[:_BEGINNING]
    if start[:2] in _UTF16:
        raise DataError(_("The file is not UTF-8 text, but UTF-16."), _AS_UTF8)
    if len(_CONTROL.findall(start)) > len(start) // 20:
        problem = _("The file is no text, and of no format that is known here.")
        raise DataError(problem, _("Save it as CSV, Excel or Parquet; images as a zip file."))
    return io.TextIOWrapper(buffered, encoding="utf-8-sig", errors="surrogateescape", newline="")


def check_text(lines: Iterable[str]) -> None:
    """Check lines that were read by `text_of`.

    Raises:
        DataError: one holds what is no UTF-8.
    """
    for row, line in enumerate(lines, 1):
        if _NO_TEXT.search(line):
            raise not_utf8(line, row)


def not_utf8(text: str, row: int, column: str | None = None) -> DataError:
    """DataError for text that is not UTF-8, with what it probably says."""
    written = text.encode("utf-8", "surrogateescape").decode("latin-1")
    place = max(0, next(_NO_TEXT.finditer(text)).start() - _BEFORE)
    text = _("The file is not UTF-8 text, but probably Latin-1 (Windows): “%(value)s”.")
    problem = Sentence(text, value=shown(written[place:].strip()))
    return DataError(problem, _AS_UTF8, row=row, column=column)


def _bounded_lines(text: io.TextIOWrapper, comment: str) -> Iterator[str]:
    """Lines of a file; comments become blank lines, so that line numbers stay right."""
    number = 0
    while line := text.readline(limits.LONGEST_LINE):
        number += 1
        if len(line) == limits.LONGEST_LINE:
            problem = Sentence(_("The line has more than %(most)s characters."), most=f"{limits.LONGEST_LINE:,}")
            raise DataError(problem, _("Check that this is a table, and its quotes."), row=number)
        is_comment = comment and line.startswith(comment)
        yield "\n" if is_comment or (number == 1 and separator_line(line)) else line


def separator_line(line: str) -> str:
    """Return the separator that the first line of a file declares, as Excel writes it; empty if it declares none.

    >>> separator_line("sep=;"), separator_line("a;b")
    (';', '')
    """
    found = _SEPARATOR.fullmatch(line.strip("\r\n \ufeff"))
    return found[1] if found else ""


def _lines(text: io.TextIOWrapper, schema: TabularSchema, report: Report) -> Iterator[Line]:
    """Lines that are neither blank nor comments, and can be read."""
    lines = _bounded_lines(text, schema.comment)
    reader = csv.reader(lines, delimiter=schema.delimiter, skipinitialspace=True, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = Sentence(_("The line cannot be read (%(error)s)."), error=error)
            report.add(DataError(problem, _("Check its quotes."), row=start))
            report.balance.see(ROWS)
            report.balance.refuse(ROWS)
            continue
        if cells:
            yield start, cells


def _header(
    lines: Iterator[Line], schema: TabularSchema, wanted: set[str], report: Report
) -> tuple[list[str], list[Line]] | None:
    """Names of the file's columns, and rows below them that were read meanwhile.

    None, and why in the report, where no row can be read without them.
    """
    declared = [column.name for column in schema.columns]
    if not schema.header:
        return declared, []
    first = [next(lines, (1, []))]
    if not set(declared) & {cell.strip() for cell in first[0][1]}:
        first += itertools.islice(lines, ABOVE - 1)
    place = declared_header([list(map(str.strip, cells)) for _row, cells in first], declared) or 0
    row, cells = first[place]
    if any(map(_NO_TEXT.search, cells)):
        raise not_utf8(schema.delimiter.join(cells), row)
    names = [cell.strip() for cell in cells]
    other = _other_separator(cells, schema)
    if other and not set(names) & set(declared):
        problem = Sentence(
            _("The header is separated by %(found)s, the schema says %(declared)s."),
            found=repr(other),
            declared=repr(schema.delimiter),
        )
        report.add(DataError(problem, _("Correct the delimiter in the schema."), row=row))
        return None
    if names and len(declared) > 1 and not set(names) & set(declared):
        problem = Sentence(
            _("The first row (%(row)s) names none of the declared columns."), row=shown(", ".join(names))
        )
        remedy = _("Add a header, or declare “header”: false in the schema if the file has none.")
        report.add(DataError(problem, remedy, row=row))
        return None
    check_names(names, schema, wanted, report, row=row)
    report.balance.above_header([row for row, cells in first[:place] if any(map(str.strip, cells))])
    return names, first[place + 1 :]


def _other_separator(cells: list[str], schema: TabularSchema) -> str:
    """Separator by which a row was probably written, if it is not the declared one; empty if none is better."""
    text = schema.delimiter.join(cells)
    separator = max(SEPARATORS, key=text.count)
    return separator if text.count(separator) > text.count(schema.delimiter) else ""


def _fits(line: Line, names: list[str], schema: TabularSchema, report: Report) -> bool:
    """Whether the values of a row can be told apart and are text; otherwise the report says why."""
    row, cells = line
    if len(cells) != len(names):
        problem = Sentence(
            _("The row has %(count)d values, where %(expected)d are expected."), count=len(cells), expected=len(names)
        )
        other = _other_separator(cells, schema)
        remedy: str = _("Check for missing or additional separators.")
        if other and schema.delimiter.join(cells).count(other) == len(names) - 1:
            text = _("It is separated by %(found)s; write %(declared)s as in the other rows.")
            remedy = Sentence(text, found=repr(other), declared=repr(schema.delimiter))
        report.add(DataError(problem, remedy, row=row))
        return False
    joined = "".join(cells)
    if joined.isascii() and "\0" not in joined:
        return True
    faults = list(_no_text(row, cells, names))
    report.add(*faults)
    return not faults


def _no_text(row: int, cells: list[str], names: list[str]) -> Iterator[DataError]:
    for name, value in zip(names, cells, strict=True):
        if "\0" in value:
            problem = Sentence(_("“%(value)s” holds a null byte."), value=shown(value))
            yield DataError(problem, _("Remove it, or save the file as plain text."), row=row, column=name)
        elif _NO_TEXT.search(value):
            # Of the whole file: as many errors as it has lines would say no more.
            raise not_utf8(value, row, name)


def _columns(lines: list[Line], names: list[str], wanted: set[str]) -> Columns:
    places = {name: names.index(name) for name in names if name in wanted}
    return {name: _cells([cells[place] for _row, cells in lines]) for name, place in places.items()}


def _cells(texts: list[str]) -> list[object]:
    return list(map(str.strip, texts)) if "".join(texts).isascii() else list(map(cell, texts))
