"""Measures of class probabilities on test points, each with a 95 % interval, independent of models and of Django.

For more than two classes, areas under the ROC curve and average precisions are computed for each class against the
rest, and averaged over the classes that occur. For two classes, both measures refer to the second class. Probabilities
are not clipped, so a true class of probability 0 has infinite loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]

NORMAL_95 = 1.959964
BINS = 10
"""Number of bins of equal size in a calibration curve; fewer if a bin would have fewer than ten points."""
GRID = tuple(step / 20 for step in range(21))
"""Rates at which curves are evaluated."""
SEED, RESAMPLES = 29, 200
"""Seed and number of bootstrap samples; the seed is public, so intervals are reproducible."""

_BLOCK = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """Measure with its 95 % interval; both are None if they cannot be computed."""

    value: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bin:
    """Points of similar probability: their number, mean probability, and the number of events that occurred."""

    points: int
    predicted: float
    observed: int


def mean_estimate(values: Floats) -> Estimate:
    """Return the mean with its interval, based on the normal distribution."""
    if not len(values):
        return Estimate()
    mean = float(values.mean())
    if not np.isfinite(mean) or len(values) < 2:
        return Estimate(mean)
    half = NORMAL_95 * float(values.std(ddof=1)) / len(values) ** 0.5
    return Estimate(mean, (mean - half, mean + half))


def wilson(share: float, points: int) -> tuple[float, float]:
    """Return both ends of the interval for a share observed on ``points`` points (Wilson 1927).

    >>> tuple(round(end, 3) for end in wilson(0.9, 100))
    (0.826, 0.945)
    """
    shrunk = points / (points + NORMAL_95**2)
    middle = shrunk * share + (1 - shrunk) / 2
    half = shrunk * NORMAL_95 * (share * (1 - share) / points + (NORMAL_95 / points) ** 2 / 4) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def share_estimate(came: NDArray[np.bool_]) -> Estimate:
    """Return the share of points for which ``came`` `(n,)` is true, with the interval of `wilson`."""
    if not len(came):
        return Estimate()
    share = float(came.mean())
    return Estimate(share, wilson(share, len(came)))


def losses(probabilities: Floats, truth: Classes) -> Floats:
    """Return the losses `(n,)`: -ln p of the true class, which is infinite if p is 0."""
    with np.errstate(divide="ignore"):
        return -np.log(probabilities[np.arange(len(truth)), truth])


def base_loss(truth: Classes, classes: int) -> float | None:
    """Return the log loss of the best constant prediction, which is the points' class shares."""
    if not len(truth):
        return None
    shares = np.bincount(truth, minlength=classes) / len(truth)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum()) + 0.0


def brier(probabilities: Floats, truth: Classes) -> Estimate:
    """Return the mean of half the squared differences between probabilities and outcomes, from 0 to 1 (Brier 1950)."""
    return mean_estimate(((probabilities - np.eye(probabilities.shape[1])[truth]) ** 2).sum(axis=1) / 2)


def area(probabilities: Floats, truth: Classes) -> Estimate:
    """Return the area under the ROC curve, with the interval of DeLong, DeLong and Clarke-Pearson (1988).

    For several classes, a point's influence on the mean area is the mean of its influences on the classes' areas, so
    the same formula gives the interval.
    """
    return _mean_area([(probabilities[:, number], truth == number) for number in _judged(probabilities, truth)])


def area_of_all(probabilities: Sequence[Floats], truths: Sequence[Classes]) -> Estimate:
    """Return the mean area for several questions about the same points, ignoring questions whose answers are all equal.

    Args:
        probabilities: `(n, 2)` for each question.
        truths: `(n,)` for each question, 0 or 1.
    """
    each = [(p[:, 1], truth == 1) for p, truth in zip(probabilities, truths, strict=True) if _judged(p, truth)]
    return _mean_area(each)


def _mean_area(judged: Sequence[tuple[Floats, NDArray[np.bool_]]]) -> Estimate:
    """Return the mean area for several scores `(n,)` of the same points, each with a mask of its positive points."""
    parts = [_influences(scores, positive) for scores, positive in judged]
    if not parts:
        return Estimate()
    value = float(np.mean([area for area, _influence in parts]))
    influence = np.mean([each for _found, each in parts], axis=0)
    half = NORMAL_95 * float(np.sqrt((influence**2).sum())) / len(influence)
    return Estimate(value, (max(0.0, value - half), min(1.0, value + half)))


def _judged(probabilities: Floats, truth: Classes) -> list[int]:
    """Return the classes whose areas are averaged: those that contain some of the points, but not all of them.

    Of two classes, only the second is considered.
    """
    classes = probabilities.shape[1]
    counts = np.bincount(truth, minlength=classes)
    places = [1] if classes == 2 else range(classes)
    return [number for number in places if 0 < counts[number] < len(truth)]


def _influences(scores: Floats, positive: NDArray[np.bool_]) -> tuple[float, Floats]:
    from scipy.stats import rankdata  # slow to load, and never needed by pages

    many, few = int(positive.sum()), int((~positive).sum())
    ranks, influence = rankdata(scores), np.zeros(len(scores))
    above = (ranks[positive] - rankdata(scores[positive])) / few
    below = 1 - (ranks[~positive] - rankdata(scores[~positive])) / many
    value = float(above.mean())
    # as in the paper, the variances of both groups of points are divided by n − 1
    influence[positive] = (above - value) * len(scores) / many * (many / max(many - 1, 1)) ** 0.5
    influence[~positive] = (below - value) * len(scores) / few * (few / max(few - 1, 1)) ** 0.5
    return value, influence


def average_precision(probabilities: Floats, truth: Classes) -> Estimate:
    """Return the area under the precision-recall curve, as a sum over thresholds without interpolation.

    The interval is computed for the log odds. It uses the standard deviation over resampled points, and Student's
    distribution with degrees of freedom from the number of points in the rarest class.
    """
    judged = _judged(probabilities, truth)
    if not judged:
        return Estimate()
    ordered = []
    for number in judged:
        order = np.argsort(-probabilities[:, number], kind="stable")
        scores = probabilities[order, number]
        ordered.append((order, truth[order] == number, np.append(scores[1:] != scores[:-1], True)))

    def measure(weights: Floats) -> Floats:
        return np.mean([_precisions(weights[:, order], hits, ends) for order, hits, ends in ordered], axis=0)

    value, drawn = _resampled(len(truth), measure)
    rarest = min(min(int((truth == number).sum()), int((truth != number).sum())) for number in judged)
    if rarest < 2 or not 0 < value < 1:
        return Estimate(value)
    from scipy.stats import t  # slow to load

    half = float(t.ppf(0.975, rarest - 1)) * float(drawn.std(ddof=1)) / (value * (1 - value))
    odds = np.log(value / (1 - value)) + np.array([-half, half])
    low, high = (1 / (1 + np.exp(-odds))).tolist()
    return Estimate(value, (low, high))


def _precisions(weights: Floats, hits: NDArray[np.bool_], ends: NDArray[np.bool_]) -> Floats:
    hits_so_far = np.cumsum(weights * hits, axis=1)[:, ends]
    predicted = np.cumsum(weights, axis=1)[:, ends]
    gained = np.diff(hits_so_far, axis=1, prepend=0.0)
    total = np.maximum(hits_so_far[:, -1], 1e-12)
    return np.asarray((gained * hits_so_far / np.maximum(predicted, 1e-12)).sum(axis=1) / total, np.float64)


def calibration(probabilities: Floats, truth: Classes) -> tuple[Estimate, list[Bin]]:
    """Return the expected calibration error and the calibration curve, over bins with equal numbers of points.

    For two classes, this is the calibration of the second class's probability; for more classes, of the probability of
    the most likely class. In small samples, the estimated error is too large, and the bootstrap doubles this bias. The
    lower end of the interval is therefore the upper end mirrored at the estimate, or 0 if a perfectly calibrated model
    often has an error this large. The interval contains the true error at least 95 times in 100.
    """
    if not len(truth):
        return Estimate(), []
    if probabilities.shape[1] == 2:
        confidence, came = probabilities[:, 1], truth == 1
    else:
        confidence, came = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    count = max(1, min(BINS, len(truth) // 10))
    edges = np.unique(np.quantile(confidence, np.arange(1, count) / count))
    place = np.searchsorted(edges, confidence, side="right")
    columns = (np.ones(len(truth)), confidence, came.astype(np.float64))
    sums = [np.bincount(place, each, len(edges) + 1) for each in columns]
    bins = [Bin(int(n), p / n, int(o)) for n, p, o in zip(*sums, strict=True) if n]
    members = np.eye(len(edges) + 1)[place] * (confidence - came)[:, None]
    error = bootstrapped(len(truth), lambda weights: np.abs(weights @ members).sum(axis=1) / len(truth))
    if error.interval is not None:
        value, (_, high) = error.value or 0.0, error.interval
        by_chance = value <= _error_by_chance(confidence, place)
        error = Estimate(value, (0.0 if by_chance else max(0.0, 2 * value - high), high))
    return error, bins


def _error_by_chance(confidence: Floats, place: NDArray[np.int64]) -> float:
    """Return the calibration error exceeded 5 times in 100 by chance if the probabilities `(n,)` are correct."""
    rng, members = np.random.default_rng(SEED), np.eye(int(place.max()) + 1)[place]
    drawn = [np.abs(((rng.random(len(place)) < confidence) - confidence) @ members).sum() for _ in range(RESAMPLES)]
    return float(np.quantile(drawn, 0.95)) / len(confidence)


def bootstrapped(points: int, measure: Callable[[Floats], Floats]) -> Estimate:
    """Return a measure of the weighted points with its percentile bootstrap interval (Efron and Tibshirani 1993)."""
    value, drawn = _resampled(points, measure)
    if points < 2:
        return Estimate(value)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value, (float(low), float(high)))


def _resampled(points: int, measure: Callable[[Floats], Floats]) -> tuple[float, Floats]:
    """Return a measure of the weighted points, and its values for resampled points `(RESAMPLES,)`."""
    value = float(measure(np.ones((1, points)))[0])
    return value, np.concatenate([measure(weights) for weights in _resamples(points)])


def _resamples(points: int) -> Iterator[Floats]:
    rng = np.random.default_rng(SEED)
    block = max(1, min(RESAMPLES, _BLOCK // points))
    for start in range(0, RESAMPLES, block):
        drawn = rng.integers(points, size=(min(block, RESAMPLES - start), points))
        yield np.stack([np.bincount(each, minlength=points) for each in drawn]).astype(np.float64)


def curves(probabilities: Floats, truth: Classes) -> tuple[Floats, Floats, int]:
    """Return ROC and precision-recall curves, averaged over the same classes as in `area`.

    Returns:
        True positive rate at each false positive rate of `GRID`, precision at each recall of ``GRID[1:]``, and the
        smallest number of points behind any of these rates. If there are no such classes, the curves are empty and the
        number is 0.
    """
    found, precise, fewest = [], [], len(truth)
    for number in _judged(probabilities, truth):
        order = np.argsort(-probabilities[:, number], kind="stable")
        scores, hits = probabilities[order, number], truth[order] == number
        ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
        right, called = np.cumsum(hits)[ends], ends + 1
        recall = np.append(0.0, right / hits.sum())
        found.append(np.interp(GRID, np.append(0.0, (called - right) / (~hits).sum()), recall))
        precise.append((right / called)[np.searchsorted(recall[1:], np.array(GRID[1:]) - 1e-9)])
        fewest = min(fewest, int(hits.sum()), int((~hits).sum()))
    if not found:
        return np.zeros(0), np.zeros(0), 0
    return np.mean(found, axis=0), np.mean(precise, axis=0), fewest


def gain(predicted: Classes, truth: Classes) -> Estimate:
    """Return the accuracy minus the accuracy of always predicting the most frequent class, on the same points."""
    if not len(truth):
        return Estimate()
    most = np.bincount(truth).argmax()
    return mean_estimate((predicted == truth).astype(np.float64) - (truth == most))


def balanced_accuracy(predicted: Classes, truth: Classes) -> Estimate:
    """Return the mean recall over the classes that have points.

    The interval combines the classes' Wilson intervals, because it must hold for classes with few points (method of
    variance estimates recovery, Zou and Donner 2008).
    """
    shares = [share_estimate(predicted[truth == number] == number) for number in np.unique(truth)]
    values = np.array([each.value for each in shares])
    if not len(values):
        return Estimate()
    value, apart = float(values.mean()), np.array([each.interval for each in shares]) - values[:, None]
    low, high = np.sqrt((apart**2).sum(axis=0)) / len(values)
    return Estimate(value, (max(0.0, value - float(low)), min(1.0, value + float(high))))


@dataclass(frozen=True)
class CommonestAnswer:
    """Class ``number`` that a model answers most often, for a ``share`` of the points.

    ``others`` is the (expected) number of points of all other classes, and ``missed`` the number of those that get this
    answer too.
    """

    number: int
    share: float
    others: float
    missed: float


def commonest_answer(predicted: Classes, chances: Floats) -> CommonestAnswer:
    """Return a model's most frequent answer to at least one point.

    Args:
        predicted: `(n,)` answers.
        chances: `(n, C)` probability that a point belongs to each class; 1 for its class if that is known.
    """
    number = int(np.bincount(predicted).argmax())
    is_it, others = predicted == number, 1.0 - chances[:, number]
    return CommonestAnswer(number, float(is_it.mean()), float(others.sum()), float(others[is_it].sum()))
