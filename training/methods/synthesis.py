"""Synthetic rows: three questions to every holder, each after the release of the one before, and rows drawn at last."""

from typing import Any

from django.utils.translation import gettext as _

from common.sentences import Sentence, gettext_noop
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.counts.columns import feature_columns
from learning.mechanisms.counts.counting import CountsQuestion
from learning.mechanisms.protocol import PlanError
from learning.mechanisms.synthesis.rounds import (
    MOST_COLUMNS,
    Marginals,
    Synthesis,
    forecast_rows,
    plan_notes,
    plan_synthesis,
    synthesis_plan_from_json,
)
from learning.mechanisms.synthesis.rows import Description, SyntheticRows, rows_draw
from training.alliances.documents import noise_factor
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.base import Tile, Wrong
from training.methods.counts import Cells, CountedMethod, CountedPlan, sums_of
from training.methods.planning import budgets_of, levels_of, share_warning
from training.models import Round, Run

_SPACES = (
    Sentence(gettext_noop("Every column against the classes, by what the schema declares.")),
    Sentence(gettext_noop("Every pair of columns, in groups that follow from the round before.")),
    Sentence(gettext_noop("Columns along the strongest tree, in groups that follow from the rounds before.")),
)


class MarginalCells(Cells):
    """See :class:`training.engine.questions.Questions`."""

    #: A person is in as many cells as there are pairs of columns.
    shard = 20_000

    def round_open(self, run: Run) -> Round:
        index = run.rounds.count()
        question = marginals_of(run, index).question(index)
        space = _SPACES[index].to_json()
        return Round(run=run, index=index, representation=space, sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> CountsQuestion:
        return marginals_of(opened_round.run, opened_round.index).question(opened_round.index)


def rows_check(run: Run, wrong: Wrong, field: str) -> None:
    """Note at a field why no rows can be drawn of the private dataset of a proposal."""
    schema = schema_from_json(run.private_dataset.schema)
    if not isinstance(schema, TabularSchema):
        wrong(field, _("Rows are drawn of tables alone, and this dataset is none. Choose another."))
    elif not 2 <= (columns := len(feature_columns(schema, 1))) <= MOST_COLUMNS:
        numbers = {"most": MOST_COLUMNS, "columns": columns}
        text = _("Rows are drawn of 2 to %(most)d columns, and this dataset has %(columns)d. Ignore some of them.")
        wrong(field, text % numbers)


def marginals_of(run: Run, rounds: int) -> Marginals:
    """What the first ``rounds`` of a run have released, with its plan and the schema that its dataset has for good."""
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    batches = run.batches.filter(round__index__lt=rounds).order_by("index")
    return Marginals(
        schema,
        synthesis_plan_from_json(run.plan["rounds"]),
        tuple(budget["cap"] for budget in run.plan["budgets"]),
        tuple(sums_of(batch) for batch in batches),
    )


# --- The method -------------------------------------------------------------------------------------------------------


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
