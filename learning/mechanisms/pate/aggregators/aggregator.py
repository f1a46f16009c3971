"""Base class of all aggregators."""

import abc
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy.checks import Method, checked_votes
from common.noise import Noise, require_positive
from common.sentences import Sentence
from learning.mechanisms.pate.votes import count_votes, require_votes

REJECTED = -1
"""Label of a query that was rejected."""


@dataclass(frozen=True, eq=False)
class LabelRelease:
    """Release of a vote on a batch of queries.

    Attributes:
        labels: `(queries,)` labels, `REJECTED` for a query without one.
        answered: `(queries,)`, True if the label comes from the teachers and is therefore charged.
        counts: `(queries, classes)` rounded noisy counts that determined the labels; None if they are not released.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    counts: NDArray[np.int64] | None = None

    @property
    def reinforced(self) -> NDArray[np.bool_]:
        """`(queries,)`, True if the label is the student's own, in which case only the check is charged."""
        return ~self.answered & (self.labels != REJECTED)


@dataclass(frozen=True, eq=False)
class QueryCosts:
    """RDP costs of a batch's queries to a holder, at each order: `check` for each query, `label` if it is answered."""

    check: NDArray[np.float64]
    label: NDArray[np.float64]


class Suggested(Protocol):
    """Function that suggests a value, given the numbers of teachers and classes."""

    def __call__(self, teachers: int, classes: int = ...) -> float: ...


def parameter(symbol: str, label: str, help: str, *, suggested: Suggested, below: float = math.inf) -> Any:
    """Return a field of an aggregator with the description from `AggregatorParameter`."""
    return dataclasses.field(
        metadata={"symbol": symbol, "label": label, "help": help, "suggested": suggested, "below": below}
    )


@dataclass(frozen=True)
class AggregatorParameter:
    """Parameter of an aggregator: a number above 0.

    Attributes:
        name: Key in `Aggregator.parameters`.
        label: Name on pages, in English, marked for translation.
        help: Definition with its unit, and typical values; marked for translation.
        suggested: Function that maps the numbers of teachers and of classes to a sensible value for a first run.
        below: Exclusive upper bound.
    """

    name: str
    symbol: str
    label: str
    help: str
    suggested: Suggested
    below: float

    def checked(self, value: float) -> float:
        """Return `value` as a float.

        Raises:
            ValueError: The value is not a finite number above 0 and below `below`.
        """
        number = require_positive(self.name, value)
        if number >= self.below:
            raise ValueError(f"{self.name} must lie between 0 and {self.below:g}, not {value}: give a smaller number.")
        return number


@dataclass(frozen=True)
class VoteCharge:
    """Cost of a vote to a holder in μ², for any votes: `check` for every query, and `label` if it is answered.

    If `first` is not None, only the first `first` queries are charged in this way. `rest` is then charged once, before
    the next query, and pays for all further queries.
    """

    check: float
    label: float
    first: int | None = None
    rest: float = 0.0


@dataclass(frozen=True)
class Aggregator(abc.ABC):
    """Noisy vote. It is defined only by its parameters, so aggregators with equal parameters are equal.

    Subclasses are frozen dataclasses whose fields are made by `parameter`.

    Attributes:
        name: Key in the registry, in the database and in the API.
        label: Name on pages, which is not translated.
        help: Sentence in English that explains how the aggregator decides, marked for translation.
        asks_student: Whether the vote uses predictions of a student that learned from the labels so far.
        reinforces: Whether queries may keep the student's own label, for which teachers are not charged.
        pays_once: Whether one charge pays for many queries, in which case teachers must take part in all of them.
        has_paper_costs: Whether `costs` is valid for this aggregator, so that rehearsals can use it.
        adds_noise_once: Whether labels follow from counts with a single draw of Gaussian noise, so that the counts can
            be released.
        releases_counts: Whether the counts are released.

    `votes` is `(queries, classes)`: weighted counts. `student_probabilities`, of the same shape, come from the current
    student; only Interactive-GNMax uses them.

    The noise breaks ties evenly. It also decides queries on which no teacher voted, because rejecting these would
    reveal that not even one teacher voted. With one class, every answered label is 0.
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
    def fields(cls) -> tuple[AggregatorParameter, ...]:
        """Return the parameters in order; all of them are required."""
        return tuple(AggregatorParameter(field.name, **field.metadata) for field in dataclasses.fields(cls))

    def warnings(self, votes: int, classes: int | None) -> list[Sentence]:
        """Return warnings about parameters that are unlikely to work well in a run.

        Args:
            votes: Total weight of a unanimous vote.
            classes: Number of classes; None if unknown.

        Returns:
            A sentence for each problem, for the person who plans the run.
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
        """Return `(queries, classes)` counts of the teachers' predictions `(teachers, queries)`, see `count_votes`.

        Args:
            guesses: `(queries,)` most likely classes according to the student, once there is one; used only for
                residual votes.
            disagreed: `(teachers,)` how often each teacher has disagreed with the student so far; used only for
                residual votes.
        """
        return count_votes(predictions, classes, weights)

    def release(self, votes: ArrayLike, noise: Noise, student_probabilities: ArrayLike | None = None) -> LabelRelease:
        """Draw the noise and decide every query of the batch."""
        counts = checked_votes(votes)
        answered = self._passes_check(counts, noise, student_probabilities)
        labels = np.where(answered, self._noisy_argmax(counts, noise), REJECTED)
        return LabelRelease(labels=labels, answered=answered)

    @property
    @abc.abstractmethod
    def deviation(self) -> float:
        """Standard deviation of the noise of each count, in votes."""

    def unanimous_share(self, votes: float) -> float:
        """Return the probability that a query on which all teachers agree is answered.

        Args:
            votes: Total weight of a unanimous vote.
        """
        return 1.0

    @abc.abstractmethod
    def charge(self, sensitivity: float) -> VoteCharge:
        """Return a query's cost in μ², for any votes, to a holder whose teachers' total weight is `sensitivity`."""

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
        """Return the RDP cost of each query for a holder whose teachers' total weight is `sensitivity`.

        Args:
            sensitivity: The group's own vote weight, or its number of duplicates.
            orders: `(R,)`, each above 1.
            method: "data_independent", "data_dependent" or "exact".
            group_votes: For "exact", `(queries, classes)` unweighted counts of the group's own votes.
            teachers_per_holder: For "exact", the number of teachers that share the sensitivity: the number of
                duplicates in upsampling, otherwise 1.

        Returns:
            Costs of the shape `(queries, R)`.
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
        """Return the same aggregator for `factor` times as many votes, with all parameters in units of votes scaled."""

    def parameters(self) -> dict[str, Any]:
        """Return the name and parameters as plain values for the ledger; see `aggregator_from_parameters`."""
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
