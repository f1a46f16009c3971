"""Rehearsals of votes of teachers: who is in which teacher."""

from typing import Any

import numpy as np

from learning.mechanisms.pate import assign
from training.engine.records import owners_of
from training.models import Run


def rehearsal_assignment(run: Run, plan: Any, promises: list[Any]) -> dict[str, np.ndarray]:
    """Assignment of owners to teachers: pairs ``holder``, ``teacher``, ``group`` and the teachers' ``seeds``."""
    rng = np.random.default_rng(run.seed)
    owners = rng.permutation(owners_of(run.private_dataset))
    group_of = np.repeat([promise.group for promise in promises], [promise.holders for promise in promises])
    position, teacher = assign(plan, group_of, rng)
    return {
        "holder": owners[position],
        "teacher": teacher,
        "group": group_of[position],
        "seeds": rng.integers(2**32, size=plan.teachers, dtype=np.int64),
    }
