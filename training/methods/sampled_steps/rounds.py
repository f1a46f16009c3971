"""Question of a run of steps over samples, as it is kept."""

import json
from functools import lru_cache

import numpy as np

from common.artifacts import arrays_load
from learning.mechanisms.sampled_steps.question import SampledQuestion
from training.models import Round


def question_load(opened_round: Round) -> SampledQuestion:
    """Question of the round of a run."""
    plan = opened_round.run.plan
    caps = tuple(budget["cap"] for budget in plan["budgets"])
    return _question(opened_round.artifact, json.dumps(plan["rounds"][opened_round.index]["plan"]), caps)


# Files of rounds never change under one name.
@lru_cache(maxsize=2)
def _question(artifact: str, document: str, caps: tuple[float, ...]) -> SampledQuestion:
    return SampledQuestion.from_arrays(arrays_load(artifact), json.loads(document), np.array(caps))
