"""Forecast of what a student learns from a vote that is planned, from public points alone.

Single labels can be wrong more often than not where few people vote, and the student still be right, because it learns
from all counts together. So the vote is simulated: public points stand in for records, their noisy counts go
through `refine`, and it is counted how often the refined label is right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.sentences import Sentence, gettext_noop
from learning.forecasts import CLUSTERS, MODEL, Forecast, judged_forecast
from learning.mechanisms.neighbours.stand_ins import Sample, evenly
from learning.mechanisms.neighbours.votes import radii
from learning.students.neighbourhoods import neighbourhoods
from learning.students.refining import refine
from learning.students.releases import counted

LOOKED_AT = 2000
"""Points of a simulation, of which more would hardly make it better."""

_LEAST_NOISE = 1.0
"""Of counts of people: less would be no different from none."""


_SIMULATED = gettext_noop(
    "A simulated vote in which public points stand in for records, each of the class of the nearest of %(points)d "
    "labelled points of the test dataset: how many of them its noisy counts together tell right."
)


def student_forecast(
    queries: ArrayLike,
    public: NDArray[np.signedinteger],
    voters: ArrayLike,
    *,
    radius_share: float,
    sigma: float,
    n_classes: int,
    sample: Sample | None = None,
) -> Forecast:
    """Forecast of the share of public points whose label after `refine` is right after one round of plain votes.

    Of more than 2,000 queries some stand for all, with as much less noise as the others would have averaged out. A
    student that learns from refined labels is hardly ever worse, so a small share is a reason to warn.

    Args:
        queries: `(Q,)` positions among the public points, in the order in which they are asked.
        public: `(P, d)` coordinates.
        voters: Expected at ``evenly(queries, LOOKED_AT)``.
        radius_share, sigma: Of the round.
        n_classes: At least 2.
        sample: Labelled public points: each public point is taken to be of the class of the nearest. Without any the
            points are put into clusters, which are easier to tell than classes: what can be said then is only how much
            survives the noise.
    """
    every, rng = np.asarray(queries, np.int64), np.random.default_rng(0)
    probe = evenly(every, LOOKED_AT)
    rest = np.setdiff1d(np.arange(len(public)), every)
    looked_at = np.concatenate([probe, evenly(rest, LOOKED_AT - len(probe))])
    points, rows = public[looked_at], np.arange(len(probe))
    truth = _clusters(points, n_classes) if sample is None else _nearest(points, sample)
    reach = neighbourhoods(rows, points, radii(public[probe], public, radius_share))
    expected = np.asarray(voters, np.float64)[:, None] * (reach @ np.eye(n_classes)[truth])
    averaged = len(probe) / len(every)
    spread = rng.normal(0.0, 1.0, expected.shape)

    def right(noise: float) -> float:
        counts = expected + spread * np.sqrt((noise**2 + expected) * averaged)
        labels_of_student = refine(points, counted(rows, counts, noise * averaged**0.5, reach=reach), seed=0)
        return float((labels_of_student.labels == truth).mean())

    noisy, noiseless = right(sigma), right(_LEAST_NOISE)
    if sample is None:
        return Forecast(MODEL, None, min(noisy, 1.0 / n_classes), noisy, noiseless, 0, Sentence(CLUSTERS))
    known = len(sample.labels)
    basis = Sentence(_SIMULATED, points=known)
    return judged_forecast(MODEL, noisy, noiseless, judged=min(known, len(points)), standing=known, rests_on=basis)


def _nearest(points: NDArray[np.signedinteger], sample: Sample) -> NDArray[np.int64]:
    """`(n,)` the class of the labelled point nearest to each."""
    from sklearn.neighbors import KNeighborsClassifier

    known = KNeighborsClassifier(1).fit(np.asarray(sample.points, np.float32), np.asarray(sample.labels))
    return known.predict(points.astype(np.float32)).astype(np.int64)


def _clusters(points: NDArray[np.signedinteger], count: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    clusters = KMeans(min(count, len(points)), n_init=1, random_state=0)
    return clusters.fit_predict(points.astype(np.float64)).astype(np.int64)
