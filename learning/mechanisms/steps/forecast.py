"""Forecast of a round of steps: the planned descent, carried out on public points in place of records.

Two thirds of up to 3,000 public points stand for all the people expected, noise and all; the others judge, and of few
points each third in turn. With labels of public points, that is a rehearsal, and says how many points will be right if
holders' records are spread as the public points are. Without any, the points are put into as many clusters as there are
classes, and what can be said is how much of an easy task of this size survives the noise: real classes are harder to
tell than clusters, so a forecast from clusters bounds what to expect from above.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import SimulationNoise
from common.sentences import Sentence
from learning.forecasts import CLUSTERS, MODEL, REHEARSED, Forecast, judged_forecast, standing_error, thirds
from learning.measures import Estimate, area
from learning.mechanisms.steps.adjustment import descent_adjustment
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.planner import StepsPlan
from learning.mechanisms.steps.records import INTERCEPT
from learning.mechanisms.steps.rehearsal import rehearsed
from learning.outcomes import Target
from learning.outcomes.labels import AREA

_POINTS = 3000
_SEED = 0  # the noise of a forecast protects nobody, and a plan that is looked at twice should say the same


def forecast_steps(
    plan: StepsPlan, public: ArrayLike, n_classes: int, *, labels: ArrayLike | None = None
) -> tuple[Forecast, ...]:
    """Forecast the share of right points of the model that the planned round learns, and of two classes its area.

    Args:
        plan: The round.
        public: `(P, d)` coordinates of public points, at least three.
        n_classes: C.
        labels: `(P,)` of public points, where they are known; None for clusters.
    """
    points = np.asarray(public)
    chosen = np.random.default_rng(_SEED).permutation(len(points))[:_POINTS]
    points = points[chosen]
    truth = _clusters(points, n_classes) if labels is None else np.asarray(labels)[chosen]
    divided, right = thirds(len(points)), np.zeros(2)
    areas: tuple[list[Estimate], list[Estimate]] = ([], [])
    for learned, judged in divided:
        begin = Descent.begin(plan, points[learned], n_classes)
        for place, noise in enumerate((SimulationNoise(_SEED), None)):
            state = rehearsed(begin, points[learned], truth[learned], noise)
            scores = _scores(points[judged], state.learned)
            right[place] += (scores.argmax(axis=1) == truth[judged]).sum()
            if n_classes == 2:  # what calibration does to probabilities keeps their order
                areas[place].append(area(scores - scores[:, :1], truth[judged]))
    judged_by, standing = sum(len(judged) for _, judged in divided), len(divided[0][0])
    noisy, noiseless = (float(share) for share in right / judged_by)
    if labels is None:
        return (Forecast(MODEL, None, min(noisy, 1.0 / n_classes), noisy, noiseless, 0, Sentence(CLUSTERS)),)
    basis = Sentence(REHEARSED, learned=standing, judged=judged_by)
    right_ones = judged_forecast(MODEL, noisy, noiseless, judged=judged_by, standing=standing, rests_on=basis)
    return right_ones, *_area_forecast(*areas, judged=judged_by, standing=standing, rests_on=basis)


def _area_forecast(
    noisy: Sequence[Estimate], noiseless: Sequence[Estimate], *, judged: int, standing: int, rests_on: Sentence
) -> tuple[Forecast, ...]:
    """Forecast the mean area of the models that each part of the points judged; nothing where no part tells."""
    halves = [each.value - each.interval[0] for each in noisy if each.value is not None and each.interval is not None]
    if not halves:
        return ()
    value, clean = (float(np.mean([e.value for e in each if e.value is not None])) for each in (noisy, noiseless))
    half = float(np.linalg.norm(halves)) / len(halves) + standing_error(standing)
    low, high = max(0.0, value - half), min(1.0, value + half)
    return (Forecast(MODEL, value, low, high, clean, judged, rests_on, AREA, majority=0.5),)


def forecast_target(plan: StepsPlan, public: ArrayLike, codes: ArrayLike, target: Target) -> Forecast | None:
    """Forecast of the measure that decides whether the model of a target is published, of whom the points stand for.

    The model is adjusted as it will be; the interval is that of the measure on the points that judge, wider by what the
    choice of the others may move it.

    Args:
        plan: The round.
        public: `(P, d)` coordinates of public points.
        codes: `(P,)` their targets.
        target: What is learned.

    Returns:
        None where so few points tell nothing of the measure.
    """
    points = np.asarray(public)
    chosen = np.random.default_rng(_SEED).permutation(len(points))[:_POINTS]
    x, y = points[chosen].astype(np.int8), np.asarray(codes, np.int64)[chosen]
    judged, learned = np.split(np.arange(len(x)), [len(x) // 3])
    begin = Descent.begin(plan, x[learned], target.outputs, target.loss)
    measures = []
    for noise in (SimulationNoise(_SEED), None):
        state = rehearsed(begin, x[learned], y[learned], noise)
        scores = _scores(x[judged], state.learned)
        if noise is not None:
            scale, offset = descent_adjustment(state, target)
            scores = scores * scale + offset
        measures.append(target.evaluated(target.predictions(scores), y[judged]).measures[0])
    (noisy, noiseless), label = (each.estimate for each in measures), measures[0].label
    if noisy.value is None or noiseless.value is None or noisy.interval is None:
        return None
    error, basis = standing_error(len(learned)), Sentence(REHEARSED, learned=len(learned), judged=len(judged))
    low, high = max(-1.0, noisy.interval[0] - error), min(1.0, noisy.interval[1] + error)
    return Forecast(MODEL, noisy.value, low, high, noiseless.value, len(judged), basis, label)


def _scores(points: NDArray[np.int8], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(points.astype(np.float64) @ weights[:-1] + INTERCEPT * weights[-1], np.float64)


def _clusters(points: NDArray[np.int8], count: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    count = min(count, len(points))
    return KMeans(count, n_init=1, random_state=_SEED).fit_predict(points.astype(np.float64)).astype(np.int64)
