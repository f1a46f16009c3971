"""Table that a run publishes: numbers of people with intervals, from the released sums alone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning.formats.report import harmless
from learning.mechanisms.counts.planner import WITHIN_95
from learning.mechanisms.counts.question import PERSON, CountsQuestion
from learning.mechanisms.levels import Level


@dataclass(frozen=True)
class LevelPart:
    """What a level adds to a table: ``people``, by the head counts, each with the same ``weight``."""

    name: str
    people: float
    weight: float


@dataclass(frozen=True)
class Cell:
    """Cell of a table: its ``values``, one of each column, and how many people are in it.

    ``count`` is a noisy number and may be below 0; 95 times in 100 the true one is from ``low`` to ``high`` if the
    levels are spread alike over the cells, and from ``least`` to ``most`` however they are spread. ``weighted`` is the
    sum of the weights of these people, with its noise.
    """

    values: tuple[str, ...]
    count: float
    low: float
    high: float
    weighted: float
    least: float
    most: float

    @property
    def is_distinct(self) -> bool:
        """Whether it can be told from an empty cell."""
        return self.low > 0


@dataclass(frozen=True)
class CountTable:
    """Released table.

    Attributes:
        columns: names.
        values: the values of each column, in order.
        sums: of the weights in each cell, row by row, with noise.
        sigma: standard deviation of that noise.
        scale: people for one in the sum of weights.
        edges: of the bins of each column of numbers, none of another.
        levels: whom it is about.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    sums: tuple[float, ...]
    sigma: float
    scale: float
    edges: tuple[tuple[float, ...], ...]
    levels: tuple[LevelPart, ...]

    @classmethod
    def released(cls, question: CountsQuestion, sums: NDArray[np.int64], levels: Sequence[Level]) -> CountTable:
        """The table that released sums (cells,) of its only question make, of people with these levels."""
        (columns,) = question.tables
        return cls(
            tuple(column.name for column in columns),
            tuple(column.cells for column in columns),
            tuple((sums / PERSON).round(4).tolist()),
            question.sigma,
            question.plan.scale,
            tuple(column.edges for column in columns),
            tuple(
                LevelPart(level.name, level.holders, round(float(question.plan.weights(level.cap)), 4))
                for level in levels
            ),
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CountTable:
        """The table that `to_json` wrote."""
        values, edges = (tuple(map(tuple, document[name])) for name in ("values", "edges"))
        columns, sums = tuple(document["columns"]), tuple(document["sums"])
        levels = tuple(LevelPart(**each) for each in document["levels"])
        return cls(columns, values, sums, document["sigma"], document["scale"], edges, levels)

    def to_json(self) -> dict[str, Any]:
        """JSON with lists in place of tuples, as a database gives it back."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def error(self) -> float:
        """Half of the interval of a number of people."""
        return WITHIN_95 * self.sigma * self.scale

    def __len__(self) -> int:
        return len(self.sums)

    def __iter__(self) -> Iterator[Cell]:
        for values, weighted in zip(product(*self.values), self.sums, strict=True):
            count, around = self.scale * weighted, WITHIN_95 * self.sigma
            yield Cell(
                values,
                count,
                count - self.error,
                count + self.error,
                weighted,
                self._people(weighted - around, heaviest=True),
                self._people(weighted + around, heaviest=False),
            )

    def _people(self, weighted: float, *, heaviest: bool) -> float:
        """Fewest or most people whose weights add up to a sum: those with the largest, or the smallest, come first."""
        lightest = min((level.weight for level in self.levels), default=1.0)
        # Noise takes a sum below 0, or above what the head counts allow: the rest at the weight farthest out.
        left, people = weighted, min(weighted, 0.0) / (lightest if heaviest else 1.0)
        for level in sorted(self.levels, key=lambda level: level.weight, reverse=heaviest):
            here = min(max(left, 0.0), level.weight * level.people)
            left, people = left - here, people + here / level.weight
        return people + max(left, 0.0) / (1.0 if heaviest else lightest)

    @property
    def parts(self) -> list[tuple[LevelPart, float, float]]:
        """Each level with its part of all people, and of the sum of weights: whom the table is about."""
        people = sum(level.people for level in self.levels) or 1.0
        weight = sum(level.people * level.weight for level in self.levels) or 1.0
        return [(each, each.people / people, each.people * each.weight / weight) for each in self.levels]

    def to_csv(self) -> str:
        """Line for each cell: its values, count, interval, sum of weights. Ranges of numbers are no formulas."""
        text = io.StringIO()
        lines = csv.writer(text)
        lines.writerow([*map(harmless, self.columns), "people", "low_95", "high_95", "weighted", "least_95", "most_95"])
        for cell in self:
            numbers = (cell.count, cell.low, cell.high, cell.weighted, cell.least, cell.most)
            named = [value if edges else harmless(value) for value, edges in zip(cell.values, self.edges, strict=True)]
            lines.writerow([*named, *(round(number, 2) for number in numbers)])
        return text.getvalue()
