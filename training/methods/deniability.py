"""Rows by plausible deniability: a variant of synthetic rows that rehearsals compare with rows from noisy counts."""

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext_noop

from accounting.models import Release
from common.artifacts import arrays_load
from common.sentences import Sentence
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.counts.columns import Column, column_names, columns_of, feature_columns
from learning.mechanisms.deniability.costs import (
    Deniability,
    DeniabilityPlan,
    deniability_plan_from_json,
    plan_deniability,
    plan_notes,
)
from learning.mechanisms.deniability.rows import DeniabilityQuestion, DeniableDescription, deniable_rows
from learning.mechanisms.protocol import PlanError
from learning.mechanisms.synthesis.rows import SyntheticRows
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.base import Tile, Wrong
from training.methods.counts import Cells, CountedMethod, CountedPlan
from training.methods.planning import budgets_of
from training.methods.synthesis import rows_check
from training.models import Batch, Round, Run

_SPACE = Sentence(gettext_noop("Values, and bins of numbers, by what the schema declares."))


class Seeds(Cells):
    """See :class:`training.engine.questions.Questions`."""

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
    """See :class:`training.methods.base.TableMethod`. Every record is one by itself, whoever owns it."""

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
            "By Theorem 1 of the paper for each row (Bindschaedler, Shokri, Gunter 2017), and for all rows by the "
            "composition theorem of Kairouz, Oh, Viswanath (2015): for every record alike."
        )
        return Sentence(text)

    def tiles(self, run: Run) -> list[Tile]:
        return []

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> CountedPlan:
        chosen, promises = Deniability.from_json(run.choices), promises or planned_promises(run)
        dataset = run.private_dataset
        try:
            planned = plan_deniability(chosen, columns=len(_columns(run)), records=dataset.rows, delta=run.study.delta)
        except ValueError as error:
            raise PlanError(str(error)) from error
        largest = max(promise.epsilon for promise in promises)
        only = {"deniability": planned.to_json(), "until": 1.0}
        return CountedPlan(promises, budgets_of(run, promises, share), (), plan_notes(planned, largest), [only])

    def mechanism(self, run: Run) -> dict[str, Any]:
        return _question(run).describe()

    def table(self, run: Run) -> SyntheticRows[DeniableDescription]:
        return deniable_rows(_question(run), _schema(run), arrays_load(run.batches.get().released))

    def kept_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """None: a rehearsal has no register."""
        yield from ()

    def charges_faults(self, batch: Batch, release: Release, question: Any) -> Iterator[str]:
        """None: nobody is charged."""
        yield from ()


def _schema(run: Run) -> TabularSchema:
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    return schema


def _columns(run: Run) -> tuple[Column, ...]:
    """The columns, the classes last."""
    schema, values = _schema(run), Deniability.from_json(run.choices).values
    return (*feature_columns(schema, values), *columns_of(schema, column_names(schema)[:1], values))


def _plan(run: Run) -> DeniabilityPlan:
    return deniability_plan_from_json(run.plan["rounds"][0]["deniability"])


def _question(run: Run) -> DeniabilityQuestion:
    return DeniabilityQuestion(_plan(run), _columns(run))
