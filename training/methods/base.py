"""Protocol between a method of learning and the services: nothing outside its modules asks which one a run has."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from django.utils.functional import Promise

from accounting.models import Release
from common.sentences import Sentence
from learning.mechanisms.choices import Choices
from training.engine.asking import Asking
from training.engine.budgets import PlannedPromise
from training.methods.lessons import Lesson
from training.methods.plans import MethodPlan
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


class Outcome(StrEnum):
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
        parts: the folder of ``templates/staff/runs`` that renders its parts of pages.
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
    outcome: Outcome
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
