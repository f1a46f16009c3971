"""Numbers: a target within a declared range, learned by squared loss, with the model's expected error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.declarations import Number
from common.sentences import gettext_noop
from learning.exact_arithmetic import RESIDUAL_STEPS, Floats
from learning.measures import Estimate, bootstrapped, mean_estimate, share_estimate
from learning.outcomes.outcome import Codes, Evaluation, Measure, Target, Unit, digits

if TYPE_CHECKING:
    from learning.exports.graph import Graph

_WIDTH = 3.0
"""Half-width of a Laplace distribution's 95 % interval, in mean absolute deviations: log 20 (2.5 for a normal one)."""


BINS = 16
"""Number of equal parts of the declared range, for votes and students."""
_TAILS = (0.025, 0.975)
_LEAST_SHARE = 1e-9
_LEAST_SPREAD = 1e-4


@dataclass(frozen=True)
class SquaredLoss:
    """Squared loss of a number and of its expected error; see :class:`learning.outcomes.outcome.Loss`.

    A target y is the distance from the middle of the range, divided by its width. The first score m is fitted to y by
    (m - y)²/2, the second score s to |y - m| by (s - |y - m|)²/2, with m held fixed. Clipping a holder's gradient
    reduces a residual beyond clip_norm / ‖f‖ to this value, which turns the loss into Huber's.
    """

    centred: bool = False
    clip_norm: float = 0.1
    quadratic: bool = True

    def residuals(self, scores: Floats, targets: Codes) -> Floats:
        known = (targets >= 0) & (targets <= RESIDUAL_STEPS)
        y = np.where(known, targets, 0) - RESIDUAL_STEPS / 2
        off = _within(np.rint(scores[:, 0] * RESIDUAL_STEPS) - y)
        spread = _within(np.rint(scores[:, 1] * RESIDUAL_STEPS) - np.abs(off))
        return np.where(known[:, None], np.stack([off, spread], axis=1), 0.0)

    def curvature(self, scores: Floats) -> Floats:
        return np.ones((len(scores), 1))


def _within(residuals: Floats) -> Floats:
    return residuals.clip(-RESIDUAL_STEPS, RESIDUAL_STEPS)


@dataclass(frozen=True)
class Numbers(Target):
    """Number in a range; a number outside the range is replaced by the nearest end.

    A number's code is its position in the range, in multiples of 2⁻²⁰ of the width.

    >>> Numbers(0, 100, "kg").coded([np.array([25.0, 300.0])]).tolist()
    [262144, 1048576]
    """

    kind: Literal["numbers"] = field(default="numbers", kw_only=True, repr=False)
    minimum: Number
    maximum: Number
    unit: Unit = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.minimum) and math.isfinite(self.maximum) and self.minimum < self.maximum):
            raise ValueError(gettext_noop("Declare two finite numbers, the first smaller than the second."))

    @property
    def loss(self) -> SquaredLoss:
        return SquaredLoss()

    @property
    def outputs(self) -> int:
        return 2

    @property
    def columns(self) -> tuple[str, ...]:
        return "value", "low", "high"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("value",)

    def allowed(self, part: str, values: Floats) -> NDArray[np.bool_]:
        del part
        return np.isfinite(values)

    def remedy(self, part: str) -> str:
        del part
        return gettext_noop("Enter a number.")

    @property
    def _range(self) -> float:
        return self.maximum - self.minimum

    def coded(self, values: Sequence[Floats]) -> Codes:
        places = (values[0].clip(self.minimum, self.maximum) - self.minimum) / self._range
        return np.rint(places * RESIDUAL_STEPS).astype(np.int64)

    def numbers(self, codes: Codes) -> Floats:
        """Return the numbers that codes represent."""
        return np.asarray(self.minimum + codes / RESIDUAL_STEPS * self._range, np.float64)

    def written(self, code: int) -> str:
        return f"{digits(float(self.numbers(np.array(code))))} {self.unit}".rstrip()

    def predictions(self, scores: Floats) -> Floats:
        """Return the predicted number and the ends of its 95 % prediction interval, clipped to the range."""
        half = _WIDTH * np.maximum(scores[:, 1], 0.0)
        places = np.stack([scores[:, 0], scores[:, 0] - half, scores[:, 0] + half], axis=1) + 0.5
        return np.asarray(self.minimum + places.clip(0.0, 1.0) * self._range, np.float64)

    @property
    def _edges(self) -> Floats:
        return np.linspace(self.minimum, self.maximum, BINS + 1)

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the equal parts of the range.

        >>> Numbers(0, 160, "kg").categories[1]
        '10–20 kg'
        """
        edges = [digits(edge) for edge in self._edges.tolist()]
        return tuple(f"{low}–{high} {self.unit}".rstrip() for low, high in pairwise(edges))

    def categories_of(self, codes: Codes) -> Codes:
        known = (codes >= 0) & (codes <= RESIDUAL_STEPS)
        return np.where(known, np.minimum(np.where(known, codes, 0) * BINS // RESIDUAL_STEPS, BINS - 1), -1)

    def shares(self, predictions: Floats) -> Floats:
        """Return the shares of a Laplace distribution whose 95 % interval is that of the prediction.

        A number between the midpoints of two bins is split between both in proportion to its position, so that the
        shares have the distribution's mean. Bin k gets r(k - 1) - r(k), where r rises from 0 to 1 between the midpoints
        c and c' of bins k and k + 1. On average, r is (E|y - c| - E|y - c'|) / 2(c' - c) + 1/2, and E|y - c| of a
        Laplace distribution around m with scale s is |m - c| + s·exp(-|m - c| / s).
        """
        value = predictions[:, :1]
        scale = np.maximum(predictions[:, 2:] - value, value - predictions[:, 1:2]) / _WIDTH
        middles = (self._edges[1:] + self._edges[:-1]) / 2
        off = np.abs(value - middles)
        with np.errstate(divide="ignore", invalid="ignore"):
            off = off + np.where(scale > 0, scale * np.exp(-off / scale), 0.0)
        ramps = ((off[:, :-1] - off[:, 1:]) / (2 * np.diff(middles)) + 0.5).clip(0.0, 1.0)
        count = len(value)
        return np.asarray(-np.diff(np.hstack([np.ones((count, 1)), ramps, np.zeros((count, 1))]), axis=1), np.float64)

    def from_shares(self, shares: Floats) -> Floats:
        """Return the mean of the bins' midpoints and, assuming evenly filled bins, the 2.5 % and 97.5 % quantiles."""
        weights = np.maximum(shares, _LEAST_SHARE)
        weights = weights / weights.sum(axis=1, keepdims=True)
        below = np.cumsum(weights, axis=1) - weights
        parts = [weights @ (np.arange(BINS) + 0.5)]
        # position of the quantile in bins: each bin counts to the extent that it lies below the quantile
        parts += [((tail - below) / weights).clip(0.0, 1.0).sum(axis=1) for tail in _TAILS]
        return np.asarray(self.minimum + np.stack(parts, axis=1) * (self._range / BINS), np.float64)

    def shares_to_graph(self, graph: Graph, shares: str) -> str:
        weights = graph.node("Max", shares, graph.constant(_LEAST_SHARE))
        ones = graph.constant(np.ones((BINS, 1)))
        weights = graph.node("Div", weights, graph.node("MatMul", weights, ones))
        below = graph.node("MatMul", weights, graph.constant(np.triu(np.ones((BINS, BINS)), 1)))
        parts = [graph.node("MatMul", weights, graph.constant(np.arange(BINS)[:, None] + 0.5))]
        for tail in _TAILS:
            filled = graph.node("Div", graph.node("Sub", graph.constant(tail), below), weights)
            filled = graph.node("Min", graph.node("Max", filled, graph.constant(0.0)), graph.constant(1.0))
            parts.append(graph.node("MatMul", filled, ones))
        scaled = graph.node("Mul", graph.node("Concat", *parts, axis=1), graph.constant(float(self._range / BINS)))
        return graph.node("Add", scaled, graph.constant(float(self.minimum)))

    def to_graph(self, graph: Graph, scores: str) -> str:
        half = graph.node("Relu", graph.node("MatMul", scores, graph.constant(np.array([[0.0], [_WIDTH]]))))
        value = graph.node("MatMul", scores, graph.constant(np.array([[1.0], [0.0]])))
        sides = graph.node("MatMul", half, graph.constant(np.array([[0.0, -1.0, 1.0]])))
        places = graph.node("Add", graph.node("Add", value, sides), graph.constant(0.5))
        places = graph.node("Min", graph.node("Max", places, graph.constant(0.0)), graph.constant(1.0))
        scaled = graph.node("Mul", places, graph.constant(float(self._range)))
        return graph.node("Add", scaled, graph.constant(float(self.minimum)))

    def answers(self, predictions: Floats) -> list[Any]:
        return [float(value) for value in predictions[:, 0]]

    def evaluated(self, predictions: Floats, targets: Codes) -> Evaluation:
        """Evaluate R² = 1 - Σ(y - m)² / Σ(y - ȳ)², the mean absolute error, and the share of intervals that contain y.

        The error is compared with that of the best constant prediction, the records' median.
        """
        truth = self.numbers(targets)
        off, inside = truth - predictions[:, 0], (predictions[:, 1] <= truth) & (truth <= predictions[:, 2])

        def explained(weights: Floats) -> Floats:
            total = np.maximum(weights.sum(axis=1), 1e-300)
            mean = weights @ truth / total
            spread = weights @ truth**2 / total - mean**2
            return np.asarray(1.0 - (weights @ off**2 / total) / np.maximum(spread, 1e-300), np.float64)

        width = mean_estimate(predictions[:, 2] - predictions[:, 1])
        varies = len(truth) > 1 and float(truth.std()) > 0
        return Evaluation(
            (
                Measure(
                    "r2", gettext_noop("R²"), bootstrapped(len(truth), explained) if varies else Estimate(), nothing=0.0
                ),
                Measure(
                    "mean_absolute_error",
                    gettext_noop("Mean absolute error"),
                    mean_estimate(np.abs(off)),
                    nothing=float(np.abs(truth - np.median(truth)).mean()) if len(truth) else None,
                    unit=self.unit,
                ),
                Measure(
                    "coverage",
                    gettext_noop("Share of 95 % prediction intervals that contain the true value"),
                    share_estimate(inside),
                ),
                Measure("width", gettext_noop("Mean width of the prediction intervals"), width, unit=self.unit),
            )
        )

    def drawn(self, scores: Floats, draws: np.random.Generator) -> Codes:
        return self._with_errors(scores, draws.laplace(0.0, 1.0, len(scores)))

    def drawn_twice(self, scores: Floats, draws: np.random.Generator) -> Codes:
        errors = draws.laplace(0.0, 1.0, len(scores))
        return np.concatenate([self._with_errors(scores, errors), self._with_errors(scores, -errors)])

    def _with_errors(self, scores: Floats, errors: Floats) -> Codes:
        """Return the codes of numbers whose errors are given in multiples of the expected error."""
        places = scores[:, 0] + errors * np.maximum(scores[:, 1], _LEAST_SPREAD) + 0.5
        return np.rint(places.clip(0.0, 1.0) * RESIDUAL_STEPS).astype(np.int64)

    def widened(self, scores: Floats, codes: Codes) -> Floats:
        """Return factors that change only the second score, so that 95 % of the intervals contain the number."""
        off = np.abs(codes / RESIDUAL_STEPS - 0.5 - scores[:, 0])
        ratio = np.quantile(off / np.maximum(scores[:, 1], _LEAST_SPREAD), 0.95)
        return np.array([1.0, float(ratio) / _WIDTH])
