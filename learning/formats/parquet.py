"""Tables in Apache Parquet, which carry the names of their columns and know no value as such."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.files import cannot_open
from learning.formats.records import RecordEncoder, check_names, wanted_names
from learning.formats.report import Report
from learning.formats.rows import DataError, Progress, Rows
from learning.formats.schema import TabularSchema

_CHUNK = 10_000
_UNSOUND = (pa.ArrowException, OSError, ValueError, MemoryError)


def read_parquet(
    path: Path,
    schema: TabularSchema,
    *,
    labels: bool = True,
    holders: bool = True,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Rows:
    """Read all records of a Parquet file; rows are counted from 1. A value that is null reads as an empty one.

    Raises:
        DataError: names row and column of everything that is wrong. With ``report`` it goes there instead, and the
            records without a fault are returned.
    """
    told = Report() if report is None else report
    encoder = RecordEncoder(schema, told, path, labels=labels, holders=holders)
    try:
        _read(path, encoder, progress)
    except DataError as error:
        told.add(error.at(file=path))
    rows = encoder.rows()
    if report is None:
        told.raise_faults()
    return rows


def open_parquet(path: Path) -> parquet.ParquetFile:
    """Open a file of which no more will be read than there may be.

    Raises:
        DataError: the file cannot be opened, is no sound Parquet file, or too large.
    """
    try:
        file = parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise cannot_open(path, error) from error
    except _UNSOUND as error:
        raise _unsound(path, error) from error
    limits.check_numbers(file.metadata.num_rows, file.metadata.num_columns)
    return file


def _read(path: Path, encoder: RecordEncoder, progress: Progress | None) -> None:
    wanted = wanted_names(encoder.schema, labels=encoder.labels, holders=encoder.holders)
    with open_parquet(path) as file:
        names, report = file.schema_arrow.names, encoder.report
        check_names(names, encoder.schema, wanted, report, path, row=None)
        present = _plain(file.schema_arrow, wanted, report, path)
        row, size = 1, path.stat().st_size
        try:
            for batch in file.iter_batches(batch_size=_CHUNK, columns=present):
                columns = {name: _values(batch.column(name)) for name in present}
                encoder.add(columns, range(row, row + batch.num_rows))
                row += batch.num_rows
                if progress:
                    progress(size * (row - 1) // max(1, file.metadata.num_rows), size)
        except _UNSOUND as error:
            if isinstance(error, DataError):
                raise
            raise _unsound(path, error) from error


def _plain(schema: pa.Schema, wanted: set[str], report: Report, path: Path) -> list[str]:
    """Names of the wanted columns that can be read: there once, and of plain values."""
    names = []
    for name in dict.fromkeys(schema.names):
        if name not in wanted or schema.names.count(name) > 1:
            continue
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            problem = Sentence(_("The column holds %(type)s."), type=kind)
            report.add(DataError(problem, _("Save it as numbers or text."), file=path, column=name))
        else:
            names.append(name)
    return names


def _values(column: pa.Array) -> list[object]:
    return ["" if value is None else value.strip() if isinstance(value, str) else value for value in column.to_pylist()]


def _unsound(path: Path, error: Exception) -> DataError:
    problem = Sentence(_("The file is no sound Parquet file (%(error)s)."), error=error)
    return DataError(problem, _("Get it again."), file=path)
