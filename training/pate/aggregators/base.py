"""What every aggregator offers to the vote."""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy.checks import Method
from training.pate.noise import Noise
from training.pate.validation import require_positive, require_votes

REJECTED = -1
"""The label of a query that was not given one."""


@dataclass(frozen=True, eq=False)
class Release:
    """What a vote gives away about a batch of queries.

    labels: `(queries,)`, `REJECTED` where there is none.
    answered: `(queries,)`, True where the label is the teachers' and its cost is due.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]

    @property
    def reinforced(self) -> NDArray[np.bool_]:
        """`(queries,)`, True where the label is the student's own: it costs no more than the check."""
        return ~self.answered & (self.labels != REJECTED)


@dataclass(frozen=True, eq=False)
class QueryCosts:
    """What a batch of queries costs a holder, as RDP at each order: `check` always, `label` only where answered."""

    check: NDArray[np.float64]
    label: NDArray[np.float64]


@dataclass(frozen=True)
class Aggregator(abc.ABC):
    """A noisy vote with its parameters, and nothing else: equal parameters, equal aggregator.

    `votes` is `(queries, classes)`: weighted counts. `student_probabilities`, of the same shape, is what the present
    student believes; only Interactive-GNMax looks at it, the others take it and need it not.

    Ties are decided by the noise, evenly. A query on which no teacher voted is rejected, whatever the noise. With one
    class every answered label is 0.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, require_positive(field.name, getattr(self, field.name)))

    def release(self, votes: ArrayLike, noise: Noise, student_probabilities: ArrayLike | None = None) -> Release:
        """Draw the noise and decide every query of the batch."""
        counts = require_votes(votes)
        answered = self._passes_check(counts, noise, student_probabilities) & counts.any(axis=1)
        labels = np.where(answered, self._noisy_argmax(counts, noise), REJECTED)
        return Release(labels=labels, answered=answered)

    def answer_probability(
        self, votes: ArrayLike, student_probabilities: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """`(queries,)`: the probability that the teachers answer. A function of the votes, so a secret like them."""
        return np.where(require_votes(votes).any(axis=1), 1.0, 0.0)

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
