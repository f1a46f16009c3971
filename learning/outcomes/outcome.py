"""Outcome of a record: its target, the loss for learning it, and the answers of models with their evaluation."""

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
"""Targets `(n,)`: one whole number per record for every kind, which allows uniform storage."""


MOST_CATEGORIES = 128
"""Largest number of categories of an outcome: noise and time grow with their number."""


def digits(value: float) -> str:
    """Return a number in usual notation, to the five digits that a code can hold.

    >>> digits(2.99999237), digits(500001.0)
    ('3', '500000')
    """
    return np.format_float_positional(float(f"{value:.5g}"), trim="-")


class Loss(Protocol):
    """Loss of a linear model with some scores for each record, and its curvature if no target is known.

    The gradient of a record is f ⊗ r: f its features, r its residuals, the derivatives of the loss by the scores.

    Attributes:
        centred: whether residuals add up to 0 over the scores.
        clip_norm: usual clipping norm of a holder's gradient, if points have norm 1.
    """

    @property
    def centred(self) -> bool: ...
    @property
    def clip_norm(self) -> float: ...

    def residuals(self, scores: Floats, targets: Codes) -> Floats:
        """Return `(n, outputs)` whole multiples of 1 / `RESIDUAL_STEPS`; 0 if a code is not a target.

        A deterministic function of each record's scores `(n, outputs)` and code, bit for bit, by operations on single
        numbers; none is above 1, which limits a gradient before clipping to √outputs · ‖f‖.
        """
        ...

    def curvature(self, scores: Floats) -> Floats:
        """Return `(n, outputs)` a diagonal bound of the loss's second derivatives, with the scores' answer as target.

        `(n, 1)` if all outputs have the same.
        """
        ...


@dataclass(frozen=True)
class Measure:
    """A measure of predictions on test records.

    Attributes:
        name: in documents.
        label: on pages, English, marked for translation.
        estimate: with its 95 % interval.
        of: the part of the target it is about; empty if it is about all.
        nothing: its value without any knowledge of a record, on the same records; None if that is meaningless.
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
        measures: the first decides whether a model is worth publishing: it is if the interval lies above the value of a
            model that knows nothing.
        curve: points of a curve, each with its numbers by name; none if an outcome has no curve.
    """

    measures: tuple[Measure, ...]
    curve: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Outcome(ABC):
    """Outcome that can be learned from a record. Subclasses are frozen dataclasses of a schema's public declaration.

    Attributes:
        kind: its name in schemas and documents.
    """

    kind: str

    @property
    @abstractmethod
    def loss(self) -> Loss: ...

    @property
    def outputs(self) -> int:
        """Number of a model's scores for a record: by default one for each number of a prediction."""
        return len(self.columns)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of a prediction."""

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """Names of the disjoint facts about a record that a vote decides, and a student learns.

        None if there would be more than `MOST_CATEGORIES`.
        """

    @abstractmethod
    def categories_of(self, codes: Codes) -> Codes:
        """Return numbers `(n,)` of the categories of codes `(n,)`; -1 if a code is invalid or does not determine one.

        A deterministic function of each code, by operations on single numbers.
        """

    @abstractmethod
    def shares(self, predictions: Floats) -> Floats:
        """Return the probability `(n, categories)` of each category by predictions `(n, columns)`."""

    @abstractmethod
    def from_shares(self, shares: Floats) -> Floats:
        """Return the predictions `(n, columns)` that follow from probabilities `(n, categories)` of the categories."""

    @abstractmethod
    def shares_to_graph(self, graph: Graph, shares: str) -> str:
        """Return `from_shares` as nodes, of double `(rows, categories)`."""

    @abstractmethod
    def predictions(self, scores: Floats) -> Floats:
        """Return `(n, columns)` predictions of scores `(n, outputs)`."""

    @abstractmethod
    def to_graph(self, graph: Graph, scores: str) -> str:
        """Return the same as nodes, of double `(rows, outputs)`."""

    @abstractmethod
    def said(self, predictions: Floats) -> list[Any]:
        """Return a model's answer for each record, as JSON."""

    @abstractmethod
    def written(self, code: int) -> str:
        """Return the target that a code represents, in usual notation."""


Unit = Annotated[Text, Field(max_length=40, description="Of the number, for people.")]


@dataclass(frozen=True)
class Target(Outcome):
    """An outcome other than classes, which a schema declares as its ``target``."""

    __pydantic_config__ = DECLARED

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Names of the numbers that a target is coded from, in the order of `coded`."""

    @abstractmethod
    def coded(self, values: Sequence[Floats]) -> Codes:
        """Return codes (n,) of targets given as arrays (n,) of numbers, one for each name in `parts`."""

    def allowed(self, part: str, values: Floats) -> NDArray[np.bool_]:
        """Return whether each number (n,) can be this part of a target; here a yes or no."""
        del part
        return (values == 0) | (values == 1)

    def remedy(self, part: str) -> str:
        """Return instructions for correcting an invalid one."""
        del part
        return gettext_noop("Write 1 for yes and 0 for no, or declare how the file writes them.")

    @abstractmethod
    def evaluated(self, predictions: Floats, targets: Codes) -> Evaluation:
        """Evaluate predictions of test records."""

    @abstractmethod
    def drawn(self, scores: Floats, draws: np.random.Generator) -> Codes:
        """Return targets `(n,)` of people for whom the scores `(n, outputs)` are true, without censoring."""

    def widened(self, scores: Floats, codes: Codes) -> Floats:
        """Return each score's factor `(outputs,)` that gives predictions the certainty that these targets allow."""
        del codes
        return np.ones(scores.shape[1])

    def to_json(self) -> dict[str, Any]:
        """Return the ``target`` of a schema."""
        return to_document(self)
