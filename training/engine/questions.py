"""Protocol between the engine and a method: a run's questions to every holder, in rounds."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accounting.caps import epsilon_of
from common.artifacts import arrays_load
from common.noise import Noise, SimulationNoise, SystemNoise
from learning.mechanisms.protocol import Draws, People, Question
from learning.representations import FittedRepresentation
from training.engine.attempts import participants
from training.engine.records import records_of
from training.models import Batch, Query, Round, Run


@dataclass(frozen=True, eq=False)
class Released:
    """Release of a batch: ``size`` queries or steps, ``labels`` of them answered, ``queries`` without their batch.

    ``reinforced`` is the number of queries that keep a student's own label, which costs nothing. ``most`` is the
    largest charge of a charging class, if that can be more than the growth of its budget's largest charge.

    ``artifact`` is the file of everything that belongs to no single query; ``content`` is the register's description of
    the release; ``bounds`` are the most that anyone of each budget of the plan can have been charged, public numbers in
    μ²; for the budgets ``exhausted`` the next query costs too much.
    """

    size: int
    bounds: list[float]
    content: dict[str, Any]
    labels: int = 0
    reinforced: int = 0
    most: float = 0.0
    queries: list[Query] = field(default_factory=list)
    artifact: str = ""
    exhausted: Sequence[int] = ()


class Questions(ABC):
    """A method's questions to every holder.

    Attributes:
        shard: approximate number of holders in a shard, from the head counts, which are public. None if all answer at
            once, with the budget they had left before, so that a batch is asked and released in one transaction.
        release_kind: the kind of its releases, except those named by `kind_of`.
        died: the run's message after workers died repeatedly over the same holders; empty without shards.
    """

    shard: ClassVar[int | None]
    release_kind: ClassVar[str]
    died: ClassVar[str] = ""

    @abstractmethod
    def round_open(self, run: Run) -> Round:
        """Return the next round, not saved, although its file is. Reads no private data."""

    @abstractmethod
    def question(self, opened_round: Round) -> Question:
        """Return the question of a round, from its file and the plan of its run."""

    @abstractmethod
    def stop_reason(self, run: Run) -> str:
        """Return the reason why a run that has asked everything ends."""

    def kind_of(self, opened_round: Round) -> str:
        """Return the kind of a round's releases."""
        return self.release_kind

    def shard_of(self, opened_round: Round) -> int | None:
        """Return the number of holders in a shard of a round, as in ``shard``."""
        return self.shard

    def warm(self, run: Run) -> None:
        """Compute slow, cached results before the study is locked, starting with the question."""
        self.question(round_under_way(run))

    def is_over(self, opened_round: Round) -> bool:
        """Return whether nothing more is asked in a round; decided only for public reasons."""
        return opened_round.position >= opened_round.size

    def people(self, run: Run) -> People:
        """Return the people who are asked in the next batch.

        Each person's inclusion depends only on their own cap and account, and on public information.
        """
        return participants(run)

    def records(self, run: Run, fitted: FittedRepresentation | None, people: People, cache: str = "") -> Any:
        """Return the data that people answer from, kept in the file ``cache`` throughout a round if it is named."""
        return records_of(run, fitted, people.holders, cache)

    def spent(self, run: Run) -> list[float | None]:
        """Return the most that anyone of each promise was charged in total, in μ²; None if nothing protects them."""
        return run.spent

    def rehearsed(self, run: Run) -> dict[str, Any]:
        """Return how much each level of a rehearsal has spent, and how that was counted."""
        epsilons = [
            {
                "level": promise["level"],
                "epsilon": promise["epsilon"],
                "spent": None if charged is None else epsilon_of(charged, run.study.delta),
            }
            for promise, charged in zip(run.plan["promises"], self.spent(run), strict=True)
        ]
        return {"epsilons": epsilons, "method": "gdp", "conversion": "exact"}


def round_under_way(run: Run) -> Round:
    """Return the last round that was opened."""
    opened_round = run.rounds.latest("index")
    opened_round.run = run
    return opened_round


def position_in_round(batch: Batch) -> int:
    """Return the number of queries or steps of its round before a batch."""
    earlier = batch.run.batches.filter(round=batch.round_id, index__lt=batch.index)
    return sum(earlier.values_list("size", flat=True))


def batch_part(question: Question, opened_round: Round) -> slice:
    """Return the part of a round that the current batch asks."""
    return question.part(opened_round.run.batches.count(), opened_round.position, opened_round.run.batch_size)


def state_before(question: Question, opened_round: Round, index: int) -> Any:
    """Return the state before the batch ``index`` of the run. Raises FileNotFoundError."""
    earlier = opened_round.batches.filter(index__lt=index).exclude(released="").order_by("index").last()
    return question.state(None if earlier is None else arrays_load(earlier.released))


def draws_of(run: Run) -> Draws:
    """Return the sources of randomness for the current batch: the operating system's, or the seed's in a rehearsal."""
    return Draws(noise_of(run), seed_of(run))


# --- Noise ------------------------------------------------------------------------------------------------------------


def noise_of(run: Run) -> Noise:
    """Return the operating system's noise; in a rehearsal, noise from its seed."""
    seed = seed_of(run)
    return SystemNoise() if seed is None else SimulationNoise(seed)


def seed_of(run: Run) -> int | None:
    """Return the seed of the current batch; None except in a rehearsal."""
    return (run.seed or 0) * 1_000_003 + run.batches.count() if run.rehearsal else None
