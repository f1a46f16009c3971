"""Evidence from releases about students that have not learned from them: the best student, and its calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import scipy
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from learning.calibration import Calibration, log_probabilities
from learning.learners.learner import Model
from learning.students.releases import Releases

_HELD_OUT = 0.2

Teach = Callable[[npt.NDArray[np.floating], Releases], Model]

Floats = NDArray[np.float64]

_LOG_SCALES = (-5.0, 2.0)


def choose(
    candidates: Mapping[str, Teach], points: npt.NDArray[np.floating], releases: Releases, *, seed: int
) -> tuple[str, dict[str, float]]:
    """Return the candidate with the best score on a fifth of the releases, after learning from the others.

    Private records and test points are not used, so it costs nothing.

    Args:
        candidates: Functions that train each on all public points `(P, …)` and releases.
        points: All public points.
        releases: About them.
        seed: Of the split.

    Returns:
        Its name, and the scores of all (`Releases.score`).
    """
    learned, held_out = releases.split(_HELD_OUT, seed)
    scores = {name: held_out.score(teach(points, learned).predict_proba(points)) for name, teach in candidates.items()}
    return max(scores, key=lambda name: scores[name]), scores


def fit_to_releases(probabilities: Floats, held_out: Releases) -> Calibration:
    """Return the calibration of a model that agrees best with releases that it has not learned from.

    Labels and probabilities have no noise, and are scored by -log p. Counts of voters have noise of a known σ, so they
    are scored by the quadratic score of `Releases.score`, which noise leaves unbiased, in units of that noise and of
    the voters' own variation. The logarithm of the scale and the offsets have a normal prior around "unchanged".

    Args:
        probabilities: `(P, C)` of all public points.
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
