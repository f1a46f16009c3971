"""Synthetic rows: three questions to every holder, each after the release of the one before, and rows drawn at last."""

from typing import Any

from django.utils.translation import gettext_noop

from common.sentences import Sentence
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.base import PlanError
from learning.mechanisms.counts.columns import feature_columns
from learning.mechanisms.synthesis.choices import Synthesis
from learning.mechanisms.synthesis.planner import (
    forecast_rows,
    plan_notes,
    plan_synthesis,
    synthesis_plan_from_json,
)
from learning.mechanisms.synthesis.rows import Description, SyntheticRows, rows_draw
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.base import Tile, Wrong
from training.methods.counted import CountedMethod, CountedPlan
from training.methods.levels import budgets_of, levels_of, share_warning
from training.methods.synthesis.rounds import MarginalCells, marginals_of, rows_check
from training.models import Run
from training.sites.documents import noise_factor


class SynthesisMethod(CountedMethod):
    """See :class:`training.methods.base.TableMethod`."""

    name = Run.Method.SYNTHESIS.value
    variants: tuple[str, ...] = (Run.Variant.MARGINALS.value,)
    choices = Synthesis
    parts = "synthesis"
    questions = MarginalCells()

    def check_columns(self, run: Run, chosen: Synthesis, wrong: Wrong) -> None:
        rows_check(run, wrong, "private_dataset")

    def tiles(self, run: Run) -> list[Tile]:
        tables = [each["marginals"]["cells"] for each in run.plan.get("rounds", [])]
        counted = sum(tables[: run.batches.count()])
        return [(gettext_noop("Tables counted"), counted, Sentence(gettext_noop("of %(tables)s"), tables=sum(tables)))]

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> CountedPlan:
        chosen, promises = Synthesis.from_json(run.choices), promises or planned_promises(run)
        budgets = budgets_of(run, promises, share)
        schema = schema_from_json(run.private_dataset.schema)
        assert isinstance(schema, TabularSchema), "the proposal was checked"
        columns = feature_columns(schema, chosen.bins)
        try:
            planned = plan_synthesis(
                levels_of(promises, budgets),
                columns=len(columns),
                share=share,
                rows=chosen.rows,
                bins=chosen.bins,
            )
        except ValueError as error:
            raise PlanError(str(error)) from error
        forecast = forecast_rows(planned, [column.size for column in columns], len(schema.classes))
        notes = (*plan_notes(planned), *share_warning(run, share))
        return CountedPlan(promises, budgets, (forecast,), notes, planned.to_json())

    def mechanism(self, run: Run) -> dict[str, Any]:
        return synthesis_plan_from_json(run.plan["rounds"]).describe()

    def table(self, run: Run) -> SyntheticRows[Description]:
        return rows_draw(marginals_of(run, len(run.plan["rounds"])), noise_factor(run))
