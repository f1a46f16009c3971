"""Releases about neighbourhoods, turned into probabilities of the points themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.learners.base import Progress
from training.students.releases import Releases, predicted
from training.students.shares import Shares

_DOUBT = 0.1
"""Share of leading classes that are not the point's own."""


def refined(
    coordinates: NDArray[np.number], releases: Releases, *, seed: int, progress: Progress | None = None
) -> Releases:
    """Probabilities of every public point, from its own release, if any, and from all others.

    A softmax regression on the coordinates, fitted to the shares of all neighbourhoods (`Shares`), is the prior, the
    point's own counts are the likelihood. A release is one of many that a regression learns from, which so averages
    noise over all; a neighbourhood that reaches over several classes is undone.

    Args:
        coordinates: `(P, d)` of all public points in the space that votes were cast in.
        releases: About neighbourhoods of some of them.
        seed: Of what the regression holds out.
        progress: Of the regression.

    Returns:
        Probabilities of all points, as releases of model predictions.
    """
    points = np.asarray(coordinates, np.float32)
    columns = points / max(float(points.std()), 1e-9)
    prior = Shares().learn(columns, releases, seed=seed, progress=progress).predict_proba(columns)
    likelihood = np.ones_like(prior)
    likelihood[releases.rows] = (1 - _DOUBT) * releases.leading + _DOUBT / releases.classes
    posterior = prior * likelihood
    return predicted(np.arange(len(points)), posterior / posterior.sum(axis=1, keepdims=True))
