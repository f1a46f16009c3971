"""Tables of counts: one question to every holder, whose noisy answer is the result of the run."""

from dataclasses import replace
from typing import Any

from django.utils.translation import gettext_noop

from accounting.head_counts import head_counts
from common.sentences import Sentence
from learning.formats import schema_from_json
from learning.mechanisms.base import PlanError
from learning.mechanisms.counts.choices import Counts
from learning.mechanisms.counts.columns import Column, columns_of, number_of_cells
from learning.mechanisms.counts.planner import (
    counts_plan_from_json,
    forecast_table,
    plan_counts,
    plan_notes,
)
from learning.mechanisms.counts.question import CountsQuestion
from learning.mechanisms.counts.table import CountTable
from learning.mechanisms.levels import Level
from learning.outcomes import KINDS
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.base import Tile, Wrong
from training.methods.counted import Cells, CountedMethod, CountedPlan, sums_of
from training.methods.levels import budgets_of, levels_of, share_warning
from training.models import Round, Run
from training.sites.documents import noise_factor

_SPACE = Sentence(gettext_noop("The cells of the table, by what the schema declares."))


class TableCells(Cells):
    """See :class:`training.engine.questions.Questions`."""

    def round_open(self, run: Run) -> Round:
        question = _question(run)
        return Round(run=run, index=0, representation=_SPACE.to_json(), sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> CountsQuestion:
        return _question(opened_round.run)


class CountsMethod(CountedMethod):
    """See :class:`training.methods.base.TableMethod`."""

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
        cells = sum(each["table"]["cells"] for each in run.plan.get("rounds", []))
        return [
            (
                gettext_noop("Cells counted"),
                cells if run.position else 0,
                Sentence(gettext_noop("of %(cells)s"), cells=cells),
            )
        ]

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
                head_count_sigma=_head_count_sigma(run),
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
        levels = [Level(promise["name"], budget["cap"], promise["holders"]) for promise, budget in planned]
        table = CountTable.released(_question(run), sums_of(run.batches.get()), levels)
        return replace(table, sigma=table.sigma * noise_factor(run))


def _head_count_sigma(run: Run) -> float:
    """Return the noise of the study's head counts; sites do not tell theirs, and a rehearsal knows its people."""
    if run.rehearsal or run.alliance_id:
        return 0.0
    return max((count.sigma or 0.0 for count in head_counts(run.study)), default=0.0)


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
    return CountsQuestion(counts_plan_from_json(plan), (_chosen(run),), caps)
