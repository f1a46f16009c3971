"""Reader for tables of separated values (CSV), plain, gzipped or inside a zip file."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from common.progress import Progress
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.columns import shown
from learning.formats.files import open_content
from learning.formats.records import ABOVE, Batch, check_names, declared_header
from learning.formats.rows import ROWS, DataError, Report
from learning.formats.schema import TabularSchema
from learning.formats.values import Vector, blank_rows

_CHUNK = 10_000
_BLOCK = 1 << 20
_NEWLINE, _RETURN = b"\n\r"
SEPARATORS = (",", ";", "\t", "|")
#: Characters that represent invalid UTF-8 bytes after decoding, so that these can be reported by row and column.
_NO_TEXT = re.compile("[\udc80-\udcff]")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BEGINNING = 4096
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_BEFORE = 20
_AS_UTF8 = _("Save the file as UTF-8: Excel calls this “CSV UTF-8”.")

Line = tuple[int, list[str]]
"""Number of the line where a record starts (from 1), and the record's cells."""


def table_batches(
    path: Path, member: str | None, schema: TabularSchema, wanted: set[str], report: Report, progress: Progress
) -> Iterator[Batch]:
    """Yield the records of a CSV file, with the lines where they start; ``progress`` counts bytes.

    Columns are identified by their names in the header, in any order, or by their order in the schema if there is no
    header.
    """
    with open_content(path, member) as content:
        check_beginning(content.stream)
        lines = Lines(content.stream, schema.comment)
        header = _header(_records(lines, schema, report), schema, wanted, report)
        if header is None:
            return
        names, read = header
        whole = _WholeBlocks(schema, names, wanted)
        if read:
            yield _batch(read, names, schema, wanted, report)
        while block := lines.take_block():
            if (batch := whole.batch(block, lines.number, report)) is not None:
                lines.number += block.count(b"\n")
                yield batch
            else:
                lines.give_back(block)
                records = _records(lines, schema, report)
                while chunk := list(itertools.islice(records, _CHUNK)):
                    yield _batch(chunk, names, schema, wanted, report)
            progress(content.position(), content.size)


def _batch(chunk: list[Line], names: list[str], schema: TabularSchema, wanted: set[str], report: Report) -> Batch:
    filled = [line for line in chunk if any(map(str.strip, line[1]))]
    report.balance.empty([row for row, cells in chunk if not any(map(str.strip, cells))])
    whole = [line for line in filled if _fits(line, names, schema, report)]
    report.balance.see(ROWS, len(filled) - len(whole))
    report.balance.refuse(ROWS, len(filled) - len(whole))
    columns = list(zip(*(cells for _row, cells in whole), strict=True)) or [()] * len(names)
    return (
        {name: Vector.of_texts(columns[names.index(name)]) for name in names if name in wanted},
        [row for row, _cells in whole],
    )


class Lines:
    """Lines of a text, read one by one or as blocks of whole lines, with at most one block in memory.

    Attributes:
        number: Number of lines read so far.
        comment: Number of the last line that is not a row: a comment, or the first line if it declares the separator.
    """

    def __init__(self, stream: IO[bytes], comment: str) -> None:
        self.number = self.comment = 0
        self._blocks, self._comment = _blocks(stream), comment
        self._waiting: deque[bytes] = deque()

    def __iter__(self) -> Iterator[str]:
        """Yield lines, with comments replaced by blank lines so that line numbers stay correct."""
        while self._waiting or self._next():
            line = self._waiting.popleft().decode("utf-8", "surrogateescape")
            self.number += 1
            if len(line) >= limits.LONGEST_LINE:
                problem = Sentence(_("The line has more than %(most)s characters."), most=f"{limits.LONGEST_LINE:,}")
                raise DataError(
                    problem, _("Check that this is a table and that its quotes are correct."), row=self.number
                )
            if (self._comment and line.startswith(self._comment)) or (self.number == 1 and separator_line(line)):
                self.comment, line = self.number, "\n"
            yield line

    def is_between_blocks(self) -> bool:
        """Return whether all lines of the blocks read so far have been yielded."""
        return not self._waiting

    def take_block(self) -> bytes:
        """Remove and return a block of unread whole lines, which are then not yielded; empty at the end."""
        if not self._waiting:
            return next(self._blocks, b"")
        block = b"".join(self._waiting)
        self._waiting.clear()
        return block

    def give_back(self, block: bytes) -> None:
        """Push back a block so that its lines are yielded."""
        self._waiting.extend(block.splitlines(keepends=True))

    def _next(self) -> bool:
        block = next(self._blocks, b"")
        self.give_back(block)
        return bool(block)


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines of a file, a few megabytes at a time, without a byte order mark."""
    rest = stream.read(_BLOCK).removeprefix(codecs.BOM_UTF8)
    while rest:
        more = stream.read(_BLOCK)
        end = max(rest.rfind(b"\n"), rest.rfind(b"\r", 0, -1)) + 1 if more else len(rest)
        if end or len(rest) > 4 * limits.LONGEST_LINE:
            yield rest[: end or None]
            rest = rest[end:] + more if end else more
        else:
            rest += more


class _WholeBlocks:
    """Fast reader, column by column, for blocks without unusual content."""

    def __init__(self, schema: TabularSchema, names: list[str], wanted: set[str]) -> None:
        self._delimiter, self._comment = schema.delimiter, schema.comment.encode()
        self._places = {name: str(names.index(name)) for name in names if name in wanted}
        self._names = [str(place) for place in range(len(names))]

    def batch(self, block: bytes, before: int, report: Report) -> Batch | None:
        """Return the records of a block, or None if its lines must be examined one by one.

        Args:
            block: Whole lines.
            report: Report in which blank lines are counted.
        """
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        block = block if block.endswith(b"\n") else block + b"\n"
        letters = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(letters == _NEWLINE)
        if not self._is_usual(block, letters, ends):
            return None
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block),
                arrow_csv.ReadOptions(use_threads=False, block_size=len(block), column_names=self._names),
                arrow_csv.ParseOptions(delimiter=self._delimiter, quote_char='"' if b'"' in block else False),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self._names, pa.string()), include_columns=list(self._places.values())
                ),
            )
        except pa.ArrowInvalid:
            return None
        starts = np.concatenate([[0], ends[:-1] + 1])
        is_blank = (starts == ends) | ((starts + 1 == ends) & (letters[starts] == _RETURN))
        columns = {name: Vector(table.column(place).combine_chunks()) for name, place in self._places.items()}
        if table.num_rows != np.count_nonzero(~is_blank) or len(blank_rows(columns.values(), table.num_rows)):
            return None
        report.balance.empty((before + 1 + np.flatnonzero(is_blank)).tolist())
        return columns, (before + 1 + np.flatnonzero(~is_blank)).tolist()

    def _is_usual(self, block: bytes, letters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> bool:
        """Return whether Arrow would either read a block in the same way as this project or refuse it."""
        returns = np.flatnonzero(letters == _RETURN)
        return bool(
            self._places
            and self._delimiter.isascii()
            and self._delimiter not in '"\r\n '
            and not (self._comment and (block.startswith(self._comment) or b"\n" + self._comment in block))
            and np.count_nonzero(letters < ord(" "))
            == len(ends) + len(returns) + np.count_nonzero(letters == ord("\t"))
            and (letters[returns + 1] == _NEWLINE).all()
            and int(np.diff(ends, prepend=-1).max()) < csv.field_size_limit()
            and (b'"' not in block or self._has_plain_quotes(letters, ends))
        )

    def _has_plain_quotes(self, letters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> bool:
        """Return whether quotes only enclose whole cells, each on one line, and never appear inside a cell."""
        quotes = np.flatnonzero(letters == ord('"'))
        opening, closing = quotes[::2], quotes[1::2]
        if len(opening) != len(closing):
            return False
        around = (ord(self._delimiter), _NEWLINE)
        before = np.where(opening > 0, letters[opening - 1], _NEWLINE)
        return bool(
            np.isin(before, around).all()
            and np.isin(letters[closing + 1], (*around, _RETURN)).all()
            and (np.searchsorted(ends, opening) == np.searchsorted(ends, closing)).all()
        )


def text_of(stream: IO[bytes]) -> io.TextIOWrapper:
    """Return the text of a file; bytes that are not UTF-8 become surrogates.

    Raises:
        DataError: The file contains text in another encoding, or is not text.
    """
    check_beginning(stream)
    return io.TextIOWrapper(cast(io.BufferedReader, stream), "utf-8-sig", errors="surrogateescape", newline="")


def check_beginning(stream: IO[bytes]) -> None:
    """Check that the beginning of a stream is UTF-8 text.

    Raises:
        DataError: The stream has another encoding, or is not text.
    """
    start = cast(io.BufferedReader, stream).peek(_BEGINNING)[:_BEGINNING]
    if start[:2] in _UTF16:
        raise DataError(_("The file is UTF-16 text instead of UTF-8."), _AS_UTF8)
    if len(_CONTROL.findall(start)) > len(start) // 20:
        problem = _("The file is not a text file, and its format is unknown.")
        raise DataError(problem, _("Save the data as CSV, Excel or Parquet, or save images as a zip file."))


def check_text(lines: Iterable[str]) -> None:
    """Check lines that were read by `text_of`.

    Raises:
        DataError: A line is not UTF-8.
    """
    for row, line in enumerate(lines, 1):
        if _NO_TEXT.search(line):
            raise not_utf8(line, row)


def not_utf8(text: str, row: int, column: str | None = None) -> DataError:
    """Return a DataError for text that is not UTF-8, with the text decoded as Latin-1."""
    written = text.encode("utf-8", "surrogateescape").decode("latin-1")
    place = max(0, next(_NO_TEXT.finditer(text)).start() - _BEFORE)
    text = _("The file is probably Latin-1 text (Windows) instead of UTF-8: “%(value)s”.")
    problem = Sentence(text, value=shown(written[place:].strip()))
    return DataError(problem, _AS_UTF8, row=row, column=column)


def separator_line(line: str) -> str:
    """Return the separator declared by the first line of a file, as written by Excel; empty if there is none.

    >>> separator_line("sep=;"), separator_line("a;b")
    (';', '')
    """
    found = _SEPARATOR.fullmatch(line.strip("\r\n \ufeff"))
    return found[1] if found else ""


def _records(lines: Lines, schema: TabularSchema, report: Report) -> Iterator[Line]:
    """Yield the valid records up to the last one that begins in the current block; count and report all other lines."""
    texts, before = iter(lines), lines.number
    reader = csv.reader(texts, delimiter=schema.delimiter, skipinitialspace=True, strict=True)
    while True:
        start = before + reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = Sentence(_("The line cannot be read (%(error)s)."), error=error)
            report.add(DataError(problem, _("Check the line's quotes."), row=start))
            lines_read = before + reader.line_num + 1 - start  # an unclosed quote spans more than one line
            report.balance.see(ROWS, lines_read)
            report.balance.refuse(ROWS, lines_read)
        else:
            if cells:
                yield start, cells
            elif start == lines.comment:
                report.balance.comment(start)
            else:
                report.balance.empty([start])
        if lines.is_between_blocks():
            return


def _header(
    lines: Iterator[Line], schema: TabularSchema, wanted: set[str], report: Report
) -> tuple[list[str], list[Line]] | None:
    """Return the names of the file's columns, and the rows below the header that have already been read.

    If the rows cannot be read without the names, return None and report the reason.
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
            _("The header's columns are separated by %(found)s, but the schema says %(declared)s."),
            found=repr(other),
            declared=repr(schema.delimiter),
        )
        report.add(DataError(problem, _("Correct the delimiter in the schema."), row=row))
        return None
    if names and len(declared) > 1 and not set(names) & set(declared):
        problem = Sentence(
            _("The first row (%(row)s) contains none of the declared columns."), row=shown(", ".join(names))
        )
        remedy = _("Add a header, or declare “header”: false in the schema if the file has none.")
        report.add(DataError(problem, remedy, row=row))
        return None
    check_names(names, schema, wanted, report, row=row)
    for row, cells in first[:place]:
        (report.balance.above_header if any(map(str.strip, cells)) else report.balance.empty)([row])
    return names, first[place + 1 :]


def _other_separator(cells: list[str], schema: TabularSchema) -> str:
    """Return the separator that a row was probably written with, if it is not the declared one; otherwise empty."""
    text = schema.delimiter.join(cells)
    separator = max(SEPARATORS, key=text.count)
    return separator if text.count(separator) > text.count(schema.delimiter) else ""


def _fits(line: Line, names: list[str], schema: TabularSchema, report: Report) -> bool:
    """Return whether the values of a row can be separated and are text; otherwise add the reason to the report."""
    row, cells = line
    if len(cells) != len(names):
        problem = Sentence(
            _("The row has %(count)d values instead of %(expected)d."), count=len(cells), expected=len(names)
        )
        other = _other_separator(cells, schema)
        remedy: str = _("Check for missing or extra separators.")
        if other and schema.delimiter.join(cells).count(other) == len(names) - 1:
            text = _("This row's cells are separated by %(found)s. Use %(declared)s as in the other rows.")
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
            problem = Sentence(_("“%(value)s” contains a null byte."), value=shown(value))
            yield DataError(problem, _("Remove the null byte, or save the file as plain text."), row=row, column=name)
        elif _NO_TEXT.search(value):
            # Only one error for the whole file, because an error for each line would not help.
            raise not_utf8(value, row, name)
