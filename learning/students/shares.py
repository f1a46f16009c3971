"""Logistic regression on the class shares among voters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from common.progress import Progress
from common.sentences import gettext_noop
from learning.learners.learner import Model, Records, parameter
from learning.learners.scikit import ScikitModel, scikit_model
from learning.students.releases import Releases
from learning.students.student import Student, TrainingCheckpoint

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

_PENALTIES = (1e-1, 1e-2, 1e-3, 1e-4)
_HELD_OUT = 0.2
_MISFIT = 0.05
"""Assumed standard deviation of the difference between noiseless shares and the best model's predictions."""
_LEAST_SPREAD = 0.1
"""Smallest assumed spread of a column, so that hardly varying columns are not magnified."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shares(Student):
    """Softmax regression whose average over each query's neighbourhood is fitted to the released shares.

    The shares of a neighbourhood are averages, so they are compared with averages of predictions (learning from label
    proportions, Quadrianto et al. 2009). The fit maximises the quadratic score of the counts (`Releases.score`), with
    points weighted by noise. The score is linear in the counts, so noise leaves its gradient unbiased. Dividing counts
    by noisy sums of few voters would introduce a bias. The ridge penalty with the best score on held-out releases is
    used.
    """

    name: ClassVar[str] = "shares"
    label: ClassVar[str] = gettext_noop("Class share regression")
    help: ClassVar[str] = gettext_noop(
        "Suits tables. Learns from the noisy counts how likely each class is, even a rare one."
    )
    model_format: ClassVar[str] = "skops"
    iterations: int = parameter(100, gettext_noop("maximum number of iterations"), minimum=1, maximum=100_000)

    @classmethod
    def model_from_bytes(cls, data: bytes) -> Model:
        from sklearn.linear_model import LogisticRegression

        return scikit_model(data, LogisticRegression, cls.name)

    def _learn(
        self, x: Records, releases: Releases, *, seed: int, progress: Progress, checkpoint: TrainingCheckpoint
    ) -> ScikitModel:
        columns = x.reshape(len(x), -1).astype(np.float64)
        mean, spread = columns.mean(axis=0), np.maximum(columns.std(axis=0), _LEAST_SPREAD)
        design = np.column_stack([(columns - mean) / spread, np.ones(len(x))])
        learned, held_out = releases.split(_HELD_OUT, seed)
        scores = []
        for done, penalty in enumerate(_PENALTIES):
            coefficients = self._fitted(design, learned, penalty)
            scores.append(held_out.score(_softmax(design @ coefficients)))
            progress(done + 1, len(_PENALTIES) + 1)
        penalty = _PENALTIES[int(np.argmax(scores))]
        best = self._fitted(design, releases, penalty)
        progress(len(_PENALTIES) + 1, len(_PENALTIES) + 1)
        slopes = best[:-1] / spread[:, None]
        model = ScikitModel(_logistic(slopes, best[-1] - mean @ slopes), releases.classes, x.shape[1:])
        model.chosen = {"penalty": penalty}
        return model

    def _fitted(self, design: Floats, releases: Releases, penalty: float) -> Floats:
        """Return coefficients `(d + 1, C)` for standardised columns; the last row contains the intercepts."""
        from scipy.optimize import minimize

        sums, weights = releases.counts.sum(axis=1), _weights(releases)
        scale = 1 / float(weights @ _usual(releases))
        mean = np.clip(weights @ releases.counts, 1e-3 / scale, None)
        start = np.zeros((design.shape[1], releases.classes))
        start[-1] = np.log(mean)

        def loss(flat: Floats) -> tuple[float, Floats]:
            coefficients = flat.reshape(start.shape)
            probabilities = _softmax(design @ coefficients)
            expected = releases.averaged(probabilities)
            pulled = 2 * scale * weights[:, None] * (sums[:, None] * expected - releases.counts)
            back = _pulled_back(releases, pulled, len(design))
            logits = probabilities * (back - (back * probabilities).sum(axis=1, keepdims=True))
            gradient = design.T @ logits
            gradient[:-1] += 2 * penalty * coefficients[:-1]
            gained = 2 * (releases.counts * expected).sum(axis=1) - sums * (expected**2).sum(axis=1)
            value = penalty * float((coefficients[:-1] ** 2).sum()) - scale * float(weights @ gained)
            return value, gradient.ravel()

        solution = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": self.iterations})
        return solution.x.reshape(start.shape)


def _usual(releases: Releases) -> Floats:
    """Return each point's expected number of voters, `(Q,)`: the mean over points near it or, if none, over all."""
    sums = releases.counts.sum(axis=1)
    usual = np.full(len(releases), sums.mean())
    if releases.reach is not None:
        near = releases.reach[:, releases.rows]
        totals = np.asarray(near.sum(axis=1)).ravel()
        usual = np.divide(near @ sums, totals, out=usual, where=totals > 0)
    return np.maximum(usual, np.maximum(releases.sigma * np.sqrt(releases.classes), 1e-9))


def _weights(releases: Releases) -> Floats:
    """Return the weight `(Q,)` of each point's quadratic score, which does not depend on the noise in its own counts.

    The residual n − |n|·m of a class has variance σ² + (|n|·misfit)², and its gradient grows with |n|.
    """
    usual = _usual(releases)
    return usual / (releases.sigma**2 + (_MISFIT * usual) ** 2)


def _pulled_back(releases: Releases, gradient: Floats, points: int) -> Floats:
    """Return the gradient `(P, C)` for the points' probabilities, given the gradient for averages of these."""
    if releases.reach is not None:
        return releases.reach.T @ gradient
    back = np.zeros((points, gradient.shape[1]))
    back[releases.rows] = gradient
    return back


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _logistic(slopes: Floats, intercepts: Floats) -> LogisticRegression:
    """Return a fitted scikit-learn estimator with coefficients `(d, C)`; for two classes, only their difference."""
    from sklearn.linear_model import LogisticRegression

    estimator = LogisticRegression()
    classes = len(intercepts)
    estimator.classes_ = np.arange(classes)
    estimator.n_features_in_ = len(slopes)
    rows, offsets = (slopes.T, intercepts)
    if classes == 2:
        rows, offsets = rows[1:] - rows[:1], offsets[1:] - offsets[:1]
    estimator.coef_, estimator.intercept_, estimator.n_iter_ = rows, offsets, np.ones(1, np.int32)
    return estimator
