"""Table that a run publishes: numbers of people with intervals, from the released sums alone."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.spreadsheets import CsvWriter
from learning.mechanisms.counts.planner import WITHIN_95, half_interval
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

    ``count`` is a noisy number and may be below 0. At least 95 times in 100 the true one is from ``least`` to ``most``,
    however the levels are spread over the cells, and 95 times in 100 from ``low`` to ``high`` if they fall on the cells
    by lot. ``weighted`` is the sum of the weights of these people, with its noise.
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
        return self.least > 0


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
        scale_error: standard deviation of the scale by the noise of the head counts, as a share of it.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    sums: tuple[float, ...]
    sigma: float
    scale: float
    edges: tuple[tuple[float, ...], ...]
    levels: tuple[LevelPart, ...]
    scale_error: float = 0.0

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
            question.plan.scale_error,
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CountTable:
        """The table that `to_json` wrote."""
        values, edges = (tuple(map(tuple, document[name])) for name in ("values", "edges"))
        columns, sums = tuple(document["columns"]), tuple(document["sums"])
        levels = tuple(LevelPart(**each) for each in document["levels"])
        error = document.get("scale_error", 0.0)  # tables of earlier versions do not tell it
        return cls(columns, values, sums, document["sigma"], document["scale"], edges, levels, error)

    def to_json(self) -> dict[str, Any]:
        """JSON with lists in place of tuples, as a database gives it back."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def people(self) -> float:
        """Number of all people, by the head counts."""
        return sum(level.people for level in self.levels)

    @property
    def weight_variance(self) -> float:
        """Variance of the weights of all people, by the head counts."""
        people = self.people or 1.0
        mean = sum(level.people * level.weight for level in self.levels) / people
        return sum(level.people * (level.weight - mean) ** 2 for level in self.levels) / people

    @property
    def error(self) -> float:
        """Half of the interval around the number of people in a cell of average size."""
        return self.error_of(self.people / len(self))

    def error_of(self, count: float) -> float:
        """Return half of the interval around a number of people, if levels fall on the cells by lot."""
        return half_interval(
            count,
            sigma=self.sigma,
            people=self.people,
            scale=self.scale,
            weight_variance=self.weight_variance,
            scale_error=self.scale_error,
        )

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variance (cells,) of each sum of weights for the number of people there, if levels fall on cells by lot.

        Of the noise, and of which levels are there.
        """
        return self.sigma**2 + self.weight_variance * self.scale * np.maximum(self.sums, 0.0)

    def __len__(self) -> int:
        return len(self.sums)

    def __iter__(self) -> Iterator[Cell]:
        weights = [level.weight for level in self.levels] or [1.0]
        lightest, heaviest = min(weights), max(weights)
        for values, weighted in zip(product(*self.values), self.sums, strict=True):
            count, around = self.scale * weighted, WITHIN_95 * self.sigma
            error, least, most = self.error_of(count), weighted - around, weighted + around
            yield Cell(
                values,
                count,
                count - error,
                count + error,
                weighted,
                least / (heaviest if least > 0 else lightest),
                most / (lightest if most > 0 else heaviest),
            )

    @property
    def parts(self) -> list[tuple[LevelPart, float, float]]:
        """Each level with its part of all people, and of the sum of weights: whom the table is about."""
        people = sum(level.people for level in self.levels) or 1.0
        weight = sum(level.people * level.weight for level in self.levels) or 1.0
        return [(each, each.people / people, each.people * each.weight / weight) for each in self.levels]

    def to_csv(self) -> str:
        """Line for each cell: its values, count, interval, sum of weights."""
        text = io.StringIO()
        lines = CsvWriter(text)
        lines.writerow([*self.columns, "people", "low_95", "high_95", "weighted", "least_95", "most_95"])
        for cell in self:
            numbers = (cell.count, cell.low, cell.high, cell.weighted, cell.least, cell.most)
            lines.writerow([*cell.values, *(round(number, 2) for number in numbers)])
        return text.getvalue()
