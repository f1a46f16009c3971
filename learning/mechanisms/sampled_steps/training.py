"""DP-SGD steps on Poisson samples of the holders, with a rate or clipping norm for each group, chunk by chunk.

The method is that of Abadi et al., "Deep learning with differential privacy" (2016), but protects holders rather than
records. Rates and norms come from :mod:`learning.mechanisms.sampled_steps.rates`. The question defines the network and
its input. The first batch takes no step, but charges every participant for the whole run
(:mod:`learning.mechanisms.sampled_steps.run_plan`). Each later batch is a chunk of steps in a single task, whose
release is the public state after the last step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import urandom
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import Noise
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, Records, content_digest, named
from learning.mechanisms.sampled_steps.rates import SampledMechanism, phases_within
from learning.mechanisms.sampled_steps.run_plan import SampledPlan, sampled_plan_from_json
from learning.mechanisms.steps.linear import OwnedRecords, owned_records
from learning.outcomes import CROSS_ENTROPY, Loss, Target, target_from_arrays
from learning.representations import FittedRepresentation, representation_load

if TYPE_CHECKING:  # PyTorch takes a second to load, which would delay the start of the site
    from torch import nn

    from learning.mechanisms.sampled_steps.contributions import Gradients
    from learning.mechanisms.steps.linear import OwnedRecords

Floats = NDArray[np.float64]

#: Number of the batch that charges all participants for the whole run and takes no step.
CHARGE = 0


class Sampling(Protocol):
    """Sampler of the participants of a step; `is_simulation` is True if it can be repeated."""

    is_simulation: ClassVar[bool]

    def chosen(self, rates: Floats) -> NDArray[np.int64]:
        """Return the drawn positions; each is drawn independently with its own rate."""
        ...


class SystemSampling:
    """Sampling by the operating system's cryptographic generator.

    Rates are rounded down to multiples of 2^-64, so no one is drawn more often than their charge covers.

    >>> SystemSampling().chosen(np.array([0.0, 1.0])).tolist()
    [1]
    """

    is_simulation: ClassVar[bool] = False

    def chosen(self, rates: Floats) -> NDArray[np.int64]:
        certain = rates >= 1
        limits = np.floor(np.ldexp(np.where(certain, 0.0, rates), 64)).astype(np.uint64)
        # the first 16 bits decide almost every case; otherwise, 48 more bits are drawn
        firsts = (limits >> np.uint64(48)).astype(np.uint16)
        drawn = np.frombuffer(urandom(2 * len(rates)), np.uint16)
        included = certain | (drawn < firsts)
        undecided = np.flatnonzero(drawn == firsts)
        rest = np.frombuffer(urandom(8 * len(undecided)), np.uint64) >> np.uint64(16)
        included[undecided] |= rest < (limits[undecided] & np.uint64(2**48 - 1))
        return np.flatnonzero(included)


class SimulationSampling:
    """Repeatable sampling from a seed, for benchmarks and rehearsals."""

    is_simulation: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def chosen(self, rates: Floats) -> NDArray[np.int64]:
        return np.flatnonzero(self._generator.random(len(rates)) < rates)


@dataclass(frozen=True, eq=False)
class SampledSteps:
    """Public state of the steps: weights and momentum `(d,)`, and the number of steps taken."""

    weights: Floats
    velocity: Floats
    step: int

    @classmethod
    def start(cls, network: nn.Module) -> SampledSteps:
        """Return the state before the first step, with the network's weights."""
        weights = np.concatenate([tensor.detach().numpy().ravel() for tensor in network.parameters()]).astype(
            np.float64
        )
        return cls(weights, np.zeros_like(weights), 0)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> SampledSteps:
        """Return the state from the arrays of :meth:`to_arrays`."""
        return cls(np.asarray(arrays["weights"]), np.asarray(arrays["velocity"]), int(arrays["step"]))

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        return {"weights": self.weights, "velocity": self.velocity, "step": np.array(self.step)}

    def after(self, gradient: Floats, *, step_size: float, momentum: float) -> SampledSteps:
        """Return the state after a step: v ← momentum·v + gradient; weights ← weights − step_size·v."""
        velocity = momentum * self.velocity + gradient
        return SampledSteps(self.weights - step_size * velocity, velocity, self.step + 1)


def run_chunk(
    state: SampledSteps,
    holders: OwnedRecords,
    group: ArrayLike,
    *,
    gradients: Gradients,
    mechanism: SampledMechanism,
    steps: int,
    step_size: float,
    momentum: float,
    noise: Noise,
    sampling: Sampling,
) -> SampledSteps:
    """Take ``steps`` steps and return the new state, discarding samples and unnoised sums.

    A chunk that is not committed is discarded unseen. When it is repeated, new samples and noise are drawn, so no noise
    is ever used for two sums. Holders who may no longer take part are left out of later chunks.

    Args:
        state: Result of the last committed chunk.
        holders: Participants of this chunk. Only the records of drawn holders are read.
        group: `(H,)` position of each holder's group in the mechanism.
        mechanism: Rates, norms and noise, the same for all chunks of a run.
        step_size, momentum: Public parameters of the update.
        noise, sampling: `SystemNoise` and `SystemSampling`, except in rehearsals.

    Returns:
        The new state, which is public.
    """
    groups = np.asarray(group, np.int64)
    rates, norms = mechanism.rates[groups], mechanism.norms[groups]
    unit = mechanism.unit
    scale = mechanism.noise_multiplier * mechanism.clip_norm / unit
    for _ in range(steps):
        drawn = sampling.chosen(rates)
        sums = gradients.sums(state.weights, holders, drawn, norms, unit=unit, step=state.step)
        noisy = sums + noise.rounded_normal(scale, sums.shape) if scale else sums
        mean = noisy.astype(np.float64) * (unit / mechanism.expected)
        state = state.after(mean, step_size=step_size, momentum=momentum)
    return state


@dataclass(frozen=True, eq=False)
class SampledQuestion:
    """Question for steps on samples of the holders; see :class:`learning.mechanisms.protocol.Question`.

    Attributes:
        plan: Rates, norms and noise, and the charge for each promise in the run's plan.
        network: Name of the network, one of `learning.mechanisms.sampled_steps.run_plan.NETWORK_CHOICES`.
        shape: Shape of the network's input for a record, which is multiplied by ``scale``.
        classes: Number of the network's scores for a record, one for each class.
        fitted: Representation whose coordinates are the network's input; None if records are the input.
        begin: State before the first step.
        caps: (promises,) caps of the promises in the run's plan, in μ².
        target: Target to learn; None for classes.
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

    #: A release is the state after many steps, each with a separate noisy sum.
    spread = None
    grain = 1.0

    @classmethod
    def from_arrays(cls, arrays: Arrays, planned: Mapping[str, Any], caps: NDArray[np.float64]) -> SampledQuestion:
        """Return the question from the arrays in the round's file and the plan of its run."""
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
        """Each group's charge for the whole run, (groups,) in μ²; 0 if the group is not protected."""
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
        """Loss as a function of a record's scores and target."""
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
        """Return the position in the plan of the largest promise within each cap, (H,); -1 if all promises exceed it.

        People whose promise is not in the plan are drawn and charged like people with the next stricter promise.
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
        del alone  # a chunk is a single task, because a step reads the records of only a few hundred holders
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
        """Return the state after steps on holders in groups (H,) of the plan."""
        # PyTorch takes a second to load, which would delay the start of the site.
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

    def release(self, part: slice, state: SampledSteps, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        del state, noise
        if _charges(part):
            return PartRelease(size=0, content=self.charged_content())
        (answer,) = answers
        after, steps = SampledSteps.from_arrays(answer), part.stop - part.start
        content = {"steps": steps, "digest": content_digest(after.to_arrays())}
        return PartRelease(size=steps, content=content, arrays=after.to_arrays())

    def charged_content(self) -> dict[str, Any]:
        """Return the register's entry for the charge for a whole run."""
        return {"steps": 0, "digest": content_digest({}), "slack": self.plan.slack}


def _charges(part: slice) -> bool:
    """Return whether a part is the charge for the whole run."""
    return part.start == part.stop
