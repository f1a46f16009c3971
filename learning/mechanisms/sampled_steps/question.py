"""Question of a run of steps over samples: which network is trained on what, and the public state after every chunk.

The first batch takes no step: it charges everybody who takes part for the whole run. Each batch after it is a chunk of
steps, which one task takes; what it releases is the state after the last of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.noise import Noise
from learning.mechanisms.base import Arrays, Draws, People, Records, Release, content_digest, named
from learning.mechanisms.sampled_steps.mechanism import phases_within
from learning.mechanisms.sampled_steps.planner import SampledPlan, sampled_plan_from_json
from learning.mechanisms.sampled_steps.training import (
    SampledSteps,
    Sampling,
    SimulationSampling,
    SystemSampling,
    run_chunk,
)
from learning.mechanisms.steps.records import OwnedRecords, owned_records
from learning.outcomes import CROSS_ENTROPY, Loss, Target, target_from_arrays
from learning.representations import FittedRepresentation, representation_load

#: The batch in which everybody is charged for the whole run; it takes no step.
CHARGE = 0


@dataclass(frozen=True, eq=False)
class SampledQuestion:
    """See :class:`learning.mechanisms.base.Question`.

    Attributes:
        plan: Rates, norms, noise, charges of each promise of the run's plan.
        network: Its name, one of `learning.mechanisms.sampled_steps.choices.NETWORK_CHOICES`.
        shape: Of a record as the network takes it, multiplied by ``scale``.
        classes: How many scores the network has for a record; of classes one each.
        fitted: The representation whose coordinates the network takes; None where it takes records as they are.
        step_size, momentum: Of the update.
        begin: The state before the first step.
        caps: (promises,) those of the promises of the run's plan, in μ².
        target: What is learned; None of classes.
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
    caps: NDArray[np.float64]
    target: Target | None = None

    #: A release is the state after many steps, each of them a noisy sum of its own.
    spread = None
    grain = 1.0

    @classmethod
    def from_arrays(cls, arrays: Arrays, planned: Mapping[str, Any], caps: NDArray[np.float64]) -> SampledQuestion:
        """From the file of the round, with what the plan of its run says."""
        stored = arrays["representation"].tobytes()
        return cls(
            sampled_plan_from_json(planned),
            planned["network"],
            tuple(arrays["shape"].tolist()),
            float(arrays["scale"]),
            int(arrays["classes"]),
            representation_load(stored) if stored else None,
            planned["step_size"],
            planned["momentum"],
            SampledSteps.from_arrays(arrays),
            caps,
            target_from_arrays(arrays),
        )

    @property
    def size(self) -> int:
        return self.plan.steps

    @property
    def sigma(self) -> float:
        return self.plan.mechanism.noise_multiplier

    @property
    def charges(self) -> NDArray[np.float64]:
        """(groups,) what each promise is charged for the whole run, in μ²; 0 where nothing protects anybody."""
        return np.nan_to_num(self.plan.charges)

    def digest(self) -> str:
        public = {"shape": np.array(self.shape), "scale": np.array(self.scale), "classes": np.array(self.classes)}
        space = {} if self.fitted is None else named("space", self.fitted.state())
        how = {"network": self.network, "step_size": self.step_size, "momentum": self.momentum}
        target = {} if self.target is None else {"target": self.target.to_json()}
        arrays = {**public, **space, **self.begin.to_arrays()}
        return content_digest(arrays, json.dumps(how | self.plan.to_json() | target))

    @property
    def loss(self) -> Loss:
        """Loss of a record's scores and target."""
        return CROSS_ENTROPY if self.target is None else self.target.loss

    def describe(self) -> dict[str, Any]:
        first = self.plan.mechanism
        return {
            "name": "sgd",
            "network": self.network,
            "sigma": first.noise_multiplier,
            "clip_norm": first.clip_norm,
            "expected": first.expected,
            "steps": self.plan.steps,
            "step_size": self.step_size,
            "momentum": self.momentum,
            "phases": self.plan.to_json()["phases"],
        }

    def part(self, batch: int, start: int, most: int) -> slice:
        return slice(0, 0) if batch == CHARGE else slice(start, min(start + most, self.size))

    def state(self, released: Arrays | None) -> SampledSteps:
        return self.begin if released is None else SampledSteps.from_arrays(released)

    def bounds(self, part: slice) -> list[float] | None:
        return self.charges.tolist() if _charges(part) else None

    def groups(self, caps: NDArray[np.float64]) -> NDArray[np.intp]:
        """(H,) the place in the plan of the largest promise within each cap; -1 of whose cap is smaller than any.

        Of those who have a promise that the plan does not know: they are drawn, and charged, as the next stricter ones.
        """
        order = np.argsort(self.caps, kind="stable")
        place = np.searchsorted(self.caps[order], caps, side="right") - 1
        return np.where(place >= 0, order[place], -1)

    def answer(
        self,
        part: slice,
        state: SampledSteps,
        people: People,
        records: Callable[[], Records],
        *,
        alone: bool,
        draws: Draws,
    ) -> Arrays:
        del alone  # one task takes a chunk: a step reads the records of some hundred holders, however many there are
        group = self.groups(people.caps)
        if _charges(part):
            return {"charge": self.charges[group]}
        own = records()
        after = self.advanced(
            state,
            owned_records(own.x, own.classes, own.owner, people.holders),
            group,
            steps=part.stop - part.start,
            noise=draws.noise,
            sampling=SystemSampling() if draws.seed is None else SimulationSampling(draws.seed),
        )
        return {**after.to_arrays(), "charge": np.zeros(len(people.holders))}

    def advanced(
        self,
        state: SampledSteps,
        records: OwnedRecords,
        group: NDArray[np.intp],
        *,
        steps: int,
        noise: Noise,
        sampling: Sampling,
    ) -> SampledSteps:
        """The state some steps later, of holders in these groups (H,) of the plan."""
        # PyTorch takes a second to import, which the site should not spend to start.
        from learning.mechanisms.sampled_steps.contributions import Gradients
        from learning.mechanisms.sampled_steps.networks import network_create

        gradients = Gradients(
            network_create(self.network, self.shape, self.classes), self.shape, scale=self.scale, loss=self.loss
        )
        for mechanism, count in phases_within(self.plan.phases, state.step, steps):
            state = run_chunk(
                state,
                records,
                group,
                gradients=gradients,
                mechanism=mechanism,
                steps=count,
                step_size=self.step_size,
                momentum=self.momentum,
                noise=noise,
                sampling=sampling,
            )
        return state

    def release(self, part: slice, state: SampledSteps, answers: Sequence[Arrays], noise: Noise) -> Release:
        del state, noise
        if _charges(part):
            return Release(size=0, content=self.charged_content())
        (answer,) = answers
        after, steps = SampledSteps.from_arrays(answer), part.stop - part.start
        content = {"steps": steps, "digest": content_digest(after.to_arrays())}
        return Release(size=steps, content=content, arrays=after.to_arrays())

    def charged_content(self) -> dict[str, Any]:
        """Entry of the register on the charge for a whole run."""
        return {"steps": 0, "digest": content_digest({}), "slack": self.plan.slack}


def _charges(part: slice) -> bool:
    """Whether a part is the charge for the whole run."""
    return part.start == part.stop
