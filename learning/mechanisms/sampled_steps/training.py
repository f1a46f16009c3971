"""Steps of DP-SGD over Poisson samples of the holders, each group with its own rate or clipping norm.

Abadi et al., "Deep learning with differential privacy" (2016), with the holder as the unit; rates and norms as
:mod:`learning.mechanisms.sampled_steps.calibration` finds them. The whole run is charged before its first step
(:mod:`learning.mechanisms.sampled_steps.planner`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import urandom
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import Noise
from learning.mechanisms.sampled_steps.mechanism import SampledMechanism

if TYPE_CHECKING:  # PyTorch takes a second, which the site should not spend to start
    from torch import nn

    from learning.mechanisms.sampled_steps.contributions import Gradients
    from learning.mechanisms.steps.records import OwnedRecords

Floats = NDArray[np.float64]


class Sampling(Protocol):
    """Sampler of who takes part in a step; `is_simulation` is True if it can be repeated."""

    is_simulation: ClassVar[bool]

    def chosen(self, rates: Floats) -> NDArray[np.int64]:
        """Positions of those included, each with the probability given for it, independently."""
        ...


class SystemSampling:
    """Inclusion by the operating system's cryptographic generator.

    A rate is rounded down to a multiple of 2^-64: nobody is drawn more often than was charged.

    >>> SystemSampling().chosen(np.array([0.0, 1.0])).tolist()
    [1]
    """

    is_simulation: ClassVar[bool] = False

    def chosen(self, rates: Floats) -> NDArray[np.int64]:
        certain = rates >= 1
        limits = np.floor(np.ldexp(np.where(certain, 0.0, rates), 64)).astype(np.uint64)
        # the first 16 bits decide about nearly everybody; 48 more are drawn where they do not
        firsts = (limits >> np.uint64(48)).astype(np.uint16)
        drawn = np.frombuffer(urandom(2 * len(rates)), np.uint16)
        included = certain | (drawn < firsts)
        undecided = np.flatnonzero(drawn == firsts)
        rest = np.frombuffer(urandom(8 * len(undecided)), np.uint64) >> np.uint64(16)
        included[undecided] |= rest < (limits[undecided] & np.uint64(2**48 - 1))
        return np.flatnonzero(included)


class SimulationSampling:
    """Inclusion that a seed repeats, for benchmarks and rehearsals."""

    is_simulation: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def chosen(self, rates: Floats) -> NDArray[np.int64]:
        return np.flatnonzero(self._generator.random(len(rates)) < rates)


@dataclass(frozen=True, eq=False)
class SampledSteps:
    """State that the steps have come to: weights and momentum `(d,)`, and the number of steps done. Public."""

    weights: Floats
    velocity: Floats
    step: int

    @classmethod
    def start(cls, network: nn.Module) -> SampledSteps:
        """Before the first step, at the weights of the network."""
        weights = np.concatenate([tensor.detach().numpy().ravel() for tensor in network.parameters()]).astype(
            np.float64
        )
        return cls(weights, np.zeros_like(weights), 0)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> SampledSteps:
        """From :meth:`to_arrays`."""
        return cls(np.asarray(arrays["weights"]), np.asarray(arrays["velocity"]), int(arrays["step"]))

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """For an npz file."""
        return {"weights": self.weights, "velocity": self.velocity, "step": np.array(self.step)}

    def after(self, gradient: Floats, *, step_size: float, momentum: float) -> SampledSteps:
        """One step later: v ← momentum·v + gradient; weights ← weights − step_size·v."""
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
    """The state some steps later. What is kept is the state alone: sums before noise and who was drawn are forgotten.

    A chunk that is not committed is discarded unseen; another run of it draws samples and noise anew, so that no noise
    is ever used for two sums. A holder who may take part no longer is left out from the next chunk on.

    Args:
        state: where the last chunk that was committed came to.
        holders: who takes part in this chunk. Only the records of those drawn are read.
        group: `(H,)` the position of each holder's group in the mechanism.
        gradients: of the network that is trained.
        mechanism: the same for all chunks of a run.
        steps: of this chunk.
        step_size, momentum: of the update, public.
        noise, sampling: `SystemNoise` and `SystemSampling`, except in rehearsals.

    Returns:
        The new state, public.
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
