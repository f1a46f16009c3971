"""Coordinates of whole-number features: centred and scaled or whitened by public statistics, at most ±127."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from learning.exact_arithmetic import Floats, whole_matrix, whole_product
from learning.representations.encoders import Arrays

if TYPE_CHECKING:
    from learning.exports.graph import Graph

Metric = Literal["cosine", "euclidean"]
LARGEST = 127
"""The largest absolute value of a coordinate: it fits 8 bits, and products of up to 520 coordinates fit a float32."""
MOST_COMPONENTS = 1040
"""Largest number of coordinates for which the product of two points stays below 2²⁴."""

_UNIT = 2.0**12  # steps per unit of a projected coordinate
_FARTHEST = 2.0**20  # steps at which projected coordinates are cut off: 1040 squares stay below 2⁵³
_POINTS_PER_COMPONENT = 20  # with fewer, the small variances describe these points more than others
_LEAST_SHARE = 1e-3  # share of the floor below which a variance counts as none
_WITHIN = 99.9  # percentage of the public coordinates that are not cut off in Euclidean geometry


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A linear map from whole-number features to coordinates of one byte each.

    matrix, offset: whole numbers, see `whole_matrix`.  reduction: the power of two that brings a product to steps.
    metric: "cosine" puts every point on the sphere of radius 127 before it is rounded, "euclidean" multiplies it by
    `scale`. In both cases the Euclidean distance of the rounded coordinates defines neighbours, and it is exact; on the
    sphere it orders points like the angle, up to that rounding.
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
                "The public points are too alike for this representation: give more of them, or raise the floor."
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
        """Return `(n, components)` from `(n, features)`; the mean point stays at 0 under either metric."""
        steps = self._steps(features)
        if self.metric == "cosine":
            # whole numbers, so the sum of squares is exact
            norm = np.sqrt((steps**2).sum(axis=1, keepdims=True))
            coordinates = LARGEST * steps / np.where(norm > 0, norm, 1.0)
        else:
            coordinates = steps * self.scale
        return np.clip(np.rint(coordinates), -LARGEST, LARGEST).astype(np.int8)

    def to_graph(self, graph: Graph, features: str) -> str:
        """Return the coordinates as nodes, double `(rows, components)` of double features."""
        product = graph.node("MatMul", features, graph.constant(self.matrix))
        whole = graph.node("Sub", product, graph.constant(self.offset))
        steps = graph.rounded(graph.node("Div", whole, graph.constant(self.reduction)), _FARTHEST)
        if self.metric == "cosine":
            norm = graph.node("Sqrt", graph.node("ReduceSumSquare", steps, graph.constant(np.array([1])), keepdims=1))
            # norms are 0, or at least the length of one step, which is 1
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
        features: `(n, width)` of the public points.
        units: `(width,)`, see `Encoder`.
        exponent: 1 standardises, 0 leaves the columns unchanged.
        floor: The least effective variance, as a share of the largest. A column without variance is left out.

    Returns:
        `(width, columns that vary)`.
    """
    variance = features.var(axis=0) * units**2
    largest = variance.max() or 1.0
    weights = units / np.maximum(variance, floor * largest) ** (exponent / 2.0)
    return np.diag(weights)[:, variance > 0]


def evening_matrix(features: Floats, units: Floats, *, floor: float) -> Floats:
    """Return all principal components of public points, each divided by the root of its variance plus a floor.

    Columns of two values (including thresholds) count as 0 and 1, which keeps a rare one small; the others are
    standardised first.

    Args:
        features: `(n, width)` of the public points.
        units: `(width,)`, see `Encoder`.
        floor: Addition to every variance.

    Returns:
        `(width, components)`; directions with hardly any variance are left out.
    """
    scaled = features * units
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    spread = scaled.std(axis=0)
    two_valued = ((scaled == low) | (scaled == high)).all(axis=0)
    scales = np.where(two_valued, high - low, spread)
    weights = np.divide(units, scales, out=np.zeros_like(units), where=spread > 0)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(features * weights, rowvar=False)))
    variances, directions = variances[::-1], directions[:, ::-1]
    is_large = variances > floor * _LEAST_SHARE
    return weights[:, None] * directions[:, is_large] / np.sqrt(variances[is_large] + floor)


def whitening_matrix(features: Floats, units: Floats, *, components: int, exponent: float, floor: float) -> Floats:
    """Return the first principal components of public points, divided by standard deviations to the power `exponent`.

    Args:
        features: `(n, width)` of the public points.
        units: `(width,)`, see `Encoder`.
        components: Largest number; if small variances are used as divisors, no more than one for every 20 points.
        exponent: 1 whitens, 0 is principal component analysis.
        floor: The least effective variance, as a share of the largest.

    Returns:
        `(width, components)`, or fewer columns if the points have fewer directions.
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
    # a covariance of many features of few points would take minutes
    centred = features - features.mean(axis=0)
    _, lengths, rows = np.linalg.svd(centred, full_matrices=False)
    return lengths**2 / (len(features) - 1), rows.T
