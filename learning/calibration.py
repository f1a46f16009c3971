"""Calibration of published models, and their rules for choosing a class: thresholds and balanced answers.

Calibration replaces a model's probabilities p by probabilities p' proportional to exp(scale · log p + offset of the
class), so that they match the frequency of correct answers. If a linear model was trained on released noisy sums,
`fit_to_sums` estimates the scale and the offsets from these sums. Apart from clipping and noise of known size, each sum
shows how far the classes of all holders differ from the model's predictions at that step. A student that learned from
releases is calibrated on releases that it was not trained on (`learning.students.releases`). Neither method uses
private records or test points.

A threshold is set for one class. The class is chosen if its probability reaches the threshold, even if another class
is more likely. Balanced answers treat all classes as equally frequent. Neither rule changes the probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from learning.learners import Model
from learning.learners.learner import Records

if TYPE_CHECKING:
    from learning.exports.graph import Graph

Floats = NDArray[np.float64]

_SPREAD = 4.0
"""Prior standard deviation of logits and offsets.

If the releases say nothing about the classes, all remain equally likely.
"""
_SMALLEST = 1e-6
"""Weight of equal probabilities mixed into all probabilities before calibration, so that none is 0."""
_SHARE_DIGITS = 6
_MOST_RECORDS = 12
_LARGEST_SCALE = 20.0


@dataclass(frozen=True)
class Calibration:
    """Calibration of class probabilities: a ``scale`` of log probabilities, and ``offsets`` (C,) that sum to 0."""

    scale: float
    offsets: tuple[float, ...]

    @classmethod
    def none(cls, classes: int) -> Calibration:
        """Return the calibration that leaves probabilities unchanged."""
        return cls(1.0, (0.0,) * classes)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Calibration:
        """Return the calibration stored by `to_json`."""
        return cls(document["scale"], tuple(document["offsets"]))

    def to_json(self) -> dict[str, Any]:
        """Return the calibration as a document with a version, for the model card."""
        return {"scale": self.scale, "offsets": list(self.offsets)}

    def applied(self, probabilities: Floats) -> Floats:
        """Return calibrated probabilities `(n, C)`; the calibration `none` returns them unchanged."""
        if self == Calibration.none(len(self.offsets)):
            return probabilities
        return np.asarray(
            softmax(self.scale * log_probabilities(probabilities) + np.array(self.offsets), axis=1), np.float64
        )

    def to_graph(self, graph: Graph, probabilities: str) -> str:
        """Add `applied` to an ONNX graph, for double `(rows, C)` probabilities, and return the name of its output."""
        if self == Calibration.none(len(self.offsets)):
            return probabilities
        classes = len(self.offsets)
        kept = graph.node("Mul", probabilities, graph.constant(1 - _SMALLEST))
        logits = graph.node("Log", graph.node("Add", kept, graph.constant(_SMALLEST / classes)))
        scaled = graph.node("Mul", logits, graph.constant(self.scale))
        return graph.node("Softmax", graph.node("Add", scaled, graph.constant(np.array([self.offsets]))), axis=1)


class CalibratedModel(Model):
    """Model with calibrated probabilities. Its file contains only the model; the calibration is stored separately."""

    def __init__(self, model: Model, calibration: Calibration) -> None:
        super().__init__(model.classes, model.shape)
        self.model, self.calibration, self.chosen = model, calibration, model.chosen

    def to_bytes(self) -> bytes:
        return self.model.to_bytes()

    def to_graph(self, graph: Graph, records: str) -> str:
        return self.calibration.to_graph(graph, self.model.to_graph(graph, records))

    def inner_modules(self) -> tuple[Any, ...]:
        return self.model.inner_modules()

    def _probabilities(self, x: Records) -> Floats:
        return self.calibration.applied(self.model.predict_proba(x))


def log_probabilities(probabilities: Floats) -> Floats:
    """Return log probabilities, on which a calibration is linear. Probabilities of 0 are first raised slightly."""
    return np.log(probabilities * (1 - _SMALLEST) + _SMALLEST / probabilities.shape[1])


@dataclass(frozen=True, eq=False)
class StepCheck:
    """One step's release, in units of the average gradient, used to check the model's predictions at that step.

    Attributes:
        logits: (P, C) logits of the public points under the weights at which gradients were taken.
        direction: (P, C) logits of the public points under weights that are independent of this step's noise.
        along: Component of the released gradient in the direction of these weights.
        intercept: (C,) released gradient with respect to the constant coordinate.
        noise_along: Standard deviation of the noise in `along`.
        noise_intercept: Standard deviation of the noise of each number in `intercept`.
    """

    logits: Floats
    direction: Floats
    along: float
    intercept: Floats
    noise_along: float
    noise_intercept: float


def fit_to_sums(
    logits: Floats,
    checks: Sequence[StepCheck],
    *,
    lengths: Floats,
    clip_norm: float,
    constant: float,
    records: float = 1.0,
    people: float = np.inf,
) -> Calibration:
    """Return the calibration of a linear model whose steps released noisy sums of clipped gradients.

    If holders' records are distributed like the public points and their classes follow the calibrated probabilities r,
    a holder releases on average Σ_y r_y·κ_y·(p − e_y) ⊗ f, where p is the model's prediction at that step and κ_y =
    min(1, clip / (‖f‖·‖p − e_y‖)). Scale and offsets are chosen so that this average matches the releases in the
    direction of the weights of earlier steps. The noise of those steps is independent of the noise of the checked step,
    so the comparison reveals whether the model has learned noise. Differences are weighted according to the noise of
    the releases and the spread of the public points. The prior on the logits is normal, centred on equally likely
    classes.

    Args:
        logits: `(P, C)` logits of the public points under the published weights.
        checks: Checks from some of the last steps; if there are none, the calibration changes nothing.
        lengths: `(P,)` norms of the features f, including the constant one. For a network, `(P, C)` ratios of the norm
            of the whole gradient to the norm of p − e_y, for each point and class.
        clip_norm: Norm to which a holder's gradient is clipped, in the units of the features.
        constant: The constant coordinate, in the same units.
        records: Public estimate of the average number of records per holder. If a holder has several records, the mean
            of their gradients is clipped, so a single large gradient among k is clipped at k times the norm. The number
            of records per holder is assumed to be geometrically distributed.
        people: Public number of holders. If it is small, chance affects how many holders belong to each class.
    """
    from scipy.optimize import least_squares

    points, classes = logits.shape
    if not checks or not points or classes < 2:
        return Calibration.none(classes)
    numbers = np.arange(1, _MOST_RECORDS + 1, dtype=np.float64)
    clips: Floats = clip_norm * numbers
    shares: Floats = (1 - 1 / max(records, 1.0)) ** (numbers - 1)
    shares /= shares.sum()
    outcomes = np.mean([_outcomes(check, lengths, clips, shares, constant) for check in checks], axis=0)
    released = np.mean([np.append(check.along, check.intercept) for check in checks], axis=0)
    centred = log_softmax(logits, axis=1)
    spread = float((centred - centred.mean(axis=1, keepdims=True)).std()) or 1.0
    steps = len(checks)
    noise = np.full(classes + 1, np.mean([check.noise_intercept for check in checks]) ** 2 / steps)
    noise[0] = np.mean([check.noise_along**2 for check in checks]) / steps

    def probabilities(values: Floats) -> Floats:
        return np.asarray(softmax(values[0] / spread * centred + values[1:] - values[1:].mean(), axis=1), np.float64)

    def expected(values: Floats) -> Floats:
        return np.asarray(np.einsum("py,pym->pm", probabilities(values), outcomes), np.float64)

    begin = np.append(spread, np.zeros(classes))
    usual = expected(begin)
    chance = np.einsum("py,pym->pm", probabilities(begin), outcomes**2).mean(axis=0) - usual.mean(axis=0) ** 2
    noise = np.sqrt(noise + usual.var(axis=0) / points + chance / people + 1e-24)

    def differences(values: Floats) -> Floats:
        return np.concatenate([(expected(values).mean(axis=0) - released) / noise, values / _SPREAD])

    bounds = ([0.0] + [-np.inf] * classes, [_LARGEST_SCALE * spread] + [np.inf] * classes)
    starts = (np.append(start, begin[1:]) for start in (spread / 10, spread / 2, spread))
    fits = [least_squares(differences, start, bounds=bounds) for start in starts]
    best = min(fits, key=lambda each: float(each.cost)).x
    offsets = best[1:] - best[1:].mean()
    return Calibration(float(best[0] / spread), tuple(offsets.tolist()))


@dataclass(frozen=True)
class Threshold:
    """Rule that chooses class ``number`` if its probability is at least ``least``, else the most likely other class.

    >>> Threshold(1, 0.2).labels(np.array([[0.7, 0.3], [0.9, 0.1]])).tolist()
    [1, 0]
    """

    number: int
    least: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def labels(self, probabilities: Floats) -> NDArray[np.int64]:
        """Return the chosen class numbers `(n,)` for probabilities `(n, C)`."""
        others = probabilities.copy()
        others[:, self.number] = -1.0
        return np.where(probabilities[:, self.number] >= self.least, self.number, others.argmax(axis=1))

    def to_graph(self, graph: Graph, probabilities: str, classes: int) -> str:
        """Add `labels` to an ONNX graph and return the name of its output."""
        mine = np.arange(classes)[None] == self.number
        others = graph.node("Where", graph.constant(mine), graph.constant(-1.0), probabilities)
        likeliest = graph.node("ArgMax", others, axis=1, keepdims=0)
        own = graph.node("Gather", probabilities, graph.constant(np.int64(self.number)), axis=1)
        is_over = graph.node("GreaterOrEqual", own, graph.constant(self.least))
        return graph.node("Where", is_over, graph.constant(np.int64(self.number)), likeliest)


@dataclass(frozen=True)
class Balance:
    """Rule that answers as if all classes were equally frequent, given the ``shares`` (C,) in which they occur.

    By Bayes' rule, the probability of a class among equally frequent classes is proportional to its probability divided
    by its share. The rule chooses the class with the largest ratio. It finds rare classes as often as frequent ones,
    but fewer of all its answers are right. The probabilities stay the same.

    >>> Balance((0.9, 0.1)).labels(np.array([[0.7, 0.3], [0.95, 0.05]])).tolist()
    [1, 0]
    """

    shares: tuple[float, ...]

    @classmethod
    def of(cls, probabilities: Floats) -> Balance:
        """Return the balance of a model whose mean probabilities for public points `(P, C)` are the classes' shares.

        These are the shares that the model has learned from releases, so no class is left out, however noisy the model
        is. Shares estimated from a single release contain more noise.
        """
        shares = np.maximum(probabilities.mean(axis=0), _SMALLEST).round(_SHARE_DIGITS)
        return cls(tuple(shares.tolist()))

    def labels(self, probabilities: Floats) -> NDArray[np.int64]:
        """Return the chosen class numbers `(n,)` for probabilities `(n, C)`."""
        return (probabilities / np.array(self.shares)).argmax(axis=1)

    def to_graph(self, graph: Graph, probabilities: str, classes: int) -> str:
        """Add `labels` to an ONNX graph and return the name of its output."""
        shares = graph.constant(np.array(self.shares).reshape(1, classes))
        return graph.node("ArgMax", graph.node("Div", probabilities, shares), axis=1, keepdims=0)


def rule_of_card(card: Mapping[str, Any], classes: Sequence[str]) -> Threshold | Balance | None:
    """Return a model card's rule for choosing a class; None if the most likely class is chosen."""
    if threshold := card.get("threshold"):
        return Threshold(list(classes).index(threshold["class"]), threshold["least"])
    balance = card.get("balance")
    return Balance(tuple(balance["shares"])) if balance else None


def least_by_costs(missed: float, false_alarm: float) -> float:
    """Return the probability threshold with the smallest expected cost, given the costs of both errors (Elkan 2001).

    >>> least_by_costs(9.0, 1.0)
    0.1
    """
    return false_alarm / (missed + false_alarm)


def least_by_sensitivity(probabilities: Floats, wanted: float) -> float:
    """Return the largest threshold that reaches the wanted sensitivity, assuming calibrated probabilities.

    Args:
        probabilities: `(n,)` probabilities of the class, at points whose classes are unknown.
        wanted: Share of the class's points to find, above 0 and at most 1.
    """
    ordered = np.sort(probabilities)[::-1]
    positives = np.cumsum(ordered)
    if not len(ordered) or positives[-1] <= 0:
        return 0.0
    return float(ordered[min(int(np.searchsorted(positives, wanted * positives[-1] * (1 - 1e-12))), len(ordered) - 1)])


def _outcomes(check: StepCheck, lengths: Floats, clips: Floats, shares: Floats, constant: float) -> Floats:
    """Return the gradient of each class at each point, along the weights and for each constant, `(P, C, 1 + C)`."""
    probabilities = softmax(check.logits, axis=1)
    residuals = probabilities[:, None, :] - np.eye(probabilities.shape[1])
    norms = np.sqrt((residuals**2).sum(axis=2)) * lengths.reshape(len(lengths), -1)
    norms = np.maximum(norms, 1e-300)
    part = sum(share * np.minimum(1.0, clip / norms) for clip, share in zip(clips, shares, strict=True) if share > 0)
    residuals *= np.asarray(part)[:, :, None]
    along = np.einsum("pyc,pc->py", residuals, check.direction)
    return np.concatenate([along[:, :, None], constant * residuals], axis=2)
