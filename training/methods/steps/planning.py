"""Plan of a run of private gradient steps: rounds, steps, noise, clipping norm. Everything in it is public."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast, few_people
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.base import PlanError
from learning.mechanisms.counts.columns import feature_columns
from learning.mechanisms.levels import Level
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.forecast import forecast_steps, forecast_target
from learning.mechanisms.steps.planner import (
    COUNTED,
    ROWS,
    few_people_notes,
    plan_steps,
    steps_plan_from_json,
    strength_of,
)
from learning.mechanisms.synthesis.choices import Synthesis
from learning.mechanisms.synthesis.planner import SynthesisPlan, plan_synthesis
from learning.mechanisms.synthesis.rows import rows_alike
from learning.outcomes import Target
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.levels import budgets_of, levels_of, share_warning
from training.methods.plans import MethodPlan
from training.methods.space import Space, labelled_points
from training.methods.steps.space import planned_space, space_of
from training.models import Dataset, Run

#: As many labelled public points as a forecast looks at, and at least.
_SAMPLE, _LEAST = 3000, 3


_ALIKE = 1000


@dataclass(frozen=True)
class DescentPlan(MethodPlan):
    """Plan of individual steps."""

    rounds: list[dict[str, Any]]
    representation: Sentence

    def details(self) -> dict[str, Any]:
        """JSON of the rounds, with what each may use, and of the space in which they descend."""
        return {"rounds": self.rounds, "representation": self.representation.to_json()}


def descent_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> DescentPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, public points, evaluation data (conditions 1 and
    2 of the guarantee). Every round of steps may use an equal part of the share; without public points rounds of counts
    come first, and use `COUNTED` of it.
    """
    steps, promises = Steps.from_json(run.choices), promises or planned_promises(run)
    budgets = budgets_of(run, promises, share)
    levels = levels_of(promises, budgets)
    outcome = run.private_dataset.outcome
    counted = COUNTED if run.public_dataset is None else 0.0
    part = (1 - counted) / steps.rounds
    try:
        counts = _counts_planned(run, levels, share * counted) if counted else None
        strength = strength_of(levels, share=share * part, steps=steps)
        fitted = _space_expected(run, steps, strength).fitted
        planned = [
            plan_steps(
                levels,
                dimensions=fitted.dimensions,
                n_classes=outcome.outputs,
                share=share * part,
                steps=steps,
                loss=outcome.loss,
            )
            for _ in range(steps.rounds)
        ]
    except ValueError as error:
        raise PlanError(str(error)) from error
    rounds = [
        *([] if counts is None else counts.to_json(counted)),
        *({"plan": each.to_json(), "until": _until(counted, part, number)} for number, each in enumerate(planned)),
    ]
    notes = dict.fromkeys(note for each in planned for note in (*each.notes, *each.warnings))
    if counts is not None:
        notes[_counts_note(counts)] = None
    forecasts = _forecasts(
        None if run.public_dataset is None else (run.public_dataset.pk, run.public_dataset.digest),
        None if run.test_dataset is None else (run.test_dataset.pk, run.test_dataset.digest),
        json.dumps(run.choices),
        json.dumps(planned[0].to_json()),
    )
    sentence = fitted.representation.sentence()
    few = few_people(forecasts, outcome.outputs) if forecasts and run.classes else few_people_notes(planned[0])
    remarks = (*notes, *few, *share_warning(run, share))
    return DescentPlan(promises, budgets, forecasts, remarks, rounds, sentence)


def _until(counted: float, part: float, number: int) -> float:
    """Part of the run's share that may be used when a round of steps ends."""
    return min(1.0, round(counted + part * (number + 1), 12))


def _counts_planned(run: Run, levels: Sequence[Level], share: float) -> SynthesisPlan:
    """Rounds of counts for a share of every cap. Raises ValueError."""
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    bins = Synthesis().bins
    return plan_synthesis(levels, columns=len(feature_columns(schema, bins)), share=share, rows=ROWS, bins=bins)


def _counts_note(counts: SynthesisPlan) -> Sentence:
    text = gettext_noop(
        "There are no public points: %(part)s of the run's share counts people first, in three rounds, and %(rows)d "
        "rows drawn from these counts take their place. They say where a column has its thresholds, and how columns go "
        "together."
    )
    return Sentence(text, part=f"{round(100 * COUNTED)} %", rows=counts.rows)


def _space_expected(run: Run, steps: Steps, strength: float) -> Space:
    """Space of the first round; where that follows from counts to come, one that is about as large."""
    if run.public_dataset is not None:
        return planned_space(run.public_dataset, steps, strength)
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    return space_of(rows_alike(schema, _ALIKE), steps, strength)


# Datasets never change; a plan is looked at, approved under the study's lock, and carried out one after the other.
@lru_cache(maxsize=32)
def _forecasts(
    public_key: tuple[int, str] | None, test_key: tuple[int, str] | None, asking: str, document: str
) -> tuple[Forecast, ...]:
    """Forecasts of the model of the first round; none of too few public points to tell.

    Of another outcome than classes it needs evaluation data, and so it does without public points: then these stand in
    for the rows to come as well.
    """
    key = public_key or test_key
    if key is None:
        return ()
    public, plan = Dataset.objects.get(pk=key[0]), steps_plan_from_json(json.loads(document))
    space, labels = planned_space(public, Steps.from_json(json.loads(asking)), plan.strength), None
    points = space.public
    if test_key is not None:
        points, labels = labelled_points(Dataset.objects.get(pk=test_key[0]), space, _SAMPLE)
    if len(points) < _LEAST:
        return ()
    if isinstance(public.outcome, Target):
        forecast = None if labels is None else forecast_target(plan, points, labels, public.outcome)
        return () if forecast is None else (forecast,)
    return forecast_steps(plan, points, len(public.classes), labels=labels)
