"""Base class of all aggregators."""

import abc
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy.checks import Method
from common.noise import Noise
from common.sentences import Sentence
from common.validation import require_positive
from learning.mechanisms.pate.votes import count_votes, require_totals, require_votes

REJECTED = -1
"""The label of a query that was not given one."""


@dataclass(frozen=True, eq=False)
class LabelRelease:
    """Release of a vote about a batch of queries.

    labels: `(queries,)`, `REJECTED` where there is none.
    answered: `(queries,)`, True where the label is the teachers' and its cost is due.
    counts: `(queries, classes)` whole noisy counts, from which the labels were read; None where these are not released.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    counts: NDArray[np.int64] | None = None

    @property
    def reinforced(self) -> NDArray[np.bool_]:
        """`(queries,)`, True where the label is the student's own: it costs no more than the check."""
        return ~self.answered & (self.labels != REJECTED)


@dataclass(frozen=True, eq=False)
class QueryCosts:
    """Cost of a batch of queries to a holder, as RDP at each order: `check` always, `label` only where answered."""

    check: NDArray[np.float64]
    label: NDArray[np.float64]


class Suggested(Protocol):
    """A value that suits a number of teachers and of classes."""

    def __call__(self, teachers: int, classes: int = ...) -> float: ...


def parameter(symbol: str, label: str, help: str, *, suggested: Suggested, below: float = math.inf) -> Any:
    """A field of an aggregator, described as `AggregatorField` says."""
    return dataclasses.field(
        metadata={"symbol": symbol, "label": label, "help": help, "suggested": suggested, "below": below}
    )


@dataclass(frozen=True)
class AggregatorField:
    """One parameter of an aggregator: a number above 0.

    Attributes:
        name: Its key in `Aggregator.parameters`.
        symbol: As the papers write it.
        label: What it is, English, marked for translation.
        help: Its definition with its unit, and what a good value is; marked for translation.
        suggested: A sensible value for a first run, from the numbers of teachers and of classes.
        below: The number that it must stay below.
    """

    name: str
    symbol: str
    label: str
    help: str
    suggested: Suggested
    below: float

    def checked(self, value: float) -> float:
        """`value` as a float.

        Raises:
            ValueError: It is no finite number above 0 and below `below`.
        """
        number = require_positive(self.name, value)
        if number >= self.below:
            raise ValueError(f"{self.name} must lie between 0 and {self.below:g}, not {value}: give a smaller number.")
        return number


@dataclass(frozen=True)
class VoteCharge:
    """Cost of a vote to a holder in μ² whatever the votes: `check` for every query, `label` where it is answered.

    Where `first` is not None, only the first so many queries cost that; `rest` is due once, before the next of them,
    and pays for all that follow.
    """

    check: float
    label: float
    first: int | None = None
    rest: float = 0.0


@dataclass(frozen=True)
class Aggregator(abc.ABC):
    """A noisy vote with its parameters, and nothing else: equal parameters, equal aggregator.

    Subclasses are frozen dataclasses whose fields are made by `parameter`.

    Attributes:
        name: Its key in the registry, in the database and in the API.
        label: Its name on pages; a proper name, not translated.
        help: How it decides, in one sentence, English, marked for translation.
        asks_student: Whether the vote looks at what a student predicts that learned from the labels so far.
        reinforces: Whether queries may keep the student's own label, which costs nothing.
        pays_once: Whether one charge pays for many queries, which teachers must not miss.
        has_paper_costs: Whether `costs` holds for it, so that a rehearsal can use it.
        adds_noise_once: Whether labels follow from the counts with one Gaussian noise, so that these can be released.
        releases_counts: Whether they are released.

    `votes` is `(queries, classes)`: weighted counts. `student_probabilities`, of the same shape, is what the present
    student believes; only Interactive-GNMax looks at it, the others take it and need it not.

    Ties are decided by the noise, evenly. A query on which no teacher voted is decided by the noise alone: to reject it
    would tell its only voter. With one class every answered label is 0.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    help: ClassVar[str]
    asks_student: ClassVar[bool] = False
    reinforces: ClassVar[bool] = False
    pays_once: ClassVar[bool] = False
    has_paper_costs: ClassVar[bool] = True
    adds_noise_once: ClassVar[bool] = False
    releases_counts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in self.fields():
            object.__setattr__(self, field.name, field.checked(getattr(self, field.name)))

    def __str__(self) -> str:
        values = ", ".join(f"{field.symbol} = {getattr(self, field.name):g}" for field in self.fields())
        return f"{self.label} ({values})"

    @classmethod
    def fields(cls) -> tuple[AggregatorField, ...]:
        """The parameters, in order; all of them are needed."""
        return tuple(AggregatorField(field.name, **field.metadata) for field in dataclasses.fields(cls))

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        """Warnings of what is unlikely to work in a run with these parameters.

        Args:
            votes: The summed weight of a unanimous vote.
            classes: The number of classes; None if it is not known.

        Returns:
            A sentence for each problem, for those who plan the run; empty if there is none.
        """
        return []

    def count(
        self,
        predictions: ArrayLike,
        classes: int,
        weights: ArrayLike,
        *,
        guesses: ArrayLike | None = None,
        disagreed: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """`(queries, classes)`: the votes of teachers that predict `(teachers, queries)`, see `count_votes`.

        guesses: `(queries,)` what the student takes for likeliest, once there is one.  disagreed: `(teachers,)` how
        often each teacher has said something else before. Only residual votes look at them.
        """
        return count_votes(predictions, classes, weights)

    def release(self, votes: ArrayLike, noise: Noise, student_probabilities: ArrayLike | None = None) -> LabelRelease:
        """Draw the noise and decide every query of the batch."""
        counts = require_totals(votes)
        answered = self._passes_check(counts, noise, student_probabilities)
        labels = np.where(answered, self._noisy_argmax(counts, noise), REJECTED)
        return LabelRelease(labels=labels, answered=answered)

    @property
    @abc.abstractmethod
    def deviation(self) -> float:
        """Standard deviation of the noise of each count, in votes."""

    def unanimous_share(self, votes: float) -> float:
        """Return the probability that a query is answered on which all teachers agree.

        votes: the summed weight of a unanimous vote.
        """
        return 1.0

    @abc.abstractmethod
    def charge(self, sensitivity: float) -> VoteCharge:
        """Cost of a query, in μ², to a holder whose teachers weigh `sensitivity` together; depends on no vote."""

    def costs(
        self,
        votes: ArrayLike,
        *,
        sensitivity: float,
        orders: ArrayLike,
        method: Method,
        group_votes: ArrayLike | None = None,
        teachers_per_holder: int = 1,
        student_probabilities: ArrayLike | None = None,
    ) -> QueryCosts:
        """The RDP cost of each query for a holder whose teachers weigh `sensitivity` together.

        sensitivity: the group's own vote weight, or its number of duplicates.  orders: `(R,)`, each above 1.
        method: "data_independent", "data_dependent" or "exact".  For "exact": group_votes, the group's own unweighted
        counts, `(queries, classes)`; teachers_per_holder, over how many teachers the sensitivity is spread: the number
        of duplicates in upsampling, else 1.  Returns costs of the shape `(queries, R)`.
        """
        counts = require_votes(votes)
        how = {
            "sensitivity": sensitivity,
            "orders": np.asarray(orders, dtype=np.float64),
            "method": method,
            "group_votes": group_votes,
            "teachers_per_holder": teachers_per_holder,
        }
        return QueryCosts(
            check=self._check_rdp(counts, student_probabilities, **how), label=self._label_rdp(counts, **how)
        )

    @abc.abstractmethod
    def scaled(self, factor: float) -> "Aggregator":
        """The same vote for `factor` times as many votes: everything measured in votes grows with them."""

    def parameters(self) -> dict[str, Any]:
        """Name and parameters as plain values, for the ledger; `aggregator_from_parameters` reads them back."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def _passes_check(
        self, votes: NDArray[np.float64], noise: Noise, student_probabilities: ArrayLike | None
    ) -> NDArray[np.bool_]:
        return np.ones(len(votes), dtype=np.bool_)

    @abc.abstractmethod
    def _noisy_argmax(self, votes: NDArray[np.float64], noise: Noise) -> NDArray[np.int64]: ...

    def _check_rdp(
        self, votes: NDArray[np.float64], student_probabilities: ArrayLike | None, **how: Any
    ) -> NDArray[np.float64]:
        return np.zeros((len(votes), how["orders"].size))

    @abc.abstractmethod
    def _label_rdp(self, votes: NDArray[np.float64], **how: Any) -> NDArray[np.float64]: ...
