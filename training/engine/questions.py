"""Protocol between the engine and what a method asks every holder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from common.noise import Noise
from training.models import Query, Round, Run

#: What a shard answered: ``holder`` (H,) ids, ``charge`` (H,) μ², and what the method adds; all of it secret.
Answer = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class People:
    """Holders who are asked: ``holders`` (H,) ids in rising order.

    Of their accounts, in μ², (H,) each: the ``caps``, the ``limits`` up to which they may go in the batch, and what is
    ``spent``.
    """

    holders: np.ndarray
    caps: np.ndarray
    limits: np.ndarray
    spent: np.ndarray

    def of(self, chosen: np.ndarray) -> "People":
        """Some of them, by a mask (H,)."""
        return People(self.holders[chosen], self.caps[chosen], self.limits[chosen], self.spent[chosen])


@dataclass(frozen=True, eq=False)
class Released:
    """Release of a batch: ``size`` queries or steps, ``labels`` of them answered, ``queries`` without their batch.

    ``artifact`` is the file of what is no query's; ``content`` says in the register what left; ``bounds`` are the most
    that anybody of each promise of the plan can have been charged, public numbers in μ²; ``charged`` is False where
    nobody is, because an earlier batch has charged them for this one; ``guesses`` are what a student took for likeliest
    before the vote, where it was asked.
    """

    size: int
    bounds: list[float]
    content: dict[str, Any]
    labels: int = 0
    queries: list[Query] = field(default_factory=list)
    artifact: str = ""
    charged: bool = True
    guesses: list[int] | None = None


class Questions(Protocol):
    """Questions of a method to every holder.

    Attributes:
        status: the status of a run in which it does.
        shard: holders in a shard, about; by the head counts, which are public.
        release_kind: the kind of its releases.
        died: what the run says once workers died over the same holders again and again.
    """

    status: str
    shard: int
    release_kind: str
    died: str

    def round_open(self, run: Run) -> Round:
        """The next round, not saved; its file is. Nothing private is looked at."""
        ...

    def taking_part(self, run: Run, people: People) -> People:
        """Those of the people whose consents count now who are asked in the next batch.

        Whether somebody is depends on their own cap and account, and on what is public.
        """
        ...

    def round_load(self, asked: Round) -> None:
        """Read what a round asks, so that it is known before a lock is taken."""
        ...

    def answer(self, asked: Round, people: People, *, alone: bool, cache: str, noise: Noise) -> Answer:
        """Contributions of the holders of a shard to the batch under way, without ``holder``.

        A shard that is ``alone``, with nobody else asked, may answer several questions one after the other, each with
        the release before in view: it then draws the ``noise`` of these releases itself, and nobody sees them before
        the commit. ``cache`` names a file for what is computed from records once in a round.
        """
        ...

    def release(self, asked: Round, answers: list[Answer], noise: Noise) -> Released:
        """Release from the answers of all shards; called under the study's lock, in the committing transaction."""
        ...

    def stop_reason(self, run: Run) -> str:
        """Reason for which a run that has asked everything ends."""
        ...

    def spent(self, run: Run) -> list[float | None]:
        """The most that anybody of each promise was charged in all, in μ²; None where nothing protects them."""
        ...
