"""Rows drawn from released counts, and their distance from these; everything is a function of releases."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.spreadsheets import CsvWriter
from learning.formats import TabularSchema
from learning.formats.columns import SEVERAL, CodeColumn, NumericColumn
from learning.mechanisms.counts.table_plan import MOST_BINS, CountedColumn, feature_columns, noise_distance
from learning.mechanisms.counts.tables import at_least_zero
from learning.mechanisms.protocol import content_digest
from learning.mechanisms.synthesis.model import NOBODY, pairs_of
from learning.mechanisms.synthesis.rounds import Marginals

_DIGITS = 4


@dataclass(frozen=True)
class Marginal:
    """A table that was measured: its columns, cells, the error of a count 95 times in 100, and the rows' distance.

    ``distance`` is the total variation between the rows and its release, noise included.
    """

    columns: tuple[str, ...]
    cells: int
    error: float
    distance: float


@dataclass(frozen=True)
class Description:
    """Description of synthetic rows for a page and a card.

    Attributes:
        columns: names, the classes last.
        rows: number of rows.
        marginals: those measured along the tree.
        pairs: mean total variation of all pairs of columns within classes, between rows and their releases.
        noise: the part of it that is due to the noise of the released pairs, from its size.
    """

    columns: tuple[str, ...]
    rows: int
    marginals: tuple[Marginal, ...]
    pairs: float
    noise: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON with lists instead of tuples, which equals the value read from a database."""
        return json.loads(json.dumps(asdict(self)))

    def __len__(self) -> int:
        return self.rows


class Said(Protocol):
    """Description of rows: names of their ``columns``, the classes last, and more."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def to_json(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=Said)


@dataclass(frozen=True, eq=False)
class SyntheticRows(Generic[S]):
    """Drawn rows: encoded records ``x`` (n, …), their ``classes`` (n,), and a description, ``said``."""

    schema: TabularSchema
    x: NDArray[np.float32]
    classes: NDArray[np.int64]
    said: S

    def __len__(self) -> int:
        return len(self.x)

    def to_json(self) -> dict[str, Any]:
        """Return JSON of the description."""
        return self.said.to_json()

    def to_csv(self) -> str:
        """Return a heading and a line for each row, in the form of the schema's files, without formulas."""
        text, columns, start = io.StringIO(), [], 0
        for column in self.schema.features:
            columns.append(_written(column, self.x[:, start : start + len(column.features)]))
            start += len(column.features)
        columns.append([self.schema.classes[number] for number in self.classes.tolist()])
        lines = CsvWriter(text)
        lines.writerow([*(column.name for column in self.schema.features), self.said.columns[-1]])
        lines.writerows(zip(*columns, strict=True))
        return text.getvalue()


def _written(column: Any, encoded: NDArray[np.float32]) -> list[str]:
    """Return values of a column in the form used in files."""
    missing = column.missing[0] if column.missing else ""
    if isinstance(column, NumericColumn):
        unknown = encoded[:, 1] > 0 if column.missing else np.zeros(len(encoded), bool)
        numbers = column.minimum + encoded[:, 0].astype(np.float64) * (column.maximum - column.minimum)
        return [missing if skip else f"{value:.6g}" for value, skip in zip(numbers.tolist(), unknown, strict=True)]
    names = [name.removeprefix(f"{column.name} = ") for name in column.features]
    if isinstance(column, CodeColumn) and column.several:
        return [SEVERAL.join(np.array(names)[record > 0]) or missing for record in encoded]
    place = np.where(encoded.any(axis=1), encoded.argmax(axis=1), len(names))
    return [[*names, missing][each] for each in place.tolist()]


def rows_draw(marginals: Marginals, noisier: float = 1.0) -> SyntheticRows[Description]:
    """Draw rows from the model of all rounds; the seed of the draw also follows from the releases.

    The noise of the releases is that of the questions times ``noisier``.
    """
    digest = content_digest({str(number): sums for number, sums in enumerate(marginals.released)})
    rng = np.random.default_rng(int(hashlib.sha256(digest.encode()).hexdigest(), 16))
    classes, cells = marginals.model.draw(marginals.plan.rows, rng)
    x = np.zeros((len(classes), *marginals.schema.shape), np.float32)
    for number, column in enumerate(marginals.columns):
        cells_encode(x, column, cells[:, number], rng)
    names = tuple(column.name for column in (*marginals.columns, marginals.label))
    return SyntheticRows(
        marginals.schema, x, classes, Description(names, len(x), *_distances(marginals, classes, cells, noisier))
    )


def rows_alike(schema: TabularSchema, number: int) -> NDArray[np.float32]:
    """Return records (number, …) that depend only on the schema: in every column all values are equally likely.

    They stand for people before the first release.
    """
    rng = np.random.default_rng(0)
    x = np.zeros((number, *schema.shape), np.float32)
    for column in feature_columns(schema, MOST_BINS):
        cells_encode(x, column, rng.integers(0, len(column.cells), number), rng)
    return x


def cells_encode(
    x: NDArray[np.float32], column: CountedColumn, cells: NDArray[np.int64], rng: np.random.Generator
) -> None:
    """Write the part of the records ``x`` (n, …) that are in these ``cells`` (n,) of a column.

    A number is anywhere in its bin, except that the first bin gives its least number: this keeps the many zeros of a
    mostly empty quantity together.
    """
    bins = len(column.edges) - 1
    known = np.flatnonzero(cells < (bins if bins > 0 else column.width))
    if bins > 0:
        x[known, column.start] = (cells[known] + rng.random(len(known)) * (cells[known] > 0)) / bins
        if column.width > 1:
            x[cells >= bins, column.start + 1] = 1.0
    else:
        x[known, column.start + cells[known]] = 1.0


def _distances(
    marginals: Marginals, classes: NDArray[np.int64], cells: NDArray[np.int64], noisier: float
) -> tuple[tuple[Marginal, ...], float, float]:
    """Return distances between rows and the released tables, of at least 0."""
    last = marginals.plan.rounds[2]
    summaries = []
    for (parent, child), table in zip(marginals.edges, marginals.tables, strict=True):
        columns = [marginals.fine[each] for each in (parent, child) if each != NOBODY]
        rows = [cells[:, each] for each in (parent, child) if each != NOBODY]
        names = (marginals.label.name, *(column.name for column in columns))
        distance = _distance(table, _counted(classes, table.shape[0], columns, rows))
        error = noisier * last.error_of(last.people / table.size)
        summaries.append(Marginal(names, table.size, round(error, 1), round(distance, _DIGITS)))
    sigma, apart, noise = noisier * marginals.plan.rounds[1].sigma, [], []
    for (a, b), table in zip(pairs_of(len(marginals.columns)), marginals.pairs, strict=True):
        columns = [marginals.coarse[a], marginals.coarse[b]]
        counted = _counted(classes, table.shape[0], columns, [cells[:, a], cells[:, b]])
        apart.append(_distance(table, counted))
        noise.append(min(noise_distance(sigma, table.size, float(table.sum())), apart[-1]))
    return tuple(summaries), round(float(np.mean(apart)), _DIGITS), round(float(np.mean(noise)), _DIGITS)


def _counted(
    classes: NDArray[np.int64], number: int, columns: list[CountedColumn], rows: list[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return the same table of the rows."""
    place, size = classes, number
    for column, cells in zip(columns, rows, strict=True):
        place, size = place * column.size + np.array(column.groups)[cells], size * column.size
    return np.bincount(place, minlength=size).astype(np.float64)


def _distance(released: NDArray[np.float64], counted: NDArray[np.float64]) -> float:
    """Return the total variation of two tables as distributions."""
    counts = at_least_zero(released.ravel())
    if counts.sum() <= 0:
        return 1.0
    return float(np.abs(counts / counts.sum() - counted / counted.sum()).sum()) / 2
