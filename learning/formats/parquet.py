"""Tables in Apache Parquet, which carry the names of their columns and know no value as such."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from common.progress import Progress
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.files import sound
from learning.formats.records import Batch, Columns, check_names
from learning.formats.report import Report
from learning.formats.rows import DataError
from learning.formats.schema import TabularSchema
from learning.formats.vectors import Vector, blank_rows, taken

if TYPE_CHECKING:  # it takes a tenth of a second to import, which most commands need not spend
    import pyarrow as pa
    from pyarrow import parquet

_CHUNK = 10_000


def parquet_batches(
    path: Path, schema: TabularSchema, wanted: set[str], report: Report, progress: Progress
) -> Iterator[Batch]:
    """Records of a Parquet file; rows are counted from 1. A value that is null reads as an empty one."""
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
    """The columns of a file that are not wanted, read only where a row holds nothing in those that are."""

    def __init__(self, file: parquet.ParquetFile, names: list[str]) -> None:
        self._file, self._names = file, list(dict.fromkeys(names))
        groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        self._ends = np.cumsum(groups)
        self._empty: tuple[int, set[int]] = (-1, set())

    def are_empty(self, row: int) -> bool:
        """Whether they hold nothing in a row, counted from 0."""
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
    """The cells of a column that cannot be read, for all that matters: empty texts, and something else."""
    return ["" if is_null else 1 for is_null in column.is_null().to_pylist()]


def _is_opaque(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def open_parquet(path: Path) -> parquet.ParquetFile:
    """Open a file of which no more will be read than there may be.

    Raises:
        DataError: the file cannot be opened, is no sound Parquet file, or too large.
    """
    from pyarrow import parquet

    with sound_parquet(path):
        file = parquet.ParquetFile(path)
    limits.check_numbers(file.metadata.num_rows, file.metadata.num_columns)
    return file


def sound_parquet(path: Path) -> AbstractContextManager[None]:
    """Turn what pyarrow raises about a broken file into DataErrors."""
    import pyarrow as pa

    return sound(
        path,
        _("The file is not a valid Parquet file (%(error)s)."),
        _("Download or export it again."),
        pa.ArrowException,
    )


def _plain(schema: pa.Schema, wanted: set[str], report: Report) -> list[str]:
    """Names of the wanted columns that can be read: there once, and of plain values."""
    names = []
    for name in dict.fromkeys(schema.names):
        if name not in wanted or schema.names.count(name) > 1:
            continue
        kind = schema.field(name).type
        if _is_opaque(kind):
            problem = Sentence(_("The column contains %(type)s."), type=kind)
            report.add(DataError(problem, _("Save it as numbers or text."), column=name))
        else:
            names.append(name)
    return names


def values_of(column: pa.Array) -> list[object]:
    """Return the cells of a column."""
    return list(Vector(column))
