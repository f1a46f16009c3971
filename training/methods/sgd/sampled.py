"""Steps of DP-SGD over Poisson samples of the holders, each group with its own rate or clipping norm.

Abadi et al., "Deep learning with differential privacy" (2016), with the holder as the unit; rates and norms as
:mod:`training.methods.sgd.calibration` finds them. The whole run is charged before its first step
(:mod:`training.methods.sgd.sampled_planner`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.nn.utils import parameters_to_vector

from common.noise import Noise
from training.methods.sgd.contributions import FINENESS, Gradients, OwnedRecords

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
        bits = np.frombuffer(os.urandom(8 * len(rates)), np.uint64)
        certain = rates >= 1
        limits = np.floor(np.ldexp(np.where(certain, 0.0, rates), 64)).astype(np.uint64)
        return np.flatnonzero(certain | (bits < limits))


class SimulationSampling:
    """Inclusion that a seed repeats, for benchmarks and rehearsals."""

    is_simulation: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def chosen(self, rates: Floats) -> NDArray[np.int64]:
        return np.flatnonzero(self._generator.random(len(rates)) < rates)


@dataclass(frozen=True, eq=False)
class SampledMechanism:
    """Plan of each step; public.

    Attributes:
        rates: probability of each group's holders to be in a step, shape (groups,); 0 for a group that is left out.
        norms: largest norm of a contribution of each group, shape (groups,).
        noise_multiplier: σ; the noise of a coordinate has the standard deviation σ·clip_norm.
        clip_norm: c, to which σ refers.
        expected: how many holders a step has, on average, by public sizes: what a sum is divided by.
    """

    rates: Floats
    norms: Floats
    noise_multiplier: float
    clip_norm: float
    expected: float

    @property
    def unit(self) -> float:
        """Unit of which contributions and noise are whole multiples."""
        return float(self.norms.max()) / FINENESS


@dataclass(frozen=True, eq=False)
class SampledSteps:
    """State that the steps have come to: weights and momentum `(d,)`, and the number of steps done. Public."""

    weights: Floats
    velocity: Floats
    step: int

    @classmethod
    def start(cls, network: nn.Module) -> SampledSteps:
        """Before the first step, at the weights of the network."""
        weights = parameters_to_vector(network.parameters()).detach().numpy().astype(np.float64)
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
    for _ in range(steps):
        drawn = sampling.chosen(rates)
        sums = gradients.sums(state.weights, holders, drawn, norms, unit=unit, step=state.step)
        noisy = sums + noise.rounded_normal(mechanism.noise_multiplier * mechanism.clip_norm / unit, sums.shape)
        mean = noisy.astype(np.float64) * (unit / mechanism.expected)
        state = state.after(mean, step_size=step_size, momentum=momentum)
    return state
