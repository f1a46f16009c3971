"""Bayesian network that rows are sampled from, with structure and parameters from noisy counts of separate records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.privacy.papers.deniability import part_of
from learning.mechanisms.deniability.structure import Codes, noisy_correlations, parents_choose, parents_first

MOST_CELLS = 300
"""Combinations of values that the parents of a column may have."""


@dataclass(frozen=True, eq=False)
class RowNetwork:
    """Distribution of rows of codes.

    Attributes:
        order: Columns, every column behind its parents.
        parents: Of each column.
        buckets: Of each column, the coarser value (of a parent) of each value.
        tables: Of each column (combinations of its parents' coarser values, values): probabilities, rows add up to 1.
    """

    order: list[int]
    parents: list[tuple[int, ...]]
    buckets: list[NDArray[np.int64]]
    tables: list[NDArray[np.float64]]

    @property
    def columns(self) -> int:
        return len(self.order)

    def combination(self, codes: Codes, column: int) -> NDArray[np.int64]:
        """(N,) place of the parents' coarser values in the column's table."""
        place = np.zeros(len(codes), dtype=np.int64)
        for parent in self.parents[column]:
            place = place * (int(self.buckets[parent].max()) + 1) + self.buckets[parent][codes[:, parent]]
        return place

    def probability(self, codes: Codes, column: int) -> NDArray[np.float64]:
        """(N,) probability of the column's value given its parents'."""
        return self.tables[column][self.combination(codes, column), codes[:, column]]

    def resample(self, codes: Codes, column: int, rng: np.random.Generator) -> None:
        """Draw the column's values (N,) anew, given its parents', in place."""
        cumulated = np.cumsum(self.tables[column], axis=1)[self.combination(codes, column)]
        drawn = rng.random((len(codes), 1)) * cumulated[:, -1:]
        codes[:, column] = (cumulated <= drawn).sum(axis=1).clip(max=cumulated.shape[1] - 1)

    def to_json(self) -> dict[str, Any]:
        """Structure, for a card."""
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
    most_cells: int = MOST_CELLS,
) -> RowNetwork:
    """A network whose structure and parameters come from two separate sets of records.

    A record of ``structure`` (N, m) changes 1 + m + m·(m - 1)/2 numbers, each ``epsilon_entropy``-DP; one of
    ``parameters`` (M, m) one count of each column's table, each with Laplace noise of scale 1/``epsilon_count``.
    Probabilities are drawn from the Dirichlet distribution with a prior of 1 that the noisy counts lead to.

    Args:
        structure: codes that entropies are taken of.
        parameters: codes that are counted.
        sizes: number of values of each column.
        buckets: of each column, the coarser value of each value: of parents, and for correlations.
        epsilon_entropy: see above.
        epsilon_count: see above.
        rng: source of chance.
        most_cells: combinations of values that the parents of a column may have.
    """
    columns = len(sizes)
    coarse = [int(bucket.max()) + 1 for bucket in buckets]
    coarser = np.stack([buckets[column][structure[:, column]] for column in range(columns)], axis=1)
    correlations = noisy_correlations(coarser, coarse, epsilon_entropy, rng)
    parents = parents_choose(correlations, coarse, most_cells)
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
class Learned:
    """A network, and separate records: those that its ``parameters`` were counted of, and the ``seeds``."""

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
) -> Learned:
    """A network of which structure and parameters cost a record (ε, δ) each: of a quarter of the records each.

    Args:
        codes: (N, m).
        sizes, buckets: as `fit_network` takes them.
        epsilon, delta: of all entropies together, and of all counts together.
        rng: Source of chance; it also says whose record is where.
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
    return Learned(network, parameters, seeds)
