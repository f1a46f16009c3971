"""Tables in Apache Parquet, which carry the names of their columns and know no value as such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from common.progress import Progress
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import limits
from learning.formats.files import sound
from learning.formats.records import Batch, check_names
from learning.formats.report import Report
from learning.formats.rows import DataError
from learning.formats.schema import TabularSchema
from learning.formats.values import by_text, cell

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
        row, size = 1, path.stat().st_size
        for batch in file.iter_batches(batch_size=_CHUNK, columns=present):
            columns: dict[str, list[object]] = {name: values_of(batch.column(name)) for name in present}
            places = _empty(columns, batch.num_rows) if len(present) == len(file.schema_arrow.names) else []
            report.balance.empty([row + place for place in places])
            empty = set(places)
            kept = [place for place in range(batch.num_rows) if place not in empty]
            if empty:
                columns = {name: [values[place] for place in kept] for name, values in columns.items()}
            yield columns, [row + place for place in kept]
            row += batch.num_rows
            progress(size * (row - 1) // max(1, file.metadata.num_rows), size)


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

    return sound(path, _("The file is no sound Parquet file (%(error)s)."), _("Get it again."), pa.ArrowException)


def _empty(columns: Mapping[str, Sequence[object]], count: int) -> list[int]:
    """Places of records in which nothing is known."""
    return [place for place in range(count) if columns and all(values[place] == "" for values in columns.values())]


def _plain(schema: pa.Schema, wanted: set[str], report: Report) -> list[str]:
    """Names of the wanted columns that can be read: there once, and of plain values."""
    import pyarrow as pa

    names = []
    for name in dict.fromkeys(schema.names):
        if name not in wanted or schema.names.count(name) > 1:
            continue
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            problem = Sentence(_("The column holds %(type)s."), type=kind)
            report.add(DataError(problem, _("Save it as numbers or text."), column=name))
        else:
            names.append(name)
    return names


def values_of(column: pa.Array) -> list[object]:
    """Return the cells of a column."""
    return by_text(column.to_pylist(), cell)
