"""Public points that stand in for records: their distances from the queries, and the classes in neighbourhoods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NEAREST = 10  # number of labelled points that determine the classes of a stand-in
_SURROGATES = 2000
_QUERIES = 2000  # largest number of queries used, because more would not improve a forecast


@dataclass(frozen=True, eq=False)
class Sample:
    """Public points whose labels are known, in the coordinates of the run."""

    points: NDArray[np.integer]
    labels: NDArray[np.integer]


class Surrogates:
    """Public points that stand in for records, with their distances from the queries and the radii for several shares.

    Attributes:
        points: `(S, d)`, at most 2,000 public points, evenly sampled.
        queries: Number of queries.
        looked_at: Number of queries used: all of them, or an evenly spaced sample of 2,000 (by default) if there are
            more.
        each: Number of queries that each used query represents.

    A query that is itself a public point is not a person's record, so the query is left out of its own neighbourhood: a
    radius that contains k of P public points is expected to contain (k - 1) / P of the holders.
    """

    def __init__(
        self, queries: ArrayLike, public: ArrayLike, radius_shares: Sequence[float], most: int | None = _QUERIES
    ) -> None:
        from learning.mechanisms.neighbours.votes import radii, squared_distances

        points, everyone = np.asarray(queries), np.asarray(public)
        self.queries = len(points)
        points = evenly(points, len(points) if most is None else most)
        self.looked_at = len(points)
        self.each = self.queries / max(len(points), 1)
        self.points = evenly(everyone, _SURROGATES)
        self._distances = squared_distances(points, self.points)
        self._reach = dict(zip(radius_shares, radii(points, everyone, radius_shares).T, strict=True))
        self._itself = np.flatnonzero((self._distances == 0).any(axis=1)), self._distances.argmin(axis=1)

    def near(self, radius_share: float, records: float = 1.0) -> NDArray[np.bool_]:
        """Return a mask `(Q, S)` of the holders near each query.

        A holder with several records is represented by several points. For example, if holders have 1.3
        records on average, three in ten holders have two records and the others have one.
        """
        near = self._distances <= self._reach[radius_share][:, None]
        is_equal, place = self._itself
        near[is_equal, place[is_equal]] = False
        one, rng, count = near, np.random.default_rng(0), near.shape[1]
        for further in range(1, math.ceil(records)):
            drawn = rng.permutation(count)
            having = rng.permutation(count) < (records - further) * count
            near = near | (one[:, drawn] & having)
        return near


class LabelledSurrogates(Surrogates):
    """Public points around the points of a labelled sample, used to predict the classes of the voters there.

    The sample's other points stand in for records with their own labels, and the public points for records with the
    labels of their nearest labelled points (up to ten). The labelled point that is the query itself is left out and
    replaced by the next one. Points of the sample have correct labels but are few; public points are many but sometimes
    wrong. Votes from both are counted. The share of votes for wrong classes is then moved halfway, in log odds, towards
    their share among the labelled points; see docs/neighbours.md.
    """

    def __init__(self, sample: Sample, public: ArrayLike, radius_shares: Sequence[float], n_classes: int) -> None:
        from learning.mechanisms.neighbours.votes import squared_distances

        points = np.asarray(sample.points)
        super().__init__(points, public, radius_shares, most=None)
        self.labels = np.asarray(sample.labels, np.int64)
        self._one_hot = np.eye(n_classes)[self.labels]
        self._among = squared_distances(points, points)
        np.fill_diagonal(self._among, np.iinfo(self._among.dtype).max)
        self._count = int(np.clip(len(points) // (10 * n_classes), 1, _NEAREST))
        nearest = np.argsort(squared_distances(self.points, points), axis=1, kind="stable")
        self._tell, self._next = nearest[:, : self._count], nearest[:, min(self._count, len(points) - 1)]
        self._votes: dict[float, NDArray[np.float64]] = {}

    def votes(self, radius_share: float) -> NDArray[np.float64]:
        """Return the expected votes `(sample, C)` at each point of the sample, divided by the mean number of voters."""
        if radius_share not in self._votes:
            near = self.near(radius_share)
            voters = np.zeros(near.shape, np.bool_)
            voters[self._tell.T, np.arange(len(self._tell))] = True
            voters &= near
            certain = self._count * (self._among <= self._reach[radius_share][:, None]) @ self._one_hot
            votes = certain + near @ self._one_hot[self._tell].sum(axis=1)
            votes += voters @ self._one_hot[self._next] - voters.sum(axis=1)[:, None] * self._one_hot
            # Add one vote of both kinds to each point, because a point with few neighbours reveals little.
            both = self._count * len(votes) * votes / max(float(votes.sum()), 1e-9)
            factor = self._odds_wrong(certain + both) / max(self._odds_wrong(votes), 1e-9)
            votes = np.where(self._one_hot > 0, votes, math.sqrt(factor) * votes)
            self._votes[radius_share] = votes / max(float(votes.sum(axis=1).mean()), 1e-9)
        return self._votes[radius_share]

    def _odds_wrong(self, votes: NDArray[np.float64]) -> float:
        right = float((votes * self._one_hot).sum())
        return (float(votes.sum()) - right) / max(right, 1e-9)


def evenly(points: NDArray[np.signedinteger], most: int) -> NDArray[np.signedinteger]:
    """Return all of the rows, or an evenly spaced sample of the requested size.

    >>> evenly(np.arange(9), 3).tolist()
    [0, 4, 8]
    """
    return points[np.linspace(0, len(points) - 1, min(len(points), most)).astype(np.int64)]
