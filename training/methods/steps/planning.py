"""Plan of a run of private gradient steps: rounds, steps, noise, clipping norm. Everything in it is public."""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from common.sentences import Sentence
from learning.mechanisms.base import PlanError
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.forecast import StepsForecast, forecast_steps
from learning.mechanisms.steps.planner import StepsPlan, plan_steps, steps_plan_from_json, strength_of
from training.engine.budgets import Budget, PlannedPromise, promises_counted
from training.methods.levels import budgets_of, levels_of, share_warning
from training.methods.space import labelled_points
from training.methods.steps.space import space_planned
from training.models import Dataset, Run

#: As many labelled public points as a forecast looks at, and at least.
_SAMPLE, _LEAST = 3000, 3


@dataclass(frozen=True)
class PlannedRound:
    """A round: ``until`` is the part of the run's share that accounts may have used when it ends."""

    plan: StepsPlan
    until: float

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of it."""
        return {"plan": self.plan.to_json(), "until": self.until}


@dataclass(frozen=True)
class DescentPlan:
    """A plan with what it rests on; ``budgets`` stand beside ``promises``."""

    promises: list[PlannedPromise]
    budgets: list[Budget]
    rounds: list[PlannedRound]
    representation: Sentence
    expectation: StepsForecast | None
    notes: tuple[Sentence, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of its plan."""
        return {
            "promises": [asdict(promise) for promise in self.promises],
            "budgets": [asdict(budget) for budget in self.budgets],
            "rounds": [each.to_json() for each in self.rounds],
            "representation": self.representation.to_json(),
            "expectation": None if self.expectation is None else asdict(self.expectation),
            "notes": [note.to_json() for note in self.notes],
        }


def descent_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> DescentPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, public points, evaluation data (conditions 1 and
    2 of the guarantee). Every round may use an equal part of the share.
    """
    steps, promises = Steps.from_json(run.choices), promises or promises_counted(run)
    budgets = budgets_of(run, promises, share)
    levels = levels_of(promises, budgets)
    outcome = run.private_dataset.outcome
    try:
        strength = strength_of(levels, share=share / steps.rounds, steps=steps)
        fitted = space_planned(run.public_points, steps, strength).fitted
        planned = [
            plan_steps(
                levels,
                dimensions=fitted.dimensions,
                n_classes=outcome.outputs,
                share=share / steps.rounds,
                steps=steps,
                loss=outcome.loss,
            )
            for _ in range(steps.rounds)
        ]
    except ValueError as error:
        raise PlanError(str(error)) from error
    rounds = [PlannedRound(each, (number + 1) / steps.rounds) for number, each in enumerate(planned)]
    notes = dict.fromkeys(note for each in planned for note in (*each.notes, *each.warnings))
    test = run.test_dataset
    expectation = _expectation(
        (run.public_points.pk, run.public_points.digest),
        None if test is None else (test.pk, test.digest),
        json.dumps(run.choices),
        json.dumps(planned[0].to_json()),
    )
    sentence = fitted.representation.sentence()
    return DescentPlan(promises, budgets, rounds, sentence, expectation, (*notes, *share_warning(run, share)))


# Datasets never change; a plan is looked at, approved under the study's lock, and carried out one after the other.
@lru_cache(maxsize=32)
def _expectation(
    public_key: tuple[int, str], test_key: tuple[int, str] | None, asking: str, document: str
) -> StepsForecast | None:
    """Expectation of what the first round learns; None of what is no class, or of too few public points to tell."""
    public, plan = Dataset.objects.get(pk=public_key[0]), steps_plan_from_json(json.loads(document))
    if not public.classes:
        return None
    space, labels = space_planned(public, Steps.from_json(json.loads(asking)), plan.strength), None
    points = space.public
    if test_key is not None:
        points, labels = labelled_points(Dataset.objects.get(pk=test_key[0]), space, _SAMPLE)
    if len(points) < _LEAST:
        return None
    return forecast_steps(plan, points, len(public.classes), labels=labels)
