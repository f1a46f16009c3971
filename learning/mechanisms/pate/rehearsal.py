"""Question of a rehearsed vote: all of it at once, by the papers' data-dependent accounting. Nothing is promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.privacy import Conversion, Method
from common.noise import Noise
from learning.mechanisms.base import Arrays, Draws, People, Release
from learning.mechanisms.pate.aggregators import REJECTED
from learning.mechanisms.pate.plan import Group
from learning.mechanisms.pate.question import Ballot, Stop, TeachersQuestion, VoteState
from learning.mechanisms.pate.simulation import simulate_vote
from learning.mechanisms.pate.votes import NO_VOTE


@dataclass(frozen=True, eq=False, kw_only=True)
class RehearsedVote(TeachersQuestion):
    """A vote of which :func:`learning.mechanisms.pate.simulate_vote` says the outcome; its one batch is everything.

    Attributes:
        groups: the levels of the rehearsal, by which the plan was made.
        delta, seed, method, conversion: as in that function.
    """

    groups: tuple[Group, ...]
    delta: float
    seed: int
    method: Method
    conversion: Conversion

    spread = None

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> VoteState | None:  # type: ignore[override]
        """None before the vote: it can end before its first label."""
        return None if released is None else super().state(released)

    def stop(self, state: VoteState | None) -> Stop | None:
        return None if state is None else super().stop(state) or Stop.SHARE

    def answer(
        self, part: slice, state: VoteState, people: People, records: Callable[[], Ballot], *, alone: bool, draws: Draws
    ) -> dict[str, Any]:
        vote = simulate_vote(
            self.plan,
            self.groups,
            records().predictions,
            self.n_classes,
            delta=self.delta,
            seed=self.seed,
            method=self.method,
            conversion=self.conversion,
            wanted_labels=self.wanted_labels,
        )
        labels = np.where(vote.answered, vote.labels, REJECTED)
        return {"labels": labels, "epsilons": vote.epsilons, "group": np.empty(0, np.int64)}

    def release(self, part: slice, state: VoteState, answers: Sequence[Arrays], noise: Noise) -> Release:
        (answer,) = answers
        labels = answer["labels"]
        after = VoteState(labels, np.full(len(labels), NO_VOTE))
        return Release(
            size=len(labels),
            content={},
            arrays={**after.to_arrays(), "epsilons": answer["epsilons"]},
            rows=range(len(labels)),
            labels=[int(label) if label != REJECTED else None for label in labels],
            charges=[],
        )
