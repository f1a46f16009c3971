"""Methods that ask every holder: what all of them tell the services alike."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from django.utils.translation import gettext_noop

from accounting.models import Release
from common.sentences import Sentence
from learning.outcomes import Classes
from training.engine.asking import Asking
from training.engine.budgets import PlannedPromise
from training.engine.faults import batch_faults
from training.engine.questions import Questions, position_in_round
from training.methods.base import Outcome, Stage, Step, stage_asking
from training.methods.levels import budgets_of
from training.models import Batch, Run


class EngineMethod(ABC):
    """A method whose ``questions`` every holder is asked. See :class:`training.methods.base.RunMethod`."""

    questions: ClassVar[Questions]
    rehearsed_variants: tuple[str, ...] = ()
    outcome = Outcome.MODEL
    learns: tuple[str, ...] = (Classes.kind,)
    needs_public_points = True
    charges_ahead = False
    charges_promises_of_approval = False
    curves_help = ""
    #: Whether what is forecast follows from the people whose answers are added up.
    forecast_by_people = True

    def __init__(self) -> None:
        self.asking = Asking(self.questions)
        self.release_kind = self.questions.release_kind
        self.steps: Mapping[str, Step] = {
            Run.Status.APPROVED: self.asking.open,
            Run.Status.ASKING: self.asking.step,
        }

    def may_go_on(self, run: Run) -> bool:
        return self.asking.may_go_on(run)

    def joined(
        self, run: Run, hub_plan: Mapping[str, Any], promises: list[PlannedPromise], share: float
    ) -> tuple[list[PlannedPromise], Sequence[Any]]:
        """Promises and budgets of a site's own people, under the plan that its hub has told. Raises PlanError."""
        return promises, budgets_of(run, promises, share)

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        return []

    def counted(self, run: Run) -> Sentence:
        return Sentence(
            gettext_noop("The most that anybody of a level can have been charged, in Gaussian differential privacy.")
        )

    def stages(self, run: Run) -> list[Stage]:
        planned = sum(self.round_sizes(run))
        return [stage_asking(run, run.position / planned if planned else 0.0)]

    def curves(self, run: Run) -> dict[str, list[float]]:
        return {}

    def leads(self, run: Run) -> list[list[float]]:
        return []

    def kind_of(self, batch: Batch) -> str:
        return self.release_kind if batch.round is None else self.questions.kind_of(batch.round)

    def releases_counts(self, run: Run) -> bool:
        return self.release_kind == Release.Kind.COUNTS

    def exhausted(self, run: Run) -> set[int]:
        return set()

    @abstractmethod
    def round_sizes(self, run: Run) -> list[int]:
        """Number of queries or steps of each round of the run's plan."""

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        if batch.round is None or batch.round.run_id != run.pk:
            yield f"run {run.pk}, batch {batch.index}: is in no round of its run."
            return
        question = self.questions.question(batch.round)
        bounds, most = self.bounds(question, batch), self.largest_class(question, batch)
        yield from batch_faults(question, batch, release, bounds, most)
        yield from self.kept_faults(batch, release, question)

    def bounds(self, question: Any, batch: Batch) -> list[float] | None:
        """The most that anybody of each budget of the plan can have been charged for a batch, in μ²."""
        start = position_in_round(batch)
        return question.bounds(question.part(batch.index, start, batch.size))

    def largest_class(self, question: Any, batch: Batch) -> float:
        """Return the largest charge of a charging class for a batch, in μ²; 0 where budgets have none within them."""
        return 0.0

    @abstractmethod
    def kept_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """Differences between what is kept of a batch, its release, and what follows from its question."""

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        assert batch.round is not None, "a batch by this method is in a round"
        yield from self.charges_faults(batch, release, self.questions.question(batch.round))

    @abstractmethod
    def charges_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """Charges of a batch that differ from the same charges computed anew."""
