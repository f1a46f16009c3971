"""Question of a vote of teachers: public points, each put to all teachers, who answer for their members.

Every charge is public and the same for all members of a group: it follows from which queries were answered, and a
budget says how much a vote may charge. The vote ends for public reasons alone: points used up, enough labels, or the
next query could cost more than the run may charge. No account, and no vote, decides when.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.distinct import distinct
from common.noise import GRID, Noise
from learning.mechanisms.neighbours.released_counts import counts_digest
from learning.mechanisms.pate.aggregators import REJECTED
from learning.mechanisms.pate.plan import Plan
from learning.mechanisms.pate.votes import NO_VOTE
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, content_digest

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class VoteBudget:
    """Budget of one group of the plan, and cost of a query to each of its members, in μ².

    ``cap`` is the smallest in the group; ``allowed`` the run's share of it; the rest as in
    :class:`learning.mechanisms.pate.aggregators.aggregator.VoteCharge`.
    """

    cap: float
    allowed: float
    check: float
    label: float
    first: int | None = None
    rest: float = 0.0

    @property
    def answer(self) -> float:
        """Cost of an answered query, one of the first where these alone are paid for one by one."""
        return self.check + self.label

    @property
    def answers(self) -> int | None:
        """Number of queries that can be answered at least, if each is; None for all of them."""
        if self.first is not None and self.first * self.answer + self.rest <= self.allowed:
            return None
        affordable = int(self.allowed / self.answer)
        return affordable if self.first is None else min(affordable, self.first)

    def costs(self, start: int, answered: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(Q,) what each query of a batch costs that begins with query ``start``, given whether each is answered."""
        one_by_one = self.check + self.label * answered.astype(np.float64)
        if self.first is None:
            return one_by_one
        number = np.arange(start, start + len(answered))
        return np.where(number < self.first, one_by_one, np.where(number == self.first, self.rest, 0.0))

    def affordable(self, answered: NDArray[np.bool_], present: NDArray[np.bool_] | None = None) -> int:
        """Return the number of leading queries of a vote that the group can pay for.

        A query counts as if it will be answered: whether it stops the vote does not depend on its own noise. After the
        first query that is too dear the group pays for none, whatever the later ones cost.

        Args:
            answered: (Q,) which queries were answered.
            present: (K, Q) which of the group's teachers take part in which query; None where all do. The group pays
                for a query if each of them can.

        >>> budget = VoteBudget(cap=1.0, allowed=1.0, check=0.1, label=0.2)
        >>> budget.affordable(np.array([False, True, False, True, True, True]))
        4
        """
        takes_part = np.ones((1, len(answered)), np.bool_) if present is None else present
        paid, at_most = self.costs(0, answered) * takes_part, self.costs(0, np.ones_like(answered)) * takes_part
        fits = np.all(np.cumsum(paid, axis=1) - paid + at_most <= self.allowed, axis=0)
        return len(fits) if fits.all() else int(np.argmin(fits))


class Stop(StrEnum):
    """Public reasons for which a vote ends."""

    ENOUGH = "enough"
    USED_UP = "used_up"
    SHARE = "share"
    RETIRED = "retired"


@dataclass(frozen=True, eq=False)
class Ballot:
    """What teachers say and who is behind them; all of it is secret.

    ``predictions`` (teachers, points) of classes, or ``NO_VOTE``; ``holder``, ``teacher``, ``group`` (pairs,): who is
    in which teacher, charged as which group of the plan.
    """

    predictions: NDArray[Any]
    holder: NDArray[np.int64]
    teacher: NDArray[np.int64]
    group: NDArray[np.int64]

    @property
    def members(self) -> NDArray[np.int64]:
        """(H,) ids in rising order of all who are charged."""
        return distinct(self.holder)

    @property
    def group_of(self) -> NDArray[np.int64]:
        """(H,) group of each of the members."""
        _members, first = np.unique(self.holder, return_index=True)
        return self.group[first]

    @property
    def teacher_of(self) -> NDArray[np.int64]:
        """(H,) teacher of each of the members, where nobody is in several."""
        _members, first = np.unique(self.holder, return_index=True)
        return self.teacher[first]

    def teachers_of(self, holders: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the teachers in which some of ``holders`` are."""
        return np.unique(self.teacher[np.isin(self.holder, holders)])


@dataclass(frozen=True, eq=False)
class VoteState:
    """Releases so far.

    Attributes:
        labels: (Q,) ``REJECTED`` where there is none.
        guesses: (Q,) of the student before each query, ``NO_VOTE`` where none was asked.
        reinforced: (Q,) True where the label is the student's own, which the teachers did not contradict.
    """

    labels: Labels
    guesses: Labels
    reinforced: NDArray[np.bool_]

    @property
    def answered(self) -> NDArray[np.bool_]:
        """(Q,) True where the teachers answered, which is what a label is paid for."""
        return (self.labels != REJECTED) & ~self.reinforced

    def after(self, labels: Labels, guesses: Labels, reinforced: NDArray[np.bool_]) -> VoteState:
        """Return the state after these queries."""
        return VoteState(
            np.append(self.labels, labels),
            np.append(self.guesses, guesses),
            np.append(self.reinforced, reinforced),
        )

    def until(self, query: int) -> VoteState:
        """Return the state before a query."""
        return VoteState(self.labels[:query], self.guesses[:query], self.reinforced[:query])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of its file."""
        return {"labels": self.labels, "guesses": self.guesses, "reinforced": self.reinforced}

    @staticmethod
    def from_arrays(arrays: Arrays) -> VoteState:
        """Read a file; those of earlier versions have no reinforced labels."""
        labels = arrays["labels"]
        reinforced = arrays["reinforced"] if "reinforced" in arrays else np.zeros(len(labels), np.bool_)
        return VoteState(labels, arrays["guesses"], reinforced)


_NOTHING = VoteState(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


@dataclass(frozen=True, eq=False)
class TeachersQuestion:
    """See :class:`learning.mechanisms.protocol.Question`. Its people's records are a :class:`Ballot`.

    Attributes:
        budgets: of the groups of the plan.
        size: number of the public points.
        points: digest of the public points.
        wanted_labels: number of labels at which the vote ends; None where it has no such end.
        goes_on: whether the vote goes on without a group for which the next query is too dear.
        participation: (teachers, points) which teachers take part in which query, from public randomness; None where
            all take part in all. With it every teacher is a charging class of its own, else every group is one.
        student: (points, C) probabilities by a student of the labels (Q,) so far, all 0 before there is one; None
            where the aggregator asks none.
    """

    plan: Plan
    budgets: tuple[VoteBudget, ...]
    size: int
    n_classes: int
    points: str
    wanted_labels: int | None = None
    goes_on: bool = False
    participation: NDArray[np.bool_] | None = None
    student: Callable[[Labels], NDArray[np.float64]] | None = None

    fitted = None
    grain = GRID

    @property
    def sigma(self) -> float:
        return self.plan.aggregator.deviation

    @property
    def spread(self) -> float | None:
        return self.sigma if self.plan.aggregator.adds_noise_once else None

    def digest(self) -> str:
        content = [self.describe(), self.plan.variant, self.points, self.size, self.n_classes]
        drawn = {} if self.participation is None else {"participation": self.participation}
        return content_digest({"weights": self.plan.teacher_weights(), **drawn}, json.dumps(content))

    def describe(self) -> dict[str, Any]:
        return self.plan.aggregator.parameters()

    def part(self, batch: int, start: int, most: int) -> slice:
        """A batch ends where a plain vote does, so that a student can learn from all of it.

        Where every query is answered it also ends before the first that is too dear: its counts are never asked for.
        """
        del batch
        ends = [budget.first for budget in self.budgets if budget.first is not None]
        if self.plan.aggregator.adds_noise_once:
            every = np.ones(start + most, dtype=np.bool_)
            ends += self._affordable_by_group(every[: self.size])
        return slice(start, min([start + most, self.size, *(end for end in ends if end > start)]))

    def state(self, released: Arrays | None) -> VoteState:
        return _NOTHING if released is None else VoteState.from_arrays(released)

    def stop(self, state: VoteState) -> Stop | None:
        """Reason for which nothing more is asked after what was released; None while the vote goes on."""
        if self.wanted_labels is not None and state.answered.sum() >= self.wanted_labels:
            return Stop.ENOUGH
        if len(state.labels) >= self.size:
            return Stop.USED_UP
        voting = self.voting(state)
        if self.goes_on:
            return None if voting.any() else Stop.RETIRED
        return None if voting.all() else Stop.SHARE

    def voting(self, state: VoteState) -> NDArray[np.bool_]:
        """(G,) groups of the plan that can pay for the next query: the teachers of the others cast no vote."""
        with_next = np.append(state.answered, True)
        return np.array([affordable == len(with_next) for affordable in self._affordable_by_group(with_next)])

    def bounds(self, part: slice) -> list[float]:
        every = np.ones(part.stop - part.start, dtype=np.bool_)
        return [float(self._paid(place, part.start, every).max()) for place in range(len(self.budgets))]

    def charges(self, state: VoteState, answered: NDArray[np.bool_]) -> list[float]:
        """Return by how much the largest charge in each group grows, in μ², by the queries after ``state``.

        Where all teachers take part in all queries that is what everybody in the group is charged.
        """
        start, so_far = len(state.labels), np.append(state.answered, answered)
        if self.participation is None:
            grown = [float(self._paid(place, start, answered).sum()) for place in range(len(self.budgets))]
        else:
            grown = [
                float(self._paid(place, 0, so_far).max() - self._paid(place, 0, state.answered).max())
                for place in range(len(self.budgets))
            ]
        return [growth if votes else 0.0 for growth, votes in zip(grown, self.voting(state), strict=True)]

    def class_charges(self, state: VoteState, answered: NDArray[np.bool_]) -> list[float]:
        """Return the charge of everybody in each charging class, in μ², for the queries after ``state``."""
        if self.participation is None:
            return self.charges(state, answered)
        charges = np.zeros(self.plan.teachers)
        for place in np.flatnonzero(self.voting(state)):
            charges[self.plan.members(int(place))] = self._paid(int(place), len(state.labels), answered)
        return charges.tolist()

    def class_of(self, ballot: Ballot) -> NDArray[np.int64]:
        """Return the charging class of each of a ballot's members, (H,)."""
        return ballot.group_of if self.participation is None else ballot.teacher_of

    def spent(self, state: VoteState) -> NDArray[np.float64]:
        """Return what everybody in each charging class was charged up to ``state``, in μ²."""
        paid = [
            self._paid(place, 0, state.answered[:affordable])
            for place, affordable in enumerate(self._affordable_by_group(state.answered))
        ]
        if self.participation is None:
            return np.concatenate(paid)
        spent = np.zeros(self.plan.teachers)
        for place, charges in enumerate(paid):
            spent[self.plan.members(place)] = charges
        return spent

    def _present(self, place: int, start: int, stop: int) -> NDArray[np.bool_]:
        """(K, stop - start) which charging classes of a group take part in which queries."""
        if self.participation is None:
            return np.ones((1, stop - start), np.bool_)
        present = self.participation[self.plan.members(place), start:stop]
        beyond = stop - start - present.shape[1]  # a query after the last, which nobody asks
        return np.pad(present, ((0, 0), (0, beyond)), constant_values=True) if beyond else present

    def _paid(self, place: int, start: int, answered: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(K,) cost of queries from ``start`` on to each charging class of a group that pays for them."""
        costs = self.budgets[place].costs(start, answered)
        return (self._present(place, start, start + len(answered)) * costs).sum(axis=1)

    def _affordable_by_group(self, answered: NDArray[np.bool_]) -> list[int]:
        """Return for each group how many leading queries it can pay for, if these were answered.

        Groups that share teachers pay, and fall silent, together.
        """
        alone = [
            budget.affordable(answered, self._present(place, 0, len(answered)))
            for place, budget in enumerate(self.budgets)
        ]
        return [min(alone[other] for other in self.plan.family(place)) for place in range(len(alone))]

    def answer(
        self, part: slice, state: VoteState, people: People, records: Callable[[], Ballot], *, alone: bool, draws: Draws
    ) -> Arrays:
        """Weighted counts ``sums`` (Q, C), and ``group`` (H,), the charging class of everybody.

        A teacher casts no vote where a member has a cap of 0, which says that they must not stay, or where its group
        cannot pay. Its members are charged to the end: that it is silent, too, is something their consents did.
        """
        del alone, draws  # noise is drawn in the release
        ballot = records()
        cast = ballot.predictions[:, part].copy()
        cast[self.silent(state, people, ballot)] = NO_VOTE
        if self.participation is not None:
            cast[~self.participation[:, part]] = NO_VOTE
        guesses = self._guesses(state, part)
        residual = {} if guesses is None else {"guesses": guesses, "disagreed": self.disagreements(state, ballot)}
        votes = self.plan.aggregator.count(cast, self.n_classes, self.plan.teacher_weights(), **residual)
        return {"sums": votes, "group": self.class_of(ballot)}

    def release(self, part: slice, state: VoteState, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        votes = np.sum([answer["sums"] for answer in answers], axis=0)
        outcome = self.plan.aggregator.release(votes, noise, self._probabilities(state, part))
        size = min(self._affordable(state, outcome.answered), self._until_wanted(state, outcome.answered))
        answered, labels, reinforced = outcome.answered[:size], outcome.labels[:size], outcome.reinforced[:size]
        counts = None if outcome.counts is None else outcome.counts[:size]
        guesses = self._guesses(state, part)
        after = state.after(labels, np.full(size, NO_VOTE) if guesses is None else guesses[:size], reinforced)
        return PartRelease(
            size=size,
            content={
                "queries": size,
                "labels": int(answered.sum()),
                "digest": self.released_digest(part.start, labels, reinforced, counts),
            },
            arrays=after.to_arrays(),
            rows=range(part.start, part.start + size),
            labels=[int(label) if label != REJECTED else None for label in labels],
            reinforced=reinforced.tolist(),
            counts=[] if counts is None else counts.tolist(),
            charges=self.charges(state, answered),
            classes=[] if self.participation is None else self.class_charges(state, answered),
            exhausted=self._exhausted(state, after),
        )

    def released_digest(
        self, start: int, labels: Labels, reinforced: NDArray[np.bool_], counts: NDArray[np.int64] | None
    ) -> str:
        """Return the SHA-256 of the labels of points from ``start`` on, and of the counts that led to them if any."""
        if counts is None:
            return labels_digest(start, labels, reinforced)
        return counts_digest(np.arange(start, start + len(labels)), labels, counts)

    def disagreements(self, state: VoteState, ballot: Ballot) -> NDArray[np.int64]:
        """(teachers,) how often each teacher has said something else than the student before."""
        votes = ballot.predictions[:, : len(state.guesses)]
        return ((votes != NO_VOTE) & (votes != state.guesses) & (state.guesses != NO_VOTE)).sum(axis=1)

    def silent(self, state: VoteState, people: People, ballot: Ballot) -> NDArray[np.bool_]:
        """(teachers,) True where a teacher casts no vote in the next batch."""
        silent = np.zeros(self.plan.teachers, dtype=np.bool_)
        for place in np.flatnonzero(~self.voting(state)):
            silent |= self.plan.members(int(place))
        silent[ballot.teachers_of(people.holders[people.caps == 0])] = True
        return silent

    def _probabilities(self, state: VoteState, part: slice) -> NDArray[np.float64] | None:
        return None if self.student is None else self.student(state.labels)[part]

    def _guesses(self, state: VoteState, part: slice) -> Labels | None:
        """(Q,) what a student takes for likeliest; None in a plain vote: residual votes cost what comes after it."""
        if not any(budget.first is not None and budget.first <= part.start for budget in self.budgets):
            return None
        probabilities = self._probabilities(state, part)
        if probabilities is None or not probabilities.any():
            return None
        return probabilities.argmax(axis=1)

    def _affordable(self, state: VoteState, answered: NDArray[np.bool_]) -> int:
        """Number of leading queries of a batch that every group that votes can pay for: at least one."""
        affordable = self._affordable_by_group(np.append(state.answered, answered))
        return min(affordable[place] for place in np.flatnonzero(self.voting(state))) - len(state.labels)

    def _until_wanted(self, state: VoteState, answered: NDArray[np.bool_]) -> int:
        """Number of queries of the batch that it takes to reach the wanted number of labels."""
        if self.wanted_labels is None:
            return len(answered)
        return int(np.searchsorted(state.answered.sum() + np.cumsum(answered), self.wanted_labels)) + 1

    def _exhausted(self, before: VoteState, after: VoteState) -> list[int]:
        """Groups for which the next query has become too dear, where there is a next one."""
        if self.stop(after) in (Stop.ENOUGH, Stop.USED_UP):
            return []
        return np.flatnonzero(self.voting(before) & ~self.voting(after)).tolist()


def labels_digest(start: int, labels: Labels, reinforced: NDArray[np.bool_]) -> str:
    """Return the SHA-256 of released labels.

    Each is its row, from ``start`` on, and its label, None where the query was rejected; reinforced ones say so.
    """
    entries: list[list[int | str | None]] = [
        [start + place, int(label) if label != REJECTED else None, *(["reinforced"] if own else [])]
        for place, (label, own) in enumerate(zip(labels, reinforced, strict=True))
    ]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
