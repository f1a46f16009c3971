"""Releases of any method in the form that students read: noisy counts with known noise.

A posterior gives the probability that each class leads before noise, given the noisy counts. Releases that a student
has not learned from are used to choose the best student and to calibrate it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack
from scipy.special import log_ndtr, log_softmax, softmax

from learning.calibration import Calibration, log_probabilities
from learning.learners.learner import Model

Floats = NDArray[np.float64]

_LEAST_MARGIN = 1.0
"""Smallest lead, in standard deviations of the noise, at which a label is used; below it, a label is mostly noise.
"""

# Range of the integral over counts before noise, see `leading_probabilities`.
_REACH = 8.0  # standard deviations on either side of the counts, which leave less than 1e-15 outside
_STEPS = 161
_NEVER = -1e4  # used as the logarithm of probability 0, because it must be finite for subtractions
_BATCH = 512


@dataclass(frozen=True, eq=False)
class Releases:
    """Released counts of some public points.

    Labels are noiseless counts of one voter, and class probabilities are counts of one voter who is split among
    classes. All releases about public points therefore have the same form.

    Attributes:
        rows: `(Q,)` positions of the points among all public points; each at most once.
        counts: `(Q, C)` noisy numbers of voters by class. In residual votes they include voters who agree with the
            public guess.
        sigma: `(Q,)` standard deviation of the noise of every count of a point; 0 for none.
        reach: `(Q, P)` weights of the public points that represent the voters of each point, see `neighbourhoods`; rows
            sum to 1. None if a release is about the point itself.
    """

    rows: NDArray[np.int64]
    counts: Floats
    sigma: Floats
    reach: csr_array | None = None

    def __post_init__(self) -> None:
        if self.counts.shape[:1] != self.rows.shape or self.sigma.shape != self.rows.shape or self.counts.ndim != 2:
            raise ValueError(
                f"Releases of {self.rows.shape} points have counts of shape {self.counts.shape} and noise of shape "
                f"{self.sigma.shape}; give one row of counts and one standard deviation for each point."
            )
        if len(np.unique(self.rows)) != len(self.rows):
            raise ValueError("A public point is listed twice: add its counts first.")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def classes(self) -> int:
        return self.counts.shape[1]

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Class with the largest count, `(Q,)`; in a tie, the class with the lowest number."""
        return self.counts.argmax(axis=1)

    @cached_property
    def margins(self) -> Floats:
        """Lead of the largest count over the next largest, `(Q,)` in units of σ; infinite without noise."""
        if self.classes == 1:
            return np.full(len(self), np.inf)
        ordered = np.partition(self.counts, -2, axis=1)
        lead = ordered[:, -1] - ordered[:, -2]
        return np.divide(lead, self.sigma, out=np.full(len(self), np.inf), where=self.sigma > 0)

    @cached_property
    def leading(self) -> Floats:
        """Probability that a class leads the counts before noise, `(Q, C)`: see `leading_probabilities`."""
        return leading_probabilities(self.counts, self.sigma)

    @cached_property
    def weights(self) -> Floats:
        """Reliability of a label, `(Q,)` from 0 to 1: the lead of the most likely class over chance.

        The reliability is 0 if the largest count leads by less than a standard deviation of the noise, because such a
        label is mostly noise.
        """
        if self.classes == 1:
            return np.ones(len(self))
        above = (self.leading.max(axis=1) * self.classes - 1) / (self.classes - 1)
        return np.where(self.margins < _LEAST_MARGIN, 0.0, above)

    def averaged(self, probabilities: Floats) -> Floats:
        """Return the expected shares `(Q, C)` of the voters if public points have these probabilities `(P, C)`."""
        return probabilities[self.rows] if self.reach is None else self.reach @ probabilities

    def score(self, probabilities: Floats) -> float:
        """Return the agreement of the public points' probabilities `(P, C)` with the counts; larger is better.

        This is the quadratic score (Brier 1950) over voters, Σ_q (2·n_q·m_q − |n_q|·‖m_q‖²) / Σ_q |n_q|, for counts
        n_q, their sums |n_q|, and averaged probabilities m_q. The score is linear in the counts, so noise leaves the
        numerator unbiased. No true labels are needed, only releases that were not used to learn the probabilities.
        """
        expected, sums = self.averaged(probabilities), self.counts.sum(axis=1)
        gained = 2 * (self.counts * expected).sum() - (sums * (expected**2).sum(axis=1)).sum()
        return float(gained / max(sums.sum(), 1e-9))

    def among(self, chosen: ArrayLike) -> Releases:
        """Return the releases about some of the points, selected by index or mask."""
        places = np.asarray(chosen)
        reach = None if self.reach is None else self.reach[places]
        return Releases(self.rows[places], self.counts[places], self.sigma[places], reach)

    def split(self, share: float, seed: int) -> tuple[Releases, Releases]:
        """Return a part to learn from, and a random `share` of the points, which is held out for evaluation."""
        order = np.random.default_rng(seed).permutation(len(self))
        held_out = round(len(self) * share)
        return self.among(np.sort(order[held_out:])), self.among(np.sort(order[:held_out]))


def counted(
    rows: ArrayLike,
    counts: ArrayLike,
    sigma: float,
    *,
    predicted: ArrayLike | None = None,
    voters: ArrayLike = 0.0,
    reach: csr_array | None = None,
) -> Releases:
    """Return the counts of a vote.

    Args:
        rows: `(Q,)` positions of the points among all public points.
        counts: `(Q, C)` released counts.
        predicted: `(Q,)` public predictions that residual votes were cast against; None for plain votes.
        voters: `(Q,)` or a number: number of voters that a prediction is worth, see
            `neighbours.released_counts.read_counts`.
        reach: See `Releases`.

    >>> counted([4], [[-30, 30]], 10.0, predicted=[0], voters=100.0).labels
    array([0])
    """
    votes = np.array(counts, np.float64)
    if predicted is not None:
        votes[np.arange(len(votes)), np.asarray(predicted)] += voters
    return Releases(np.asarray(rows, np.int64), votes, np.full(len(votes), float(sigma)), reach)


def labelled(rows: ArrayLike, labels: ArrayLike, *, classes: int) -> Releases:
    """Return labels, such as those from teachers' votes, as releases.

    >>> labelled([4, 7], [1, 0], classes=2).leading.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return predicted(rows, np.eye(classes)[np.asarray(labels, np.int64)])


def predicted(rows: ArrayLike, probabilities: ArrayLike) -> Releases:
    """Return probabilities `(Q, C)`, predicted for public points by a model from private steps, as releases."""
    counts = np.asarray(probabilities, np.float64)
    return Releases(np.asarray(rows, np.int64), counts, np.zeros(len(counts)))


def with_labelled_rows(releases: Releases, points: int, labels: ArrayLike) -> Releases:
    """Return releases about `points` public points together with the labels of the rows after them.

    If counts were released, each label gets the weight of a point's average number of voters.

    Args:
        releases: Releases about some of the points.
        points: Number P of the points.
        labels: `(L,)` classes of the rows at P, P + 1 and so on.

    >>> with_labelled_rows(labelled([1], [0], classes=2), 3, [1, 1]).rows.tolist()
    [1, 3, 4]
    """
    known = np.asarray(labels, np.int64)
    voters = max(float(releases.counts.sum(axis=1).mean()), 1.0)
    rows, reach = points + np.arange(len(known)), None
    if releases.reach is not None:
        wide = csr_array((releases.reach.data, releases.reach.indices, releases.reach.indptr))
        wide.resize((len(releases), points + len(known)))
        own = csr_array((np.ones(len(known)), (np.arange(len(known)), rows)), shape=(len(known), points + len(known)))
        releases, reach = Releases(releases.rows, releases.counts, releases.sigma, wide), own
    told = Releases(rows, voters * np.eye(releases.classes)[known], np.zeros(len(known)), reach)
    return joined([releases, told])


def joined(parts: Sequence[Releases]) -> Releases:
    """Return releases of several rounds about different points, in ascending order of rows."""
    rows, counts, sigma = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "counts", "sigma")
    )
    order = np.argsort(rows)
    reaches = [part.reach for part in parts if part.reach is not None]
    if len(reaches) < len(parts) and reaches:
        raise ValueError(
            "Releases about points and about their neighbours cannot be combined: give all of them a reach."
        )
    reach = csr_array(vstack(reaches, format="csr"))[order] if reaches else None
    return Releases(rows[order], counts[order], sigma[order], reach)


def leading_probabilities(counts: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """Return posterior probabilities that each class has the largest count before noise.

    Counts before noise are assumed to be independent, with a flat prior on [0, ∞). Given a noisy count y, a count
    therefore follows N(y, σ²), truncated below 0. With density f_c and distribution F_c,

        P(c leads) = ∫ f_c(x) · Π_{k ≠ c} F_k(x) dx,

    which is integrated numerically by the trapezoidal rule. Its error falls faster than any power of the step.

    Args:
        counts: `(Q, C)` noisy counts.
        sigma: A number, or `(Q,)`: standard deviation of their noise. If it is 0, counts are probabilities up to a
            factor, and negative counts are treated as 0.

    Returns:
        Probabilities `(Q, C)`; rows sum to 1.

    >>> leading_probabilities([[60.0, 40.0]], 10.0).round(2).tolist()
    [[0.92, 0.08]]
    """
    noisy = np.asarray(counts, np.float64)
    deviation = np.broadcast_to(np.asarray(sigma, np.float64), noisy.shape[:1])
    result = np.maximum(noisy, 0.0)
    for start in range(0, len(noisy), _BATCH):
        chosen = start + np.flatnonzero(deviation[start : start + _BATCH] > 0)
        if len(chosen):
            result[chosen] = _integrated(noisy[chosen] / deviation[chosen, None])
    totals = result.sum(axis=1, keepdims=True)
    return np.divide(result, totals, out=np.full_like(result, 1 / noisy.shape[1]), where=totals > 0)


def _integrated(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values proportional to the `leading_probabilities` of counts ``means`` (Q, C) in units of σ."""
    top = np.maximum(means.max(axis=1), 0.0)
    low, high = np.maximum(top - _REACH, 0.0), top + _REACH
    x = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _STEPS)
    distance = x[:, None, :] - means[:, :, None]
    above = log_ndtr(means)[:, :, None]
    with np.errstate(divide="ignore"):
        distribution = np.log(-np.expm1(np.minimum(log_ndtr(-distance) - above, 0.0)))  # F = 1 − Φ(y − x) / Φ(y)
    distribution = np.maximum(distribution, _NEVER)
    others = distribution.sum(axis=1, keepdims=True) - distribution
    density = np.exp(-0.5 * distance**2 - above + others)
    density[:, :, [0, -1]] *= 0.5
    return density.sum(axis=2)


_HELD_OUT = 0.2

Teach = Callable[[npt.NDArray[np.floating], Releases], Model]


_LOG_SCALES = (-5.0, 2.0)


def choose(
    candidates: Mapping[str, Teach], points: npt.NDArray[np.floating], releases: Releases, *, seed: int
) -> tuple[str, dict[str, float]]:
    """Return the candidate with the best score on a fifth of the releases after learning from the rest.

    The choice uses no private records and no test points, so it costs nothing.

    Args:
        candidates: Functions that train each candidate on all public points `(P, …)` and releases.
        points: All public points.
        releases: Releases about the points.

    Returns:
        The candidate's name, and the scores of all candidates (`Releases.score`).
    """
    learned, held_out = releases.split(_HELD_OUT, seed)
    scores = {name: held_out.score(teach(points, learned).predict_proba(points)) for name, teach in candidates.items()}
    return max(scores, key=lambda name: scores[name]), scores


def fit_to_releases(probabilities: Floats, held_out: Releases) -> Calibration:
    """Return the model calibration that agrees best with releases that the model has not learned from.

    Labels and probabilities have no noise and are scored by -log p. Counts of voters have noise of a known σ, so they
    are scored by the quadratic score of `Releases.score`, which noise leaves unbiased. This score is scaled according
    to this noise and the variation among voters. The logarithm of the scale, and the offsets, have a normal prior that
    is centred on no change.

    Args:
        probabilities: `(P, C)` probabilities of all public points.
        held_out: Releases about some of them.
    """
    classes = probabilities.shape[1]
    if not len(held_out) or classes < 2:
        return Calibration.none(classes)
    logits, noiseless = log_probabilities(probabilities), not held_out.sigma.any() and held_out.reach is None
    sums = held_out.counts.sum(axis=1)
    variance = held_out.sigma**2 + np.maximum(sums, 1.0) / 4

    def cost(values: Floats) -> float:
        offsets = values[1:] - values[1:].mean()
        prior = (values[0] ** 2 + (offsets**2).sum()) / 2
        scaled = np.exp(np.clip(values[0], *_LOG_SCALES)) * logits + offsets
        if noiseless:
            logs = log_softmax(scaled[held_out.rows], axis=1)
            return float(prior - (held_out.counts * logs).sum())
        expected = held_out.averaged(np.asarray(softmax(scaled, axis=1)))
        lost = sums * (expected**2).sum(axis=1) - 2 * (held_out.counts * expected).sum(axis=1)
        return float(prior + (lost / variance).sum() / 2)

    best = scipy.optimize.minimize(cost, np.zeros(1 + classes), method="L-BFGS-B").x
    offsets = best[1:] - best[1:].mean()
    return Calibration(float(np.exp(np.clip(best[0], *_LOG_SCALES))), tuple(offsets.tolist()))
