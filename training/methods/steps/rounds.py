"""Questions of rounds of private gradient steps, as they are kept."""

import json
from functools import lru_cache

import numpy as np

from common.artifacts import arrays_load
from learning.mechanisms.steps.planner import steps_plan_from_json
from learning.mechanisms.steps.question import StepsQuestion
from learning.mechanisms.synthesis.planner import is_counted
from training.methods.counted import rounds_of_counts
from training.models import Round


def is_counts(opened_round: Round) -> bool:
    """Whether a round counts people, so that rows drawn from the counts take the place of public points."""
    return is_counted(opened_round.run.plan["rounds"][opened_round.index])


def question_load(opened_round: Round) -> StepsQuestion:
    """Question of a round of steps."""
    plan = opened_round.run.plan
    caps = tuple(budget["cap"] for budget in plan["budgets"])
    index = opened_round.index - rounds_of_counts(opened_round.run)
    return _question(opened_round.artifact, json.dumps(plan["rounds"][opened_round.index]["plan"]), index, caps)


# Files of rounds never change under one name.
@lru_cache(maxsize=2)
def _question(artifact: str, document: str, index: int, caps: tuple[float, ...]) -> StepsQuestion:
    plan = steps_plan_from_json(json.loads(document))
    return StepsQuestion.from_arrays(arrays_load(artifact), plan, index=index, caps=np.array(caps))
