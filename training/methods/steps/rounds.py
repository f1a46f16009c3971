"""Rounds of private gradient steps: what is asked, and the public state after every chunk of steps."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from common.artifacts import arrays_load, arrays_save
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.planner import StepsPlan, steps_plan_from_json
from learning.representations import FittedRepresentation, representation_load
from training.engine.files import released_name
from training.models import Batch, Round, Run


@dataclass(frozen=True, eq=False)
class Task:
    """Task of a round: gradients of a linear model on a representation, from the state ``begin`` on."""

    plan: StepsPlan
    fitted: FittedRepresentation
    begin: Descent

    def bounds(self, run: Run, steps: int) -> list[float]:
        """The most that anybody of each promise of the run's plan can be charged for some steps, in μ²."""
        weights = self.plan.level_weights([budget["cap"] for budget in run.plan["budgets"]])
        return (steps * weights**2 / self.plan.sigma**2).tolist()


def task_load(asked: Round) -> Task:
    """Question of a round."""
    return _task(asked.artifact, json.dumps(asked.run.plan["rounds"][asked.index]["plan"]))


# Files of rounds never change under one name.
@lru_cache(maxsize=2)
def _task(artifact: str, document: str) -> Task:
    arrays, plan = arrays_load(artifact), steps_plan_from_json(json.loads(document))
    fitted = representation_load(arrays.pop("representation").tobytes())
    return Task(plan, fitted, Descent.from_arrays(plan, arrays))


def task_digest(task: Task) -> str:
    """SHA-256 of everything that a round asks."""
    return content_digest(
        {**task.fitted.state(), **named("begin", task.begin.to_arrays())}, json.dumps(task.plan.to_json())
    )


def sums_digest(sums: np.ndarray) -> str:
    """SHA-256 of the noisy sums of a chunk, (steps, d + 1, C)."""
    return content_digest({"sums": sums})


# --- The state after a chunk ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Chunk:
    """Release of a chunk of steps: noisy ``sums`` (steps, d + 1, C), and the ``state`` after them."""

    sums: np.ndarray
    state: Descent


def state_before(task: Task, asked: Round, index: int) -> Descent:
    """The state before the batch ``index`` of the run: a function of what was released in the round until then."""
    earlier = asked.batches.filter(index__lt=index).order_by("index").last()
    return task.begin if earlier is None else chunk_load(task, earlier).state


def chunk_save(run: Run, index: int, chunk: Chunk) -> str:
    """Keep what a batch releases, in a new file, public once the row names it; returns its name."""
    artifact = released_name(run, index)
    arrays_save(artifact, sums=chunk.sums, **named("state", chunk.state.to_arrays()))
    return artifact


def chunk_load(task: Task, batch: Batch) -> Chunk:
    """Release of a batch. Raises FileNotFoundError."""
    arrays = arrays_load(batch.released)
    state = {name.removeprefix("state."): array for name, array in arrays.items() if name.startswith("state.")}
    return Chunk(arrays["sums"], Descent.from_arrays(task.plan, state))


def state_same(one: Descent, other: Descent) -> bool:
    """Whether two states are equal, bit for bit."""
    ours, theirs = one.to_arrays(), other.to_arrays()
    return all(np.array_equal(array, theirs[name]) for name, array in ours.items())


def named(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays, each name behind ``prefix`` and a dot."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def content_digest(arrays: Mapping[str, Any], text: str = "") -> str:
    """SHA-256 of arrays by name, and of a text."""
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
