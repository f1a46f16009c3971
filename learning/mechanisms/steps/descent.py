"""The public side of private gradient steps: the state of the optimiser, a function of released noisy sums alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learning.mechanisms.steps.linear import CLIP_STEPS
from learning.mechanisms.steps.planner import StepsPlan
from learning.mechanisms.steps.records import INTERCEPT
from learning.representations import FittedRepresentation, LinearModel

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Descent:
    """Gradient descent with momentum (Polyak 1964), whose model is the mean over the later half of the steps.

    The mean of the iterates (Polyak and Juditsky 1992) averages the noise of their steps. Everything here is public.

    plan: steps, step size, clipping norm and the people expected.  length: of a typical public point in coordinates;
    steps are taken where that is 1.  parameters, velocity: `(d + 1, C)`.  total: sum of the parameters over the steps
    that count.  step: how many have been taken.
    """

    plan: StepsPlan
    length: float
    parameters: Floats
    velocity: Floats
    total: Floats
    step: int = 0

    @classmethod
    def begin(cls, plan: StepsPlan, public: ArrayLike, n_classes: int) -> Descent:
        """Before the first step: all classes are as likely.

        Args:
            plan: Of the round.
            public: `(P, d)` coordinates of public points, of which only the mean squared length is used.
        """
        points = np.asarray(public, np.float64)
        zero = np.zeros((points.shape[1] + 1, n_classes))
        return cls(plan, float(np.sqrt((points**2).sum(axis=1).mean())) or 1.0, zero, zero, zero)

    @property
    def weights(self) -> Floats:
        """`(d + 1, C)` at which the next gradients are taken, for coordinates as they are; `step_contributions`."""
        return self.parameters / self.length

    @property
    def clip_norm(self) -> float:
        """The clipping norm in the units of coordinates, as `step_contributions` takes it."""
        return self.plan.clip_norm * self.length

    @property
    def finished(self) -> bool:
        """Whether all planned steps have been taken."""
        return self.step >= self.plan.steps

    def after(self, noisy_sums: ArrayLike) -> Descent:
        """The state after a step has released `(d + 1, C)` noisy sums, see `linear.release_sums`."""
        gradient = np.asarray(noisy_sums, np.float64) * (self.plan.clip_norm / CLIP_STEPS / self.plan.people)
        velocity = self.plan.momentum * self.velocity + gradient
        parameters = self.parameters - self.plan.step_size * velocity
        counts = self.step + 1 > self.plan.steps // 2
        total = self.total + parameters if counts else self.total
        return replace(self, parameters=parameters, velocity=velocity, total=total, step=self.step + 1)

    @property
    def learned(self) -> Floats:
        """`(d + 1, C)` weights of the model so far, for coordinates as they are."""
        averaged = self.step - self.plan.steps // 2
        return (self.total / averaged if averaged > 0 else self.parameters) / self.length

    def model(self, fitted: FittedRepresentation) -> LinearModel:
        """The model so far, on the representation in whose coordinates the steps were taken."""
        return LinearModel(fitted, self.learned, INTERCEPT)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Checkpoint for `from_arrays`: what changes from step to step, and the length."""
        return {
            "length": np.array(self.length),
            "parameters": self.parameters,
            "velocity": self.velocity,
            "total": self.total,
            "step": np.array(self.step),
        }

    @classmethod
    def from_arrays(cls, plan: StepsPlan, arrays: Mapping[str, NDArray[Any]]) -> Descent:
        """The state that `to_arrays` stored, bit for bit."""
        length, step = float(arrays["length"]), int(arrays["step"])
        return cls(plan, length, arrays["parameters"], arrays["velocity"], arrays["total"], step)
