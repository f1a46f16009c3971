"""Tables of counts, and the code shared by all methods that count people in cells."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from numpy.typing import NDArray

from accounting.models import Release
from common.artifacts import arrays_load
from common.sentences import Sentence, gettext_noop
from learning.formats import schema_from_json
from learning.mechanisms.choices import Choices
from learning.mechanisms.counts.table_plan import (
    CountedColumn,
    Counts,
    CountsPlan,
    columns_of,
    forecast_table,
    number_of_cells,
    plan_counts,
    plan_notes,
)
from learning.mechanisms.counts.tables import CountsQuestion, CountTable, sums_digest
from learning.mechanisms.protocol import PlanError, PlannedLevel
from learning.mechanisms.synthesis.rounds import is_counted
from learning.outcomes import KINDS
from training.alliances.documents import noise_factor
from training.engine.budgets import PlannedPromise, head_count_sigma, planned_promises
from training.engine.commits import charged_faults
from training.engine.questions import Questions, attempt_load
from training.engine.records import records_of
from training.methods.base import Amount, EngineMethod, MethodOutcome, Tile, Wrong
from training.methods.planning import MethodPlan, budgets_of, choices_check, levels_of, share_warning
from training.models import Batch, Round, Run


@dataclass(frozen=True)
class CountedPlan(MethodPlan):
    """Plan of a run that produces a table: its rounds, and the part of the share that each may use."""

    rounds: list[dict[str, Any]]

    def details(self) -> dict[str, Any]:
        """Return the rounds as JSON."""
        return {"rounds": self.rounds}


class Cells(Questions):
    """Questions of runs that count people in cells."""

    shard = 200_000
    release_kind = Release.Kind.TABLE.value
    died = gettext_noop(
        "Workers repeatedly crashed while counting the same holders, probably because they ran out of memory. Give "
        "the workers more memory."
    )

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.COUNTED


class CountedMethod(EngineMethod):
    """Base class of methods that count people in cells; see :class:`training.methods.base.TableMethod`."""

    variants: tuple[str, ...] = ("",)
    outcome = MethodOutcome.TABLE
    charged = gettext_noop(
        "The charges shown here are public: each is the most that any person at that level could have been charged. "
        "People whose records are spread across several cells were charged less, but the amount stays secret."
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
            wrong("variant", _("This variant is only for rehearsal studies. Choose another one."))
        if run.wanted_labels is not None:
            wrong("wanted_labels", _("Counting people needs no labels. Leave this empty."))
        for field in ("public_dataset", "test_dataset", "labelled_dataset"):
            if getattr(run, f"{field}_id"):
                wrong(field, _("Leave this empty, because counting people needs only the private dataset."))
        chosen = choices_check(run, wrong, self.choices)
        if chosen is not None and run.private_dataset_id:
            self.check_columns(run, chosen, wrong)

    @abstractmethod
    def check_columns(self, run: Run, chosen: Any, wrong: Wrong) -> None:
        """Report errors in choices that refer to columns of the private dataset."""

    def round_sizes(self, run: Run) -> list[int]:
        return [CountsQuestion.size for _each in run.plan.get("rounds", [])]

    def size(self, run: Run) -> int:
        return sum(self.round_sizes(run))

    def kept_faults(self, batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
        return counts_kept_faults(batch, release, question)

    def charges_faults(self, batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
        return counts_charges_faults(batch, release, question)


def counts_kept_faults(batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
    """Yield messages about differences between a batch's stored sums, its release, and its question's result."""
    who = f"run {batch.run_id}, batch {batch.index}"
    try:
        sums = sums_of(batch)
    except (OSError, KeyError, ValueError):
        yield f"{who}: its released file cannot be read."
        return
    if sums.shape != (question.cells,):
        yield f"{who}: released tables that are not in its plan."
    if release.content["digest"] != sums_digest(sums):
        yield f"release {release.sequence}: the counts of {who} differ from the released ones."


def counts_charges_faults(batch: Batch, release: Release, question: CountsQuestion) -> Iterator[str]:
    """Yield messages about a batch's charges that differ from the recomputed ones."""
    people = attempt_load(batch.attempt)
    _sums, due = question.contributions(people, records_of(batch.run, None, people.holders))
    yield from charged_faults(batch, release, people.holders, due)


def rounds_of_counts(run: Run) -> int:
    """Return the number of planned rounds that count people so that rows can be drawn from the counts."""
    return sum(map(is_counted, run.plan.get("rounds", [])))


def sums_of(batch: Batch) -> NDArray[np.int64]:
    """Return the released sums of a batch, (cells,)."""
    return arrays_load(batch.released)["sums"]


# --- Tables of counts -------------------------------------------------------------------------------------------------


_SPACE = Sentence(gettext_noop("The cells of the table, as declared in the schema."))


class TableCells(Cells):
    """Questions of a run that releases a table of counts."""

    def round_open(self, run: Run) -> Round:
        question = _question(run)
        return Round(run=run, index=0, representation=_SPACE.to_json(), sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> CountsQuestion:
        return _question(opened_round.run)


class CountsMethod(CountedMethod):
    """Method that releases a table of counts; see :class:`training.methods.base.TableMethod`."""

    name = Run.Method.COUNTS.value
    learns: tuple[str, ...] = KINDS
    choices = Counts
    parts = "counts"
    questions = TableCells()

    def check_columns(self, run: Run, chosen: Counts, wrong: Wrong) -> None:
        for field, name in (("column", chosen.column), ("across", chosen.across)):
            try:
                _columns(run, [name] if name else [], chosen.bins)
            except ValueError as error:
                wrong(f"choices.{field}", error)

    def tiles(self, run: Run) -> list[Tile]:
        cells = self.amount(run)
        return [(gettext_noop("Cells counted"), cells.so_far, Sentence(gettext_noop("of %(cells)s"), cells=cells.most))]

    def amount(self, run: Run) -> Amount:
        cells = sum(each["table"]["cells"] for each in run.plan.get("rounds", []))
        return Amount("cells", cells, cells if run.position else 0)

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> CountedPlan:
        counts, promises = Counts.from_json(run.choices), promises or planned_promises(run)
        budgets = budgets_of(run, promises, share)
        cells = number_of_cells(_chosen(run))
        try:
            table = plan_counts(
                levels_of(promises, budgets),
                cells=cells,
                share=share,
                counts=counts,
                head_count_sigma=head_count_sigma(run),
            )
        except ValueError as error:
            raise PlanError(str(error)) from error
        notes = (*plan_notes(table), *share_warning(run, share))
        only = {"table": table.to_json() | {"error": table.error}, "until": 1.0}
        return CountedPlan(promises, budgets, (forecast_table(table),), notes, [only])

    def mechanism(self, run: Run) -> dict[str, Any]:
        return _question(run).describe()

    def table(self, run: Run) -> CountTable:
        planned = zip(run.plan["promises"], run.plan["budgets"], strict=True)
        levels = [PlannedLevel(promise["name"], budget["cap"], promise["holders"]) for promise, budget in planned]
        table = CountTable.released(_question(run), sums_of(run.batches.get()), levels)
        return replace(table, sigma=table.sigma * noise_factor(run))


def _columns(run: Run, names: list[str], bins: int) -> tuple[CountedColumn, ...]:
    return columns_of(schema_from_json(run.private_dataset.schema), names, bins)


def _chosen(run: Run) -> tuple[CountedColumn, ...]:
    """Return the columns chosen in a checked proposal."""
    counts = Counts.from_json(run.choices)
    return _columns(run, [name for name in (counts.column, counts.across) if name], counts.bins)


def _question(run: Run) -> CountsQuestion:
    """Return a run's question, based on its plan and its dataset's permanent schema."""
    plan = {name: value for name, value in run.plan["rounds"][0]["table"].items() if name != "error"}
    caps = tuple(budget["cap"] for budget in run.plan["budgets"])
    return CountsQuestion(CountsPlan.from_json(plan), (_chosen(run),), caps)
