"""Encoders from points to whole-number features: columns of a table or of an embedding, and combined encoders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from learning.exact_arithmetic import Floats

if TYPE_CHECKING:
    from learning.exports.graph import Graph

Arrays = dict[str, NDArray[Any]]

GRID = 2.0**16
"""Columns are rounded to this many steps on either side of 0, half of them beyond the largest public value."""

_MIDDLE = (0.05, 0.95)
_FENCES = 3.0


class Encoder(Protocol):
    """Encoder of points as whole numbers, independently of each other.

    kind: its name in stored files.  shape: of one point.  bound: largest absolute value of a feature.  units:
    `(width,)`, the value of a 1 in each feature, for the statistics of the public points.
    """

    kind: ClassVar[str]
    shape: tuple[int, ...]
    bound: float
    units: Floats

    def encode(self, points: NDArray[np.floating]) -> Floats:
        """Return `(n, width)` whole numbers of points `(n, *shape)`; values that are not finite count as 0."""
        ...

    def to_graph(self, graph: Graph, points: str) -> str:
        """Return the features as nodes, double `(rows, width)` of float points `(rows, *shape)`, bit for bit."""
        ...

    def state(self) -> Arrays:
        """Return the state that `from_state` needs."""
        ...


class ColumnEncoder:
    """Unchanged numbers (images flattened), each column rounded to steps set by its largest public value.

    A value beyond twice the largest public one is cut off.

    >>> encoder = ColumnEncoder.fit(np.array([[0.5, 2.0], [1.0, -4.0]]))
    >>> (encoder.encode(np.array([[0.25, 100.0]])) * encoder.units).tolist()
    [[0.25, 8.0]]
    """

    kind: ClassVar[str] = "columns"

    def __init__(self, shape: tuple[int, ...], units: Floats) -> None:
        self.shape, self.units, self.bound = shape, units, GRID

    @classmethod
    def fit(cls, public: NDArray[np.floating]) -> ColumnEncoder:
        flat = np.asarray(public, np.float64).reshape(len(public), -1)
        largest = np.abs(flat).max(axis=0)
        return cls(public.shape[1:], np.where(largest > 0, largest, 1.0) * 2.0 / GRID)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> ColumnEncoder:
        return cls(tuple(state["shape"].tolist()), state["units"])

    def encode(self, points: NDArray[np.floating]) -> Floats:
        flat = finite(points).reshape(len(points), math.prod(self.shape))
        return np.clip(np.rint(flat / self.units), -self.bound, self.bound)

    def to_graph(self, graph: Graph, points: str) -> str:
        return graph.rounded(graph.node("Div", _flat(graph, points), graph.constant(self.units)), self.bound)

    def state(self) -> Arrays:
        return {"shape": np.array(self.shape), "units": self.units}


class ClippedColumnEncoder(ColumnEncoder):
    """Numbers clipped by each column's public quantiles, which protects the spread from a few wrong public values.

    Values are clipped further beyond the quantiles of 5 and 95 per cent than three times the distance between these,
    and beyond all public values. If those quantiles are equal, only the latter.

    >>> encoder = ClippedColumnEncoder.fit(np.arange(101.0)[:, None] / 100)
    >>> np.round(encoder.encode(np.array([[-50.0], [0.5], [7.0]])) * encoder.units, 3).tolist()
    [[0.0], [0.5], [1.0]]
    """

    kind: ClassVar[str] = "clipped_columns"

    def __init__(self, shape: tuple[int, ...], units: Floats, limits: Floats) -> None:
        super().__init__(shape, units)
        self.limits = limits

    @classmethod
    def fit(cls, public: NDArray[np.floating]) -> ClippedColumnEncoder:
        flat = np.asarray(public, np.float64).reshape(len(public), -1)
        ends = np.stack([flat.min(axis=0), flat.max(axis=0)])
        low, high = np.quantile(flat, _MIDDLE, axis=0)
        fence = _FENCES * (high - low)
        within = np.stack([np.maximum(ends[0], low - fence), np.minimum(ends[1], high + fence)])
        limits = np.where(fence > 0, within, ends)
        largest = np.abs(limits).max(axis=0)
        units = np.where(largest > 0, largest, 1.0) * 2.0 / GRID
        return cls(public.shape[1:], units, np.rint(limits / units))

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> ClippedColumnEncoder:
        return cls(tuple(state["shape"].tolist()), state["units"], state["limits"])

    def encode(self, points: NDArray[np.floating]) -> Floats:
        return np.clip(super().encode(points), *self.limits)

    def to_graph(self, graph: Graph, points: str) -> str:
        low, high = (graph.constant(limit) for limit in self.limits)
        return graph.node("Min", graph.node("Max", super().to_graph(graph, points), low), high)

    def state(self) -> Arrays:
        return super().state() | {"limits": self.limits}


class ThresholdEncoder:
    """Features that are 1 above each threshold of a column and 0 up to it, whose weighted sum can follow any curve.

    Thresholds are evenly spread over a column's distinct public values, which gives a few large values among many zeros
    their own thresholds. A column of two values has none, because it needs none.

    columns, thresholds: `(width,)`, the column of each feature, and the value above which it is 1.

    >>> encoder = ThresholdEncoder.fit(np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]]), 1)
    >>> encoder.encode(np.array([[1.0, 1.0], [1.5, 1.0]])).tolist()
    [[0.0], [1.0]]
    """

    kind: ClassVar[str] = "thresholds"
    bound: float = 1.0

    def __init__(self, shape: tuple[int, ...], columns: NDArray[np.int64], thresholds: Floats) -> None:
        self.shape, self.columns, self.thresholds = shape, columns, thresholds
        self.units = np.ones(len(columns))

    @classmethod
    def fit(cls, public: NDArray[np.floating], most: int, most_in_all: int = 2**31) -> ThresholdEncoder:
        """Fit at most `most` thresholds for each column, fewer if there would be more than `most_in_all` together."""
        flat = finite(public).reshape(len(public), -1)
        values = {column: np.unique(flat[:, column]) for column in range(flat.shape[1])}
        several = {column: distinct for column, distinct in values.items() if len(distinct) > 2}
        each = min(most, most_in_all // max(len(several), 1))
        places = np.arange(1, each + 1) / (each + 1)
        cuts = {column: np.unique(np.quantile(d[:-1], places, method="lower")) for column, d in several.items()}
        columns = np.repeat(list(cuts), [len(cut) for cut in cuts.values()]).astype(np.int64)
        return cls(public.shape[1:], columns, np.concatenate([np.zeros(0), *cuts.values()]))

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> ThresholdEncoder:
        return cls(tuple(state["shape"].tolist()), state["columns"], state["thresholds"])

    def encode(self, points: NDArray[np.floating]) -> Floats:
        flat = finite(points).reshape(len(points), math.prod(self.shape))
        return (flat[:, self.columns] > self.thresholds).astype(np.float64)

    def to_graph(self, graph: Graph, points: str) -> str:
        columns = graph.node("Gather", _flat(graph, points), graph.constant(self.columns), axis=1)
        return graph.as_double(graph.node("Greater", columns, graph.constant(self.thresholds)))

    def state(self) -> Arrays:
        return {"shape": np.array(self.shape), "columns": self.columns, "thresholds": self.thresholds}


class JoinedEncoder:
    """Features of several encoders, concatenated."""

    kind: ClassVar[str] = "joined"

    def __init__(self, *parts: Encoder) -> None:
        self.parts = parts
        self.shape = parts[0].shape
        self.bound = max(part.bound for part in parts)
        self.units = np.concatenate([part.units for part in parts])

    def encode(self, points: NDArray[np.floating]) -> Floats:
        return np.concatenate([part.encode(points) for part in self.parts], axis=1)

    def to_graph(self, graph: Graph, points: str) -> str:
        return graph.node("Concat", *(part.to_graph(graph, points) for part in self.parts), axis=1)

    def state(self) -> Arrays:
        stored: Arrays = {"parts": np.array([part.kind for part in self.parts])}
        for place, part in enumerate(self.parts):
            stored |= {f"{place}.{name}": array for name, array in part.state().items()}
        return stored


def _flat(graph: Graph, points: str) -> str:
    return graph.as_double(graph.node("Flatten", points, axis=1))


def finite(points: NDArray[np.floating]) -> Floats:
    """Return the points in double precision, 0 for values that are not numbers: a bad record must not stop others."""
    return np.nan_to_num(np.asarray(points, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
