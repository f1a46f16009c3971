"""Forecast of what a student learns from a vote that is planned, from public points alone.

Single labels can be wrong more often than not where few people vote, and the student still be right, because it learns
from all counts together. So the vote is simulated: public points stand in for records, their noisy counts are
`refined`, and it is counted how often the refined label is right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learning.mechanisms.neighbours.stand_ins import Sample, evenly
from learning.mechanisms.neighbours.votes import radii
from learning.students.neighbourhoods import neighbourhoods
from learning.students.refining import refined
from learning.students.releases import counted

LOOKED_AT = 2000
"""Points of a simulation, of which more would hardly make it better."""


def refined_right(
    queries: ArrayLike,
    public: NDArray[np.signedinteger],
    voters: ArrayLike,
    *,
    radius_share: float,
    sigma: float,
    n_classes: int,
    sample: Sample | None = None,
) -> float:
    """Expected share of public points whose `refined` label is right after one round of plain votes.

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
    asked = evenly(every, LOOKED_AT)
    rest = np.setdiff1d(np.arange(len(public)), every)
    looked_at = np.concatenate([asked, evenly(rest, LOOKED_AT - len(asked))])
    points, rows = public[looked_at], np.arange(len(asked))
    truth = _clusters(points, n_classes) if sample is None else _nearest(points, sample)
    reach = neighbourhoods(rows, points, radii(public[asked], public, radius_share))
    expected = np.asarray(voters, np.float64)[:, None] * (reach @ np.eye(n_classes)[truth])
    averaged = len(asked) / len(every)
    noise = rng.normal(0.0, np.sqrt((sigma**2 + expected) * averaged))
    said = refined(points, counted(rows, expected + noise, sigma * averaged**0.5, reach=reach), seed=0)
    return float((said.labels == truth).mean())


def _nearest(points: NDArray[np.signedinteger], sample: Sample) -> NDArray[np.int64]:
    """`(n,)` the class of the labelled point nearest to each."""
    from sklearn.neighbors import KNeighborsClassifier

    known = KNeighborsClassifier(1).fit(np.asarray(sample.points, np.float32), np.asarray(sample.labels))
    return known.predict(points.astype(np.float32)).astype(np.int64)


def _clusters(points: NDArray[np.signedinteger], count: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    found = KMeans(min(count, len(points)), n_init=1, random_state=0)
    return found.fit_predict(points.astype(np.float64)).astype(np.int64)
