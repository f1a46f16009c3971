"""What a method of learning tells the services: the protocol, and what methods that ask every holder have in common.

Nothing outside the modules of methods asks which one a run has.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from django.utils.functional import Promise
from django.utils.translation import gettext_noop

from accounting.models import Release
from common.sentences import Sentence
from learning.mechanisms.choices import Choices
from learning.outcomes import Classes
from training.engine.asking import Asking
from training.engine.budgets import PlannedPromise
from training.engine.commits import batch_faults
from training.engine.questions import Questions, position_in_round
from training.methods.lessons import Lesson
from training.methods.planning import MethodPlan, budgets_of
from training.models import Batch, Run

Wrong = Callable[[str, object], None]
"""Notes what is wrong with a proposal: ``wrong(field, message)``."""

Tile = tuple[str, int, Sentence | None]
"""Label, number so far, and what the number is of; English, marked for translation."""

Step = Callable[[Run], bool]
"""Takes a run one step further: True where the next step can follow at once, False where the run has to wait."""


class Table(Protocol):
    """What a run of a `TableMethod` publishes: a table of counts, or synthetic rows."""

    def __len__(self) -> int:
        """Number of its cells or rows."""
        ...

    def to_json(self) -> dict[str, Any]:
        """JSON that is kept of it, with lists in place of tuples."""
        ...

    def to_csv(self) -> str:
        """Its file, with a heading."""
        ...


class MethodOutcome(StrEnum):
    """What runs by a method lead to."""

    MODEL = "model"
    TABLE = "table"


@dataclass(frozen=True)
class Stage:
    """A stage of a run under way.

    Attributes:
        name: what the API calls it.
        label: what it is for people, translated.
        share: how much of it is done, 0 to 1, as it may leave staff.
    """

    name: str
    label: str | Promise
    share: float


def stage_asking(run: Run, share: float) -> Stage:
    """The stage in which a run spends its share."""
    return Stage("asking", Run.Method(run.method).label, share)


class RunMethod(Protocol):
    """A method of learning, as the services see it. By its outcome it is a `ModelMethod` or a `TableMethod`.

    Attributes:
        name: a :class:`training.models.Run.Method`.
        variants: the :class:`training.models.Run.Variant` that it carries out; "" of a method without variants.
        rehearsed_variants: those of them that only a rehearsal may have.
        outcome: what its runs lead to.
        learns: kinds of `learning.outcomes` that it can learn, or count without.
        parts: the prefix of the components that show it on pages, such as ``sgd`` of ``sgd_plan``.
        needs_public_points: whether a run has to name a public dataset.
        steps: what is done in each status of a run of this method, from its approval until everything is released.
        release_kind: the kind of its releases that belong to a batch, but for those that `kind_of` names.
        charges_ahead: whether a run is charged whole before it releases anything.
        charges_promises_of_approval: whether a run charges by the promises of its approval to its end.
        releases_labels: whether its batches are public points with their labels, each a query.
        batch_size: how many queries or steps are released together where a proposal does not say.
        charged: what the charges of its runs are, for people; English, marked for translation, as all texts here.
        curves_help: what the chart of its curves shows; empty where it has none.
        batch_label: what the number of a batch is, for people; empty where everything is one batch.
    """

    name: str
    variants: tuple[str, ...]
    rehearsed_variants: tuple[str, ...]
    outcome: MethodOutcome
    learns: tuple[str, ...]
    parts: str
    needs_public_points: bool
    steps: Mapping[str, Step]
    release_kind: str
    charges_ahead: bool
    charges_promises_of_approval: bool
    releases_labels: bool
    batch_size: int
    batch_label: str
    charged: str
    curves_help: str

    @property
    def choices(self) -> type[Choices]:
        """Description of what ``choices`` of a run may hold."""
        ...

    @property
    def asking(self) -> Asking:
        """Engine that asks every holder, or the teachers that answer for them."""
        ...

    def check(self, run: Run, wrong: Wrong) -> None:
        """Note what is wrong with the method's own fields of a proposal; nothing private is looked at."""
        ...

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        """Facts of a proposal beside the choices: a label, and what it says."""
        ...

    def counted(self, run: Run) -> Sentence:
        """Sentence on how a rehearsal by the method counted its costs."""
        ...

    def tiles(self, run: Run) -> list[Tile]:
        """Numbers of what a run has released so far."""
        ...

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> MethodPlan:
        """Plan a run, saved or not, with the promises that were counted or with others.

        Raises PlanError, which says what to do.
        """
        ...

    def may_go_on(self, run: Run) -> bool:
        """Whether a run that waited can go on now."""
        ...

    def round_sizes(self, run: Run) -> list[int]:
        """Number of queries or steps of each round of the run's plan; none of a method without rounds."""
        ...

    def size(self, run: Run) -> int:
        """Largest number of queries or steps of the run."""
        ...

    def mechanism(self, run: Run) -> dict[str, Any]:
        """Mechanism of what was released, for the model card; ``name`` says what it is."""
        ...

    def stages(self, run: Run) -> list[Stage]:
        """Stages of the run until everything is released, in the order in which they follow."""
        ...

    def curves(self, run: Run) -> dict[str, list[float]]:
        """Public quantities after every query or step so far, by name, for a chart; none if there are no such."""
        ...

    def leads(self, run: Run) -> list[list[float]]:
        """Of each round, the shares of its labels by how much they lead; empty where no counts are released."""
        ...

    def kind_of(self, batch: Batch) -> str:
        """Kind of the release of a batch."""
        ...

    def releases_counts(self, run: Run) -> bool:
        """Return whether the run releases the noisy counts behind its labels."""
        ...

    def exhausted(self, run: Run) -> set[int]:
        """Places of the plan's budgets for which the next query is too dear, so that nobody behind them votes."""
        ...

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        """Differences between a batch and the release that paid for it, in words."""
        ...

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        """Charges of a batch that differ from the same charges computed anew from what was kept."""
        ...


class ModelMethod(RunMethod, Protocol):
    """A method whose runs lead to a model: a student that learns from what they release, or what they release."""

    def lesson(self, run: Run) -> Lesson:
        """Lesson that the student of the run learns from."""
        ...


class TableMethod(RunMethod, Protocol):
    """A method whose runs lead to a table."""

    def table(self, run: Run) -> Table:
        """The table that follows from what the run has released."""
        ...


# --- Methods that ask every holder ------------------------------------------------------------------------------------


class EngineMethod(ABC):
    """A method whose ``questions`` every holder is asked. See :class:`training.methods.base.RunMethod`."""

    questions: ClassVar[Questions]
    rehearsed_variants: tuple[str, ...] = ()
    outcome = MethodOutcome.MODEL
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
