"""The tables of each round: a function of the schema and of what the rounds before have released."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from learning.formats import TabularSchema
from learning.mechanisms.counts.columns import Column, column_names, columns_of, feature_columns
from learning.mechanisms.counts.nonnegative import at_least_zero
from learning.mechanisms.counts.question import PERSON, CountsQuestion
from learning.mechanisms.synthesis.model import Model, model_of
from learning.mechanisms.synthesis.planner import MOST_COARSE, MOST_FINE, SynthesisPlan
from learning.mechanisms.synthesis.tree import NOBODY, Edge, grouped, pairs_of, strength, strongest_tree

Numbers = NDArray[np.float64]
ROUNDS = 3

# Groups hold at least this part of all, and so many standard deviations of the noise of the tables that count them.
_COARSE = (MOST_COARSE, 2.0)
_FINE = (MOST_FINE, 10.0)


@dataclass(frozen=True)
class Marginals:
    """What was counted so far.

    Attributes:
        schema: of the records; it declares classes.
        plan: of the rounds.
        caps: of the promises of the run's plan, in μ².
        released: sums of each round so far, in `PERSON`.
    """

    schema: TabularSchema
    plan: SynthesisPlan
    caps: tuple[float, ...]
    released: tuple[NDArray[np.int64], ...] = ()

    def after(self, sums: NDArray[np.int64]) -> Marginals:
        """The same once another round was released."""
        return Marginals(self.schema, self.plan, self.caps, (*self.released, sums))

    def question(self, index: int) -> CountsQuestion:
        """The question of a round; those before it were released."""
        tables = (self._histogram_tables, self._pair_tables, self._tree_tables)[index]()
        return CountsQuestion(self.plan.rounds[index], tuple(tables), self.caps, name="synthesis")

    @cached_property
    def label(self) -> Column:
        """The classes."""
        return columns_of(self.schema, column_names(self.schema)[:1], self.plan.bins)[0]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All others, with all their cells."""
        return feature_columns(self.schema, self.plan.bins)

    @cached_property
    def histograms(self) -> list[Numbers]:
        """Of each column: (classes, cells)."""
        return self._counts(0)

    @cached_property
    def coarse(self) -> tuple[Column, ...]:
        """Columns in the groups by which pairs are counted."""
        return self._grouped(*_COARSE, self.plan.rounds[1].sigma)

    @cached_property
    def fine(self) -> tuple[Column, ...]:
        """Columns in the groups by which the tree is counted."""
        return self._grouped(*_FINE, self.plan.rounds[2].sigma)

    @cached_property
    def edges(self) -> list[Edge]:
        """The tree."""
        sigma = self.plan.rounds[1].sigma
        return strongest_tree(len(self.columns), [strength(table, sigma) for table in self.pairs])

    @cached_property
    def model(self) -> Model:
        """What all rounds together say."""
        sigmas = (self.plan.rounds[0].sigma, self.plan.rounds[2].sigma)
        return model_of(self.fine, self.edges, self.histograms, self.tables, sigmas)

    @cached_property
    def pairs(self) -> list[Numbers]:
        """Of each pair of columns, in the groups of `coarse`: (classes, groups, groups)."""
        return self._counts(1)

    @cached_property
    def tables(self) -> list[Numbers]:
        """Of each edge of the tree."""
        return self._counts(2)

    def _counts(self, index: int) -> list[Numbers]:
        return [table / PERSON for table in self.question(index).of_tables(self.released[index])]

    def _grouped(self, most: int, deviations: float, sigma: float) -> tuple[Column, ...]:
        clean = [np.sum([at_least_zero(row) for row in table], axis=0) for table in self.histograms]
        smallest = max(float(np.median([counts.sum() for counts in clean])) / most, deviations * sigma)
        return tuple(grouped(column, counts, smallest) for column, counts in zip(self.columns, clean, strict=True))

    def _histogram_tables(self) -> list[tuple[Column, ...]]:
        return [(self.label, column) for column in self.columns]

    def _pair_tables(self) -> list[tuple[Column, ...]]:
        return [(self.label, self.coarse[a], self.coarse[b]) for a, b in pairs_of(len(self.columns))]

    def _tree_tables(self) -> list[tuple[Column, ...]]:
        fine = self.fine
        return [
            (self.label, fine[child]) if parent == NOBODY else (self.label, fine[parent], fine[child])
            for parent, child in self.edges
        ]
