"""Outcomes with names: one of several classes, or several yes-or-no labels learned together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import expit, softmax

from common.declarations import Texts
from common.sentences import gettext_noop
from learning.exact_arithmetic import RESIDUAL_STEPS, Floats, exponentials, logistic
from learning.measures import area, area_of_all, brier, mean_estimate
from learning.outcomes.outcome import MOST_CATEGORIES, Codes, Evaluation, Measure, Outcome, Target

if TYPE_CHECKING:
    from learning.exports.graph import Graph


_EXPONENTIAL_STEPS = 2.0**30
# lower bound of curvatures; without it, steps would be unbounded if the model was certain of every public point
_LEAST = 0.02


@dataclass(frozen=True)
class CrossEntropy:
    """Cross entropy of a class; see :class:`learning.outcomes.outcome.Loss`. Targets are class numbers."""

    centred: bool = True
    clip_norm: float = 0.7
    quadratic: bool = False

    def probabilities(self, scores: Floats) -> Floats:
        """Return probabilities `(n, classes)` in multiples of 1 / `RESIDUAL_STEPS`.

        >>> CrossEntropy().probabilities(np.array([[0.0, np.log(3)]])) / RESIDUAL_STEPS
        array([[0.25, 0.75]])
        """
        # the numbers are integers, so their sum is exact in any order
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

        The absolute values in each row c of the Hessian diag(p) - p pᵀ add up to this value. The diagonal matrix of
        these values minus the Hessian is therefore diagonally dominant, and so positive semidefinite. For two classes,
        the diagonal matrix has the same effect as the Hessian on vectors that add up to 0.
        """
        bounds = np.maximum(curvature_bounds(softmax(scores, axis=1)), _LEAST)
        return bounds if bounds.shape[1] > 2 else bounds[:, :1]


def curvature_bounds(probabilities: Floats) -> Floats:
    """Return diagonal upper bounds `(P, C)` of the matrices diag(p) - p pᵀ, for probabilities `(P, C)`.

    >>> curvature_bounds(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    return 2.0 * probabilities * (1.0 - probabilities)


CROSS_ENTROPY = CrossEntropy()


@dataclass(frozen=True)
class Classes(Outcome):
    """One of several named classes; its code is the class's number."""

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

    def answers(self, predictions: Floats) -> list[Any]:
        return [self.names[number] for number in predictions.argmax(axis=1)]

    def written(self, code: int) -> str:
        return self.names[code]


MOST_LABELS = 8
AREA = gettext_noop("Area under the ROC curve")
BRIER = gettext_noop("Brier score")
RIGHT = gettext_noop("Correct answers")


@dataclass(frozen=True)
class LabelsLoss:
    """Cross entropy of each label; see :class:`learning.outcomes.outcome.Loss`. Bit k of a target is label k."""

    labels: int
    centred: bool = False
    clip_norm: float = 0.7
    quadratic: bool = False

    def residuals(self, scores: Floats, targets: Codes) -> Floats:
        known = (targets >= 0) & (targets < 1 << self.labels)
        bits = np.where(known, targets, 0)[:, None] >> np.arange(self.labels) & 1
        return np.where(known[:, None], logistic(scores) - bits * RESIDUAL_STEPS, 0.0)

    def curvature(self, scores: Floats) -> Floats:
        shares = expit(scores)
        return np.asarray(np.maximum(shares * (1 - shares), _LEAST), np.float64)


@dataclass(frozen=True)
class Labels(Target):
    """Several labels of one record, each yes (1) or no (0).

    All labels are learned in a single run, as one vector, which is charged once.
    """

    kind: Literal["labels"] = field(default="labels", kw_only=True, repr=False)
    names: Texts

    def __post_init__(self) -> None:
        if not (2 <= len(self.names) <= MOST_LABELS and len(set(self.names)) == len(self.names)):
            raise ValueError(gettext_noop("Enter 2 to 8 different labels."))

    @property
    def loss(self) -> LabelsLoss:
        return LabelsLoss(len(self.names))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the probabilities of each label."""
        return self.names

    @property
    def parts(self) -> tuple[str, ...]:
        return self.names

    def coded(self, values: Sequence[Floats]) -> Codes:
        """Return codes in which bit k is label k.

        >>> Labels(("ill", "old")).coded([np.array([1.0, 0.0]), np.array([1.0, 1.0])]).tolist()
        [3, 2]
        """
        return np.sum([(each != 0).astype(np.int64) << place for place, each in enumerate(values)], axis=0)

    def bits(self, codes: Codes) -> Codes:
        """Return the bits of codes, `(n, labels)`."""
        return codes[:, None] >> np.arange(len(self.names)) & 1

    @property
    def categories(self) -> tuple[str, ...]:
        """Every combination of labels, by its code; empty if there are more than seven labels.

        >>> Labels(("ill", "old")).categories
        ('–', 'ill', 'old', 'ill, old')
        """
        number = 1 << len(self.names)
        return tuple(map(self.written, range(number))) if number <= MOST_CATEGORIES else ()

    def categories_of(self, codes: Codes) -> Codes:
        return np.where((codes >= 0) & (codes < 1 << len(self.names)), codes, -1)

    @property
    def _combined(self) -> Floats:
        """Array `(categories, labels)` that is 1 if a combination has a label, and 0 otherwise."""
        return self.bits(np.arange(1 << len(self.names))).astype(np.float64)

    def shares(self, predictions: Floats) -> Floats:
        """Return the categories' shares, assuming that labels are independent given the record."""
        yes = self._combined == 1
        shares = np.ones((len(predictions), len(yes)))
        for place, likely in enumerate(predictions.T):
            shares *= np.where(yes[:, place], likely[:, None], 1 - likely[:, None])
        return shares

    def from_shares(self, shares: Floats) -> Floats:
        return np.asarray((shares @ self._combined).clip(0.0, 1.0), np.float64)

    def shares_to_graph(self, graph: Graph, shares: str) -> str:
        sums = graph.node("MatMul", shares, graph.constant(self._combined))
        return graph.node("Min", graph.node("Max", sums, graph.constant(0.0)), graph.constant(1.0))

    def written(self, code: int) -> str:
        return ", ".join(name for place, name in enumerate(self.names) if code >> place & 1) or "–"

    def predictions(self, scores: Floats) -> Floats:
        return np.asarray(expit(scores), np.float64)

    def to_graph(self, graph: Graph, scores: str) -> str:
        return graph.node("Sigmoid", scores)

    def answers(self, predictions: Floats) -> list[Any]:
        """Return the names of the labels that are more likely than not."""
        return [[self.names[place] for place in np.flatnonzero(each > 0.5)] for each in predictions]

    def evaluated(self, predictions: Floats, targets: Codes) -> Evaluation:
        """Evaluate each label's area under the ROC curve, Brier score and accuracy, and the mean area."""
        bits = self.bits(targets)
        shares = [np.stack([1 - each, each], axis=1) for each in predictions.T]
        measures = [
            Measure(
                "area",
                gettext_noop("Area under the ROC curve, averaged over labels"),
                area_of_all(shares, list(bits.T)),
                nothing=0.5,
            )
        ]
        for name, probabilities, truth in zip(self.names, shares, bits.T, strict=True):
            share = float(truth.mean()) if len(truth) else 0.0
            right = (probabilities.argmax(axis=1) == truth).astype(np.float64)
            measures += [
                Measure("area", AREA, area(probabilities, truth), of=name, nothing=0.5),
                Measure("brier", BRIER, brier(probabilities, truth), of=name, nothing=share * (1 - share)),
                Measure("accuracy", RIGHT, mean_estimate(right), of=name, nothing=max(share, 1 - share)),
            ]
        return Evaluation(tuple(measures))

    def drawn(self, scores: Floats, draws: np.random.Generator) -> Codes:
        return self.coded(list((draws.random(scores.shape) < expit(scores)).astype(np.float64).T))
