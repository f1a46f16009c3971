"""Calibration of students by releases that they have not learned from."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from learning.calibration import Calibration, log_probabilities
from learning.students.releases import Releases

Floats = NDArray[np.float64]

_LOG_SCALES = (-5.0, 2.0)


def fit_to_releases(probabilities: Floats, held_out: Releases) -> Calibration:
    """Calibration of a model by releases that it has not learned from: the one that agrees best with them.

    Labels and probabilities have no noise, and count by -log p. Counts of voters have noise of a known σ, so they count
    by the quadratic score of `Releases.score`, which noise leaves unbiased, in units of that noise and of what voters
    themselves vary by. The logarithm of the scale and the offsets have a normal prior around "unchanged".

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
