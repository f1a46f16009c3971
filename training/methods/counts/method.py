"""Tables of counts: one question to every holder, whose noisy answer is the result of the run."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from common.artifacts import arrays_load
from common.sentences import Sentence
from learning.formats import schema_from_json
from learning.mechanisms.base import PlanError
from learning.mechanisms.counts.choices import Counts
from learning.mechanisms.counts.columns import Column, columns_of
from learning.mechanisms.counts.planner import CountsPlan, counts_plan_from_json, plan_counts, plan_notes
from learning.mechanisms.counts.question import CountsQuestion, sums_digest
from learning.mechanisms.counts.table import CountTable
from learning.outcomes import KINDS
from training.engine.attempts import attempt_load
from training.engine.budgets import Budget, PlannedPromise, promises_counted
from training.engine.coordinates import records_of
from training.engine.faults import charged_faults
from training.engine.questions import Questions
from training.methods.asked import AskedMethod
from training.methods.base import Outcome, Tile, Wrong
from training.methods.choices import choices_check
from training.methods.levels import budgets_of, levels_of, share_warning
from training.models import Batch, Round, Run

_SPACE = Sentence(gettext_noop("The cells of the table, by what the schema declares."))


@dataclass(frozen=True)
class TablePlan:
    """Plan of a table with what it rests on; ``budgets`` stand beside ``promises``."""

    promises: list[PlannedPromise]
    budgets: list[Budget]
    table: CountsPlan
    notes: tuple[Sentence, ...]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The only round: it may use the whole share."""
        return [{"table": self.table.to_json() | {"error": self.table.error}, "until": 1.0}]

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of its plan."""
        return {
            "promises": [asdict(promise) for promise in self.promises],
            "budgets": [asdict(budget) for budget in self.budgets],
            "rounds": self.rounds,
            "notes": [note.to_json() for note in self.notes],
        }


class Cells(Questions):
    """See :class:`training.engine.questions.Questions`."""

    shard = 200_000
    release_kind = Release.Kind.TABLE.value
    died = gettext_noop(
        "Workers died again and again over the counts of the same holders; most likely their memory did not suffice. "
        "Give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        question = _question(run)
        return Round(run=run, index=0, representation=_SPACE.to_json(), sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> CountsQuestion:
        return _question(opened_round.run)

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.COUNTED


class CountsMethod(AskedMethod):
    """See :class:`training.methods.base.TableMethod`."""

    name = Run.Method.COUNTS.value
    variants: tuple[str, ...] = ("",)
    outcome = Outcome.TABLE
    learns: tuple[str, ...] = KINDS
    charged = gettext_noop(
        "Charges are public: the most that anybody of a level can have been charged. What somebody was charged is "
        "less where their records are spread over cells, and stays a secret."
    )
    choices = Counts
    parts = "counts"
    needs_public_points = False
    batch_label = ""
    releases_labels = False
    questions = Cells()
    batch_size = 1

    def check(self, run: Run, wrong: Wrong) -> None:
        run.variant = ""
        if run.wanted_labels is not None:
            wrong("wanted_labels", _("Nobody is asked for labels where people are counted."))
        for field in ("public_dataset", "test_dataset"):
            if getattr(run, f"{field}_id"):
                wrong(field, _("A table of counts needs the private dataset alone. Leave this empty."))
        chosen = choices_check(run, wrong, self.choices)
        if chosen is None or not run.private_dataset_id:
            return
        for field, name in (("column", chosen.column), ("across", chosen.across)):
            try:
                _columns(run, [name] if name else [], chosen.bins)
            except ValueError as error:
                wrong(f"choices.{field}", error)

    def tiles(self, run: Run) -> list[Tile]:
        cells = sum(each["table"]["cells"] for each in run.plan["rounds"])
        return [
            (
                gettext_noop("Cells counted"),
                cells if run.position else 0,
                Sentence(gettext_noop("of %(cells)s"), cells=cells),
            )
        ]

    def plan(self, run: Run, share: float = 1.0) -> TablePlan:
        counts, promises = Counts.from_json(run.choices), promises_counted(run)
        budgets = budgets_of(run, promises, share)
        cells = int(np.prod([len(column.cells) for column in _chosen(run)]))
        try:
            table = plan_counts(levels_of(promises, budgets), cells=cells, share=share, counts=counts)
        except ValueError as error:
            raise PlanError(str(error)) from error
        return TablePlan(promises, budgets, table, (*plan_notes(table), *share_warning(run, share)))

    def round_sizes(self, run: Run) -> list[int]:
        return [CountsQuestion.size for _each in run.plan.get("rounds", [])]

    def size(self, run: Run) -> int:
        return CountsQuestion.size

    def mechanism(self, run: Run) -> dict[str, Any]:
        return _question(run).describe()

    def table(self, run: Run) -> CountTable:
        return CountTable.released(_question(run), arrays_load(run.batches.get().released)["sums"])

    def kept_faults(self, batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
        who = f"run {batch.run_id}, batch {batch.index}"
        try:
            sums = arrays_load(batch.released)["sums"]
        except (OSError, KeyError, ValueError):
            yield f"{who}: what it released cannot be read."
            return
        if sums.shape != (question.plan.cells,):
            yield f"{who}: released another table than its plan says."
        if release.content["digest"] != sums_digest(sums):
            yield f"release {release.sequence}: the counts of {who} are not those that were released."

    def charges_faults(self, batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
        people = attempt_load(batch.asked)
        _sums, due = question.contributions(people, records_of(batch.run, None, people.holders))
        yield from charged_faults(batch, release, people.holders, due)


def _columns(run: Run, names: list[str], bins: int) -> tuple[Column, ...]:
    return columns_of(schema_from_json(run.private_dataset.schema), names, bins)


def _chosen(run: Run) -> tuple[Column, ...]:
    """The columns of a proposal that was checked."""
    counts = Counts.from_json(run.choices)
    return _columns(run, [name for name in (counts.column, counts.across) if name], counts.bins)


def _question(run: Run) -> CountsQuestion:
    """Question of a run, from its plan and the schema that its dataset has for good."""
    plan = {name: value for name, value in run.plan["rounds"][0]["table"].items() if name != "error"}
    caps = tuple(budget["cap"] for budget in run.plan["budgets"])
    return CountsQuestion(counts_plan_from_json(plan), _chosen(run), caps)
