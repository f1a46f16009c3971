"""Thresholds of published models: from which probability on a class is said, in place of the likeliest one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from learning.exports.graph import Graph

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Threshold:
    """The class of this ``number`` is said where its probability is at least ``least``, else the likeliest other.

    >>> Threshold(1, 0.2).labels(np.array([[0.7, 0.3], [0.9, 0.1]])).tolist()
    [1, 0]
    """

    number: int
    least: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def labels(self, probabilities: Floats) -> NDArray[np.int64]:
        """`(n,)` class numbers of probabilities `(n, C)`."""
        others = probabilities.copy()
        others[:, self.number] = -1.0
        return np.where(probabilities[:, self.number] >= self.least, self.number, others.argmax(axis=1))

    def to_graph(self, graph: Graph, probabilities: str, classes: int) -> str:
        """The same as nodes."""
        mine = np.arange(classes)[None] == self.number
        others = graph.node("Where", graph.constant(mine), graph.constant(-1.0), probabilities)
        likeliest = graph.node("ArgMax", others, axis=1, keepdims=0)
        own = graph.node("Gather", probabilities, graph.constant(np.int64(self.number)), axis=1)
        is_over = graph.node("GreaterOrEqual", own, graph.constant(self.least))
        return graph.node("Where", is_over, graph.constant(np.int64(self.number)), likeliest)


def least_by_costs(missed: float, false_alarm: float) -> float:
    """Probability from which saying a class costs less on average than not saying it (Elkan 2001).

    >>> least_by_costs(9.0, 1.0)
    0.1
    """
    return false_alarm / (missed + false_alarm)


def least_by_sensitivity(probabilities: Floats, wanted: float) -> float:
    """Largest probability from which on so large a share of a class is found, where probabilities are calibrated.

    Args:
        probabilities: `(n,)` of the class, of points without known classes.
        wanted: Share of the points of the class, above 0 and at most 1.
    """
    ordered = np.sort(probabilities)[::-1]
    positives = np.cumsum(ordered)
    if not len(ordered) or positives[-1] <= 0:
        return 0.0
    return float(ordered[min(int(np.searchsorted(positives, wanted * positives[-1] * (1 - 1e-12))), len(ordered) - 1)])
