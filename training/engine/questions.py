"""Protocol between the engine and a method: the questions of a run, in rounds, to every holder."""

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
    largest charge of a charging class, where that can be more than the growth of its budget's largest charge.

    ``artifact`` is the file of what is no query's; ``content`` says in the register what left; ``bounds`` are the most
    that anybody of each budget of the plan can have been charged, public numbers in μ²; for the budgets ``exhausted``
    the next query has become too dear.
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
    """Questions of a method to every holder.

    Attributes:
        shard: holders in a shard, about; by the head counts, which are public. None where all answer at once, from
            what they left before, so that a batch is asked and released in one transaction.
        release_kind: the kind of its releases, but for those that `kind_of` names.
        died: what the run says once workers died over the same holders again and again; empty without shards.
    """

    shard: ClassVar[int | None]
    release_kind: ClassVar[str]
    died: ClassVar[str] = ""

    @abstractmethod
    def round_open(self, run: Run) -> Round:
        """The next round, not saved; its file is. Nothing private is looked at."""

    @abstractmethod
    def question(self, opened_round: Round) -> Question:
        """Question of a round, from its file and the plan of its run."""

    @abstractmethod
    def stop_reason(self, run: Run) -> str:
        """Reason for which a run that has asked everything ends."""

    def kind_of(self, opened_round: Round) -> str:
        """Kind of the releases of a round."""
        return self.release_kind

    def shard_of(self, opened_round: Round) -> int | None:
        """Holders in a shard of a round, as ``shard`` says."""
        return self.shard

    def warm(self, run: Run) -> None:
        """Compute, before the study is locked, what is kept and takes long: the question, to begin with."""
        self.question(round_under_way(run))

    def is_over(self, opened_round: Round) -> bool:
        """Whether nothing more is asked in a round; for public reasons alone."""
        return opened_round.position >= opened_round.size

    def people(self, run: Run) -> People:
        """Who is asked in the next batch.

        Whether somebody is depends on their own cap and account, and on what is public.
        """
        return participants(run)

    def records(self, run: Run, fitted: FittedRepresentation | None, people: People, cache: str = "") -> Any:
        """What people answer from, kept in the file ``cache`` throughout a round, if it is named."""
        return records_of(run, fitted, people.holders, cache)

    def spent(self, run: Run) -> list[float | None]:
        """The most that anybody of each promise was charged in all, in μ²; None where nothing protects them."""
        return run.spent

    def rehearsed(self, run: Run) -> dict[str, Any]:
        """What each level of a rehearsal has spent, and how that was counted."""
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
    """The last round that was opened."""
    opened_round = run.rounds.latest("index")
    opened_round.run = run
    return opened_round


def position_in_round(batch: Batch) -> int:
    """Number of queries or steps of its round before a batch."""
    earlier = batch.run.batches.filter(round=batch.round_id, index__lt=batch.index)
    return sum(earlier.values_list("size", flat=True))


def batch_part(question: Question, opened_round: Round) -> slice:
    """The part of a round that the batch under way asks."""
    return question.part(opened_round.run.batches.count(), opened_round.position, opened_round.run.batch_size)


def state_before(question: Question, opened_round: Round, index: int) -> Any:
    """State before the batch ``index`` of the run. Raises FileNotFoundError."""
    earlier = opened_round.batches.filter(index__lt=index).exclude(released="").order_by("index").last()
    return question.state(None if earlier is None else arrays_load(earlier.released))


def draws_of(run: Run) -> Draws:
    """Sources of chance of the batch under way: the operating system's, in a rehearsal what its seed says."""
    return Draws(noise_of(run), seed_of(run))


# --- Noise ------------------------------------------------------------------------------------------------------------


def noise_of(run: Run) -> Noise:
    """The operating system's; in a rehearsal what its seed says."""
    seed = seed_of(run)
    return SystemNoise() if seed is None else SimulationNoise(seed)


def seed_of(run: Run) -> int | None:
    """Seed of the batch under way, in a rehearsal alone."""
    return (run.seed or 0) * 1_000_003 + run.batches.count() if run.rehearsal else None
