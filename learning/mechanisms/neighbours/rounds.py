"""Several rounds: how the share is split, which points are asked first, which later, and who would have agreed."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.threads import one_thread


def split_share(share: float, rounds: int) -> list[float]:
    """The share of each round, equal parts, fixed before anything is seen; together at most `share`.

    >>> split_share(0.5, 2)
    [0.25, 0.25]
    """
    if rounds < 1 or not 0 < share <= 1:
        raise ValueError(f"A share in (0, 1] is split over at least one round, not {share} over {rounds}.")
    return [share / rounds] * rounds


def spread_queries(public: ArrayLike, count: int) -> NDArray[np.int64]:
    """Points to begin with: those nearest to the centres of `count` clusters of the public points.

    Args:
        public: `(P, d)` coordinates.
        count: How many, 1 … P.

    Returns:
        `(count,)` different positions, in increasing order; the same for the same points.
    """
    from sklearn.cluster import MiniBatchKMeans

    points = np.asarray(public, np.float32)
    if not 1 <= count <= len(points):
        raise ValueError(f"{count} of {len(points)} public points cannot be chosen: ask for fewer, or add points.")
    if count == len(points):
        return np.arange(count)
    with one_thread():
        clusters = MiniBatchKMeans(count, random_state=0, n_init=1, batch_size=4096, reassignment_ratio=0.0).fit(points)
    distances = ((points - clusters.cluster_centers_[clusters.labels_]) ** 2).sum(axis=1)
    order = np.lexsort((distances, clusters.labels_))
    firsts = order[np.unique(clusters.labels_[order], return_index=True)[1]]
    # empty clusters have no nearest point: the points farthest from their centres make up for them
    rest = np.setdiff1d(np.argsort(-distances, kind="stable"), firsts, assume_unique=True)
    return np.sort(np.concatenate([firsts, rest[: count - len(firsts)]]))


def doubtful_queries(probabilities: ArrayLike, count: int) -> NDArray[np.int64]:
    """The points where the student's two likeliest classes are closest, most doubtful first; equal ones in order.

    Args:
        probabilities: `(P, C)` of the student of the round before, which learned from releases alone.

    >>> doubtful_queries([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]], 2)
    array([1, 2])
    """
    ordered = np.sort(np.asarray(probabilities, np.float64), axis=1)
    lead = ordered[:, -1] - (ordered[:, -2] if ordered.shape[1] > 1 else 0.0)
    return np.argsort(lead, kind="stable")[:count]


def expected_agreement(counts: ArrayLike, expected: ArrayLike) -> float:
    """Voters that take part, as a share of those that the forecast expected: from a round of plain votes.

    Residual counts do not tell how many agree with the guess. How many voters a query has is known from public points
    up to one factor (how many take part, how records are spread), which the sum of all noisy counts of an earlier round
    tells far better than any single one.

    Args:
        counts: `(Q, C)` as released in that round.
        expected: `(Q,)` the voters that the forecast expected at these queries.

    Returns:
        The factor, at least 0: times the forecast of the next round it gives `voters` for `read_counts`.

    >>> expected_agreement([[60, 30], [100, 10]], [100.0, 100.0])
    1.0
    """
    return max(0.0, float(np.sum(counts)) / max(float(np.sum(expected)), 1e-9))
