"""Protocol of a mechanism: what a method asks of whom, as mathematics. It knows no database and no person.

A public :class:`Question` is asked of everybody. Each answers with whole numbers that follow from their own records and
the question alone, as far as their own account allows; the answers are added up, and noise is added once. What is
released leads to the state in which the next part of the question is answered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import IndividualAccounts
from common.noise import Noise

if TYPE_CHECKING:
    from learning.representations import FittedRepresentation

Arrays = Mapping[str, NDArray[Any]]


class PlanError(ValueError):
    """The run cannot be planned as asked. The message says what to do."""


@dataclass(frozen=True, eq=False)
class People:
    """Holders who are asked: ``holders`` (H,) ids in rising order.

    Of their accounts, in μ², (H,) each: the ``caps``, the ``limits`` up to which they may go in the batch, and what is
    ``spent``.
    """

    holders: NDArray[np.int64]
    caps: NDArray[np.float64]
    limits: NDArray[np.float64]
    spent: NDArray[np.float64]

    def of(self, chosen: NDArray[Any]) -> People:
        """Some of them, by a mask (H,)."""
        return People(self.holders[chosen], self.caps[chosen], self.limits[chosen], self.spent[chosen])

    def accounts(self) -> IndividualAccounts:
        """Accounts that may go up to the limits, which are never below 0 here."""
        return IndividualAccounts(np.maximum(self.limits, 0.0), self.spent)


@dataclass(frozen=True, eq=False)
class Records:
    """Records of some people.

    ``x`` (N, …) as the question takes them, ``classes`` (N,), and positions of the ``owner`` (N,) among the people.
    """

    x: NDArray[Any]
    classes: NDArray[np.int64]
    owner: NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """Sources of chance of one batch: ``noise``, and a ``seed`` for samples, None for the operating system's."""

    noise: Noise
    seed: int | None = None


@dataclass(frozen=True, eq=False)
class PartRelease:
    """Release of a part of a question; all of it is public.

    ``arrays`` are kept in a file; ``rows`` (Q,) of the public points, ``labels`` (Q,), None where a query was rejected,
    and ``counts`` (Q, C) if there are any are kept as queries; ``reinforced`` (Q,) says which labels are a student's
    own, if any can be. ``content`` is what the register says of it.

    ``charges`` are what everybody of each budget of the plan is charged, in μ², where that follows from the release and
    is the same for all of them; None where answers say it of each. Where it differs within a budget ``classes`` say it
    of each charging class, and ``charges`` by how much the largest charge within the budget grows. For the budgets
    ``exhausted`` the next query has become too dear.
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
    """Public question of a round, with the noise and the parameters that its answers are released by."""

    @property
    def fitted(self) -> FittedRepresentation | None:
        """Representation in which records answer; None where they are taken as they are."""
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
        """Standard deviation of the noise of each number of the ``sums`` of answers, in their own counting.

        None where what is released is not the total of all sums with noise: such a question cannot be put to sites.
        """
        ...

    @property
    def grain(self) -> float:
        """What sums are whole multiples of."""
        ...

    def digest(self) -> str:
        """SHA-256 of everything that is asked."""
        ...

    def describe(self) -> dict[str, Any]:
        """Mechanism in public terms, for the register and the card."""
        ...

    def part(self, batch: int, start: int, most: int) -> slice:
        """Queries or steps of a batch that begins at ``start`` and has ``most`` of them at the most."""
        ...

    def state(self, released: Arrays | None) -> Any:
        """State after what was released last, None before anything was: a function of releases alone."""
        ...

    def bounds(self, part: slice) -> list[float] | None:
        """Most that anybody of each promise of the plan can be charged for a part, in μ²; public.

        None where nobody is, because an earlier part has charged them for this one.
        """
        ...

    def answer(
        self, part: slice, state: Any, people: People, records: Callable[[], Any], *, alone: bool, draws: Draws
    ) -> Arrays:
        """Contributions of some people to a part, and ``charge`` (H,), what each is charged in μ²; all of it secret.

        Where a release says what everybody of a budget is charged, ``group`` (H,) in place of ``charge`` says of which
        budget, or charging class, each is. ``records`` are :class:`Records`, or what else the question is answered
        from.

        People who are ``alone``, with nobody else asked, may answer several steps one after the other, each with the
        release before in view: the noise of these releases is then drawn here, and nobody sees them before the commit.
        """
        ...

    def release(self, part: slice, state: Any, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        """Release of a part, from the answers of all people."""
        ...


def content_digest(arrays: Arrays, text: str = "") -> str:
    """SHA-256 of arrays by name, and of a text."""
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def named(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """The arrays, each name behind ``prefix`` and a dot.

    >>> list(named("state", {"step": np.array(1)}))
    ['state.step']
    """
    return {f"{prefix}.{name}": array for name, array in arrays.items()}
