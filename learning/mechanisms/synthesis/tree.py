"""Groups of cells that are counted as one, and the tree of columns: what noisy counts say is worth counting next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from learning.mechanisms.counts.columns import Column
from learning.mechanisms.counts.nonnegative import at_least_zero

Numbers = NDArray[np.float64]
Edge = tuple[int, int]
"""Parent and child: numbers of columns. The root's parent is `NOBODY`."""
NOBODY = -1


def grouped(column: Column, counts: Numbers, smallest: float) -> Column:
    """The column with its cells in groups that hold about ``smallest`` or more.

    Bins of numbers are joined with the next ones; rare values of other columns stand together; *not known* of numbers
    is a group by itself.

    Args:
        column: with all its cells.
        counts: (cells,) of at least 0.
        smallest: what a group is to hold.

    >>> column = Column("n", ("a", "b", "c", "d"), edges=(0.0, 1.0, 2.0, 3.0, 4.0))
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
        # What is left over at the end joins the last group.
        if total >= smallest and rest >= smallest:
            number, total = number + 1, 0.0
    groups += [number + 1] * (len(counts) - bins)
    return replace(column, groups=tuple(groups))


def in_groups(counts: Numbers, column: Column) -> Numbers:
    """Sums (…, groups) of counts (…, cells)."""
    if not column.groups:
        return counts
    sums = np.zeros((*counts.shape[:-1], column.size))
    np.add.at(np.moveaxis(sums, -1, 0), np.array(column.groups), np.moveaxis(counts, -1, 0))
    return sums


def pairs_of(number: int) -> list[tuple[int, int]]:
    """Pairs of columns, in order."""
    return list(combinations(range(number), 2))


def strength(table: Numbers, sigma: float) -> float:
    """How far two columns are from independent in every class: χ² over classes, less what noise alone makes of it.

    With counts c of noise σ, and e what the margins of c make of independent columns, Σ((c − e)² − σ²)/e is χ² without
    bias but for the margins' own noise. Cells in which less than σ is expected count as if it were σ.

    Args:
        table: (classes, cells, cells), with noise.
        sigma: standard deviation of the noise.
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
    """The tree of the largest sum of strengths (Chow, Liu 1968), parents before children, the root first.

    Args:
        number: of columns.
        strengths: of each pair, in the order of `pairs_of`.

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
