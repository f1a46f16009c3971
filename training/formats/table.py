"""Tables of separated values (CSV), plain, gzip or inside a zip file."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from training.formats.columns import NumericColumn
from training.formats.files import open_content
from training.formats.rows import DataError, Progress, Rows
from training.formats.schema import TabularSchema

_CHUNK = 10_000
_NO_ROLE = {
    "label": "Declare which one it is.",
    "holder": "Declare which one it is, or give --holder-per-row if every row belongs to a person of its own.",
}

Line = tuple[int, list[str]]
"""The line of the file where a record starts (from 1), and its cells."""


def read_table(
    path: Path,
    schema: TabularSchema,
    *,
    member: str | None = None,
    labels: bool = True,
    holders: bool = True,
    progress: Progress | None = None,
) -> Rows:
    """Read all records of a CSV file.

    Columns are found by the names in the header, in any order; without header by their order in the schema. Where
    ``labels`` or ``holders`` is false, that column is not read and may be missing. ``progress`` counts bytes.

    Raises:
        DataError: names row and column.
    """
    wanted = {column.name for column in schema.features}
    for asked, role, column in ((labels, "label", schema.label), (holders, "holder", schema.holder)):
        if asked and column is None:
            raise DataError(f"The schema gives no column the role {role}.", _NO_ROLE[role], file=path)
        wanted |= {column.name} if asked and column else set()
    chunks = []
    with open_content(path, member) as content:
        try:
            text = io.TextIOWrapper(content.stream, encoding="utf-8-sig", newline="")
            lines = _lines(text, schema)
            names = _header(lines, schema, wanted)
            while chunk := list(itertools.islice(lines, _CHUNK)):
                chunks.append(_encode(_columns(chunk, names, wanted), [row for row, _ in chunk], schema))
                if progress:
                    progress(content.position(), content.size)
        except UnicodeDecodeError as error:
            raise DataError(f"The file is not UTF-8 text ({error}).", "Save it as UTF-8.", file=path) from error
        except DataError as error:
            raise error.at(file=path) from None
    if not chunks:
        raise DataError("The file holds no records.", "Add some.", file=path)
    return Rows(
        np.concatenate([rows.x for rows in chunks]),
        None if chunks[0].y is None else np.concatenate([rows.y for rows in chunks if rows.y is not None]),
        None if chunks[0].holders is None else [holder for rows in chunks for holder in rows.holders or ()],
    )


def _lines(text: Iterable[str], schema: TabularSchema) -> Iterator[Line]:
    """Lines that are neither blank nor comments; comments become blank lines, so that line numbers stay right."""
    kept = (("\n" if line.startswith(schema.comment) else line) for line in text) if schema.comment else text
    reader = csv.reader(kept, delimiter=schema.delimiter, skipinitialspace=True, strict=True)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"The line cannot be read ({error}).", "Check its quotes.", row=start) from error


def _header(lines: Iterator[Line], schema: TabularSchema, wanted: set[str]) -> list[str]:
    """Names of the file's columns."""
    declared = [column.name for column in schema.columns]
    if not schema.header:
        return declared
    row, cells = next(lines, (1, []))
    names = [cell.strip() for cell in cells]
    for name in sorted(set(names) - set(declared)):
        raise DataError("The schema does not declare this column.", "Declare it, or ignore it.", row=row, column=name)
    for name in (name for name in declared if name in wanted and name not in names):
        raise DataError("The column is missing.", "Add it, or correct the header.", row=row, column=name)
    for name in (name for name in names if names.count(name) > 1):
        raise DataError("The column is there twice.", "Remove one.", row=row, column=name)
    return names


def _columns(chunk: list[Line], names: list[str], wanted: set[str]) -> dict[str, list[str]]:
    for row, cells in chunk:
        if len(cells) != len(names):
            problem = f"The row has {len(cells)} values, where {len(names)} are expected."
            raise DataError(problem, "Check for missing or additional separators.", row=row)
    return {name: [cells[place].strip() for _, cells in chunk] for place, name in enumerate(names) if name in wanted}


def _encode(columns: dict[str, list[str]], rows: list[int], schema: TabularSchema) -> Rows:
    """Encoders know the place within the chunk; here it becomes the row of the file."""
    try:
        if schema.decimal == ",":
            numeric = [column for column in schema.features if isinstance(column, NumericColumn)]
            columns = columns | {column.name: _with_points(columns[column.name], column) for column in numeric}
        x = schema.encode_columns(columns, len(rows))
        label, holder = schema.label, schema.holder
        y = schema.encode_labels(columns[label.name]) if label and label.name in columns else None
        owners = columns[holder.name] if holder and holder.name in columns else None
        if holder and owners and not all(owners):
            problem, remedy = "The row has no holder.", "Say whose record it is, or remove it."
            raise DataError(problem, remedy, row=owners.index("") + 1, column=holder.name)
    except DataError as error:
        raise error.at(row=None if error.row is None else rows[error.row - 1]) from None
    return Rows(x, y, owners)


def _with_points(values: list[str], column: NumericColumn) -> list[str]:
    """Numbers with a decimal comma as numbers with a point; one that has a point already could mean thousands."""
    for place, value in enumerate(values, 1):
        if "." in value and value not in column.missing:
            problem = f"“{value}” has a point, where the decimal mark is a comma."
            raise DataError(problem, "Write it without the point.", row=place, column=column.name)
    return [value if value in column.missing else value.replace(",", ".") for value in values]
