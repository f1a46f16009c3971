"""Outcome of a record: its target, the loss used to learn it, and the answers of models and their evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from common.declarations import DECLARED, Text, to_document
from common.sentences import gettext_noop
from learning.exact_arithmetic import Floats
from learning.measures import Estimate

if TYPE_CHECKING:
    from learning.exports.graph import Graph

Codes = NDArray[np.int64]
"""Targets `(n,)`, one integer per record for every kind of outcome, so that they are stored uniformly."""


MOST_CATEGORIES = 128
"""Largest number of categories of an outcome; noise and time grow with their number."""


def digits(value: float) -> str:
    """Return a number in the usual notation, with the five digits that a code can represent.

    >>> digits(2.99999237), digits(500001.0)
    ('3', '500000')
    """
    return np.format_float_positional(float(f"{value:.5g}"), trim="-")


class Loss(Protocol):
    """Loss of a linear model with several scores per record, and its curvature when targets are unknown.

    The gradient of a record is f ⊗ r, with its features f and its residuals r, which are the derivatives of the loss
    with respect to the scores.

    Attributes:
        centred: Whether residuals add up to 0 over the scores.
        clip_norm: Usual clipping norm of a holder's gradient, if points have norm 1.
        quadratic: Whether second derivatives do not depend on scores and are the same for all scores.
    """

    @property
    def centred(self) -> bool: ...
    @property
    def clip_norm(self) -> float: ...
    @property
    def quadratic(self) -> bool: ...

    def residuals(self, scores: Floats, targets: Codes) -> Floats:
        """Return residuals `(n, outputs)` in multiples of 1 / `RESIDUAL_STEPS`; 0 if a code is not a target.

        Residuals are a deterministic function of each record's scores `(n, outputs)` and code, bit for bit, computed by
        operations on single numbers. No residual exceeds 1, which limits gradients before clipping to √outputs · ‖f‖.
        """
        ...

    def curvature(self, scores: Floats) -> Floats:
        """Return a diagonal bound `(n, outputs)` on the second derivatives of the loss if the scores are correct.

        The shape is `(n, 1)` if the bound is the same for all outputs.
        """
        ...


@dataclass(frozen=True)
class Measure:
    """Measure of predictions on test records.

    Attributes:
        name: Name in documents.
        label: Name on pages, in English, marked for translation.
        estimate: Value with its 95 % interval.
        of: Part of the target that is measured; empty for the whole target.
        nothing: Value of predictions that ignore the records, on the same records; None if that is meaningless.
        unit: Unit of the value; empty for shares and numbers without a unit.
    """

    name: str
    label: str
    estimate: Estimate
    of: str = ""
    nothing: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Evaluation of predictions on test records.

    Attributes:
        measures: The first measure decides whether a model is worth publishing: its interval must be above the value of
            predictions that ignore the records.
        curve: Points of a curve, each a dictionary of numbers; empty if the outcome has no curve.
    """

    measures: tuple[Measure, ...]
    curve: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Outcome(ABC):
    """Outcome that can be learned from a record. Subclasses are frozen dataclasses with a schema's public declaration.

    Attributes:
        kind: Name in schemas and documents.
    """

    kind: str

    @property
    @abstractmethod
    def loss(self) -> Loss: ...

    @property
    def outputs(self) -> int:
        """Number of scores that a model returns for a record: by default, one for each number of a prediction."""
        return len(self.columns)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of a prediction."""

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """Names of the mutually exclusive categories of records, used in votes and learned by students.

        Empty if there would be more than `MOST_CATEGORIES`.
        """

    @abstractmethod
    def categories_of(self, codes: Codes) -> Codes:
        """Return the category numbers `(n,)` of codes `(n,)`; -1 if a code is invalid or does not determine a category.

        Category numbers are a deterministic function of each code, computed by operations on single numbers.
        """

    @abstractmethod
    def shares(self, predictions: Floats) -> Floats:
        """Return the probability of each category, `(n, categories)`, given predictions `(n, columns)`."""

    @abstractmethod
    def from_shares(self, shares: Floats) -> Floats:
        """Return the predictions `(n, columns)` derived from the categories' probabilities `(n, categories)`."""

    @abstractmethod
    def shares_to_graph(self, graph: Graph, shares: str) -> str:
        """Add `from_shares` to an ONNX graph, for double `(rows, categories)`, and return the name of its output."""

    @abstractmethod
    def predictions(self, scores: Floats) -> Floats:
        """Return the predictions `(n, columns)` for scores `(n, outputs)`."""

    @abstractmethod
    def to_graph(self, graph: Graph, scores: str) -> str:
        """Add `predictions` to an ONNX graph, for double `(rows, outputs)`, and return the name of its output."""

    @abstractmethod
    def answers(self, predictions: Floats) -> list[Any]:
        """Return a model's answer for each record, as JSON."""

    @abstractmethod
    def written(self, code: int) -> str:
        """Return the target that a code represents, in the notation used on pages."""


Unit = Annotated[Text, Field(max_length=40, description="Unit of the number, as people read it.")]


@dataclass(frozen=True)
class Target(Outcome):
    """Outcome other than classes, declared in a schema as its ``target``."""

    __pydantic_config__ = DECLARED

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Names of the numbers that determine a target's code, in the order of `coded`."""

    @abstractmethod
    def coded(self, values: Sequence[Floats]) -> Codes:
        """Return the codes (n,) of targets, given an array (n,) of numbers for each name in `parts`."""

    def allowed(self, part: str, values: Floats) -> NDArray[np.bool_]:
        """Return whether each number (n,) is valid for this part of a target. By default, 0 and 1 are valid."""
        del part
        return (values == 0) | (values == 1)

    def remedy(self, part: str) -> str:
        """Return instructions for correcting an invalid number."""
        del part
        return gettext_noop("Enter 1 for yes and 0 for no, or specify the values that the file uses.")

    @abstractmethod
    def evaluated(self, predictions: Floats, targets: Codes) -> Evaluation:
        """Evaluate predictions for test records."""

    @abstractmethod
    def drawn(self, scores: Floats, draws: np.random.Generator) -> Codes:
        """Draw targets `(n,)`, without censoring, from the distributions that scores `(n, outputs)` describe."""

    def drawn_twice(self, scores: Floats, draws: np.random.Generator) -> Codes:
        """Draw two targets for each row of scores `(n, outputs)`; return all first targets, then all second, `(2n,)`.

        Outcomes may give the two targets opposite errors, which cancel like the errors of many people.
        """
        return self.drawn(np.tile(scores, (2, 1)), draws)

    def widened(self, scores: Floats, codes: Codes) -> Floats:
        """Return factors `(outputs,)` for the scores that make predictions only as certain as the targets justify."""
        del codes
        return np.ones(scores.shape[1])

    def to_json(self) -> dict[str, Any]:
        return to_document(self)
