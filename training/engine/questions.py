"""Protocol between the engine and a method: the questions of a run, in rounds, to every holder."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from common.artifacts import arrays_load
from learning.mechanisms.base import Draws, People, Question
from training.engine import noise
from training.models import Query, Round, Run


@dataclass(frozen=True, eq=False)
class Released:
    """Release of a batch: ``size`` queries or steps, ``labels`` of them answered, ``queries`` without their batch.

    ``artifact`` is the file of what is no query's; ``content`` says in the register what left; ``bounds`` are the most
    that anybody of each promise of the plan can have been charged, public numbers in μ²; ``guesses`` are what a student
    took for likeliest before the vote, where it was asked.
    """

    size: int
    bounds: list[float]
    content: dict[str, Any]
    labels: int = 0
    queries: list[Query] = field(default_factory=list)
    artifact: str = ""
    guesses: list[int] | None = None


class Questions(ABC):
    """Questions of a method to every holder.

    Attributes:
        shard: holders in a shard, about; by the head counts, which are public.
        release_kind: the kind of its releases.
        died: what the run says once workers died over the same holders again and again.
    """

    shard: ClassVar[int]
    release_kind: ClassVar[str]
    died: ClassVar[str]

    @abstractmethod
    def round_open(self, run: Run) -> Round:
        """The next round, not saved; its file is. Nothing private is looked at."""

    @abstractmethod
    def question(self, opened_round: Round) -> Question:
        """Question of a round, from its file and the plan of its run."""

    @abstractmethod
    def stop_reason(self, run: Run) -> str:
        """Reason for which a run that has asked everything ends."""

    def taking_part(self, run: Run, people: People) -> People:
        """Those of the people whose consents count now who are asked in the next batch.

        Whether somebody is depends on their own cap and account, and on what is public.
        """
        del run
        return people

    def spent(self, run: Run) -> list[float | None]:
        """The most that anybody of each promise was charged in all, in μ²; None where nothing protects them."""
        return run.spent


def batch_part(question: Question, opened_round: Round) -> slice:
    """The part of a round that the batch under way asks."""
    return question.part(opened_round.run.batches.count(), opened_round.position, opened_round.run.batch_size)


def state_before(question: Question, opened_round: Round, index: int) -> Any:
    """State before the batch ``index`` of the run. Raises FileNotFoundError."""
    earlier = opened_round.batches.filter(index__lt=index).exclude(released="").order_by("index").last()
    return question.state(None if earlier is None else arrays_load(earlier.released))


def draws_of(run: Run) -> Draws:
    """Sources of chance of the batch under way: the operating system's, in a rehearsal what its seed says."""
    return Draws(noise.noise_of(run), noise.seed_of(run))
