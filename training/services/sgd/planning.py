"""Plan of a run of private gradient steps: rounds, steps, noise, clipping norm. Everything in it is public."""

from dataclasses import asdict, dataclass
from typing import Any

from common.sentences import Sentence
from training.methods.pate import PlanError
from training.methods.sgd.parameters import steps_from_json
from training.methods.sgd.planner import StepsPlan, plan_steps
from training.models import Run
from training.services.holders.planning import budgets_of, levels_of, share_warning
from training.services.holders.space import space_first
from training.services.planning import GroupBudget, PlannedPromise, promises_counted


@dataclass(frozen=True)
class PlannedRound:
    """A round: ``until`` is the part of the run's share that accounts may have used when it ends."""

    plan: StepsPlan
    until: float

    def to_json(self) -> dict[str, Any]:
        """What a run keeps of it."""
        return {"plan": self.plan.to_json(), "until": self.until}


@dataclass(frozen=True)
class DescentPlan:
    """A plan with what it rests on; ``budgets`` stand beside ``promises``."""

    promises: list[PlannedPromise]
    budgets: list[GroupBudget]
    rounds: list[PlannedRound]
    representation: Sentence
    notes: tuple[Sentence, ...]

    def to_json(self) -> dict[str, Any]:
        """What a run keeps of its plan."""
        return {
            "promises": [asdict(promise) for promise in self.promises],
            "budgets": [asdict(budget) for budget in self.budgets],
            "rounds": [each.to_json() for each in self.rounds],
            "representation": self.representation.to_json(),
            "notes": [note.to_json() for note in self.notes],
        }


def descent_plan(run: Run, share: float = 1.0) -> DescentPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, public points (conditions 1 and 2 of the
    guarantee). Every round may use an equal part of the share.
    """
    steps, promises = steps_from_json(run.asking), promises_counted(run)
    budgets = budgets_of(run, promises, share)
    levels = levels_of(promises, budgets)
    classes = len(run.private_dataset.classes)
    try:
        fitted = space_first(run.public_dataset, steps).fitted
        planned = [
            plan_steps(levels, dimensions=fitted.dimensions, n_classes=classes, share=share / steps.rounds, steps=steps)
            for _ in range(steps.rounds)
        ]
    except ValueError as error:
        raise PlanError(str(error)) from error
    rounds = [PlannedRound(each, (number + 1) / steps.rounds) for number, each in enumerate(planned)]
    notes = dict.fromkeys(note for each in planned for note in (*each.notes, *each.warnings))
    sentence = fitted.representation.sentence()
    return DescentPlan(promises, budgets, rounds, sentence, (*notes, *share_warning(run, share)))
