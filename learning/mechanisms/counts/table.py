"""Table that a run publishes: numbers of people with intervals, from the released sums alone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning.mechanisms.counts.planner import WITHIN_95
from learning.mechanisms.counts.question import PERSON, CountsQuestion


@dataclass(frozen=True)
class Cell:
    """Cell of a table: its ``values``, one of each column, and how many people are in it.

    ``count`` is a noisy number and may be below 0; 95 times in 100 the true one is from ``low`` to ``high``.
    ``weighted`` is the sum of the weights of these people, with its noise.
    """

    values: tuple[str, ...]
    count: float
    low: float
    high: float
    weighted: float

    @property
    def is_told(self) -> bool:
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
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    sums: tuple[float, ...]
    sigma: float
    scale: float
    edges: tuple[tuple[float, ...], ...]

    @classmethod
    def released(cls, question: CountsQuestion, sums: NDArray[np.int64]) -> CountTable:
        """The table that released sums (cells,) make."""
        return cls(
            tuple(column.name for column in question.columns),
            tuple(column.cells for column in question.columns),
            tuple((sums / PERSON).round(4).tolist()),
            question.sigma,
            question.plan.scale,
            tuple(column.edges for column in question.columns),
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CountTable:
        """The table that `to_json` wrote."""
        values, edges = (tuple(map(tuple, document[name])) for name in ("values", "edges"))
        columns, sums = tuple(document["columns"]), tuple(document["sums"])
        return cls(columns, values, sums, document["sigma"], document["scale"], edges)

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
            count = self.scale * weighted
            yield Cell(values, count, count - self.error, count + self.error, weighted)

    def to_csv(self) -> str:
        """Line for each cell: its values, count, interval, sum of weights."""
        text = io.StringIO()
        lines = csv.writer(text)
        lines.writerow([*self.columns, "people", "low_95", "high_95", "weighted"])
        for cell in self:
            numbers = (cell.count, cell.low, cell.high, cell.weighted)
            lines.writerow([*cell.values, *(round(number, 2) for number in numbers)])
        return text.getvalue()
