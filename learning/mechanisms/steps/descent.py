"""The public side of private gradient steps: the question of a round, and the state of the optimiser.

The question asks for gradients of a linear model on a representation. The state depends only on released noisy sums,
which also calibrate the model and give estimates of the class shares among the people.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from common.noise import Noise
from learning.calibration import Calibration, StepCheck, fit_to_sums
from learning.class_shares import ClassShare, first_step_shares
from learning.libraries import one_thread
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, Records, content_digest, named
from learning.mechanisms.steps.linear import CLIP_STEPS, INTERCEPT, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.steps_plan import StepsPlan
from learning.outcomes import CROSS_ENTROPY, Loss, Target, target_from_arrays
from learning.representations import FittedRepresentation, LinearModel, representation_load

Floats = NDArray[np.float64]

_CANDIDATES = np.geomspace(0.02, 8.0, 61)  # candidates for the spread of the weights

MOST_PUBLIC = 4000
"""Largest number of public points used to compute a step."""
EARLY = 0.5
"""Share of the steps after which the model starts averaging the parameters."""
LOOKED = 0.25
"""Share of the steps after which the releases determine the ridge."""
# ridge at a spread of 1, in units of a step's noise, and exponent of its growth at smaller spreads
_RIDGE, _SPREAD_POWER = 5.0, 1.5
# the same exponent after a restart, and the largest ridge in units of a step's noise
_ANEW_POWER, _ANEW_RIDGE = 2.5, 320.0
_EXPECTATIONS = 80  # updates of the shares of the mixture, which hardly change afterwards
# variance of an observation in addition to noise, in units of the sampling variance of people's mean gradient
_SAMPLED = 16.0
_NO_PENALTY: Floats = np.zeros((0, 0))
_NONE: Floats = np.zeros((0, 0, 0))
_CERTAIN = 2.0  # standard deviations by which a gradient must change more than expected before a curvature is raised
_SQUARED_SPREADS: Floats = np.geomspace(1e-3, 8.0, 40)  # of weights of numbers, which are measured in widths of a range
_RECENCY = 2  # exponent of a step's number in its weight, because the first estimates suffer from clipping
_RECENCY_OF_CONSTANT = 8  # larger because the constant of expected errors begins far away, where most are clipped
_LEAST_SQUARE = 1e-6  # smallest square of a coordinate's weight, so that penalties stay finite
_LOUD = 50.0  # signal of a plan above which small weights can be distinguished from weights hidden by noise
_PARAMETER_STEPS = 2.0**24
_OBSERVED_STEPS = 2.0**40
_SMALLEST_CURVATURE = 1e-9
_SAME = 1e-6  # allowed relative difference between the solvers of two machines

_STATE = "state"
_OPTIONAL = ("penalty", "raised", "last")  # left out of checkpoints while they are empty

_last_states: dict[bytes, dict[str, NDArray[Any]]] = {}
_MOST_STATES = 64


def curvatures(features: Floats, weights: Floats, loss: Loss = CROSS_ENTROPY) -> Floats:
    """Return the mean over points of h_c·f fᵀ, `(outputs, F, F)`, or `(1, F, F)` if it is the same for all outputs.

    Args:
        features: `(P, F)` features of public points.
        weights: `(F, outputs)` weights at which curvatures are computed.
        loss: Loss whose second derivatives are bounded by h.
    """
    bounds = loss.curvature(features @ weights) / len(features)
    roots = (features * np.sqrt(bound)[:, None] for bound in bounds.T)
    return np.stack([root.T @ root for root in roots])  # NumPy computes only one triangle of such a product


def weights_spread(observed: Floats, matrices: Floats, variance: float) -> float:
    """Return the most likely standard deviation of the weights given the observations, between 0.02 and 8.

    The weights w_c of a score are observed as H_c w_c + N(0, variance·I). If w_c is normal around 0, the coordinates of
    an observation along the eigenvectors of H_c are independent, with variance (eigenvalue · spread)² + variance.

    Args:
        observed: `(F, outputs)` observations.
        matrices: Symmetric matrices `(outputs, F, F)`, or `(1, F, F)` if all scores have the same matrix.
        variance: Variance of the noise of each number.

    >>> round(weights_spread(np.array([[3.0], [-3.0]]), np.eye(2)[None], 1e-6), 1)  # the candidate next to 3
    2.9
    """
    unlikely = np.zeros(len(_CANDIDATES))
    for place, matrix in enumerate(matrices):
        values, vectors = np.linalg.eigh(matrix)
        squares = (vectors.T @ (observed[:, place : place + 1] if len(matrices) > 1 else observed)) ** 2
        expected = (values * _CANDIDATES[:, None]) ** 2 + variance
        unlikely += squares.shape[1] * np.log(expected).sum(axis=1) + (squares.sum(axis=1) / expected).sum(axis=1)
    return float(_CANDIDATES[unlikely.argmin()])


def shrunk_weights(
    observed: Floats, values: Floats, variances: Floats, spreads: Floats = _CANDIDATES[::2]
) -> tuple[Floats, Floats]:
    """Return posterior means and mean squares `(F, outputs)` of weights observed with noise, along eigenvectors.

    A coordinate b is observed as value · b + N(0, variance). Its prior is a mixture of normal distributions around 0
    with these `spreads`, whose shares are fitted to all coordinates by expectation maximisation (Stephens 2017). A few
    large weights therefore keep their size among many small ones.

    Args:
        observed: `(F, outputs)` observations.
        values: `(F,)` positive eigenvalues.
        variances: `(F,)` variances of the noise.
        spreads: Standard deviations of the normal distributions in the mixture.

    >>> means, _ = shrunk_weights(np.array([[9.0], *[[0.1]] * 20]), np.ones(21), np.full(21, 0.04))
    >>> bool(means[0] > 8.5), bool(means[1] < 0.05)
    (True, True)
    """
    squares = spreads**2
    expected = ((values**2)[:, None] * squares + variances[:, None])[:, None]
    logs = -0.5 * (np.log(expected) + observed[..., None] ** 2 / expected)
    likely = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares = np.full(len(squares), 1.0 / len(squares))
    for _ in range(_EXPECTATIONS):
        parts = likely * shares
        parts /= parts.sum(axis=-1, keepdims=True)
        shares = parts.mean(axis=(0, 1))
    means = values[:, None, None] * squares / expected * observed[..., None]
    remaining = variances[:, None, None] * squares / expected
    return (parts * means).sum(axis=-1), (parts * (means**2 + remaining)).sum(axis=-1)


def kept_points(public: ArrayLike) -> NDArray[np.int8]:
    """Return coordinates `(P, d)` of public points, evenly sampled if there are more than `MOST_PUBLIC`."""
    everyone = np.asarray(public)
    places = np.linspace(0, len(everyone) - 1, min(len(everyone), MOST_PUBLIC)).astype(np.int64)
    return everyone[places].astype(np.int8)


@dataclass(frozen=True, eq=False)
class Directions:
    """Eigenvectors of the curvature of the squared loss, which does not depend on weights.

    Attributes:
        features: `(P, d + 1)` features of public points, the constant last.
    """

    features: Floats

    @cached_property
    def matrix(self) -> Floats:
        """Curvature `(d + 1, d + 1)`."""
        return self.features.T @ self.features / len(self.features)

    @cached_property
    def along(self) -> Floats:
        """Decrease `(d,)` of the best constant when each weight grows by 1."""
        return np.asarray(self.matrix[:-1, -1] / self.matrix[-1, -1], np.float64)

    @cached_property
    def eigen(self) -> tuple[Floats, Floats]:
        """Positive eigenvalues `(d,)` and eigenvectors `(d, d)` of the curvature at the best constant."""
        values, vectors = np.linalg.eigh(self.matrix[:-1, :-1] - np.outer(self.matrix[:-1, -1], self.along))
        return np.maximum(values, _SMALLEST_CURVATURE), vectors

    def expected(self, observed: Floats, variance: float) -> Floats:
        """Return the expected weights `(d + 1, outputs)` given curvature · weights + N(0, variance).

        Each output has its own prior (see `shrunk_weights`). The constant is not shrunk, and other rows of ``observed``
        are those at the best constant.
        """
        values, vectors = self.eigen
        coordinates, variances = vectors.T @ observed[:-1], np.full(len(values), variance)
        means = [shrunk_weights(column[:, None], values, variances, _SQUARED_SPREADS)[0] for column in coordinates.T]
        weights = vectors @ np.hstack(means)
        return np.vstack([weights, (observed[-1] - self.matrix[-1, :-1] @ weights) / self.matrix[-1, -1]])


@dataclass(frozen=True, eq=False)
class Descent:
    """Newton's method with the curvature of public points. The model is the mean over the later half of the steps.

    Every noisy gradient is multiplied by the inverse of a matrix: the public points' curvature at the current
    parameters, plus a ridge that is proportional to the noise. The ridge is large for the first quarter of the steps.
    Afterwards, the larger the released weights, the smaller the ridge (see `weights_spread`). If the weights turn out
    so small that even the first ridge was too small, the parameters have followed noise, and the descent restarts. It
    then starts from the weights expected given all releases so far, with a penalty for each direction (see
    `shrunk_weights`). For more than two classes, and under older plans, it restarts from a ridge regression with a
    larger ridge. The mean of the iterates (Polyak and Juditsky 1992) averages the noise of their steps. Everything here
    is public.

    For numbers, whose loss is quadratic, there is no ridge, restart or mean of iterates. After each step, the
    parameters are those expected given all releases so far (see `Directions.expected`).

    Attributes:
        plan: Steps, step size, clipping norm, ridge and the expected people.
        points: `(P, d)` coordinates of public points.
        length: Length of a typical point; steps are taken in coordinates that scale it to 1.
        parameters: `(d + 1, outputs)` parameters of the next step.
        total: Sum of the parameters over the averaged steps.
        ridge: Ridge of the next step.
        observed: `(d + 1, outputs)` estimate of the product of the curvature and the best parameters: the mean over the
            steps before the ridge is chosen or, for numbers, a weighted mean over all steps.
        penalty: `(d, d)` matrix of a quadratic penalty after a restart; `(0, 0)` without one.
        raised: `(corrections, matrices, d + 1)` vectors whose outer products are added to the curvatures.
        last: `(2, d + 1, outputs)` parameters and gradient of the last step, if curvatures are corrected.
        step: Number of steps taken.
        loss: Loss of a record.
        directions: Eigenvectors of the public curvature, which are computed once and used for numbers.
    """

    plan: StepsPlan
    points: NDArray[np.int8]
    length: float
    parameters: Floats
    total: Floats
    ridge: float
    observed: Floats
    penalty: Floats
    raised: Floats = field(default_factory=lambda: _NONE)
    last: Floats = field(default_factory=lambda: _NONE)
    step: int = 0
    loss: Loss = CROSS_ENTROPY
    directions: Directions | None = None

    @classmethod
    def begin(cls, plan: StepsPlan, public: ArrayLike, outputs: int, loss: Loss = CROSS_ENTROPY) -> Descent:
        """Return the state before the first step: all scores are 0, and all classes equally likely.

        Args:
            public: `(P, d)` coordinates of public points, evenly sampled if there are more than `MOST_PUBLIC`.
            outputs: Number of scores of a record, one for each class.
        """
        points = kept_points(public)
        length = float(np.median(np.sqrt((points.astype(np.float64) ** 2).sum(axis=1)))) or 1.0
        zero = np.zeros((points.shape[1] + 1, outputs))
        begin = cls(plan, points, length, zero, zero, plan.largest_ridge, zero, _NO_PENALTY, loss=loss)
        return replace(begin, directions=Directions(begin.features)) if plan.expected else begin

    @property
    def weights(self) -> Floats:
        """`(d + 1, C)` weights in unscaled coordinates for the next gradients; see `step_contributions`."""
        return self.parameters / self.length

    @property
    def features(self) -> Floats:
        """`(P, d + 1)` features of the public points in scaled coordinates, the constant last."""
        return np.hstack([self.points, np.full((len(self.points), 1), float(INTERCEPT))]) / self.length

    @property
    def clip_norm(self) -> float:
        """Clipping norm in the units of coordinates, for `step_contributions`."""
        return self.plan.clip_norm * self.length

    @property
    def finished(self) -> bool:
        return self.step >= self.plan.steps

    def after(self, noisy_sums: ArrayLike) -> Descent:
        """Return the state after a step that released `(d + 1, outputs)` noisy sums, see `linear.release_sums`.

        The process caches its last states, because an answer, its release, the calibration and a replay go through the
        same steps.
        """
        key = self._digest(np.asarray(noisy_sums, np.float64))
        if key in _last_states:
            return self.at(_last_states[key])
        after = self._after(noisy_sums)
        if len(_last_states) >= _MOST_STATES:
            _last_states.pop(next(iter(_last_states)), None)
        _last_states[key] = after.to_arrays()
        return after

    def _digest(self, sums: Floats) -> bytes:
        """Return a digest of everything that determines the state after a step."""
        plan = replace(self.plan, notes=(), warnings=())
        settings = repr((plan, self.length, self.ridge, self.step, self.loss, sums.shape, self.points.shape))
        digest = hashlib.blake2b(settings.encode())
        states = (self.parameters, self.total, self.observed, self.penalty, self.raised, self.last)
        for array in (self.points, *states, sums):
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    def _after(self, noisy_sums: ArrayLike) -> Descent:
        gradient = np.asarray(noisy_sums, np.float64) * (self.plan.clip_norm / CLIP_STEPS / self.plan.people)
        gradient = self._centred(gradient)
        if self.directions is not None:
            return self._expected(gradient, self.directions)
        with one_thread():
            matrices, raised = self._curvatures(gradient)
            moved = self.parameters - self.plan.step_size * self._direction(gradient, matrices, self.ridge)
            observed, ridge = self._seen(gradient, matrices)
            penalty, largest = self.penalty, max(self.ridge, self.plan.largest_ridge)
            if ridge > largest and self.plan.per_direction and len(matrices) == 1:
                moved, penalty = self._shrunk(observed, matrices[0])
                ridge = largest
            elif ridge > largest:
                moved = self._direction(observed, matrices, ridge / math.sqrt(self._looked))
        parameters = _rounded(moved)
        total = self.total + parameters if self.step + 1 > self._early else self.total
        return replace(
            self,
            parameters=parameters,
            total=total,
            ridge=ridge,
            observed=observed,
            penalty=penalty,
            raised=raised,
            last=np.stack([self.parameters, gradient]) if self.plan.corrects else _NONE,
            step=self.step + 1,
        )

    def _expected(self, gradient: Floats, directions: Directions) -> Descent:
        """Return the state with the parameters expected given the releases so far, for a quadratic loss.

        Every step estimates curvature times best parameters, and later estimates have larger weights.
        """
        steps = np.arange(1.0, self.step + 2) / (self.step + 1)
        shares = steps**_RECENCY / (steps**_RECENCY).sum()
        last = np.full((len(gradient), 1), shares[-1])
        last[-1] = 1 / (steps**_RECENCY_OF_CONSTANT).sum()
        with one_thread():
            seen = directions.matrix @ self.parameters - gradient
            seen[:-1] -= np.outer(directions.along, seen[-1])
            mean = self.observed + last * (seen - self.observed)
            observed = np.rint(mean * _OBSERVED_STEPS) / _OBSERVED_STEPS
            moved = directions.expected(observed, self._variance * float((shares**2).sum()))
        return replace(self, parameters=_rounded(moved), observed=observed, step=self.step + 1)

    def _curvatures(self, gradient: Floats) -> tuple[Floats, Floats]:
        """Return the curvatures of the public points and, if the plan corrects them, `raised` after this gradient.

        Rows drawn from counts may vary far less in some directions than people do, so that steps overshoot and grow.
        If the last step has changed the gradient more than curvature and ridge explain, the curvature is raised along
        it, as in a secant method.
        """
        matrices, raised = curvatures(self.features, self.parameters, self.loss), self.raised
        if not len(self.last):
            return matrices, raised
        if len(raised):
            matrices = matrices + np.einsum("kci,kcj->cij", raised, raised)
        moved, changed = self.parameters - self.last[0], gradient - self.last[1]
        vectors = np.zeros(matrices.shape[:2])
        for place, matrix in enumerate(matrices):
            alike = slice(place, place + 1) if len(matrices) > 1 else slice(None)
            step = moved[:, alike]
            expected = _ridged(matrix, self.ridge) @ step
            doubt = _CERTAIN * math.sqrt(2 * self._variance) * float(np.linalg.norm(step))
            excess = float((step * (changed[:, alike] - expected)).sum()) - doubt
            if excess > 0:
                scale = math.sqrt(excess / float(((step.T @ expected[:, 0]) ** 2).sum()))
                vectors[place] = np.rint(scale * expected[:, 0] * _OBSERVED_STEPS) / _OBSERVED_STEPS
        if vectors.any():
            matrices = matrices + vectors[:, :, None] * vectors[:, None, :]
            raised = np.concatenate([raised, vectors[None]]) if len(raised) else vectors[None]
        return matrices, raised

    def _direction(self, gradient: Floats, matrices: Floats, ridge: float) -> Floats:
        """Return the gradient multiplied by the inverse of the public curvature plus a ridge and the penalty."""
        directions, slope = np.empty_like(gradient), gradient.copy()
        if len(self.penalty):
            matrices = matrices.copy()
            matrices[0, :-1, :-1] += self.penalty
            slope[:-1] += self.penalty @ self.parameters[:-1]
        for place, matrix in enumerate(matrices):
            alike = slice(place, place + 1) if len(matrices) > 1 else slice(None)
            directions[:, alike] = scipy.linalg.solve(_ridged(matrix, ridge), slope[:, alike], assume_a="pos")
        return self._centred(directions)

    def _shrunk(self, observed: Floats, matrix: Floats) -> tuple[Floats, Floats]:
        """Return the parameters expected given the releases so far, and the penalty for the remaining steps.

        Noise is not the only error: people are a sample, whose mean gradient has the variance H / 2n. In the first
        steps, this variance is multiplied by `_SAMPLED`, because the curvature still changes and is that of public
        points rather than people. The intercept is not shrunk.
        """
        along = matrix[:-1, -1] / matrix[-1, -1]
        values, vectors = np.linalg.eigh(matrix[:-1, :-1] - np.outer(matrix[:-1, -1], along))
        values = np.maximum(values, _SMALLEST_CURVATURE)
        sampled = values * (0.5 / self.plan.people)
        variances = self._variance / self._looked + _SAMPLED * sampled
        coordinates = vectors.T @ (observed[:-1] - np.outer(along, observed[-1]))
        means, squares = shrunk_weights(coordinates, values, variances)
        weights = vectors @ means
        intercept = (observed[-1] - matrix[-1, :-1] @ weights) / matrix[-1, -1]
        remaining = self._variance / (self.plan.steps - self._looked) + sampled
        penalties = remaining / (values * np.maximum(squares.mean(axis=1), _LEAST_SQUARE))
        return self._centred(np.vstack([weights, intercept])), vectors * penalties @ vectors.T

    def _seen(self, gradient: Floats, matrices: Floats) -> tuple[Floats, float]:
        """Return `observed` and `ridge` after a step. Gradients near the best parameters B are H·(parameters - B)."""
        looked = self._looked
        if self.step >= looked or self.plan.largest_ridge <= self.plan.ridge:
            return self.observed, self.ridge
        every = np.broadcast_to(matrices, (gradient.shape[1], *matrices.shape[1:]))
        curved = np.einsum("cij,jc->ic", every, self.parameters)
        observed = self.observed + np.rint((curved - gradient) / looked * _OBSERVED_STEPS) / _OBSERVED_STEPS
        if self.step + 1 < looked:
            return observed, self.ridge
        return observed, self._ridge_of(weights_spread(observed[:-1], matrices[:, :-1, :-1], self._variance / looked))

    def _ridge_of(self, spread: float) -> float:
        """Return the ridge for weights of this spread. If it exceeds the largest ridge, the descent restarts."""
        ridge, largest = _RIDGE * self.plan.noise / spread**_SPREAD_POWER, self.plan.largest_ridge
        if ridge <= largest or self.plan.signal < _LOUD:
            return min(largest, max(self.plan.ridge, ridge))
        return max(largest, min(_ANEW_RIDGE, _RIDGE / spread**_ANEW_POWER) * self.plan.noise)

    def _centred(self, vectors: Floats) -> Floats:
        """Centre vectors over the classes if the loss requires it: gradients of the cross entropy add up to 0."""
        return vectors - vectors.mean(axis=1, keepdims=True) if self.loss.centred else vectors

    @property
    def _variance(self) -> float:
        """Variance of the noise of each number of a step's gradient."""
        return self.plan.noise**2 * ((1 - 1 / self.parameters.shape[1]) if self.loss.centred else 1.0)

    @property
    def _looked(self) -> int:
        return max(1, int(LOOKED * self.plan.steps))

    @property
    def _early(self) -> int:
        return int(EARLY * self.plan.steps)

    @property
    def learned(self) -> Floats:
        """Current weights `(d + 1, C)` of the model, in unscaled coordinates."""
        averaged = 0 if self.plan.expected else self.step - self._early
        return (self.total / averaged if averaged > 0 else self.parameters) / self.length

    def model(self, fitted: FittedRepresentation, target: Target | None = None) -> LinearModel:
        """Return the current model of a target, on the representation whose coordinates the steps use."""
        return LinearModel(fitted, self.learned, INTERCEPT, target)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return a checkpoint for `from_arrays`: the values that change from step to step."""
        return {
            "parameters": self.parameters,
            "total": self.total,
            "ridge": np.array(self.ridge),
            "observed": self.observed,
            "step": np.array(self.step),
            **{name: each for name in _OPTIONAL if len(each := getattr(self, name))},
        }

    def at(self, arrays: Mapping[str, NDArray[Any]]) -> Descent:
        """Return the state stored by `to_arrays`, bit for bit, on the same public points."""
        return replace(
            self,
            parameters=arrays["parameters"],
            total=arrays["total"],
            ridge=float(arrays["ridge"]),
            observed=arrays["observed"],
            penalty=arrays.get("penalty", _NO_PENALTY),
            raised=arrays.get("raised", _NONE),
            last=arrays.get("last", _NONE),
            step=int(arrays["step"]),
        )

    def same(self, other: Descent) -> bool:
        """Return whether two states are equal up to rounding, which may differ between machines."""
        pairs = [
            (self.parameters, other.parameters),
            (self.total, other.total),
            (self.observed, other.observed),
            (np.array([self.ridge]), np.array([other.ridge])),
        ]
        optional = [(getattr(self, name), getattr(other, name)) for name in _OPTIONAL]
        pairs += [each for each in optional if len(each[0]) and len(each[1])]
        shapes = self.step == other.step and all(ours.shape == theirs.shape for ours, theirs in optional)
        return shapes and all(nearly_same(ours, theirs) for ours, theirs in pairs)


def _rounded(parameters: Floats) -> Floats:
    """Return parameters that are equal on all machines, although the last digits of linear solvers differ."""
    return np.rint(parameters * _PARAMETER_STEPS) / _PARAMETER_STEPS


def nearly_same(ours: Floats, theirs: Floats) -> bool:
    """Return whether two arrays of weights are equal up to rounding."""
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=_SAME, atol=_SAME * np.abs(theirs).max())


@dataclass(frozen=True, eq=False)
class StepsQuestion:
    """Question for gradient steps of all holders; see :class:`learning.mechanisms.protocol.Question`.

    Attributes:
        begin: State before the first step.
        index: Number of the round.
        caps: (promises,) caps of the promises in the run's plan, in μ².
        target: Target to learn; None for classes.
    """

    plan: StepsPlan
    fitted: FittedRepresentation
    begin: Descent
    index: int
    caps: NDArray[np.float64]
    target: Target | None = None

    grain = 1.0

    @classmethod
    def from_arrays(cls, arrays: Arrays, plan: StepsPlan, **about: Any) -> StepsQuestion:
        """Return the question from a round's file, with the plan of its run."""
        fitted = representation_load(arrays["representation"].tobytes())
        target = target_from_arrays(arrays)
        loss = CROSS_ENTROPY if target is None else target.loss
        begin = Descent.begin(plan, arrays["public"], int(arrays["classes"]), loss)
        return cls(plan, fitted, begin, target=target, **about)

    @property
    def size(self) -> int:
        return self.plan.steps

    @property
    def sigma(self) -> float:
        return self.plan.sigma

    @property
    def spread(self) -> float:
        return self.sigma * CLIP_STEPS

    def digest(self) -> str:
        public = {"public": self.begin.points, "classes": np.array(self.begin.parameters.shape[1])}
        arrays = {**self.fitted.state(), **public, **named("begin", self.begin.to_arrays())}
        target = {} if self.target is None else {"target": self.target.to_json()}
        return content_digest(arrays, json.dumps(self.plan.to_json() | target, sort_keys=True))

    def describe(self) -> dict[str, Any]:
        return {
            "name": "sgd",
            "round": self.index + 1,
            "sigma": self.plan.sigma,
            "clip_norm": self.plan.clip_norm,
            "step_size": self.plan.step_size,
            "ridge": self.plan.ridge,
        }

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch
        return slice(start, min(start + most, self.size))

    def state(self, released: Arrays | None) -> Descent:
        if released is None:
            return self.begin
        start = f"{_STATE}."
        arrays = {name.removeprefix(start): array for name, array in released.items() if name.startswith(start)}
        return self.begin.at(arrays)

    def bounds(self, part: slice) -> list[float]:
        weights = self.plan.level_weights(self.caps)
        return ((part.stop - part.start) * weights**2 / self.plan.sigma**2).tolist()

    def contributions(self, people: People, records: Records) -> Contributions:
        """Return people's contributions to successive steps."""
        return Contributions(self.plan, people, records)

    def answer(
        self, part: slice, state: Descent, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        contributions = self.contributions(people, records())
        if not alone:
            return {"sums": contributions.at(state), "charge": contributions.charges}
        released = []
        for _ in range(part.stop - part.start):
            released.append(release_sums(contributions.at(state), self.plan.sigma, draws.noise))
            state = state.after(released[-1])
        return {"released": np.stack(released), "charge": contributions.charges}

    def release(self, part: slice, state: Descent, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        if "released" in answers[0]:  # only these people were asked
            sums = answers[0]["released"]
        else:
            total = np.sum([answer["sums"] for answer in answers], axis=0)
            sums = release_sums(total, self.plan.sigma, noise)[None]
        *_, after = states_after(state, sums)
        return PartRelease(
            size=len(sums),
            content={"steps": len(sums), "digest": sums_digest(sums)},
            arrays={"sums": sums, **named(_STATE, after.to_arrays())},
        )


class Contributions:
    """People's contributions to successive steps, and their charges, as far as accounts allow."""

    def __init__(self, plan: StepsPlan, people: People, records: Records) -> None:
        self._records = owned_records(records.x, records.classes, records.owner, people.holders)
        self._accounts, self._spent = people.accounts(), people.spent
        self._plan, self._weights = plan, plan.level_weights(people.caps)

    def at(self, state: Descent) -> NDArray[np.int64]:
        """Return the unnoised sum (d + 1, C) of contributions to the step from ``state``, and charge people for it."""
        sums, _ = step_contributions(
            self._records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=self._accounts,
            sigma=self._plan.sigma,
            level_weights=self._weights,
            loss=state.loss,
        )
        return sums

    @property
    def charges(self) -> NDArray[np.float64]:
        """Each person's charge (H,) so far, in μ², computed as a difference of accounts so that it agrees with them."""
        return self._accounts.spent - self._spent


def states_after(state: Descent, sums: NDArray[Any]) -> Iterator[Descent]:
    """Yield the state after each step of a chunk, computed only from the chunk's noisy ``sums`` (steps, d + 1, C)."""
    for each in sums:
        state = state.after(each)
        yield state


def sums_digest(sums: NDArray[Any]) -> str:
    """Return the SHA-256 of the noisy sums of a chunk, (steps, d + 1, C)."""
    return content_digest({"sums": sums})


def _ridged(matrix: Floats, ridge: float) -> Floats:
    """Return a curvature matrix with the ridge added to its diagonal.

    The intercept gets a smaller ridge. A full ridge would slow it down; without a ridge, it would be noisy.
    """
    added = np.full(len(matrix), ridge + _SMALLEST_CURVATURE)
    added[-1] *= min(1.0, ridge / matrix[-1, -1])
    return matrix + np.diag(added)


RECORDS = 1.2
"""Average number of records per holder, which is assumed if a dataset allows several because the real one is private.
"""
_POINTS = 3000


def descent_calibration(
    steps: Sequence[tuple[Descent, NDArray[np.int64]]], final: Descent, public: ArrayLike, *, records: float
) -> Calibration:
    """Return the calibration of a descent's model.

    Args:
        steps: State before each step, and the `(d + 1, C)` noisy sums that the step released.
        final: State after the last step.
        public: `(P, d)` coordinates of public points, sampled if there are many.
        records: Average number of records per holder, see `fit_to_sums`.
    """
    plan, length = final.plan, final.length
    points = np.asarray(public, np.float64)
    points = points[np.linspace(0, len(points) - 1, min(len(points), _POINTS)).astype(np.int64)]
    features = np.column_stack([points, np.full(len(points), float(INTERCEPT))]) / length
    noise = plan.noise
    checks = []
    # only the steps whose weights are averaged in the model
    for state, sums in steps[-max(1, round((1 - EARLY) * len(steps))) :]:
        gradient, weights = sums * (plan.clip_norm / plan.people / CLIP_STEPS), state.learned * length
        checks.append(
            StepCheck(
                logits=features @ state.parameters,
                direction=features @ weights,
                along=float((weights * gradient).sum()),
                intercept=gradient[-1],
                noise_along=noise * float(np.sqrt((weights**2).sum())),
                noise_intercept=noise,
            )
        )
    return fit_to_sums(
        features @ (final.learned * length),
        checks,
        lengths=np.sqrt((features**2).sum(axis=1)),
        clip_norm=plan.clip_norm,
        constant=INTERCEPT / length,
        records=records,
    )


def descent_shares(begin: Descent, sums: NDArray[np.int64]) -> list[ClassShare] | None:
    """Return the class shares among the people, from the `(d + 1, C)` noisy sums of a descent's first step.

    Returns None if the noise is so small that some accounts may not be able to pay for even one step, because it is
    then unknown who contributed.
    """
    plan, constant = begin.plan, INTERCEPT / begin.length
    if plan.sigma**2 * plan.largest_cap * max(plan.until.values()) < 1:
        return None
    return first_step_shares(
        sums[-1] * (plan.clip_norm / CLIP_STEPS / plan.people / constant),
        noise=plan.noise / constant,
        lengths=np.sqrt((begin.points.astype(np.float64) ** 2).sum(axis=1) + INTERCEPT**2) / begin.length,
        clip_norm=plan.clip_norm,
    )
