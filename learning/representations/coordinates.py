"""Encoders of points as integer features, and one-byte coordinates computed from the features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from learning.exact_arithmetic import Floats, whole_matrix, whole_product

if TYPE_CHECKING:
    from learning.exports.graph import Graph


Arrays = dict[str, NDArray[Any]]

GRID = 2.0**16
"""Number of rounding steps on either side of 0 in a column. Half of them lie beyond the largest public value."""

_RANKED = np.arange(1, 64) / 64  # quantiles of a column at which its ranks rise
# steps from rank 0 to 1, cosines in the table, and steps from one cosine to the next
_RANKS, _PHASES, _FINER = 2.0**10, 2.0**12, 2.0**8

_MIDDLE = (0.05, 0.95)
_FENCES = 3.0


class PointEncoder(Protocol):
    """Encoder of points as integers, each independently of all others.

    Attributes:
        kind: Name in stored files.
        shape: Shape of a point.
        bound: Largest absolute value of a feature.
        units: `(width,)` value that the integer 1 represents in each feature, for statistics of the public points.
    """

    kind: ClassVar[str]
    shape: tuple[int, ...]
    bound: float
    units: Floats

    def encode(self, points: NDArray[np.floating]) -> Floats:
        """Return integers `(n, width)` for points `(n, *shape)`; values that are not finite are treated as 0."""
        ...

    def to_graph(self, graph: Graph, points: str) -> str:
        """Add nodes for the features, double `(rows, width)`, of float points `(rows, *shape)`, bit for bit."""
        ...

    def state(self) -> Arrays:
        """Return the state needed by `from_state`."""
        ...


class ColumnEncoder:
    """Untransformed numbers (images flattened), rounded to steps set by each column's largest public value.

    Values beyond twice the largest public value are clipped.

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
    """Numbers clipped beyond each column's public quantiles, so that a few wrong public values do not alter the spread.

    The limits lie beyond the 5 % and 95 % quantiles by three times the distance between them, but within the range of
    the public values. If the two quantiles are equal, only the range applies.

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
    """Features that are 1 above a threshold of a column and 0 otherwise. Their weighted sums can follow any curve.

    Thresholds are spread evenly over a column's distinct public values, so that a few large values among many zeros
    also get thresholds. A column with two values needs no threshold and gets none.

    Attributes:
        columns: `(width,)` column of each feature.
        thresholds: `(width,)` value above which each feature is 1.

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
        """Fit at most `most` thresholds for each column, and fewer if the total would exceed `most_in_all`."""
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


class InteractionEncoder:
    """Random cosines of the ranks of several columns, whose weighted sum can model how columns interact.

    A feature is cos(w·r + b) with random normal w and uniform b, where r are the ranks (from 0 to 1) of a point's
    values among the public points. Weighted sums of features approximate any function in a Gaussian kernel's space
    (Rahimi and Recht 2007, "Random features for large-scale kernel machines"). Ranks and phases are integers, and
    cosines are looked up in a table.

    Attributes:
        columns: `(numbers,)` encoded columns.
        counts: `(numbers,)` number of `cuts` of each column, which are the values at which its ranks rise.
        rises: `(cuts,)` increase of the ranks at each cut.
        weights: `(numbers, features)` phases per rank.
        offsets: `(features,)` phases of the lowest ranks.

    >>> encoder = InteractionEncoder.fit(np.random.default_rng(0).random((50, 3)), 8, frequency=0.7, seed=1)
    >>> encoder.encode(np.full((2, 3), 0.5)).shape
    (2, 8)
    """

    kind: ClassVar[str] = "interactions"
    bound: float = 2.0**12

    def __init__(self, shape: tuple[int, ...], **arrays: NDArray[Any]) -> None:
        self.shape, self._arrays = shape, arrays
        self.columns, self.weights, self.offsets = arrays["columns"], arrays["weights"], arrays["offsets"]
        ends = np.cumsum(arrays["counts"])[:-1]
        self._cuts, self._rises = (np.split(arrays[name], ends) for name in ("cuts", "rises"))
        self.units = np.full(len(self.offsets), 1.0 / self.bound)

    @classmethod
    def fit(cls, public: NDArray[np.floating], features: int, *, frequency: float, seed: int) -> InteractionEncoder:
        """Fit `features` cosines, with weights of standard deviation `frequency`, on public points `(n, *shape)`.

        At least one column must have more than two values.
        """
        flat, columns = finite(public).reshape(len(public), -1), numeric_columns(public)
        drawn = np.random.default_rng(seed)
        unit = _PHASES * _FINER / (2 * np.pi * _RANKS)
        weights = np.rint(drawn.normal(0.0, frequency, (len(columns), features)) * unit)
        offsets = np.rint(drawn.random(features) * (_PHASES * _FINER))
        cuts, rises = [], []
        for column, weight in zip(columns, weights, strict=True):
            values = np.sort(flat[:, column])
            inner = np.unique(np.quantile(values[values < values[-1]], _RANKED, method="lower"))
            ends = np.concatenate([[0], np.searchsorted(values, inner, side="right"), [len(values)]]) / len(values)
            # the rank between two cuts is that of the middle one of the points there
            ranks = np.rint((ends[1:] + ends[:-1]) / 2 * _RANKS)
            offsets += ranks[0] * weight
            cuts.append(inner)
            rises.append(np.diff(ranks))
        return cls(
            public.shape[1:],
            columns=columns,
            counts=np.array([len(each) for each in cuts]),
            cuts=np.concatenate(cuts),
            rises=np.concatenate(rises),
            weights=weights,
            offsets=offsets,
            cosines=np.rint(np.cos(np.arange(_PHASES) * (2 * np.pi / _PHASES)) * cls.bound),
        )

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> InteractionEncoder:
        arrays = dict(state)
        return cls(tuple(arrays.pop("shape").tolist()), **arrays)

    def encode(self, points: NDArray[np.floating]) -> Floats:
        flat = finite(points).reshape(len(points), math.prod(self.shape))
        ranks = np.empty((len(flat), len(self.columns)))
        for place, (column, cuts, rises) in enumerate(zip(self.columns, self._cuts, self._rises, strict=True)):
            ranks[:, place] = np.concatenate([[0.0], np.cumsum(rises)])[np.searchsorted(cuts, flat[:, column])]
        phases = np.floor((ranks @ self.weights + self.offsets) / _FINER)
        return np.take(self._arrays["cosines"], np.mod(phases, _PHASES).astype(np.int64))

    def to_graph(self, graph: Graph, points: str) -> str:
        from learning.exports.graph import INT64

        counts = self._arrays["counts"]
        places = np.repeat(np.arange(len(counts)), counts)
        rises = np.zeros((len(places), len(counts)))
        rises[np.arange(len(places)), places] = self._arrays["rises"]
        columns = graph.node("Gather", _flat(graph, points), graph.constant(self.columns[places]), axis=1)
        above = graph.as_double(graph.node("Greater", columns, graph.constant(self._arrays["cuts"])))
        ranks = graph.node("MatMul", above, graph.constant(rises))
        product = graph.node("MatMul", ranks, graph.constant(self.weights))
        phases = graph.node("Add", product, graph.constant(self.offsets))
        whole = graph.node("Floor", graph.node("Div", phases, graph.constant(_FINER)))
        turns = graph.node("Floor", graph.node("Div", whole, graph.constant(_PHASES)))
        within = graph.node("Sub", whole, graph.node("Mul", turns, graph.constant(_PHASES)))
        return graph.node("Gather", graph.constant(self._arrays["cosines"]), graph.cast(within, INT64))

    def state(self) -> Arrays:
        return {"shape": np.array(self.shape), **self._arrays}


def numeric_columns(points: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the columns of points `(n, *shape)` that have more than two values."""
    flat = finite(points).reshape(len(points), -1)
    varied = ((flat != flat.min(axis=0)) & (flat != flat.max(axis=0))).any(axis=0)
    return np.flatnonzero(varied).astype(np.int64)


class JoinedEncoder:
    """Features of several encoders, concatenated."""

    kind: ClassVar[str] = "joined"

    def __init__(self, *parts: PointEncoder) -> None:
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
    """Return the points in double precision, with 0 for non-finite values so that a bad record does not stop others."""
    return np.nan_to_num(np.asarray(points, np.float64), nan=0.0, posinf=0.0, neginf=0.0)


Metric = Literal["cosine", "euclidean"]
LARGEST = 127
"""Largest absolute value of a coordinate: it fits into 8 bits, and sums of up to 520 products stay exact in float32."""
MOST_COMPONENTS = 1040
"""Largest number of coordinates for which the product of two points stays below 2²⁴."""

_UNIT = 2.0**12  # steps per unit of a projected coordinate
# number of steps at which projected coordinates are clipped, so that 1040 squares add up to less than 2⁵³
_FARTHEST = 2.0**20
_POINTS_PER_COMPONENT = 20  # with fewer points, small variances describe mostly chance
_LEAST_SHARE = 1e-3  # variances below this share of the floor are treated as 0
_WITHIN = 99.9  # percentage of public coordinates that are not clipped in Euclidean geometry


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Linear map from integer features to coordinates of one byte each.

    Attributes:
        matrix, offset: Integers, see `whole_matrix`.
        reduction: The power of two that converts a product to steps.
        metric: "cosine" projects every point onto the sphere of radius 127 before rounding; "euclidean" multiplies it
            by `scale`. In both cases, neighbours are defined by the Euclidean distance of the rounded coordinates,
            which is exact. On the sphere, this distance gives the same order as the angle, except for rounding.
    """

    matrix: Floats
    offset: Floats
    reduction: float
    metric: Metric
    scale: float

    @classmethod
    def fit(cls, features: Floats, matrix: Floats, mean: Floats, *, bound: float, metric: Metric) -> Coordinates:
        """Fit x ↦ (x - mean) @ matrix, scaled to a mean square of 1 in the coordinates of the public `features`."""
        spread = np.sqrt(np.mean(((features - mean) @ matrix) ** 2)) or 1.0
        whole, power = whole_matrix(matrix / spread, bound)
        if power < _UNIT:
            raise ValueError(
                "The public points are too similar for this representation: give more points or raise the floor."
            )
        fitted = cls(whole, np.rint(mean @ whole), power / _UNIT, metric, 1.0)
        if metric == "cosine":
            return fitted
        farthest = float(np.percentile(np.abs(fitted._steps(features)), _WITHIN)) or 1.0
        return cls(whole, fitted.offset, fitted.reduction, metric, LARGEST / farthest)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Coordinates:
        metric: Metric = "cosine" if bool(state["cosine"]) else "euclidean"
        return cls(state["matrix"], state["offset"], float(state["reduction"]), metric, float(state["scale"]))

    def __call__(self, features: Floats) -> NDArray[np.int8]:
        """Return coordinates `(n, components)` of features `(n, features)`; those of the mean point are 0."""
        steps = self._steps(features)
        if self.metric == "cosine":
            # the numbers are integers, so the sum of squares is exact
            norm = np.sqrt((steps**2).sum(axis=1, keepdims=True))
            coordinates = LARGEST * steps / np.where(norm > 0, norm, 1.0)
        else:
            coordinates = steps * self.scale
        return np.clip(np.rint(coordinates), -LARGEST, LARGEST).astype(np.int8)

    def to_graph(self, graph: Graph, features: str) -> str:
        """Add nodes that return the coordinates, double `(rows, components)`, for double features."""
        product = graph.node("MatMul", features, graph.constant(self.matrix))
        whole = graph.node("Sub", product, graph.constant(self.offset))
        steps = graph.rounded(graph.node("Div", whole, graph.constant(self.reduction)), _FARTHEST)
        if self.metric == "cosine":
            norm = graph.node("Sqrt", graph.node("ReduceSumSquare", steps, graph.constant(np.array([1])), keepdims=1))
            # the steps are integers, so a norm is either 0 or at least 1
            longer = graph.node("Max", norm, graph.constant(1.0))
            coordinates = graph.node("Div", graph.node("Mul", steps, graph.constant(float(LARGEST))), longer)
        else:
            coordinates = graph.node("Mul", steps, graph.constant(self.scale))
        return graph.rounded(coordinates, LARGEST)

    def state(self) -> Arrays:
        return {
            "matrix": self.matrix,
            "offset": self.offset,
            "reduction": np.array(self.reduction),
            "scale": np.array(self.scale),
            "cosine": np.array(self.metric == "cosine"),
        }

    def _steps(self, features: Floats) -> Floats:
        product = whole_product(features, self.matrix, self.offset)
        return np.clip(np.rint(product / self.reduction), -_FARTHEST, _FARTHEST)


def standardising_matrix(features: Floats, units: Floats, *, exponent: float, floor: float) -> Floats:
    """Return the matrix that divides every column by its public standard deviation to the power `exponent`.

    Args:
        features: `(n, width)` features of the public points.
        units: `(width,)`, see `PointEncoder`.
        exponent: 1 standardises, 0 leaves the columns unchanged.
        floor: Smallest effective variance, as a share of the largest. Columns without variance are left out.

    Returns:
        Matrix `(width, columns that vary)`.
    """
    variance = features.var(axis=0) * units**2
    largest = variance.max() or 1.0
    weights = units / np.maximum(variance, floor * largest) ** (exponent / 2.0)
    return np.diag(weights)[:, variance > 0]


def evening_matrix(
    features: Floats, units: Floats, *, floor: float, spreads: Floats | float = 1.0, most: int = MOST_COMPONENTS
) -> Floats:
    """Return the first principal components of public points, each divided by √(its variance + floor).

    Columns with two values (including thresholds) are treated as 0 and 1, so that rare values stay small; all other
    columns are first scaled to their `spreads`.

    Args:
        features: `(n, width)` features of the public points.
        units: `(width,)`, see `PointEncoder`.
        floor: Addition to every variance.
        spreads: `(width,)` standard deviations of columns with more than two values.
        most: Largest number of components.

    Returns:
        Matrix `(width, components)`; directions with hardly any variance are left out.
    """
    scaled = features * units
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    spread = scaled.std(axis=0)
    two_valued = ((scaled == low) | (scaled == high)).all(axis=0)
    scales = np.where(two_valued, high - low, spread / spreads)
    weights = np.divide(units, scales, out=np.zeros_like(units), where=spread > 0)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(features * weights, rowvar=False)))
    variances, directions = variances[::-1][:most], directions[:, ::-1][:, :most]
    is_large = variances > floor * _LEAST_SHARE
    return weights[:, None] * directions[:, is_large] / np.sqrt(variances[is_large] + floor)


def whitening_matrix(features: Floats, units: Floats, *, components: int, exponent: float, floor: float) -> Floats:
    """Return the first principal components of public points, divided by standard deviations to the power `exponent`.

    Args:
        features: `(n, width)` features of the public points.
        units: `(width,)`, see `PointEncoder`.
        components: Largest number of components; if small variances are used as divisors, at most one for every 20
            points.
        exponent: 1 whitens, 0 is principal component analysis.
        floor: Smallest effective variance, as a share of the largest.

    Returns:
        Matrix `(width, components)`, with fewer columns if the points have fewer directions.
    """
    variances, directions = _principal(features * units)
    largest = variances[0] if variances[0] > 0 else 1.0
    most = components if exponent == 0 else min(components, max(1, len(features) // _POINTS_PER_COMPONENT))
    count = min(most, max(1, int((variances > largest * 1e-9).sum())))
    scales = np.maximum(variances[:count], floor * largest) ** (exponent / 2.0)
    return units[:, None] * directions[:, :count] / scales


def _principal(features: Floats) -> tuple[Floats, Floats]:
    """Return variances of principal components, the largest first, and their directions, `(width, components)`."""
    if len(features) > features.shape[1]:
        variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(features, rowvar=False)))
        return variances[::-1], directions[:, ::-1]
    # faster for few points, because the covariance of many features would take minutes
    centred = features - features.mean(axis=0)
    _, lengths, rows = np.linalg.svd(centred, full_matrices=False)
    return lengths**2 / (len(features) - 1), rows.T
