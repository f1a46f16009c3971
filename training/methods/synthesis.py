"""Synthetic rows drawn from noisy counts of all people or, in rehearsals, real rows with plausible deniability."""

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext as _

from accounting.models import Release
from common.artifacts import arrays_load
from common.sentences import Sentence, gettext_noop
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.counts.table_plan import CountedColumn, column_names, columns_of, feature_columns
from learning.mechanisms.counts.tables import CountsQuestion
from learning.mechanisms.deniability.rows import (
    Deniability,
    DeniabilityPlan,
    DeniabilityQuestion,
    DeniableDescription,
    deniable_rows,
    plan_deniability,
)
from learning.mechanisms.deniability.rows import plan_notes as deniability_notes
from learning.mechanisms.protocol import PlanError
from learning.mechanisms.synthesis.rounds import (
    MOST_COLUMNS,
    Description,
    Marginals,
    Synthesis,
    SyntheticRows,
    forecast_rows,
    plan_notes,
    plan_synthesis,
    rows_draw,
    synthesis_plan_from_json,
)
from training.alliances.documents import noise_factor
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.base import Amount, Tile, Wrong
from training.methods.counts import Cells, CountedMethod, CountedPlan, sums_of
from training.methods.planning import budgets_of, levels_of, share_warning
from training.models import Batch, Round, Run

_SPACES = (
    Sentence(gettext_noop("Every column with the classes, as declared in the schema.")),
    Sentence(gettext_noop("Every pair of columns, with values grouped according to the previous round.")),
    Sentence(
        gettext_noop(
            "Columns and their parents in the tree of strongest dependencies, with values grouped according to the "
            "previous rounds."
        )
    ),
)


class MarginalCells(Cells):
    """Questions of runs that count people for pairs of columns."""

    #: Fewer holders than with other methods, because each person is in one cell for each pair of columns.
    shard = 20_000

    def round_open(self, run: Run) -> Round:
        index = run.rounds.count()
        question = marginals_of(run, index).question(index)
        space = _SPACES[index].to_json()
        return Round(run=run, index=index, representation=space, sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> CountsQuestion:
        return marginals_of(opened_round.run, opened_round.index).question(opened_round.index)


def rows_check(run: Run, wrong: Wrong, field: str) -> None:
    """Report an error for a field if no rows can be drawn for a proposal's private dataset."""
    schema = schema_from_json(run.private_dataset.schema)
    if not isinstance(schema, TabularSchema):
        wrong(field, _("Rows can be drawn only from a table, but this dataset is not a table. Choose another one."))
    elif not 2 <= (columns := len(feature_columns(schema, 1))) <= MOST_COLUMNS:
        numbers = {"most": MOST_COLUMNS, "columns": columns}
        text = _("Rows are drawn with 2 to %(most)d columns, but this dataset has %(columns)d. Ignore some columns.")
        wrong(field, text % numbers)


def marginals_of(run: Run, rounds: int) -> Marginals:
    """Return the releases of a run's first ``rounds`` rounds, with its plan and its dataset's permanent schema."""
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
    """Method that draws synthetic rows from noisy counts; see :class:`training.methods.base.TableMethod`."""

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

    def amount(self, run: Run) -> Amount:
        return _rows(run, run.plan["rounds"][-1]["marginals"]["rows"])

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> CountedPlan:
        chosen, promises = Synthesis.from_json(run.choices), promises or planned_promises(run)
        budgets = budgets_of(run, promises, share)
        schema = schema_from_json(run.private_dataset.schema)
        assert isinstance(schema, TabularSchema), "the proposal was checked"
        columns = feature_columns(schema, chosen.bins)
        try:
            planned = plan_synthesis(
                levels_of(promises, budgets), columns=len(columns), share=share, rows=chosen.rows, bins=chosen.bins
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


def _rows(run: Run, rows: int) -> Amount:
    return Amount("rows", rows, rows if run.status == Run.Status.FINISHED else 0)


# --- Plausible deniability --------------------------------------------------------------------------------------------


_SPACE = Sentence(gettext_noop("Values and bins, as declared in the schema."))


class Seeds(Cells):
    """Questions of a rehearsal that selects real rows by plausible deniability."""

    def round_open(self, run: Run) -> Round:
        question = _question(run)
        return Round(run=run, index=0, representation=_SPACE.to_json(), sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> DeniabilityQuestion:
        return _question(opened_round.run)

    def rehearsed(self, run: Run) -> dict[str, Any]:
        spent = _plan(run).spent
        levels = [
            {"level": promise["level"], "epsilon": promise["epsilon"], "spent": spent}
            for promise in run.plan["promises"]
        ]
        return {"epsilons": levels, "method": "deniability", "conversion": "exact"}


class DeniabilityMethod(CountedMethod):
    """Plausible deniability of records instead of holders; see :class:`training.methods.base.TableMethod`."""

    name = Run.Method.SYNTHESIS.value
    variants: tuple[str, ...] = (Run.Variant.DENIABILITY.value,)
    rehearsed_variants = variants
    choices = Deniability
    parts = "deniability"
    questions = Seeds()

    def check_columns(self, run: Run, chosen: Deniability, wrong: Wrong) -> None:
        rows_check(run, wrong, "private_dataset")

    def counted(self, run: Run) -> Sentence:
        text = gettext_noop(
            "Calculated for each row by Theorem 1 of the paper (Bindschaedler, Shokri, Gunter 2017), and for all "
            "rows by the composition theorem of Kairouz, Oh, Viswanath (2015). The cost is the same for every record."
        )
        return Sentence(text)

    def tiles(self, run: Run) -> list[Tile]:
        return []

    def amount(self, run: Run) -> Amount:
        return _rows(run, _plan(run).rows)

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> CountedPlan:
        chosen, promises = Deniability.from_json(run.choices), promises or planned_promises(run)
        dataset = run.private_dataset
        try:
            planned = plan_deniability(chosen, columns=len(_columns(run)), records=dataset.rows, delta=run.study.delta)
        except ValueError as error:
            raise PlanError(str(error)) from error
        largest = max(promise.epsilon for promise in promises)
        only = {"deniability": planned.to_json(), "until": 1.0}
        return CountedPlan(promises, budgets_of(run, promises, share), (), deniability_notes(planned, largest), [only])

    def mechanism(self, run: Run) -> dict[str, Any]:
        return _question(run).describe()

    def table(self, run: Run) -> SyntheticRows[DeniableDescription]:
        return deniable_rows(_question(run), _schema(run), arrays_load(run.batches.get().released))

    def kept_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """Yield nothing, because a rehearsal has no register."""
        yield from ()

    def charges_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """Yield nothing, because no one is charged."""
        yield from ()


def _schema(run: Run) -> TabularSchema:
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    return schema


def _columns(run: Run) -> tuple[CountedColumn, ...]:
    """Return the columns, with the classes last."""
    schema, values = _schema(run), Deniability.from_json(run.choices).values
    return (*feature_columns(schema, values), *columns_of(schema, column_names(schema)[:1], values))


def _plan(run: Run) -> DeniabilityPlan:
    return DeniabilityPlan.from_json(run.plan["rounds"][0]["deniability"])


def _question(run: Run) -> DeniabilityQuestion:
    return DeniabilityQuestion(_plan(run), _columns(run))
