"""Classes: one of some names, learned by the cross entropy of a softmax."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import softmax

from learning.exact_arithmetic import RESIDUAL_STEPS, Floats, exponentials
from learning.outcomes.outcome import Codes, Outcome

if TYPE_CHECKING:
    from learning.exports.graph import Graph

_EXPONENTIAL_STEPS = 2.0**30
_LEAST = 0.02  # lower bound: if the model is sure of every public point, a step would be unbounded


@dataclass(frozen=True)
class CrossEntropy:
    """See :class:`learning.outcomes.outcome.Loss`; targets are class numbers."""

    centred: bool = True
    clip_norm: float = 0.7

    def probabilities(self, scores: Floats) -> Floats:
        """Return `(n, classes)` whole multiples of 1 / `RESIDUAL_STEPS`.

        >>> CrossEntropy().probabilities(np.array([[0.0, np.log(3)]])) / RESIDUAL_STEPS
        array([[0.25, 0.75]])
        """
        # whole numbers, which makes their sum exact in any order
        parts = np.rint(exponentials(scores - scores.max(axis=1, keepdims=True)) * _EXPONENTIAL_STEPS)
        parts /= parts.sum(axis=1, keepdims=True)
        return np.rint(parts * RESIDUAL_STEPS)

    def residuals(self, scores: Floats, targets: Codes) -> Floats:
        """Return p - e_y."""
        residuals = self.probabilities(scores)
        good = (targets >= 0) & (targets < scores.shape[1])
        residuals[np.flatnonzero(good), targets[good]] -= RESIDUAL_STEPS
        residuals[~good] = 0.0
        return residuals

    def curvature(self, scores: Floats) -> Floats:
        """Return 2·p_c (1 - p_c).

        The absolute values in each row c of the Hessian diag(p) - p pᵀ add up to this, so the difference is diagonally
        dominant and therefore positive. For two classes it is the Hessian itself for gradients that add up to 0.
        """
        bounds = np.maximum(curvature_bounds(softmax(scores, axis=1)), _LEAST)
        return bounds if bounds.shape[1] > 2 else bounds[:, :1]


def curvature_bounds(probabilities: Floats) -> Floats:
    """Return `(P, C)` a diagonal matrix above diag(p) - p pᵀ, for each of `(P, C)` probabilities.

    >>> curvature_bounds(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    return 2.0 * probabilities * (1.0 - probabilities)


CROSS_ENTROPY = CrossEntropy()


@dataclass(frozen=True)
class Classes(Outcome):
    """One of some named classes; a code is the number of its name."""

    kind: Literal["classes"] = field(default="classes", kw_only=True, repr=False)
    names: tuple[str, ...]

    @property
    def loss(self) -> CrossEntropy:
        return CROSS_ENTROPY

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def categories(self) -> tuple[str, ...]:
        return self.names

    def categories_of(self, codes: Codes) -> Codes:
        return codes

    def shares(self, predictions: Floats) -> Floats:
        return predictions

    def from_shares(self, shares: Floats) -> Floats:
        return shares

    def shares_to_graph(self, graph: Graph, shares: str) -> str:
        return shares

    def predictions(self, scores: Floats) -> Floats:
        return np.asarray(softmax(scores, axis=1), np.float64)

    def to_graph(self, graph: Graph, scores: str) -> str:
        return graph.node("Softmax", scores, axis=1)

    def said(self, predictions: Floats) -> list[Any]:
        return [self.names[number] for number in predictions.argmax(axis=1)]

    def written(self, code: int) -> str:
        return self.names[code]
