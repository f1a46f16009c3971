"""Interface between learning methods and services, and the code shared by methods that ask every holder.

Code outside the modules of methods does not depend on which method a run uses.
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
from training.methods.planning import MethodPlan, budgets_of
from training.methods.student_training import StudentData
from training.models import Batch, Run

Wrong = Callable[[str, object], None]
"""Callback that reports an error in a proposal: ``wrong(field, message)``."""

Tile = tuple[str, int, Sentence | None]
"""Label, number so far, and unit. The texts are in English, marked for translation."""


@dataclass(frozen=True)
class Amount:
    """Amount that a run releases, as a number of labels, steps, cells or rows.

    Attributes:
        unit: one of `UNITS`.
        most: the largest number that the plan allows.
        so_far: the number released so far.
        affordable: the minimum number that the budgets can pay for; None if they cannot run out.
    """

    unit: str
    most: int
    so_far: int
    affordable: int | None = None


UNITS = ("labels", "steps", "cells", "rows")

Step = Callable[[Run], bool]
"""Function that advances a run. It returns True if the next step can follow immediately, False if the run must wait."""


class ResultTable(Protocol):
    """Result of a run of a `TableMethod`: a table of counts, or synthetic rows."""

    def __len__(self) -> int:
        """Return the number of cells or rows."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return JSON for storage, with lists instead of tuples."""
        ...

    def to_csv(self) -> str:
        """Return the table as a CSV file with a header."""
        ...


class MethodOutcome(StrEnum):
    """Kind of result that a method's runs produce."""

    MODEL = "model"
    TABLE = "table"


@dataclass(frozen=True)
class RunStage:
    """Stage of a run in progress.

    Attributes:
        name: the stage's name in the API.
        label: its name on pages, translated.
        share: the completed share, 0 to 1, rounded so that it may be shown to people other than staff.
    """

    name: str
    label: str | Promise
    share: float


def stage_asking(run: Run, share: float) -> RunStage:
    """Return the stage in which a run spends its share of the caps."""
    return RunStage("asking", Run.Method(run.method).label, share)


class RunMethod(Protocol):
    """Learning method as used by the services: a `ModelMethod` or a `TableMethod`, depending on its outcome.

    Attributes:
        name: a :class:`training.models.Run.Method`.
        variants: the :class:`training.models.Run.Variant` values that it implements; "" for a method without variants.
        rehearsed_variants: the variants that are allowed only in rehearsals.
        outcome: the outcome of its runs.
        learns: kinds of outcomes (`learning.outcomes`) that its runs can learn.
        parts: the prefix of the components that display it on pages, such as ``sgd`` in ``sgd_plan``.
        needs_public_points: whether a run requires a public dataset.
        steps: the step for each status of a run, from its approval until everything is released.
        release_kind: the kind of its batches' releases, unless `kind_of` returns another one.
        charges_ahead: whether a run is fully charged before it releases anything.
        charges_promises_of_approval: whether charges are based on the promises at a run's approval, even if promises
            change later.
        releases_labels: whether its batches are public points with labels, one query each.
        batch_size: default number of queries or steps that are released together.
        charged: explanation of what its runs charge people. Like all texts of this class, it is in English, marked for
            translation.
        curves_help: explanation of the chart of `curves`; empty if there is none.
        batch_label: label of the batch number on pages; empty if everything is one batch.
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
        """Class that describes the fields that a run's ``choices`` may have."""
        ...

    @property
    def asking(self) -> Asking:
        """Engine that asks every holder, or the teachers on their behalf."""
        ...

    def check(self, run: Run, wrong: Wrong) -> None:
        """Report errors in the method's own fields of a proposal, without reading private data."""
        ...

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        """Return facts about a proposal other than its choices, each with a label and texts."""
        ...

    def counted(self, run: Run) -> Sentence:
        """Return a sentence about how costs were computed in a rehearsal of this method."""
        ...

    def tiles(self, run: Run) -> list[Tile]:
        """Return tiles that show the extent of the run's releases so far."""
        ...

    def amount(self, run: Run) -> Amount:
        """Return the amount that a planned run will release."""
        ...

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> MethodPlan:
        """Plan a run, saved or not, for ``promises`` or, by default, for those in the study's head counts.

        Raises PlanError, whose message contains the remedy.
        """
        ...

    def can_continue(self, run: Run) -> bool:
        """Return whether a waiting run can continue now."""
        ...

    def round_sizes(self, run: Run) -> list[int]:
        """Return the number of queries or steps of each planned round of the run; empty for a method without rounds."""
        ...

    def size(self, run: Run) -> int:
        """Return the maximum number of queries or steps of the run."""
        ...

    def mechanism(self, run: Run) -> dict[str, Any]:
        """Return a description of the mechanism for the model card; ``name`` identifies the mechanism."""
        ...

    def stages(self, run: Run) -> list[RunStage]:
        """Return the run's stages in order, until everything is released."""
        ...

    def curves(self, run: Run) -> dict[str, list[float]]:
        """Return public quantities after each query or step so far, by name, for a chart (empty if there is none)."""
        ...

    def leads(self, run: Run) -> list[list[float]]:
        """Return, for each round, the distribution of the winning labels' leads; empty if no counts are released.

        See :func:`training.methods.neighbours.round_leads`.
        """
        ...

    def kind_of(self, batch: Batch) -> str:
        """Return the kind of a batch's release."""
        ...

    def releases_counts(self, run: Run) -> bool:
        """Return whether the run releases the noisy counts behind its labels."""
        ...

    def exhausted(self, run: Run) -> set[int]:
        """Return the indices of the plan's budgets that cannot pay for the next query; their holders do not vote."""
        ...

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        """Yield messages about differences between a batch and its release in the register."""
        ...

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        """Yield messages about charges of a batch that differ from those recomputed from the stored data."""
        ...


class ModelMethod(RunMethod, Protocol):
    """Method whose runs produce a model: a student trained on their releases, or the released model itself."""

    def student_data(self, run: Run) -> StudentData:
        """Return the training data of the run's student."""
        ...


class TableMethod(RunMethod, Protocol):
    """Method whose runs produce a table."""

    def table(self, run: Run) -> ResultTable:
        """Return the table computed from the run's releases."""
        ...


# --- Methods that ask every holder ------------------------------------------------------------------------------------


class EngineMethod(ABC):
    """Method that asks every holder ``questions``. See :class:`training.methods.base.RunMethod`."""

    questions: ClassVar[Questions]
    rehearsed_variants: tuple[str, ...] = ()
    outcome = MethodOutcome.MODEL
    learns: tuple[str, ...] = (Classes.kind,)
    needs_public_points = True
    charges_ahead = False
    charges_promises_of_approval = False
    curves_help = ""
    #: Whether forecasts depend on the number of people whose answers are added up.
    forecast_by_people = True

    def __init__(self) -> None:
        self.asking = Asking(self.questions)
        self.release_kind = self.questions.release_kind
        self.steps: Mapping[str, Step] = {Run.Status.APPROVED: self.asking.open, Run.Status.ASKING: self.asking.step}

    def can_continue(self, run: Run) -> bool:
        return self.asking.can_continue(run)

    def joined(
        self, run: Run, hub_plan: Mapping[str, Any], promises: list[PlannedPromise], share: float
    ) -> tuple[list[PlannedPromise], Sequence[Any]]:
        """Return the promises and budgets of a site's own people under the hub's plan. Raises PlanError."""
        return promises, budgets_of(run, promises, share)

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        return []

    def counted(self, run: Run) -> Sentence:
        return Sentence(
            gettext_noop("The maximum charge for any person at a level, measured in Gaussian differential privacy.")
        )

    def stages(self, run: Run) -> list[RunStage]:
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
        """Return the number of queries or steps of each planned round of the run."""

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        if batch.round is None or batch.round.run_id != run.pk:
            yield f"run {run.pk}, batch {batch.index}: does not belong to a round of its run."
            return
        question = self.questions.question(batch.round)
        bounds, most = self.bounds(question, batch), self.largest_class(question, batch)
        yield from batch_faults(question, batch, release, bounds, most)
        yield from self.kept_faults(batch, release, question)

    def bounds(self, question: Any, batch: Batch) -> list[float] | None:
        """Return, for each of the plan's budgets, the largest possible charge to anyone for a batch, in μ²."""
        start = position_in_round(batch)
        return question.bounds(question.part(batch.index, start, batch.size))

    def largest_class(self, question: Any, batch: Batch) -> float:
        """Return the largest charge of a charging class for a batch, in μ²; 0 if budgets have no classes."""
        return 0.0

    @abstractmethod
    def kept_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """Yield messages about differences between a batch's stored data, its release, and its question's result."""

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        assert batch.round is not None, "a batch of this method belongs to a round"
        yield from self.charges_faults(batch, release, self.questions.question(batch.round))

    @abstractmethod
    def charges_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """Yield messages about a batch's charges that differ from the recomputed ones."""
