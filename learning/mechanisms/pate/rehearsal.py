"""Question of a rehearsed vote: all of it at once, by the papers' data-dependent accounting. Nothing is promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.privacy import Conversion, Method
from common.noise import Noise
from learning.mechanisms.pate.aggregators import REJECTED
from learning.mechanisms.pate.plan import Group
from learning.mechanisms.pate.question import Ballot, Stop, TeachersQuestion, VoteState
from learning.mechanisms.pate.simulation import SimulatedVote, simulate_vote
from learning.mechanisms.pate.votes import NO_VOTE
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People


@dataclass(frozen=True, eq=False, kw_only=True)
class RehearsedVote(TeachersQuestion):
    """A vote of which :func:`learning.mechanisms.pate.simulate_vote` says the outcome; its one batch is everything.

    Attributes:
        groups: the levels of the rehearsal, by which the plan was made.
        delta, seed, method, conversion: as in that function.
        block: number of queries after which the student is asked again, where the aggregator asks one.
    """

    groups: tuple[Group, ...]
    delta: float
    seed: int
    method: Method
    conversion: Conversion
    block: int

    spread = None

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> VoteState | None:  # type: ignore[override]
        """None before the vote: it can end before its first label."""
        return None if released is None else super().state(released)

    def stop(self, state: VoteState | None) -> Stop | None:
        return None if state is None else super().stop(state) or Stop.SHARE

    def simulated(self, ballot: Ballot) -> SimulatedVote:
        """Hold the whole vote."""
        return simulate_vote(
            self.plan,
            self.groups,
            ballot.predictions,
            self.n_classes,
            delta=self.delta,
            seed=self.seed,
            method=self.method,
            conversion=self.conversion,
            student=self.student,
            block=None if self.student is None else self.block,
            wanted_labels=self.wanted_labels,
        )

    def answer(  # type: ignore[override]
        self,
        part: slice,
        state: VoteState,
        people: People,
        records: Callable[[], SimulatedVote],
        *,
        alone: bool,
        draws: Draws,
    ) -> dict[str, Any]:
        vote = records()
        return {
            "labels": vote.labels,
            "reinforced": ~vote.answered & (vote.labels != REJECTED),
            "epsilons": vote.epsilons,
            "group": np.empty(0, np.int64),
            **({} if vote.counts is None else {"counts": vote.counts}),
        }

    def release(self, part: slice, state: VoteState, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        (answer,) = answers
        labels, reinforced = answer["labels"], answer["reinforced"]
        after = VoteState(labels, np.full(len(labels), NO_VOTE), reinforced)
        return PartRelease(
            size=len(labels),
            content={},
            arrays={**after.to_arrays(), "epsilons": answer["epsilons"]},
            rows=range(len(labels)),
            labels=[int(label) if label != REJECTED else None for label in labels],
            reinforced=reinforced.tolist(),
            counts=answer["counts"].tolist() if "counts" in answer else [],
            charges=[],
        )
