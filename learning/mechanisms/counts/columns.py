"""Columns whose values are counted, and the cells of their tables, defined only by the schema's declarations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from common.sentences import gettext_noop
from learning.formats import Schema, TabularSchema
from learning.formats.columns import CategoricalColumn, CodeColumn, NumericColumn, TextColumn
from learning.mechanisms.protocol import Records

CLASSES = "class"
"""Name of the column of classes if the schema gives it none."""
NOT_KNOWN = gettext_noop("not known")
NOWHERE = -1
EITHER = (gettext_noop("recorded"), gettext_noop("not recorded"))
"""Cells of a group of codes, for a column with several codes per record."""

_SINGLE = 1e-4
"""Share of a bin that single-precision rounding of stored numbers may take; less than that is below an edge."""


@dataclass(frozen=True)
class Column:
    """Column used for counting people.

    Attributes:
        name: the schema's name.
        cells: values, or bins of numbers, in order.
        start, width: position of its numbers in an encoded record; no width for the classes.
        edges: of the bins of a column of numbers, else none.
        groups: for each cell, the group that represents it if cells are counted in groups; else none.
    """

    name: str
    cells: tuple[str, ...]
    start: int = 0
    width: int = 0
    edges: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of its cells, or of their groups."""
        return max(self.groups) + 1 if self.groups else len(self.cells)

    def places(self, records: Records) -> NDArray[np.int64]:
        """Return (N,) the cell, or its group, of each record, `NOWHERE` for one that does not fit the schema.

        The place of a record depends only on that record.
        """
        place = self._cells(records)
        return np.where(place < 0, NOWHERE, np.array(self.groups)[place]) if self.groups else place

    def _cells(self, records: Records) -> NDArray[np.int64]:
        if not self.width:
            known = (records.classes >= 0) & (records.classes < len(self.cells))
            return np.where(known, records.classes, NOWHERE)
        values = records.x[:, self.start : self.start + self.width].astype(np.float64)
        if not self.edges:
            # An unknown value sets no feature; a schema that declares no unknown values has no cell for it.
            place = np.where(values.any(axis=1), values.argmax(axis=1), self.width)
            return np.where(np.isfinite(values).all(axis=1) & (place < len(self.cells)), place, NOWHERE)
        bins = len(self.edges) - 1
        with np.errstate(invalid="ignore"):
            place = np.floor(values[:, 0] * bins + _SINGLE)
        place = np.where(np.isfinite(place), np.clip(place, 0, bins - 1), NOWHERE)
        if self.width > 1:
            place = np.where(values[:, 1] > 0, bins, place)
        return place.astype(np.int64)


def column_names(schema: Schema) -> list[str]:
    """Return names of the columns that can be counted.

    >>> from learning.formats import ImageSchema
    >>> column_names(ImageSchema(8, 8, 1, ("dark", "light")))
    ['class']
    """
    return [column.name for column in _columns(schema, 1)]


def feature_columns(schema: TabularSchema, bins: int) -> tuple[Column, ...]:
    """Return all feature columns; a column of several codes becomes a column for each group, yes or no."""
    return tuple(_columns(schema, bins)[1 if schema.target is None else 0 :])


def columns_of(schema: Schema, names: Sequence[str], bins: int) -> tuple[Column, ...]:
    """Return columns by name, with numbers in ``bins`` of equal width.

    Raises:
        ValueError: the schema has no such column.
    """
    known = {column.name: column for column in _columns(schema, bins)}
    for name in names:
        if name not in known:
            raise ValueError(f"There is no column {name!r}; choose one of {', '.join(known)}.")
    return tuple(known[name] for name in names)


class Places:
    """Cells of records; the place in a column is looked up once."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._known: dict[Column, NDArray[np.int64]] = {}

    def cells(self, columns: Sequence[Column]) -> NDArray[np.int64]:
        """Return (N,) the cell in the table of these columns, row by row; `NOWHERE` for a record that is in none."""
        cells = np.zeros(len(self._records.owner), np.int64)
        for column in columns:
            if column not in self._known:
                self._known[column] = column.places(self._records)
            place = self._known[column]
            cells = np.where((cells < 0) | (place < 0), NOWHERE, cells * column.size + place)
        return cells


def number_of_cells(columns: Sequence[Column]) -> int:
    """Return the number of cells of a table of these columns."""
    return math.prod(column.size for column in columns)


def _class_column(schema: Schema) -> Column:
    label = schema.label if isinstance(schema, TabularSchema) else None
    return Column(label.name if label else CLASSES, schema.classes)


def _columns(schema: Schema, bins: int) -> list[Column]:
    columns, start = [_class_column(schema)] if schema.target is None else [], 0
    for column in schema.features if isinstance(schema, TabularSchema) else ():
        if isinstance(column, TextColumn):
            break
        width = len(column.features)
        missing = (NOT_KNOWN,) if column.missing else ()
        if isinstance(column, NumericColumn):
            edges = tuple(np.linspace(column.minimum, column.maximum, bins + 1).tolist())
            cells = tuple(f"{low:g} – {high:g}" for low, high in pairwise(edges))
            columns.append(Column(column.name, (*cells, *missing), start, width, edges))
        else:
            prefix = f"{column.name} = "
            cells = tuple(name.removeprefix(prefix) for name in column.features)
            assert isinstance(column, CategoricalColumn | CodeColumn), "there are no other columns"
            if isinstance(column, CodeColumn) and column.several:
                columns += [Column(name, EITHER, start + place, 1) for place, name in enumerate(column.features)]
            else:
                columns.append(Column(column.name, (*cells, *missing), start, width))
        start += width
    return columns
