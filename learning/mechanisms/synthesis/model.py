"""Model of records: classes, and a tree of columns that depend on the class and on their parent.

Noisy counts determine the groups of cells, and the pairs of columns to count next. Counts are shrunk towards their
expectations by as much as the noise requires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from learning.mechanisms.counts.table_plan import CountedColumn
from learning.mechanisms.counts.tables import at_least_zero

Numbers = NDArray[np.float64]
Edge = tuple[int, int]
"""Numbers of the parent and the child column. The root's parent is `NOBODY`."""
NOBODY = -1

_FITTINGS = 20


def grouped(column: CountedColumn, counts: Numbers, smallest: float) -> CountedColumn:
    """Return the column with its cells combined into groups whose counts are at least about ``smallest``.

    Adjacent bins of numbers are joined, and rare values of other columns share a group. In a numeric column, the cell
    *Not known* is a group of its own.

    Args:
        column: Column with all its cells.
        counts: Counts (cells,), at least 0.
        smallest: Requested count of a group.

    >>> column = CountedColumn("n", ("a", "b", "c", "d"), edges=(0.0, 1.0, 2.0, 3.0, 4.0))
    >>> grouped(column, np.array([5.0, 1.0, 2.0, 3.0]), 3.0).groups
    (0, 1, 1, 2)
    """
    bins = len(column.edges) - 1
    if bins < 0:
        common = counts >= smallest
        places = np.where(common, np.cumsum(common) - 1, common.sum())
        return replace(column, groups=tuple(places.tolist()))
    groups, number, total = [], 0, 0.0
    for count, rest in zip(counts[:bins], np.cumsum(counts[:bins][::-1])[::-1] - counts[:bins], strict=True):
        groups.append(number)
        total += count
        # The remaining cells join the last group.
        if total >= smallest and rest >= smallest:
            number, total = number + 1, 0.0
    groups += [number + 1] * (len(counts) - bins)
    return replace(column, groups=tuple(groups))


def in_groups(counts: Numbers, column: CountedColumn) -> Numbers:
    """Return sums (…, groups) of counts (…, cells)."""
    if not column.groups:
        return counts
    sums = np.zeros((*counts.shape[:-1], column.size))
    np.add.at(np.moveaxis(sums, -1, 0), np.array(column.groups), np.moveaxis(counts, -1, 0))
    return sums


def pairs_of(number: int) -> list[tuple[int, int]]:
    """Return all pairs of columns, in order."""
    return list(combinations(range(number), 2))


def strength(table: Numbers, sigma: float) -> float:
    """Return the dependence of two columns within classes: χ² over classes minus the expected effect of the noise.

    For counts c with noise of standard deviation σ, and their expectation e under independence given the margins of c,
    Σ((c − e)² − σ²)/e is an unbiased estimate of χ², apart from the noise in the margins. Expectations below σ are
    replaced by σ.

    Args:
        table: Noisy counts (classes, cells, cells).
        sigma: Standard deviation of the noise.
    """
    value = 0.0
    for counts in table:
        rows, columns = at_least_zero(counts.sum(axis=1)), at_least_zero(counts.sum(axis=0))
        total = rows.sum()
        if total <= 0:
            continue
        expected = np.outer(rows, columns / columns.sum() if columns.sum() > 0 else columns)
        free = max(len(rows) - 1, 1) * max(len(columns) - 1, 1) / counts.size
        value += float((((counts - expected) ** 2 - free * sigma**2) / np.maximum(expected, sigma)).sum())
    return value


def strongest_tree(number: int, strengths: Sequence[float]) -> list[Edge]:
    """Return the tree with the largest sum of strengths (Chow, Liu 1968), parents before children, the root first.

    Args:
        strengths: Strength of each pair, in the order of `pairs_of`.

    >>> strongest_tree(3, [1.0, 5.0, 4.0])
    [(-1, 2), (2, 0), (2, 1)]
    """
    weight = np.full((number, number), -np.inf)
    for (a, b), value in zip(pairs_of(number), strengths, strict=True):
        weight[a, b] = weight[b, a] = value
    root = int(np.where(np.isfinite(weight), weight, 0.0).sum(axis=1).argmax())
    edges, best, parent = [(NOBODY, root)], weight[root].copy(), np.full(number, root)
    reached = np.zeros(number, bool)
    reached[root] = True
    while not reached.all():
        child = (
            int(np.where(reached, -np.inf, best).argmax())
            if np.isfinite(best[~reached]).any()
            else int(np.flatnonzero(~reached)[0])
        )
        edges.append((int(parent[child]), child))
        reached[child] = True
        nearer = weight[child] > best
        best, parent = np.where(nearer, weight[child], best), np.where(nearer, child, parent)
    return edges


def shrunk(counts: Numbers, expected: Numbers, variance: Numbers | float) -> Numbers:
    """Return counts shrunk towards their expectations.

    The true counts are modelled as normal around e with variance τe. Given the noisy counts c, their mean is e + τe/(τe
    + σ²)·(c − e). τ is the value for which Σ(c − e)² equals its expectation.

    Args:
        counts: c, with noise of ``variance`` σ².
        expected: e, at least 0, in the same shape.
    """
    apart = counts - expected
    spread = float(expected.sum())
    tau = max(float((apart**2 - variance).sum()), 0.0) / spread if spread > 0 else 0.0
    if tau <= 0:
        return expected.copy()
    return expected + tau * expected / (tau * expected + variance) * apart


def fitted(table: Numbers, rows: Numbers, columns: Numbers) -> Numbers:
    """Return the nonnegative table (R, C) with these margins and the least relative entropy (Deming, Stephan 1940).

    Both margins have the same total. Empty rows and columns are filled as if rows and columns were independent.
    """
    total = float(rows.sum())
    if total <= 0:
        return np.zeros_like(table)
    # Add a small multiple of the independent table, because a row with a margin above 0 must not be empty.
    table = np.maximum(table, 0.0) + 1e-9 * np.outer(rows, columns) / total
    for _ in range(_FITTINGS):
        table = table * _ratio(columns, table.sum(axis=0))
        table = table * _ratio(rows, table.sum(axis=1))[:, None]
    return table


@dataclass(frozen=True, eq=False)
class TreeModel:
    """Probabilities of records.

    Attributes:
        columns: Columns in groups.
        edges: Edges, parents before children, the root first.
        classes: (classes,) probabilities.
        of_groups: For each column, probabilities of its group given class and parent: (classes, parent's groups,
            groups), or (classes, groups) for the root.
        of_cells: For each column, probabilities (classes, cells) of a cell given class and group.
    """

    columns: tuple[CountedColumn, ...]
    edges: tuple[Edge, ...]
    classes: Numbers
    of_groups: tuple[Numbers, ...]
    of_cells: tuple[Numbers, ...]

    def draw(self, number: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return classes (n,) and cells (n, columns) of drawn records."""
        classes = rng.choice(len(self.classes), number, p=self.classes)
        groups, cells = np.zeros((2, number, len(self.columns)), np.int64)
        for parent, child in self.edges:
            table = self.of_groups[child]
            conditional = table[classes] if parent == NOBODY else table[classes, groups[:, parent]]
            groups[:, child] = _drawn(conditional, rng)
            of_cells, group_of = self.of_cells[child], np.array(self.columns[child].groups)
            for group in range(self.columns[child].size):
                mine = np.flatnonzero(groups[:, child] == group)
                inside = np.flatnonzero(group_of == group)
                cells[mine, child] = inside[_drawn(of_cells[classes[mine]][:, inside], rng)]
        return classes, cells


def model_of(
    columns: Sequence[CountedColumn],
    edges: Sequence[Edge],
    histograms: Sequence[Numbers],
    tables: Sequence[Numbers],
    sigmas: tuple[float, float],
) -> TreeModel:
    """Return the model determined by noisy counts.

    Args:
        columns: Columns in groups.
        histograms: For each column, counts (classes, cells).
        tables: For each edge, counts (classes, parent's groups, child's groups); for the root (classes, groups).
        sigmas: Standard deviations of the noise of histograms and of tables.
    """
    first, second = sigmas[0] ** 2, sigmas[1] ** 2
    by_class = [table.reshape(len(table), -1).sum(axis=1) for table in (*histograms, *tables)]
    weights = [1 / (first * table[0].size) for table in histograms] + [1 / (second * table[0].size) for table in tables]
    classes = at_least_zero(np.average(by_class, axis=0, weights=weights))
    if classes.sum() <= 0:
        classes = np.ones(len(classes))
    margins: list[Numbers] = [np.zeros(0)] * len(columns)
    of_groups: list[Numbers] = [np.zeros(0)] * len(columns)
    for (parent, child), table in zip(edges, tables, strict=True):
        column = columns[child]
        size_of = np.bincount(column.groups, minlength=column.size)
        rough = in_groups(histograms[child], column)
        by_rows = 1 if parent == NOBODY else table.shape[1]
        own = table if parent == NOBODY else table.sum(axis=1)
        trust = (second * by_rows) / (second * by_rows + first * size_of)  # weight of the histogram
        margin = np.array(
            [
                _scaled(at_least_zero(row), total)
                for row, total in zip(trust * rough + (1 - trust) * own, classes, strict=True)
            ]
        )
        margins[child] = margin
        if parent == NOBODY:
            of_groups[child] = _normalised(margin)
            continue
        joint = []
        for counts, above, below in zip(table, margins[parent], margin, strict=True):
            expected = np.outer(above, below) / max(above.sum(), 1e-12)
            joint.append(fitted(np.maximum(shrunk(counts, expected, second), 0.0), above, below))
        of_groups[child] = _normalised(np.array(joint))
    of_cells = [
        _cells(column, histogram, margin, first)
        for column, histogram, margin in zip(columns, histograms, margins, strict=True)
    ]
    return TreeModel(tuple(columns), tuple(edges), classes / classes.sum(), tuple(of_groups), tuple(of_cells))


def _ratio(wanted: Numbers, present: Numbers) -> Numbers:
    return np.divide(wanted, present, out=np.zeros_like(wanted), where=present > 0)


def _drawn(probabilities: Numbers, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return an index (n,) drawn for each row of probabilities (n, k)."""
    until = np.cumsum(probabilities, axis=1)
    at = rng.random(len(until)) * until[:, -1]
    return np.minimum((at[:, None] >= until).sum(axis=1), until.shape[1] - 1)


def _scaled(counts: Numbers, total: float) -> Numbers:
    """Return counts scaled to this total; if all are 0, split the total evenly."""
    amount = counts.sum()
    return counts * (total / amount) if amount > 0 else np.full(len(counts), total / len(counts))


def _normalised(counts: Numbers) -> Numbers:
    """Return counts divided by their sums along the last axis; if all counts are 0, equal probabilities."""
    totals = counts.sum(axis=-1, keepdims=True)
    alike = np.full_like(counts, 1 / counts.shape[-1])
    return np.divide(counts, totals, out=alike, where=totals > 0)


def _cells(column: CountedColumn, histogram: Numbers, margin: Numbers, variance: float) -> Numbers:
    """Return each cell's share of its group within its class, (classes, cells)."""
    groups = np.array(column.groups)
    sizes = np.bincount(groups, minlength=column.size)
    cells = np.zeros_like(histogram)
    for number, counts in enumerate(histogram):
        expected = (margin[number] / sizes)[groups]
        inside = np.maximum(shrunk(counts, expected, variance), 0.0)
        total = np.bincount(groups, inside, column.size)[groups]
        cells[number] = np.divide(inside, total, out=(1 / sizes)[groups], where=total > 0)
    return cells
