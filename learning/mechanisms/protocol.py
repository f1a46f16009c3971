"""Protocol of a mechanism: the mathematics of what a method asks, without databases or persons.

A public :class:`Question` is put to everybody. Each person answers with whole numbers that depend only on the question
and their own records, as far as their own account allows. The answers are added up, and noise is added once. Each
release determines the state used for the next part of the question.
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

    name: of the level.  cap: μ² of their promise.  holders: a noisy or public head count.  records: per holder, a
    public figure.  used: the share of the cap that earlier rounds are forecast to have used.
    """

    name: str
    cap: float
    holders: float
    records: float = 1.0
    used: float = 0.0


def signal(levels: Sequence[PlannedLevel]) -> float:
    """Return the total signal in standard deviations of the noise: Σ n·μ, if each person's weight is their μ.

    >>> signal([PlannedLevel("HIGH", 1.0, 10.0), PlannedLevel("LOW", 4.0, 5.0)])
    20.0
    """
    return math.fsum(level.holders * math.sqrt(level.cap) for level in levels)


def best_threshold(levels: Sequence[PlannedLevel]) -> float:
    """Return the cap, in μ², with the largest signal if everybody with at least this cap counts only by it.

    That is the cap with the largest n·μ, n the people with at least this cap (Cyffers, Ziani, "Limits of personalizing
    differential privacy budgets", 2026, show how much more personal budgets can bring).

    >>> best_threshold([PlannedLevel("HIGH", 1.0, 10.0), PlannedLevel("LOW", 4.0, 5.0)])
    1.0
    """
    return max(sorted({level.cap for level in levels}), key=lambda cap: signal(at_threshold(levels, cap)))


def at_threshold(levels: Sequence[PlannedLevel], cap: float) -> list[PlannedLevel]:
    """Return the levels that allow at least ``cap``, each at this cap."""
    return [replace(level, cap=cap) for level in levels if level.cap >= cap]


Arrays = Mapping[str, NDArray[Any]]


class PlanError(ValueError):
    """A run that cannot be planned as asked. The message says what to do."""


@dataclass(frozen=True, eq=False)
class People:
    """Holders who are asked: ``holders`` (H,) ids in rising order.

    Their accounts in μ², (H,) each: ``caps``, ``limits`` that they may reach in this batch, and ``spent``.
    """

    holders: NDArray[np.int64]
    caps: NDArray[np.float64]
    limits: NDArray[np.float64]
    spent: NDArray[np.float64]

    def of(self, chosen: NDArray[Any]) -> People:
        """Return the people chosen by a mask (H,)."""
        return People(self.holders[chosen], self.caps[chosen], self.limits[chosen], self.spent[chosen])

    def accounts(self) -> IndividualAccounts:
        """Return accounts that may be used up to the limits, which are never below 0 here."""
        return IndividualAccounts(np.maximum(self.limits, 0.0), self.spent)


@dataclass(frozen=True, eq=False)
class Records:
    """Records of some people.

    ``x`` (N, …) in the form that the question takes, ``classes`` (N,), and positions of the ``owner`` (N,) among the
    people.
    """

    x: NDArray[Any]
    classes: NDArray[np.int64]
    owner: NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """Randomness of one batch: ``noise``, and a ``seed`` for samples (None for the operating system's)."""

    noise: Noise
    seed: int | None = None


@dataclass(frozen=True, eq=False)
class PartRelease:
    """Release of a part of a question; all of it is public.

    ``arrays`` are kept in a file. ``rows`` (Q,) of the public points, ``labels`` (Q,), None where a query was rejected,
    and ``counts`` (Q, C) if there are any are stored as queries; ``reinforced`` (Q,) marks labels that are a student's
    own, if any can be. ``content`` describes the release in the register.

    ``charges`` are the charges of everybody in each budget of the plan, in μ², if they follow from the release and are
    the same for all of them; None if each answer carries its own. If charges differ within a budget, ``classes`` gives
    the charge of each charging class, and ``charges`` gives the growth of the largest charge within the budget. Budgets
    in ``exhausted`` can no longer pay for the next query.
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
    """Public question of a round, with the noise and the parameters used to release its answers."""

    @property
    def fitted(self) -> FittedRepresentation | None:
        """Representation in which records answer; None if records are used unchanged."""
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
        """Standard deviation of the noise of each number of the ``sums`` of answers, in the units of these sums.

        None if the release is not the noisy total of all sums: sites cannot answer such a question.
        """
        ...

    @property
    def grain(self) -> float:
        """Unit whose whole multiples the sums are."""
        ...

    def digest(self) -> str:
        """Return the SHA-256 of everything that the question contains."""
        ...

    def describe(self) -> dict[str, Any]:
        """Describe the mechanism in public terms, for the register and the card."""
        ...

    def part(self, batch: int, start: int, most: int) -> slice:
        """Return the queries or steps of a batch that begins at ``start`` and has at most ``most`` of them."""
        ...

    def state(self, released: Arrays | None) -> Any:
        """Return the state after the last release (None before the first). It depends on releases only."""
        ...

    def bounds(self, part: slice) -> list[float] | None:
        """Return the most that a part can charge anybody under each promise of the plan, in μ²; public.

        None if it charges nobody, because an earlier part has already charged them for this one.
        """
        ...

    def answer(
        self, part: slice, state: Any, people: People, records: Callable[[], Any], *, alone: bool, draws: Draws
    ) -> Arrays:
        """Return people's contributions to a part, and ``charge`` (H,), each person's charge in μ²; all of it secret.

        If the release gives one charge for everybody in a budget, ``group`` (H,) replaces ``charge``: it gives the
        budget or charging class of each person. ``records`` are :class:`Records`, or another input that the question
        uses.

        People who are ``alone``, when no other people are asked, may answer several steps in a row, each with the
        release before in view: the noise of these releases is then drawn here, and nobody sees them before the commit.
        """
        ...

    def release(self, part: slice, state: Any, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        """Return the release of a part from the answers of all people."""
        ...


def content_digest(arrays: Arrays, text: str = "") -> str:
    """Return the SHA-256 of arrays by name, and of a text."""
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def named(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the arrays with ``prefix`` and a dot before each name.

    >>> list(named("state", {"step": np.array(1)}))
    ['state.step']
    """
    return {f"{prefix}.{name}": array for name, array in arrays.items()}
