"""Methods that count people in cells: what tables of counts and synthetic rows tell the services alike."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from numpy.typing import NDArray

from accounting.models import Release
from common.artifacts import arrays_load
from learning.mechanisms.choices import Choices
from learning.mechanisms.counts.question import CountsQuestion, sums_digest
from learning.mechanisms.synthesis.planner import is_counted
from training.engine.attempts import attempt_load
from training.engine.coordinates import records_of
from training.engine.faults import charged_faults
from training.engine.questions import Questions
from training.methods.base import Outcome, Wrong
from training.methods.choices import choices_check
from training.methods.engine import EngineMethod
from training.methods.plans import MethodPlan
from training.models import Batch, Run


@dataclass(frozen=True)
class CountedPlan(MethodPlan):
    """Plan of a run that leads to a table: its rounds, with what each may use."""

    rounds: list[dict[str, Any]]

    def details(self) -> dict[str, Any]:
        """JSON of the rounds."""
        return {"rounds": self.rounds}


class Cells(Questions):
    """See :class:`training.engine.questions.Questions`."""

    shard = 200_000
    release_kind = Release.Kind.TABLE.value
    died = gettext_noop(
        "Workers died again and again over the counts of the same holders; most likely their memory did not suffice. "
        "Give the workers more memory."
    )

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.COUNTED


class CountedMethod(EngineMethod):
    """See :class:`training.methods.base.TableMethod`."""

    variants: tuple[str, ...] = ("",)
    outcome = Outcome.TABLE
    charged = gettext_noop(
        "Charges are public: the most that anybody of a level can have been charged. What somebody was charged is "
        "less where their records are spread over cells, and stays a secret."
    )
    choices: type[Choices]
    needs_public_points = False
    batch_label = ""
    releases_labels = False
    batch_size = 1

    def check(self, run: Run, wrong: Wrong) -> None:
        if run.variant not in self.variants:
            run.variant = self.variants[0]
        if run.variant in self.rehearsed_variants and not run.rehearsal:
            wrong("variant", _("This variant is for rehearsal studies."))
        if run.wanted_labels is not None:
            wrong("wanted_labels", _("Nobody is asked for labels where people are counted."))
        for field in ("public_dataset", "test_dataset", "labelled_dataset"):
            if getattr(run, f"{field}_id"):
                wrong(field, _("Whoever counts people needs the private dataset alone. Leave this empty."))
        chosen = choices_check(run, wrong, self.choices)
        if chosen is not None and run.private_dataset_id:
            self.check_columns(run, chosen, wrong)

    @abstractmethod
    def check_columns(self, run: Run, chosen: Any, wrong: Wrong) -> None:
        """Note what is wrong with the choices for the columns that the private dataset declares."""

    def round_sizes(self, run: Run) -> list[int]:
        return [CountsQuestion.size for _each in run.plan.get("rounds", [])]

    def size(self, run: Run) -> int:
        return sum(self.round_sizes(run))

    def kept_faults(self, batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
        return counts_kept_faults(batch, release, question)

    def charges_faults(self, batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
        return counts_charges_faults(batch, release, question)


def counts_kept_faults(batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
    """See :meth:`training.methods.engine.EngineMethod.kept_faults`."""
    who = f"run {batch.run_id}, batch {batch.index}"
    try:
        sums = sums_of(batch)
    except (OSError, KeyError, ValueError):
        yield f"{who}: what it released cannot be read."
        return
    if sums.shape != (question.cells,):
        yield f"{who}: released other tables than its plan says."
    if release.content["digest"] != sums_digest(sums):
        yield f"release {release.sequence}: the counts of {who} are not those that were released."


def counts_charges_faults(batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
    """See :meth:`training.methods.engine.EngineMethod.charges_faults`."""
    people = attempt_load(batch.attempt)
    _sums, due = question.contributions(people, records_of(batch.run, None, people.holders))
    yield from charged_faults(batch, release, people.holders, due)


def rounds_of_counts(run: Run) -> int:
    """Number of rounds of a run's plan that count people for rows."""
    return sum(map(is_counted, run.plan.get("rounds", [])))


def sums_of(batch: Batch) -> NDArray[np.int64]:
    """What a batch released, (cells,)."""
    return arrays_load(batch.released)["sums"]
