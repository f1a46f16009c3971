"""Structure of a Bayesian network over columns, from noisy entropies (section 3.3 of the paper)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


def entropy_sensitivity(records: float) -> float:
    """Most that one record more or less changes the entropy of a column of ``records`` values, in bits (Lemma 1)."""
    return (2 + 1 / math.log(2) + 2 * math.log2(records)) / records


def entropy(codes: Codes) -> float:
    """Entropy of a column of codes (N,), in bits."""
    share = np.bincount(codes) / len(codes)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def noisy_correlations(codes: Codes, sizes: list[int], epsilon: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Symmetrical uncertainties 2 - 2·H(x, y)/(H(x) + H(y)) of all pairs of columns, (m, m), from noisy entropies.

    Args:
        codes: (N, m).
        sizes: Number of values of each column.
        epsilon: ε of each of the 1 + m + m·(m - 1)/2 numbers that are drawn: of records, and of entropies.
        rng: Source of chance.
    """
    columns = codes.shape[1]
    records = max(2.0, len(codes) + rng.laplace(0, 1 / epsilon))
    scale = entropy_sensitivity(records) / epsilon
    alone = np.array([max(0.0, entropy(codes[:, each]) + rng.laplace(0, scale)) for each in range(columns)])
    matrix = np.zeros((columns, columns))
    for one in range(columns):
        for other in range(one):
            joint = entropy(codes[:, one] * sizes[other] + codes[:, other]) + rng.laplace(0, scale)
            both = alone[one] + alone[other]
            matrix[one, other] = matrix[other, one] = np.clip(2 - 2 * joint / both, 0, 1) if both > 0 else 0.0
    return matrix


def parents_choose(correlations: NDArray[np.float64], sizes: list[int], most_cells: int) -> list[tuple[int, ...]]:
    """Parents of each column, which have no circle: a greedy search for the largest merit.

    The merit of a set of parents is Σ corr(x, p) / √(s + Σ_{p≠q} corr(p, q)), s their number (correlation-based feature
    selection). They have ``most_cells`` combinations of values at the most.
    """
    columns = len(sizes)
    chosen: list[tuple[int, ...]] = [() for _ in range(columns)]
    for column in range(columns):
        merit = 0.0
        while True:
            parents = [
                (_merit(correlations, column, (*chosen[column], other)), other)
                for other in range(columns)
                if other != column
                and other not in chosen[column]
                and math.prod(sizes[each] for each in (*chosen[column], other)) <= most_cells
                and not _reaches(chosen, other, column)
            ]
            best, parent = max(parents, default=(0.0, -1))
            if best <= merit:
                break
            merit, chosen[column] = best, (*chosen[column], parent)
    return chosen


def _merit(correlations: NDArray[np.float64], column: int, parents: tuple[int, ...]) -> float:
    among = correlations[np.ix_(parents, parents)]
    return float(correlations[column, list(parents)].sum() / np.sqrt(len(parents) + among.sum() - np.trace(among)))


def _reaches(parents: list[tuple[int, ...]], column: int, ancestor: int) -> bool:
    """Whether ``ancestor`` is the column or among its ancestors."""
    return column == ancestor or any(_reaches(parents, each, ancestor) for each in parents[column])


def parents_first(parents: list[tuple[int, ...]]) -> list[int]:
    """Columns in an order in which every column follows its parents."""
    order: list[int] = []
    while len(order) < len(parents):
        order.append(
            next(
                column
                for column in range(len(parents))
                if column not in order and all(each in order for each in parents[column])
            )
        )
    return order
