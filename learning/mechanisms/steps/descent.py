"""The public side of private gradient steps: the state of the optimiser, a function of released noisy sums alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from common.threads import one_thread
from learning.mechanisms.steps.curvature import curvatures
from learning.mechanisms.steps.linear import CLIP_STEPS
from learning.mechanisms.steps.planner import StepsPlan
from learning.mechanisms.steps.records import INTERCEPT
from learning.mechanisms.steps.spread import weights_spread
from learning.outcomes import CROSS_ENTROPY, Loss, Target
from learning.representations import FittedRepresentation, LinearModel

Floats = NDArray[np.float64]

MOST_PUBLIC = 4000
"""So many public points at most say how a step is shaped."""
EARLY = 0.5
"""Of the steps; the model is the mean of the parameters after these."""
LOOKED = 0.25
"""Of the steps; after these the ridge follows from what they released."""
_RIDGE, _SPREAD_POWER = 5.0, 1.5  # noises of a step at a spread of 1, and how fast they grow below it
_ANEW_POWER, _ANEW_RIDGE = 2.5, 320.0  # how fast where the descent begins anew, and noises of a step at most
_LOUD = 50.0  # signal of a plan from which small weights are told from weights that noise hides
_PARAMETER_STEPS = 2.0**24
_OBSERVED_STEPS = 2.0**40
_SMALLEST_CURVATURE = 1e-9
_SAME = 1e-6  # of numbers that solvers of two machines may tell apart


def kept_points(public: ArrayLike) -> NDArray[np.int8]:
    """`(P, d)` coordinates of public points; of more than `MOST_PUBLIC` some, evenly spread."""
    everyone = np.asarray(public)
    places = np.linspace(0, len(everyone) - 1, min(len(everyone), MOST_PUBLIC)).astype(np.int64)
    return everyone[places].astype(np.int8)


@dataclass(frozen=True, eq=False)
class Descent:
    """Newton's method with the curvature of public points, whose model is the mean over the later half of the steps.

    Every noisy gradient is multiplied by the inverse of the public points' curvature at the parameters that it was
    taken at, and of a ridge in proportion to the noise. The ridge is large for the first quarter of the steps; then it
    is the smaller, the larger the weights are that these steps released, see `weights_spread`. Where the weights are so
    small that this ridge was not large enough, what the parameters followed was noise: the descent begins anew with a
    larger one, at the ridge regression of all that was released. The mean of the iterates (Polyak and Juditsky 1992)
    averages the noise of their steps. Everything here is public.

    plan: steps, step size, clipping norm, ridge and the people expected.  points: `(P, d)` coordinates of public
    points.  length: of a typical one of them; steps are taken where that is 1.  parameters: `(d + 1, outputs)`.  total:
    sum of the parameters over the steps that count.  ridge: of the next step.  observed: `(d + 1, outputs)` mean of
    what the steps before the ridge is chosen say of curvature times best parameters.  step: how many have been taken.
    loss: of a record.
    """

    plan: StepsPlan
    points: NDArray[np.int8]
    length: float
    parameters: Floats
    total: Floats
    ridge: float
    observed: Floats
    step: int = 0
    loss: Loss = CROSS_ENTROPY

    @classmethod
    def begin(cls, plan: StepsPlan, public: ArrayLike, outputs: int, loss: Loss = CROSS_ENTROPY) -> Descent:
        """Before the first step: all scores are 0, of classes all are as likely.

        Args:
            plan: Of the round.
            public: `(P, d)` coordinates of public points; of more than `MOST_PUBLIC` some are kept, evenly spread.
            outputs: Scores of a record; of classes one each.
            loss: Of a record.
        """
        points = kept_points(public)
        length = float(np.median(np.sqrt((points.astype(np.float64) ** 2).sum(axis=1)))) or 1.0
        zero = np.zeros((points.shape[1] + 1, outputs))
        return cls(plan, points, length, zero, zero, plan.largest_ridge, zero, loss=loss)

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
        """The state after a step has released `(d + 1, outputs)` noisy sums, see `linear.release_sums`."""
        gradient = np.asarray(noisy_sums, np.float64) * (self.plan.clip_norm / CLIP_STEPS / self.plan.people)
        gradient = self._centred(gradient)
        with one_thread():
            matrices = self._curvatures()
            moved = self.parameters - self.plan.step_size * self._direction(gradient, matrices, self.ridge)
            observed, ridge = self._seen(gradient, matrices)
            if ridge > max(self.ridge, self.plan.largest_ridge):
                moved = self._direction(observed, matrices, ridge / math.sqrt(self._looked))
        # Linear solvers differ in their last digits between machines; the parameters need not.
        parameters = np.rint(moved * _PARAMETER_STEPS) / _PARAMETER_STEPS
        total = self.total + parameters if self.step + 1 > self._early else self.total
        return replace(self, parameters=parameters, total=total, ridge=ridge, observed=observed, step=self.step + 1)

    def _curvatures(self) -> Floats:
        constant = np.full((len(self.points), 1), float(INTERCEPT))
        return curvatures(np.hstack([self.points, constant]) / self.length, self.parameters, self.loss)

    def _direction(self, gradient: Floats, matrices: Floats, ridge: float) -> Floats:
        """The gradient multiplied by the inverse of the public curvature and a ridge."""
        directions = np.empty_like(gradient)
        for place, matrix in enumerate(matrices):
            alike = slice(place, place + 1) if len(matrices) > 1 else slice(None)
            directions[:, alike] = scipy.linalg.solve(_ridged(matrix, ridge), gradient[:, alike], assume_a="pos")
        return self._centred(directions)

    def _seen(self, gradient: Floats, matrices: Floats) -> tuple[Floats, float]:
        """`observed` and `ridge` after this step: near the best parameters B, the gradient is H·(parameters - B)."""
        looked = self._looked
        if self.step >= looked or self.plan.largest_ridge <= self.plan.ridge:
            return self.observed, self.ridge
        every = np.broadcast_to(matrices, (gradient.shape[1], *matrices.shape[1:]))
        curved = np.einsum("cij,jc->ic", every, self.parameters)
        observed = self.observed + np.rint((curved - gradient) / looked * _OBSERVED_STEPS) / _OBSERVED_STEPS
        if self.step + 1 < looked:
            return observed, self.ridge
        outputs = gradient.shape[1]
        variance = self.plan.noise**2 / looked * ((1 - 1 / outputs) if self.loss.centred else 1.0)
        return observed, self._ridge_of(weights_spread(observed[:-1], matrices[:, :-1, :-1], variance))

    def _ridge_of(self, spread: float) -> float:
        """The ridge for weights of this spread; where it is above the largest ridge, the descent begins anew."""
        ridge, largest = _RIDGE * self.plan.noise / spread**_SPREAD_POWER, self.plan.largest_ridge
        if ridge <= largest or self.plan.signal < _LOUD:
            return min(largest, max(self.plan.ridge, ridge))
        return max(largest, min(_ANEW_RIDGE, _RIDGE / spread**_ANEW_POWER) * self.plan.noise)

    def _centred(self, vectors: Floats) -> Floats:
        """As the loss has them: gradients of the cross entropy add up to 0 over the classes."""
        return vectors - vectors.mean(axis=1, keepdims=True) if self.loss.centred else vectors

    @property
    def _looked(self) -> int:
        return max(1, int(LOOKED * self.plan.steps))

    @property
    def _early(self) -> int:
        return int(EARLY * self.plan.steps)

    @property
    def learned(self) -> Floats:
        """`(d + 1, C)` weights of the model so far, for coordinates as they are."""
        averaged = self.step - self._early
        return (self.total / averaged if averaged > 0 else self.parameters) / self.length

    def model(self, fitted: FittedRepresentation, target: Target | None = None) -> LinearModel:
        """The model so far of a target, on the representation in whose coordinates the steps were taken."""
        return LinearModel(fitted, self.learned, INTERCEPT, target)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Checkpoint for `from_arrays`: what changes from step to step."""
        return {
            "parameters": self.parameters,
            "total": self.total,
            "ridge": np.array(self.ridge),
            "observed": self.observed,
            "step": np.array(self.step),
        }

    def at(self, arrays: Mapping[str, NDArray[Any]]) -> Descent:
        """The state that `to_arrays` stored, bit for bit, on the same public points."""
        return replace(
            self,
            parameters=arrays["parameters"],
            total=arrays["total"],
            ridge=float(arrays["ridge"]),
            observed=arrays["observed"],
            step=int(arrays["step"]),
        )

    def same(self, other: Descent) -> bool:
        """Whether two states are equal but for the last digits, in which linear solvers differ between machines."""
        pairs = (
            (self.parameters, other.parameters),
            (self.total, other.total),
            (self.observed, other.observed),
            (np.array([self.ridge]), np.array([other.ridge])),
        )
        return self.step == other.step and all(nearly_same(ours, theirs) for ours, theirs in pairs)


def nearly_same(ours: Floats, theirs: Floats) -> bool:
    """Whether two arrays of weights are equal but for the last digits."""
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=_SAME, atol=_SAME * np.abs(theirs).max())


def _ridged(matrix: Floats, ridge: float) -> Floats:
    """With a whole ridge the intercept would be learned last; with none, noise would move it far."""
    added = np.full(len(matrix), ridge + _SMALLEST_CURVATURE)
    added[-1] *= min(1.0, ridge / matrix[-1, -1])
    return matrix + np.diag(added)
