"""Releases about neighbourhoods, turned into probabilities of the points themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.progress import Progress
from learning.representations.spreading import similarities, spread
from learning.students.releases import Releases, predicted
from learning.students.shares import Shares

_DOUBT = 0.1
"""Share of leading classes that are not the point's own."""
_HELD_OUT = 0.2
_SPREAD = (0.0, 0.8, 0.95)
"""Shares that come from neighbours, of which the best is taken."""


def refine(
    coordinates: NDArray[np.number], releases: Releases, *, seed: int, progress: Progress | None = None
) -> Releases:
    """Probabilities of every public point, from its own release, if any, and from all others.

    A softmax regression on the coordinates, fitted to the shares of all neighbourhoods (`Shares`), is the prior, the
    point's own counts are the likelihood. A release is one of many that a regression learns from, which so averages
    noise over all; a neighbourhood that reaches over several classes is undone. Then the posterior is spread over the
    points nearest to each other (`spread`), as far as agrees best with releases that were held out: so it follows
    classes that are not linear, where points of a class lie together.

    Args:
        coordinates: `(P, d)` of all public points in the space that votes were cast in.
        releases: About neighbourhoods of some of them.
        seed: Of what is held out.
        progress: Of the regression.

    Returns:
        Probabilities of all points, as releases of model predictions.
    """
    points = np.asarray(coordinates, np.float32)
    columns = points / max(float(points.std()), 1e-9)

    def posterior(part: Releases) -> NDArray[np.float64]:
        prior = Shares().learn(columns, part, seed=seed, progress=progress).predict_proba(columns)
        likelihood = np.ones_like(prior)
        likelihood[part.rows] = (1 - _DOUBT) * part.leading + _DOUBT / part.classes
        product = prior * likelihood
        return product / product.sum(axis=1, keepdims=True)

    similar, everything = similarities(points), posterior(releases)
    learned, held_out = releases.split(_HELD_OUT, seed)
    share = 0.0
    if len(held_out):
        before = posterior(learned)
        share = max(_SPREAD, key=lambda each: held_out.score(spread(similar, before, each)))
    return predicted(np.arange(len(points)), spread(similar, everything, share))
