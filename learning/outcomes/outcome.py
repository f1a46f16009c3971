"""What is to be learned of a record: its target, the loss by which models learn it, and what they say and are worth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from common.sentences import gettext_noop
from learning.exact_arithmetic import Floats
from learning.measures import Estimate

if TYPE_CHECKING:
    from learning.exports.graph import Graph

Codes = NDArray[np.int64]
"""Targets `(n,)`: one whole number a record, whatever it stands for, so that records are stored in one way."""


MOST_CATEGORIES = 128
"""That an outcome is cut into: noise and time grow with their number."""


def digits(value: float) -> str:
    """A number as people write it, to the five digits that a code can hold.

    >>> digits(2.99999237), digits(500001.0)
    ('3', '500000')
    """
    return np.format_float_positional(float(f"{value:.5g}"), trim="-")


class Loss(Protocol):
    """Loss of a linear model with some scores for each record, and its curvature where no target is known.

    The gradient of a record is f ⊗ r: f its features, r its residuals, the derivatives of the loss by the scores.

    Attributes:
        centred: whether residuals add up to 0 over the scores.
        clip_norm: usual clipping norm of a holder's gradient, where points have norm 1.
    """

    @property
    def centred(self) -> bool: ...
    @property
    def clip_norm(self) -> float: ...

    def residuals(self, scores: Floats, targets: Codes) -> Floats:
        """`(n, outputs)` whole multiples of 1 / `RESIDUAL_STEPS`; 0 where a code is no target.

        A deterministic function of each record's scores `(n, outputs)` and code, bit for bit, by operations on single
        numbers; none is above 1, so that a gradient is no longer than √outputs · ‖f‖ before it is clipped.
        """
        ...

    def curvature(self, scores: Floats) -> Floats:
        """`(n, outputs)` a diagonal bound of the loss's second derivatives, its target taken for what scores say.

        `(n, 1)` where all outputs have the same.
        """
        ...


@dataclass(frozen=True)
class Measure:
    """A measure of predictions on test records.

    Attributes:
        name: in documents.
        label: on pages, English, marked for translation.
        estimate: with its 95 % interval.
        of: which part of the target it is about; empty where it is about all.
        nothing: what it is for whoever knows nothing of a record, on the same records; None where that says nothing.
        unit: of its value; empty for a share, or a number without a unit.
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
        measures: of which the first decides whether a model is worth publishing: if its interval lies above what it is
            for whoever knows nothing.
        curve: points of a curve, each with its numbers by name; none where an outcome has no curve.
    """

    measures: tuple[Measure, ...]
    curve: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Outcome(ABC):
    """What is to be learned. Subclasses are frozen dataclasses of what a schema declares in public.

    Attributes:
        kind: its name in schemas and documents.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def loss(self) -> Loss: ...

    @property
    def outputs(self) -> int:
        """How many scores a model has for a record: one for each number of a prediction, unless it says otherwise."""
        return len(self.columns)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of a prediction."""

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """Names of what can be true of a record, one of them of each: what a vote is for, and a student learns.

        None where there would be more than `MOST_CATEGORIES`.
        """

    @abstractmethod
    def categories_of(self, codes: Codes) -> Codes:
        """Numbers `(n,)` of the categories of codes `(n,)`, each by itself; -1 where a code does not tell, or is none.

        A deterministic function of each code, by operations on single numbers.
        """

    @abstractmethod
    def shares(self, predictions: Floats) -> Floats:
        """How likely `(n, categories)` each category is by predictions `(n, columns)`."""

    @abstractmethod
    def from_shares(self, shares: Floats) -> Floats:
        """The predictions `(n, columns)` that follow from how likely `(n, categories)` each category is."""

    @abstractmethod
    def shares_to_graph(self, graph: Graph, shares: str) -> str:
        """`from_shares` as nodes, of double `(rows, categories)`."""

    @abstractmethod
    def predictions(self, scores: Floats) -> Floats:
        """`(n, columns)` of scores `(n, outputs)`."""

    @abstractmethod
    def to_graph(self, graph: Graph, scores: str) -> str:
        """The same as nodes, of double `(rows, outputs)`."""

    @abstractmethod
    def said(self, predictions: Floats) -> list[Any]:
        """What a model says of each record, as JSON."""

    @abstractmethod
    def written(self, code: int) -> str:
        """The target that a code stands for, as people write it."""


@dataclass(frozen=True)
class Target(Outcome):
    """An outcome other than classes, which a schema declares as its ``target``."""

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Names of the numbers that a target is coded from, in the order of `coded`."""

    @abstractmethod
    def coded(self, values: Sequence[Floats]) -> Codes:
        """Codes (n,) of targets given as arrays (n,) of numbers, one for each name in `parts`."""

    def allowed(self, part: str, values: Floats) -> NDArray[np.bool_]:
        """Whether each number (n,) can be this part of a target; here a yes or no."""
        del part
        return (values == 0) | (values == 1)

    def remedy(self, part: str) -> str:
        """What to do about one that cannot."""
        del part
        return gettext_noop("Write 1 for yes and 0 for no, or declare what the file writes for them.")

    @abstractmethod
    def evaluated(self, predictions: Floats, targets: Codes) -> Evaluation:
        """How good predictions of test records are."""

    @abstractmethod
    def drawn(self, scores: Floats, draws: np.random.Generator) -> Codes:
        """Targets `(n,)` of people of whom the scores `(n, outputs)` are true, nobody censored."""

    def widened(self, scores: Floats, codes: Codes) -> Floats:
        """By what each score `(outputs,)` has to be multiplied for predictions to be as sure as these targets allow."""
        del codes
        return np.ones(scores.shape[1])

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The ``target`` of a schema."""
