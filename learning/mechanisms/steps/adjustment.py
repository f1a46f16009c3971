"""Adjustment of a linear model of numbers, times or labels to the noise of its steps, from public values alone.

The noise that steps release is known, and so are the public points: what steps make of a model that is known can be
tried out. Targets of as many people as are expected are drawn from the model as it is, with records like the public
points; the planned steps are taken anew, noise and clipping and all; and each score becomes the line
by which the scores of the known model follow from those that were learned (its slope is below 1 where noise has blown
scores up). As the model that targets are drawn from has noise itself, that is done again with the adjusted
one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.noise import SimulationNoise
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.records import INTERCEPT
from learning.mechanisms.steps.rehearsal import rehearsed
from learning.outcomes import Target

Floats = NDArray[np.float64]

_PEOPLE = 5000
_ROUNDS = 2
_MOST = 1.5
_SEED = 0  # what is tried out protects nobody, and the same releases lead to the same model


def descent_adjustment(final: Descent, target: Target) -> Floats:
    """`(2, outputs)` what scores of the model of a descent are multiplied by, and what is added to them."""
    points = final.points
    begin = Descent.begin(final.plan, points, final.parameters.shape[1], final.loss)
    scores = _scores(points, final.learned)
    known, draws = scores, np.random.default_rng(_SEED)
    for attempt in range(_ROUNDS):
        drawn = draws.integers(0, len(points), min(_PEOPLE, max(len(points), round(final.plan.people))))
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


def _scores(points: NDArray[np.int8], weights: Floats) -> Floats:
    return np.asarray(points.astype(np.float64) @ weights[:-1] + INTERCEPT * weights[-1], np.float64)
