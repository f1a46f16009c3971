"""Planned steps on public points that stand in for people, used to forecast a round and to adjust models for its noise.

*Forecast.* Up to 3,000 public points are used. Two thirds of them stand in for all the expected people, and the planned
noise is added. The remaining third is used to test the model; if there are few points, each third is used for testing
in turn. With labels of public points, this rehearses the round and forecasts how many points will be classified
correctly if holders' records are distributed like the public points. Without labels, the points are put into as many
clusters as there are classes, to see how well an easy task of this size survives the noise. Real classes are harder to
distinguish than clusters, so a forecast from clusters is an upper bound.

*Adjustment*, for a linear model of numbers, times or labels. The public points and the noise of the releases are known,
so the effect of the steps on a known model can be tested. Targets for the expected number of people are drawn from the
current model, with records like the public points, and the planned steps are repeated with noise and clipping. Each
score is then mapped by the line that predicts the known model's scores from the learned ones (its slope is below 1 if
noise has inflated scores). Because targets are drawn from a model that is itself noisy, this is repeated with the
adjusted model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from common.sentences import Sentence
from learning.forecasts import CLUSTERS, MODEL, REHEARSED, Forecast, judged_forecast, surrogate_error, thirds
from learning.measures import Estimate, area
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import INTERCEPT, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.steps_plan import StepsPlan
from learning.outcomes import Target
from learning.outcomes.labels import AREA

_PLENTY = 1e30

Floats = NDArray[np.float64]

_PEOPLE = 5000
_ROUNDS = 2
_MOST = 1.5
_SEED = 0  # fixed, because the same releases must give the same model, and this noise protects no one

_POINTS = 3000
_WEAK = 1e3  # inverse strength of the ridge of a calibration


def rehearsed(
    begin: Descent, points: NDArray[np.int8], codes: NDArray[np.int64], noise: SimulationNoise | None
) -> Descent:
    """Return the state after all steps if points `(n, d)` with targets `(n,)` stand in for the planned people.

    Each point represents several people or a fraction of a person. Without ``noise``, the sums stay exact.
    """
    everyone, copies = np.arange(len(points)), begin.plan.people / len(points)
    records, accounts = (
        owned_records(points, codes, everyone, everyone),
        IndividualAccounts(np.full(len(points), _PLENTY)),
    )
    state = begin
    while not state.finished:
        sums, _ = step_contributions(
            records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=accounts,
            sigma=begin.plan.sigma,
            loss=begin.loss,
        )
        expected = np.rint(sums * copies).astype(np.int64)
        state = state.after(expected if noise is None else release_sums(expected, begin.plan.total_sigma, noise))
    return state


def descent_adjustment(final: Descent, target: Target) -> Floats:
    """Return the factors and the offsets `(2, outputs)` that adjust the scores of a descent's model."""
    points = final.points
    begin = Descent.begin(final.plan, points, final.parameters.shape[1], final.loss)
    scores = _scores(points, final.learned)
    known, draws = scores, np.random.default_rng(_SEED)
    for attempt in range(_ROUNDS):
        count = min(_PEOPLE, max(len(points), round(final.plan.people)))
        if final.plan.expected:  # fewer people than planned would have more random errors
            drawn = draws.integers(0, len(points), (count + 1) // 2)
            codes, drawn = target.drawn_twice(known[drawn], draws), np.tile(drawn, 2)
        else:
            drawn = draws.integers(0, len(points), count)
            codes = target.drawn(known[drawn], draws)
        tried = rehearsed(begin, points[drawn], codes, SimulationNoise(_SEED + attempt))
        outputs = _scores(points, tried.learned)
        off, true = outputs - outputs.mean(axis=0), known - known.mean(axis=0)
        scale = ((off * true).sum(axis=0) / np.maximum((off**2).sum(axis=0), 1e-300)).clip(0.0, _MOST)
        offset = known.mean(axis=0) - scale * outputs.mean(axis=0)
        others = draws.integers(0, len(points), len(drawn))
        wider = target.widened((outputs * scale + offset)[others], target.drawn(known[others], draws))
        known = scores * scale + offset
    return np.stack([scale, offset]) * wider


def forecast_steps(
    plan: StepsPlan, public: ArrayLike, n_classes: int, *, labels: ArrayLike | None = None
) -> tuple[Forecast, ...]:
    """Forecast the share of points that the round's model gets right and, for two classes, its area under the curve.

    Args:
        public: `(P, d)` coordinates of public points, at least three.
        n_classes: Number of classes C.
        labels: `(P,)` labels of the public points; None for clusters.
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
            if n_classes == 2:  # calibration preserves the order of probabilities
                areas[place].append(area(scores - scores[:, :1], truth[judged]))
    judged_by, surrogates = sum(len(judged) for _, judged in divided), len(divided[0][0])
    noisy, noiseless = (float(share) for share in right / judged_by)
    if labels is None:
        return (Forecast(MODEL, None, min(noisy, 1.0 / n_classes), noisy, noiseless, 0, Sentence(CLUSTERS)),)
    basis = Sentence(REHEARSED, learned=surrogates, judged=judged_by)
    right_ones = judged_forecast(MODEL, noisy, noiseless, judged=judged_by, surrogates=surrogates, rests_on=basis)
    return right_ones, *_area_forecast(*areas, judged=judged_by, surrogates=surrogates, rests_on=basis)


def errors_rehearsed(plan: StepsPlan, points: ArrayLike, labels: ArrayLike, n_classes: int) -> Floats:
    """Return the Brier score of each judged point, if labelled points `(P, d)` stand in for the planned people.

    Scores are calibrated on the judged points, because a run also calibrates its model. All representations are judged
    on the same points with the same noise, so that they can be compared. At least three points are needed.
    """
    from sklearn.linear_model import LogisticRegression

    x, y = np.asarray(points), np.asarray(labels, np.int64)
    errors = []
    for learned, judged in thirds(len(x)):
        begin = Descent.begin(plan, x[learned], n_classes)
        scores = _scores(x[judged], rehearsed(begin, x[learned], y[learned], SimulationNoise(_SEED)).learned)
        truth, probabilities = np.eye(n_classes)[y[judged]], np.ones((len(judged), n_classes)) / n_classes
        if len(np.unique(y[judged])) > 1:
            calibration = LogisticRegression(C=_WEAK, max_iter=1000).fit(scores / (scores.std() or 1.0), y[judged])
            probabilities = np.zeros_like(truth)
            probabilities[:, calibration.classes_] = calibration.predict_proba(scores / (scores.std() or 1.0))
        errors.append(((probabilities - truth) ** 2).sum(axis=1))
    return np.concatenate(errors)


def forecast_target(plan: StepsPlan, public: ArrayLike, codes: ArrayLike, target: Target) -> Forecast | None:
    """Forecast the measure that decides whether a target's model is published, for people who resemble the points.

    Scores are adjusted as in a real run. The interval is the measure's interval on the test points, widened because the
    points that stand in for people are chosen at random.

    Args:
        public: `(P, d)` coordinates of public points.
        codes: `(P,)` targets of the points.
        target: Target to learn.

    Returns:
        None if there are too few points to estimate the measure.
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
    error, basis = surrogate_error(len(learned)), Sentence(REHEARSED, learned=len(learned), judged=len(judged))
    low, high = max(-1.0, noisy.interval[0] - error), min(1.0, noisy.interval[1] + error)
    return Forecast(MODEL, noisy.value, low, high, noiseless.value, len(judged), basis, label)


def _scores(points: NDArray[np.int8], weights: Floats) -> Floats:
    return np.asarray(points.astype(np.float64) @ weights[:-1] + INTERCEPT * weights[-1], np.float64)


def _area_forecast(
    noisy: Sequence[Estimate], noiseless: Sequence[Estimate], *, judged: int, surrogates: int, rests_on: Sentence
) -> tuple[Forecast, ...]:
    """Forecast the mean area of models tested on each part of the points; empty if no part has an area."""
    halves = [each.value - each.interval[0] for each in noisy if each.value is not None and each.interval is not None]
    if not halves:
        return ()
    value, clean = (float(np.mean([e.value for e in each if e.value is not None])) for each in (noisy, noiseless))
    half = float(np.linalg.norm(halves)) / len(halves) + surrogate_error(surrogates)
    low, high = max(0.0, value - half), min(1.0, value + half)
    return (Forecast(MODEL, value, low, high, clean, judged, rests_on, AREA, majority=0.5),)


def _clusters(points: NDArray[np.int8], count: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    count = min(count, len(points))
    return KMeans(count, n_init=1, random_state=_SEED).fit_predict(points.astype(np.float64)).astype(np.int64)
