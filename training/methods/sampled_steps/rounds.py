"""The round of a run of steps over samples: what is trained on what, and the public state after every chunk."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from common.artifacts import arrays_load, arrays_save
from learning.mechanisms.sampled_steps.planner import SampledPlan, sampled_plan_from_json
from learning.mechanisms.sampled_steps.training import SampledSteps
from learning.representations import FittedRepresentation, representation_load
from training.engine.files import released_name
from training.methods.steps.rounds import content_digest, named
from training.models import Batch, Round, Run

#: The batch in which everybody is charged for the whole run; it takes no step.
CHARGE = 0


@dataclass(frozen=True, eq=False)
class SampledTask:
    """Network that a run trains.

    Attributes:
        plan: Rates, norms, noise, charges of each promise of the run's plan.
        network: Its name, one of `learning.mechanisms.steps.choices.NETWORK_CHOICES`.
        shape: Of a record as the network takes it, multiplied by ``scale``.
        classes: How many there are.
        fitted: The representation whose coordinates the network takes; None where it takes records as they are.
        step_size, momentum: Of the update.
        begin: The state before the first step.
    """

    plan: SampledPlan
    network: str
    shape: tuple[int, ...]
    scale: float
    classes: int
    fitted: FittedRepresentation | None
    step_size: float
    momentum: float
    begin: SampledSteps

    @property
    def charges(self) -> np.ndarray:
        """(groups,) what each promise is charged for the whole run, in μ²; 0 where nothing protects anybody."""
        return np.nan_to_num(self.plan.charges)


def task_load(asked: Round) -> SampledTask:
    """Network that a run trains."""
    return _task(asked.artifact, json.dumps(asked.run.plan["rounds"][asked.index]["plan"]))


# Files of rounds never change under one name.
@lru_cache(maxsize=2)
def _task(artifact: str, document: str) -> SampledTask:
    arrays, planned = arrays_load(artifact), json.loads(document)
    stored = arrays["representation"].tobytes()
    return SampledTask(
        sampled_plan_from_json(planned),
        planned["network"],
        tuple(arrays["shape"].tolist()),
        float(arrays["scale"]),
        int(arrays["classes"]),
        representation_load(stored) if stored else None,
        planned["step_size"],
        planned["momentum"],
        SampledSteps.from_arrays(arrays),
    )


def task_digest(task: SampledTask) -> str:
    """SHA-256 of everything that a run trains, and how."""
    public = {"shape": np.array(task.shape), "scale": np.array(task.scale), "classes": np.array(task.classes)}
    space = {} if task.fitted is None else named("space", task.fitted.state())
    how = {"network": task.network, "step_size": task.step_size, "momentum": task.momentum}
    return content_digest({**public, **space, **task.begin.to_arrays()}, json.dumps(how | task.plan.to_json()))


def mechanism(task: SampledTask) -> dict[str, Any]:
    """Description of the steps of a run, in public terms."""
    first = task.plan.mechanism
    return {
        "name": "sgd",
        "network": task.network,
        "sigma": first.noise_multiplier,
        "clip_norm": first.clip_norm,
        "expected": first.expected,
        "steps": task.plan.steps,
        "step_size": task.step_size,
        "momentum": task.momentum,
        "phases": task.plan.to_json()["phases"],
    }


# --- The state after a chunk ----------------------------------------------------------------------------------------


def state_before(task: SampledTask, asked: Round, index: int) -> SampledSteps:
    """The state before the batch ``index`` of the run."""
    earlier = asked.batches.filter(index__lt=index).exclude(index=CHARGE).order_by("index").last()
    return task.begin if earlier is None else state_load(earlier)


def state_save(run: Run, index: int, state: SampledSteps) -> str:
    """Keep the state that a batch releases, in a new file, public once the row names it; returns its name."""
    artifact = released_name(run, index)
    arrays_save(artifact, **state.to_arrays())
    return artifact


def state_load(batch: Batch) -> SampledSteps:
    """The state that a batch released. Raises FileNotFoundError."""
    return SampledSteps.from_arrays(arrays_load(batch.released))


def state_digest(state: SampledSteps) -> str:
    """SHA-256 of a state."""
    return content_digest(state.to_arrays())
