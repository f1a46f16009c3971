"""Bayesian network for sampling rows. Its structure and parameters come from noisy counts of separate records.

Noisy entropies determine the structure (section 3.3 of the paper).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.privacy.papers.deniability import part_of

Codes = NDArray[np.int64]

MOST_CELLS = 300
"""Largest number of combinations of values of a column's parents."""


def entropy_sensitivity(records: float) -> float:
    """Return the largest change, in bits, that one of ``records`` records makes to a column's entropy (Lemma 1)."""
    return (2 + 1 / math.log(2) + 2 * math.log2(records)) / records


def entropy(codes: Codes) -> float:
    """Return the entropy of a column of codes (N,), in bits."""
    share = np.bincount(codes) / len(codes)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def noisy_correlations(codes: Codes, sizes: list[int], epsilon: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return symmetrical uncertainties 2 - 2·H(x, y)/(H(x) + H(y)) of column pairs, (m, m), from noisy entropies.

    Args:
        codes: Codes (N, m) of the records.
        sizes: Number of values of each column.
        epsilon: ε of each of the 1 + m + m·(m - 1)/2 noisy numbers: the number of records, and the entropies.
        rng: Source of randomness.
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
    """Choose the parents of each column, without cycles, by a greedy search for the largest merit.

    The merit of s parents is Σ corr(x, p) / √(s + Σ_{p≠q} corr(p, q)) (correlation-based feature selection). Parents
    have at most ``most_cells`` combinations of values.
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
                and not _is_ancestor(chosen, other, column)
            ]
            best, parent = max(parents, default=(0.0, -1))
            if best <= merit:
                break
            merit, chosen[column] = best, (*chosen[column], parent)
    return chosen


def parents_first(parents: list[tuple[int, ...]]) -> list[int]:
    """Return the columns in an order that puts parents before their children."""
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


@dataclass(frozen=True, eq=False)
class RowNetwork:
    """Distribution of rows of codes.

    Attributes:
        order: Columns, each after its parents.
        buckets: For each column, the coarser value that replaces each value if the column is a parent.
        tables: For each column, probabilities (combinations of parents' coarser values, values) whose rows add up to 1.
    """

    order: list[int]
    parents: list[tuple[int, ...]]
    buckets: list[NDArray[np.int64]]
    tables: list[NDArray[np.float64]]

    @property
    def columns(self) -> int:
        return len(self.order)

    def combination(self, codes: Codes, column: int) -> NDArray[np.int64]:
        """Return the row (N,) of the column's table that corresponds to the parents' coarser values."""
        place = np.zeros(len(codes), dtype=np.int64)
        for parent in self.parents[column]:
            place = place * (int(self.buckets[parent].max()) + 1) + self.buckets[parent][codes[:, parent]]
        return place

    def probability(self, codes: Codes, column: int) -> NDArray[np.float64]:
        """Return the probability (N,) of the column's value given its parents' values."""
        return self.tables[column][self.combination(codes, column), codes[:, column]]

    def resample(self, codes: Codes, column: int, rng: np.random.Generator) -> None:
        """Redraw the column's values (N,) in place, given its parents' values."""
        cumulated = np.cumsum(self.tables[column], axis=1)[self.combination(codes, column)]
        drawn = rng.random((len(codes), 1)) * cumulated[:, -1:]
        codes[:, column] = (cumulated <= drawn).sum(axis=1).clip(max=cumulated.shape[1] - 1)

    def to_json(self) -> dict[str, Any]:
        """Return the structure, for a model card."""
        return {"order": self.order, "parents": [list(each) for each in self.parents]}


def fit_network(
    structure: Codes,
    parameters: Codes,
    sizes: list[int],
    buckets: list[NDArray[np.int64]],
    *,
    epsilon_entropy: float,
    epsilon_count: float,
    rng: np.random.Generator,
) -> RowNetwork:
    """Fit a network whose structure and parameters come from two separate sets of records.

    A record of ``structure`` (N, m) changes 1 + m + m·(m - 1)/2 numbers, which are ``epsilon_entropy``-DP each. A
    record of ``parameters`` (M, m) changes one count in each column's table; the counts have Laplace noise of scale
    1/``epsilon_count``. Probabilities are drawn from the Dirichlet posterior of the noisy counts, with a prior of 1.

    Args:
        structure: Codes used to compute entropies.
        parameters: Codes used for counts.
        sizes: Number of values of each column.
        buckets: For each column, the coarser value of each value, used for parents and for correlations.
    """
    columns = len(sizes)
    coarse = [int(bucket.max()) + 1 for bucket in buckets]
    coarser = np.stack([buckets[column][structure[:, column]] for column in range(columns)], axis=1)
    correlations = noisy_correlations(coarser, coarse, epsilon_entropy, rng)
    parents = parents_choose(correlations, coarse, MOST_CELLS)
    network = RowNetwork(parents_first(parents), parents, buckets, [])
    for column, size in enumerate(sizes):
        combinations = math.prod(coarse[parent] for parent in parents[column])
        cells = network.combination(parameters, column) * size + parameters[:, column]
        counts = np.bincount(cells, minlength=combinations * size).reshape(combinations, size)
        noisy = np.maximum(counts + rng.laplace(0, 1 / epsilon_count, counts.shape), 0)
        drawn = rng.gamma(noisy + 1.0)
        network.tables.append(drawn / drawn.sum(axis=1, keepdims=True))
    return network


@dataclass(frozen=True, eq=False)
class NetworkAndSeeds:
    """Network, the records counted for its ``parameters``, and the ``seeds``, which are separate records."""

    network: RowNetwork
    parameters: Codes
    seeds: Codes


def network_learn(
    codes: Codes,
    sizes: list[int],
    buckets: list[NDArray[np.int64]],
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> NetworkAndSeeds:
    """Learn the structure and the parameters of a network, each from a quarter of the records at (ε, δ) per record.

    Args:
        codes: Codes (N, m) of the records.
        sizes, buckets: See `fit_network`.
        epsilon, delta: Cost of all entropies together, and also of all counts together.
        rng: Source of randomness, which also assigns records to the parts.
    """
    quarter, columns = len(codes) // 4, len(sizes)
    structure, parameters, seeds = np.split(codes[rng.permutation(len(codes))], [quarter, 2 * quarter])
    network = fit_network(
        structure,
        parameters,
        sizes,
        buckets,
        epsilon_entropy=part_of(epsilon, 1 + columns + columns * (columns - 1) // 2, delta),
        epsilon_count=part_of(epsilon, columns, delta),
        rng=rng,
    )
    return NetworkAndSeeds(network, parameters, seeds)


def _merit(correlations: NDArray[np.float64], column: int, parents: tuple[int, ...]) -> float:
    among = correlations[np.ix_(parents, parents)]
    return float(correlations[column, list(parents)].sum() / np.sqrt(len(parents) + among.sum() - np.trace(among)))


def _is_ancestor(parents: list[tuple[int, ...]], column: int, ancestor: int) -> bool:
    """Return whether ``ancestor`` is the column itself or one of its ancestors."""
    return column == ancestor or any(_is_ancestor(parents, each, ancestor) for each in parents[column])
