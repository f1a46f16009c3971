"""Protocol of mechanisms: the mathematics of a method's questions, independent of databases and people.

All holders are asked a public :class:`Question`. Each holder answers with whole numbers that depend only on the
question and their own records, as far as their own account allows. The answers are added up, and noise is added once.
Each release determines the state used for the next part of the question.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import IndividualAccounts
from common.noise import Noise

if TYPE_CHECKING:
    from learning.representations import FittedRepresentation


@dataclass(frozen=True)
class PlannedLevel:
    """Holders with the same cap.

    Attributes:
        name: Name of the level.
        cap: μ² of the promise.
        holders: Noisy or public number of holders.
        records: Average number of records per holder, a public figure.
        used: Share of the cap that earlier rounds are forecast to use.
    """

    name: str
    cap: float
    holders: float
    records: float = 1.0
    used: float = 0.0


def signal(levels: Sequence[PlannedLevel]) -> float:
    """Return the total signal Σ n·μ, in standard deviations of the noise, if each person is weighted by their μ.

    >>> signal([PlannedLevel("HIGH", 1.0, 10.0), PlannedLevel("LOW", 4.0, 5.0)])
    20.0
    """
    return math.fsum(level.holders * math.sqrt(level.cap) for level in levels)


def best_threshold(levels: Sequence[PlannedLevel]) -> float:
    """Return the cap, in μ², with the largest signal if all people with at least this cap are weighted by it.

    This cap has the largest n·μ, where n is the number of people with at least this cap. Cyffers and Ziani ("Limits of
    personalizing differential privacy budgets", 2026) bound the gain from personal budgets.

    >>> best_threshold([PlannedLevel("HIGH", 1.0, 10.0), PlannedLevel("LOW", 4.0, 5.0)])
    1.0
    """
    return max(sorted({level.cap for level in levels}), key=lambda cap: signal(at_threshold(levels, cap)))


def at_threshold(levels: Sequence[PlannedLevel], cap: float) -> list[PlannedLevel]:
    """Return the levels whose cap is at least ``cap``, with their caps replaced by ``cap``."""
    return [replace(level, cap=cap) for level in levels if level.cap >= cap]


Arrays = Mapping[str, NDArray[Any]]


class PlanError(ValueError):
    """Error raised if a run cannot be planned as requested. The message contains the remedy."""


@dataclass(frozen=True, eq=False)
class People:
    """Holders who are asked, with their ids ``holders`` (H,) in ascending order.

    The accounts are three arrays (H,) in μ²: ``caps``, ``limits`` for this batch, and ``spent``.
    """

    holders: NDArray[np.int64]
    caps: NDArray[np.float64]
    limits: NDArray[np.float64]
    spent: NDArray[np.float64]

    def of(self, chosen: NDArray[Any]) -> People:
        """Return the people chosen by a mask (H,)."""
        return People(self.holders[chosen], self.caps[chosen], self.limits[chosen], self.spent[chosen])

    def accounts(self) -> IndividualAccounts:
        """Return accounts that may be charged up to the limits; negative limits are treated as 0."""
        return IndividualAccounts(np.maximum(self.limits, 0.0), self.spent)


@dataclass(frozen=True, eq=False)
class Records:
    """Records of some people.

    Attributes:
        x: (N, …) records, in the form expected by the question.
        classes: (N,) classes of the records.
        owner: (N,) position of each record's holder among the people.
    """

    x: NDArray[Any]
    classes: NDArray[np.int64]
    owner: NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """Sources of randomness for a batch: ``noise``, and the ``seed`` of samples (None for the operating system's)."""

    noise: Noise
    seed: int | None = None


@dataclass(frozen=True, eq=False)
class PartRelease:
    """Public release of a part of a question.

    Attributes:
        content: Description of the release for the register.
        arrays: Arrays to store in a file.
        rows: (Q,) public points of the queries.
        labels: (Q,) labels, None for rejected queries.
        counts: (Q, C) counts, if any, stored with the queries.
        reinforced: (Q,) True for a student's own labels, if the mechanism allows any.
        charges: Charge per person in each budget of the plan, in μ², if it follows from the release and is the same for
            everyone in the budget; None if answers contain individual charges.
        classes: Charge of each charging class, if charges differ within a budget. In this case, ``charges`` contains
            how much the largest charge within each budget has increased.
        exhausted: Budgets that cannot pay for the next query.
    """

    size: int
    content: dict[str, Any]
    arrays: Arrays = field(default_factory=dict)
    rows: Sequence[int] = ()
    labels: Sequence[int | None] = ()
    counts: Sequence[Sequence[int]] = ()
    reinforced: Sequence[bool] = ()
    charges: Sequence[float] | None = None
    classes: Sequence[float] = ()
    exhausted: Sequence[int] = ()


class Question(Protocol):
    """Public question of a round, with the noise and the parameters for releasing its answers."""

    @property
    def fitted(self) -> FittedRepresentation | None:
        """Representation of records used in answers; None if records are used unchanged."""
        ...

    @property
    def size(self) -> int:
        """Number of queries or steps."""
        ...

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of each number, in units of the largest norm."""
        ...

    @property
    def spread(self) -> float | None:
        """Standard deviation of the noise of each number in the ``sums`` of answers, in the units of these sums.

        None if the release is not the noisy total of all sums; sites cannot answer such a question.
        """
        ...

    @property
    def grain(self) -> float:
        """Unit of the sums: each sum is an integer multiple of this."""
        ...

    def digest(self) -> str:
        """Return the SHA-256 of the question's content."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return a public description of the mechanism, for the register and the card."""
        ...

    def part(self, batch: int, start: int, most: int) -> slice:
        """Return the queries or steps of a batch that begins at ``start`` and has at most ``most`` of them."""
        ...

    def state(self, released: Arrays | None) -> Any:
        """Return the state after a release (None: before the first one). The state depends only on releases."""
        ...

    def bounds(self, part: slice) -> list[float] | None:
        """Return the largest charge of a part to a person, for each promise of the plan, in μ². Public.

        None if the part charges no one, because people have already been charged with an earlier part.
        """
        ...

    def answer(
        self, part: slice, state: Any, people: People, records: Callable[[], Any], *, alone: bool, draws: Draws
    ) -> Arrays:
        """Return people's contributions to a part, and each person's ``charge`` (H,) in μ²; both are secret.

        If all people in a budget are charged the same, the release contains the charge, and the answer has ``group``
        (H,) instead of ``charge``: the budget or charging class of each person. ``records`` returns :class:`Records` or
        another input.

        If only these people are asked (``alone``), they may answer several steps in a row, each using the previous
        release. This method then draws the noise of these releases, which no one sees before the commit.
        """
        ...

    def release(self, part: slice, state: Any, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        """Return the release of a part from the answers of all people."""
        ...


def content_digest(arrays: Arrays, text: str = "") -> str:
    """Return the SHA-256 of named arrays and a string."""
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def named(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays, with ``prefix`` and a dot before each name.

    >>> list(named("state", {"step": np.array(1)}))
    ['state.step']
    """
    return {f"{prefix}.{name}": array for name, array in arrays.items()}
