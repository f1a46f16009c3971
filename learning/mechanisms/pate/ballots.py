"""Question that teachers answer: each teacher votes on the public points on behalf of its members.

Every charge is public and the same for all members of a group. The charge depends on which queries were answered, and
the group's budget limits how much a vote may charge. The vote ends only for public reasons: all points have been asked
about, enough labels have been released, or the next query could cost more than the run may charge. The end never
depends on accounts or votes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from common.declarations import MAY_BE_MISSING, NOT_IN_API
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
    """Budget of one of the plan's groups, and the cost of a query to each of its members, in μ².

    ``cap`` is the smallest cap in the group, and ``allowed`` is the run's share of that cap. For the other fields, see
    :class:`learning.mechanisms.pate.aggregators.aggregator.VoteCharge`.
    """

    cap: float
    allowed: float
    check: Annotated[float, MAY_BE_MISSING, Field(description="Cost of each query, if teachers vote.")]
    label: Annotated[
        float, MAY_BE_MISSING, Field(description="Additional cost of each answered query, if teachers vote.")
    ]
    first: Annotated[int | None, NOT_IN_API] = None
    rest: Annotated[float, NOT_IN_API] = 0.0

    @property
    def answer(self) -> float:
        """Cost of an answered query, if queries are charged individually."""
        return self.check + self.label

    @property
    def answers(self) -> int | None:
        """Number of queries that the group can pay for if every query is answered; None if there is no limit."""
        if self.first is not None and self.first * self.answer + self.rest <= self.allowed:
            return None
        affordable = int(self.allowed / self.answer)
        return affordable if self.first is None else min(affordable, self.first)

    def costs(self, start: int, answered: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the cost (Q,) of each query of a batch starting at ``start``, given whether each is answered."""
        one_by_one = self.check + self.label * answered.astype(np.float64)
        if self.first is None:
            return one_by_one
        number = np.arange(start, start + len(answered))
        return np.where(number < self.first, one_by_one, np.where(number == self.first, self.rest, 0.0))

    def affordable(self, answered: NDArray[np.bool_], present: NDArray[np.bool_] | None = None) -> int:
        """Return the number of leading queries of a vote for which the group can pay.

        A query counts only if the group could also pay for its label, whether or not it was answered, because the
        decision to stop the vote must not depend on the query's own noise. After the first query that is too expensive,
        the group pays for no further query, even if later ones cost less.

        Args:
            answered: (Q,) True if the query was answered.
            present: (K, Q) True if one of the group's teachers takes part in a query; None if all take part in all. The
                group pays for a query only if all of its teachers can pay for it.

        >>> budget = VoteBudget(cap=1.0, allowed=1.0, check=0.1, label=0.2)
        >>> budget.affordable(np.array([False, True, False, True, True, True]))
        4
        """
        takes_part = np.ones((1, len(answered)), np.bool_) if present is None else present
        paid, at_most = self.costs(0, answered) * takes_part, self.costs(0, np.ones_like(answered)) * takes_part
        fits = np.all(np.cumsum(paid, axis=1) - paid + at_most <= self.allowed, axis=0)
        return len(fits) if fits.all() else int(np.argmin(fits))


class Stop(StrEnum):
    """Public reasons why a vote ends."""

    ENOUGH = "enough"
    USED_UP = "used_up"
    SHARE = "share"
    RETIRED = "retired"


@dataclass(frozen=True, eq=False)
class Ballot:
    """Teachers' predictions, and the members whose records the teachers learned from. Everything is secret.

    Attributes:
        predictions: (teachers, points) classes, or ``NO_VOTE``.
        holder, teacher: (pairs,) a holder and one of the holder's teachers.
        group: (pairs,) the group of the plan in which the holder is charged.
    """

    predictions: NDArray[Any]
    holder: NDArray[np.int64]
    teacher: NDArray[np.int64]
    group: NDArray[np.int64]

    @property
    def members(self) -> NDArray[np.int64]:
        """(H,) ids of all holders who are charged, in ascending order."""
        return distinct(self.holder)

    @property
    def group_of(self) -> NDArray[np.int64]:
        """(H,) group of each member."""
        _members, first = np.unique(self.holder, return_index=True)
        return self.group[first]

    @property
    def teacher_of(self) -> NDArray[np.int64]:
        """(H,) teacher of each member, if each member has only one."""
        _members, first = np.unique(self.holder, return_index=True)
        return self.teacher[first]

    def teachers_of(self, holders: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the teachers that learned from any of ``holders``."""
        return np.unique(self.teacher[np.isin(self.holder, holders)])


@dataclass(frozen=True, eq=False)
class VoteState:
    """Releases so far.

    Attributes:
        labels: (Q,) labels; ``REJECTED`` for a query without one.
        guesses: (Q,) the student's guess before each query; ``NO_VOTE`` if the student was not asked.
        reinforced: (Q,) True if the label is the student's own prediction, which the teachers did not contradict.
    """

    labels: Labels
    guesses: Labels
    reinforced: NDArray[np.bool_]

    @property
    def answered(self) -> NDArray[np.bool_]:
        """(Q,) True where the teachers answered and the label is therefore charged."""
        return (self.labels != REJECTED) & ~self.reinforced

    def after(self, labels: Labels, guesses: Labels, reinforced: NDArray[np.bool_]) -> VoteState:
        return VoteState(
            np.append(self.labels, labels), np.append(self.guesses, guesses), np.append(self.reinforced, reinforced)
        )

    def until(self, query: int) -> VoteState:
        return VoteState(self.labels[:query], self.guesses[:query], self.reinforced[:query])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"labels": self.labels, "guesses": self.guesses, "reinforced": self.reinforced}

    @staticmethod
    def from_arrays(arrays: Arrays) -> VoteState:
        """Return the state from the arrays of a file; files of earlier versions have no reinforced labels."""
        labels = arrays["labels"]
        reinforced = arrays["reinforced"] if "reinforced" in arrays else np.zeros(len(labels), np.bool_)
        return VoteState(labels, arrays["guesses"], reinforced)


_NOTHING = VoteState(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


@dataclass(frozen=True, eq=False)
class TeachersQuestion:
    """Question for a vote of teachers, with a :class:`Ballot` as its records.

    Attributes:
        budgets: Budgets of the plan's groups.
        points: Digest of the public points.
        wanted_labels: Number of labels at which the vote ends; None for no such limit.
        continues_when_exhausted: Whether the vote continues without groups that cannot pay for the next query.
        participation: (teachers, points) True if a teacher takes part in a query, drawn with public randomness; None if
            all take part in all queries. If given, every teacher is a charging class; otherwise, every group is one.
        student: Function that maps the labels (Q,) so far to a student's probabilities (points, C), all 0 before there
            is a student; None if the aggregator uses no student.
    """

    plan: Plan
    budgets: tuple[VoteBudget, ...]
    size: int
    n_classes: int
    points: str
    wanted_labels: int | None = None
    continues_when_exhausted: bool = False
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
        """Return the next batch. A batch ends at the latest with the plain vote, so that a student can then be trained.

        A batch also ends before the first query that could be too expensive, so that this query's counts are never
        requested.
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
        """Return the reason to stop after these releases; None if the vote continues."""
        if self.wanted_labels is not None and state.answered.sum() >= self.wanted_labels:
            return Stop.ENOUGH
        if len(state.labels) >= self.size:
            return Stop.USED_UP
        voting = self.voting(state)
        if self.continues_when_exhausted:
            return None if voting.any() else Stop.RETIRED
        return None if voting.all() else Stop.SHARE

    def voting(self, state: VoteState) -> NDArray[np.bool_]:
        """Return a mask (G,) of the groups that can pay for the next query; teachers of other groups do not vote."""
        with_next = np.append(state.answered, True)
        return np.array([affordable == len(with_next) for affordable in self._affordable_by_group(with_next)])

    def bounds(self, part: slice) -> list[float]:
        every = np.ones(part.stop - part.start, dtype=np.bool_)
        return [float(self._paid(place, part.start, every).max()) for place in range(len(self.budgets))]

    def charges(self, state: VoteState, answered: NDArray[np.bool_]) -> list[float]:
        """Return the increase of each group's largest charge by the queries after ``state``, in μ².

        If all teachers take part in all queries, this is also the charge of each member of the group.
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
        """Return the charge per person in each charging class, in μ², for queries after ``state``."""
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
        """Return the charges per person in each charging class up to ``state``, in μ²."""
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
        """Return a mask (K, stop - start) of the queries in which each charging class of a group takes part."""
        if self.participation is None:
            return np.ones((1, stop - start), np.bool_)
        present = self.participation[self.plan.members(place), start:stop]
        beyond = stop - start - present.shape[1]  # queries past the last one, which are never asked
        return np.pad(present, ((0, 0), (0, beyond)), constant_values=True) if beyond else present

    def _paid(self, place: int, start: int, answered: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the cost of a batch beginning at ``start`` to each charging class (K,) of a group that can pay."""
        costs = self.budgets[place].costs(start, answered)
        return (self._present(place, start, start + len(answered)) * costs).sum(axis=1)

    def _affordable_by_group(self, answered: NDArray[np.bool_]) -> list[int]:
        """Return, for each group, the number of leading queries for which it can pay, given a mask of answered queries.

        Groups that share teachers pay together and stop voting together.
        """
        alone = [
            budget.affordable(answered, self._present(place, 0, len(answered)))
            for place, budget in enumerate(self.budgets)
        ]
        return [min(alone[other] for other in self.plan.family(place)) for place in range(len(alone))]

    def answer(
        self, part: slice, state: VoteState, people: People, records: Callable[[], Ballot], *, alone: bool, draws: Draws
    ) -> Arrays:
        """Return weighted counts ``sums`` (Q, C), and the charging class ``group`` (H,) of each person.

        A teacher does not vote if its group cannot pay, or if one of its members has a cap of 0 and so must leave the
        vote. The other members of a silent teacher are still charged until the vote ends, because their consents also
        affect whether the teacher votes.
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
        """Return the SHA-256 of consecutive labels, beginning at ``start``, and of any counts that determined them."""
        if counts is None:
            return labels_digest(start, labels, reinforced)
        return counts_digest(np.arange(start, start + len(labels)), labels, counts)

    def disagreements(self, state: VoteState, ballot: Ballot) -> NDArray[np.int64]:
        """Return the number (teachers,) of past disagreements of each teacher with the student."""
        votes = ballot.predictions[:, : len(state.guesses)]
        return ((votes != NO_VOTE) & (votes != state.guesses) & (state.guesses != NO_VOTE)).sum(axis=1)

    def silent(self, state: VoteState, people: People, ballot: Ballot) -> NDArray[np.bool_]:
        """Return a mask (teachers,) of the teachers that do not vote in the next batch."""
        silent = np.zeros(self.plan.teachers, dtype=np.bool_)
        for place in np.flatnonzero(~self.voting(state)):
            silent |= self.plan.members(int(place))
        silent[ballot.teachers_of(people.holders[people.caps == 0])] = True
        return silent

    def _probabilities(self, state: VoteState, part: slice) -> NDArray[np.float64] | None:
        return None if self.student is None else self.student(state.labels)[part]

    def _guesses(self, state: VoteState, part: slice) -> Labels | None:
        """Return the student's most likely classes (Q,); None in the plain vote that precedes residual votes."""
        if not any(budget.first is not None and budget.first <= part.start for budget in self.budgets):
            return None
        probabilities = self._probabilities(state, part)
        if probabilities is None or not probabilities.any():
            return None
        return probabilities.argmax(axis=1)

    def _affordable(self, state: VoteState, answered: NDArray[np.bool_]) -> int:
        """Return the number of leading queries of a batch, at least one, that every voting group can pay for."""
        affordable = self._affordable_by_group(np.append(state.answered, answered))
        return min(affordable[place] for place in np.flatnonzero(self.voting(state))) - len(state.labels)

    def _until_wanted(self, state: VoteState, answered: NDArray[np.bool_]) -> int:
        """Return the number of queries of the batch needed to reach the wanted number of labels."""
        if self.wanted_labels is None:
            return len(answered)
        return int(np.searchsorted(state.answered.sum() + np.cumsum(answered), self.wanted_labels)) + 1

    def _exhausted(self, before: VoteState, after: VoteState) -> list[int]:
        """Return the groups that cannot pay for the next query, if there is a next query."""
        if self.stop(after) in (Stop.ENOUGH, Stop.USED_UP):
            return []
        return np.flatnonzero(self.voting(before) & ~self.voting(after)).tolist()


def labels_digest(start: int, labels: Labels, reinforced: NDArray[np.bool_]) -> str:
    """Return the SHA-256 of released labels.

    Each entry consists of the row, counted from ``start``, and the label (None if the query was rejected); reinforced
    labels are marked.
    """
    entries: list[list[int | str | None]] = [
        [start + place, int(label) if label != REJECTED else None, *(["reinforced"] if own else [])]
        for place, (label, own) in enumerate(zip(labels, reinforced, strict=True))
    ]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
