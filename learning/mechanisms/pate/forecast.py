"""Forecast of a vote of teachers, from labelled public points in place of the holders' records.

Some of the labelled points teach as many small teachers as time allows, each from as many records as a real one has;
learners that take long are stood in for. What these say of the other points is counted as the votes of all teachers,
with the noise of the plan. Without labelled points the share of teachers that agree with the right class is assumed, as
where every holder votes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import SimulationNoise
from common.sentences import Sentence, gettext_noop
from learning.forecasts import ASSUMED, LABELS, PURITY, Forecast, judged_forecast, thirds
from learning.learners.learner import Learner
from learning.mechanisms.pate.aggregators import Release
from learning.mechanisms.pate.plan import Plan

TEACHERS = 10
"""Trained for a forecast, at most."""

_VOTES = 2000  # simulated where all is assumed
_SEED = 0
_TAUGHT = gettext_noop(
    "A rehearsal on labelled points of the test dataset: %(teachers)d teachers of %(records)d records each vote about "
    "%(judged)d other points."
)
_TAUGHT_QUICKLY = gettext_noop(
    "A rehearsal on labelled points of the test dataset: %(teachers)d teachers of %(records)d records each vote about "
    "%(judged)d other points. They are quicker models than the run's, which would take too long here."
)


def forecast_votes(
    plan: Plan,
    learner: Learner,
    n_classes: int,
    *,
    points: ArrayLike,
    labels: ArrayLike | None,
    answers: int | None = None,
) -> Forecast | None:
    """Forecast of the share of right ones among the labels that a vote releases; None where that cannot be told.

    Args:
        plan: Of the vote.
        learner: Of the teachers.
        n_classes: C.
        points: `(P, …)` labelled public points.
        labels: `(P,)` their classes; None without any.
        answers: Labels that the accounts afford; None where they afford all. Of few of them chance moves the share that
            is right.
    """
    if plan.aggregator.asks_student or n_classes < 2:
        return None
    if labels is None:
        low, high = _assumed(plan, n_classes)
        return Forecast(LABELS, (low + high) / 2, low, high, (PURITY[0] + 1.0) / 2, 0, Sentence(ASSUMED))
    x, truth = np.asarray(points, np.float32), np.asarray(labels, np.int64)
    teachers, divided, quick = min(TEACHERS, plan.teachers), thirds(len(x)), learner.quick()
    records = min(_records(plan), len(divided[0][0]))
    shares = [_shares(quick, x, truth, *parts, teachers, records, n_classes) for parts in divided]
    expected, true = np.concatenate(shares), np.concatenate([truth[judged] for _, judged in divided])
    release = _released(plan, expected)
    answered = release.answered
    if not answered.any():
        return None
    noisy = float((release.labels == true)[answered].mean())
    noiseless = float((expected.argmax(axis=1) == true)[answered].mean())
    basis = Sentence(
        _TAUGHT if quick == learner else _TAUGHT_QUICKLY, teachers=teachers, records=records, judged=len(true)
    )
    standing, judged = len(divided[0][0]), int(answered.sum())
    return judged_forecast(LABELS, noisy, noiseless, judged=judged, standing=standing, rests_on=basis, measured=answers)


def _records(plan: Plan) -> int:
    """Records that a teacher learns from, if every holder has one."""
    return max(1, round(sum(group.holders * group.factor for group in plan.groups) / plan.teachers))


def _shares(
    learner: Learner,
    x: NDArray[np.float32],
    truth: NDArray[np.int64],
    learned: NDArray[np.int64],
    judged: NDArray[np.int64],
    teachers: int,
    records: int,
    n_classes: int,
) -> NDArray[np.float64]:
    """`(judged, C)` shares of the teachers that say each class."""
    rng, votes = np.random.default_rng(_SEED), np.zeros((len(judged), n_classes))
    for seed in range(teachers):
        mine = rng.choice(learned, records, replace=records > len(learned) // 2)
        model = learner.fit(x[mine], truth[mine], classes=n_classes, seed=seed)
        votes[np.arange(len(judged)), model.predict(x[judged])] += 1
    return votes / teachers


def _released(plan: Plan, shares: NDArray[np.float64]) -> Release:
    """A vote of all teachers, of whom these shares are expected to say each class."""
    votes = np.random.default_rng(_SEED).multinomial(round(plan.votes), shares)
    return plan.aggregator.release(votes.astype(np.float64), SimulationNoise(_SEED))


def _assumed(plan: Plan, n_classes: int) -> tuple[float, float]:
    """Bounds of the share of right labels, if so many teachers agree with the right class as is assumed."""
    bounds = []
    for share, right in zip(PURITY, (PURITY[0], 1.0), strict=True):
        shares = np.full((_VOTES, n_classes), (1 - share) / (n_classes - 1))
        shares[:, 0] = share
        release = _released(plan, shares)
        is_first = release.labels[release.answered] == 0
        bounds.append(right * float(is_first.mean()) if len(is_first) else 0.0)
    low, high = bounds
    return min(low, high), high
