"""Model of records: classes, and a tree of columns in which each follows from its class and its parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.mechanisms.counts.columns import Column
from learning.mechanisms.counts.nonnegative import at_least_zero
from learning.mechanisms.synthesis.estimates import fitted, shrunk
from learning.mechanisms.synthesis.tree import NOBODY, Edge, in_groups

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """Probabilities of records.

    Attributes:
        columns: in groups.
        edges: parents before children, the root first.
        classes: (classes,) their probabilities.
        of_groups: of each column: (classes, parent's groups, groups), of the root (classes, groups), given the rest.
        of_cells: of each column: (classes, cells), of a cell given class and group.
    """

    columns: tuple[Column, ...]
    edges: tuple[Edge, ...]
    classes: Numbers
    of_groups: tuple[Numbers, ...]
    of_cells: tuple[Numbers, ...]

    def draw(self, number: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Classes (n,) and cells (n, columns) of drawn records."""
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


def _drawn(probabilities: Numbers, rng: np.random.Generator) -> NDArray[np.int64]:
    """A place (n,) for each row of probabilities (n, k)."""
    until = np.cumsum(probabilities, axis=1)
    at = rng.random(len(until)) * until[:, -1]
    return np.minimum((at[:, None] >= until).sum(axis=1), until.shape[1] - 1)


def model_of(
    columns: Sequence[Column],
    edges: Sequence[Edge],
    histograms: Sequence[Numbers],
    tables: Sequence[Numbers],
    sigmas: tuple[float, float],
) -> Model:
    """The model that noisy counts make.

    Args:
        columns: in groups.
        edges: the tree.
        histograms: of each column: (classes, cells).
        tables: of each edge: (classes, parent's groups, child's groups), of the root (classes, groups).
        sigmas: standard deviations of the noise of histograms and of tables.
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
        trust = (second * by_rows) / (second * by_rows + first * size_of)  # of the histogram
        margin = np.array(
            [
                _scaled(at_least_zero(row), total)
                for row, total in zip(trust * rough + (1 - trust) * own, classes, strict=True)
            ]
        )
        margins[child] = margin
        if parent == NOBODY:
            of_groups[child] = _given(margin)
            continue
        joint = []
        for counts, above, below in zip(table, margins[parent], margin, strict=True):
            expected = np.outer(above, below) / max(above.sum(), 1e-12)
            joint.append(fitted(np.maximum(shrunk(counts, expected, second), 0.0), above, below))
        of_groups[child] = _given(np.array(joint))
    of_cells = [
        _cells(column, histogram, margin, first)
        for column, histogram, margin in zip(columns, histograms, margins, strict=True)
    ]
    return Model(tuple(columns), tuple(edges), classes / classes.sum(), tuple(of_groups), tuple(of_cells))


def _scaled(counts: Numbers, total: float) -> Numbers:
    """Counts with this total; alike if they are all 0."""
    amount = counts.sum()
    return counts * (total / amount) if amount > 0 else np.full(len(counts), total / len(counts))


def _given(counts: Numbers) -> Numbers:
    """Probabilities along the last axis; alike where nothing was counted."""
    totals = counts.sum(axis=-1, keepdims=True)
    alike = np.full_like(counts, 1 / counts.shape[-1])
    return np.divide(counts, totals, out=alike, where=totals > 0)


def _cells(column: Column, histogram: Numbers, margin: Numbers, variance: float) -> Numbers:
    """(classes, cells): of each cell, its part of its group in its class."""
    groups = np.array(column.groups)
    sizes = np.bincount(groups, minlength=column.size)
    cells = np.zeros_like(histogram)
    for number, counts in enumerate(histogram):
        expected = (margin[number] / sizes)[groups]
        inside = np.maximum(shrunk(counts, expected, variance), 0.0)
        total = np.bincount(groups, inside, column.size)[groups]
        cells[number] = np.divide(inside, total, out=(1 / sizes)[groups], where=total > 0)
    return cells
