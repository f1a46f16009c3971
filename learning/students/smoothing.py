"""Conversion of releases about neighbourhoods or single points into probabilities for all public points.

In releases about neighbourhoods, the public points within a query's radius represent the people who were asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack

from learning.mechanisms.neighbours.votes import QUERIES_AT_A_TIME, kernel_weights, near_pairs, squared_norms
from learning.representations.representation import eigenvectors, similarities, spread
from learning.students.releases import Releases, leading_probabilities, predicted
from learning.students.shares import Shares

_MOST_SURROGATES = 10_000
"""Largest number of public points in an average; more points need more memory but do not improve it."""

_DOUBT = 0.1
"""Assumed share of leading classes that are not the point's own class."""
_HELD_OUT = 0.2
_SPREAD = (0.0, 0.8, 0.95)
"""Candidates for the share of a point's result that comes from its neighbours; the best one is used."""

_MOST = 300
"""Largest number of eigenvectors of the graph."""
_FLOORS = (0.003, 0.01, 0.03, 0.1)
_POWERS = (1.0, 2.0, 3.0)
_SPREADS = (0.1, 0.2, 0.4)
_MISFITS = (0.0, 0.02, 0.05, 0.1)

Floats = NDArray[np.float64]


def neighbourhoods(
    rows: ArrayLike, public: NDArray[np.signedinteger], squared_radii: ArrayLike, *, kernel: str = "uniform"
) -> csr_array:
    """Return weights of the public points that represent the voters of each query.

    Holders vote if their records are within the radius, and public points are distributed like records. The expected
    share of a class among the voters is therefore the average of its probability over the public points within the
    radius, not its probability at the query. A student that takes this into account can undo the smoothing.

    Args:
        rows: `(Q,)` positions of the queries among the public points. A query's own point represents its voters only if
            no other point does.
        public: `(P, d)` coordinates of the round.
        squared_radii: `(Q,)`, see `learning.mechanisms.neighbours.votes.radii`.

    Returns:
        Weights `(Q, P)`; rows sum to 1. More than 10,000 public points are represented by an evenly spaced sample.

    >>> neighbourhoods([0, 2], np.array([[0], [1], [5]]), [1, 4]).toarray().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    queries, reach = np.asarray(rows, np.int64), np.asarray(squared_radii, np.int64)
    columns = np.arange(len(public))
    if len(columns) > _MOST_SURROGATES:
        columns = np.linspace(0, len(public) - 1, _MOST_SURROGATES).astype(np.int64)
    points = public[columns]
    norms, parts = squared_norms(points), []
    for start in range(0, len(queries), QUERIES_AT_A_TIME):
        batch = slice(start, start + QUERIES_AT_A_TIME)
        query, near, distance = near_pairs(public[queries[batch]], reach[batch], points, norms)
        weight = kernel_weights(kernel, distance, reach[batch][query]).astype(np.float64)
        weight[columns[near] == queries[batch][query]] = 0.0
        alone = np.flatnonzero(np.bincount(query, weight, len(queries[batch])) == 0)
        query = np.concatenate([query, alone])
        near = np.concatenate([columns[near], queries[batch][alone]])
        weight = np.concatenate([weight, np.ones(len(alone))])
        weight /= np.bincount(query, weight)[query]
        is_near = weight > 0
        shape = (len(queries[batch]), len(public))
        parts.append(csr_array((weight[is_near].astype(np.float32), (query[is_near], near[is_near])), shape=shape))
    return csr_array(vstack(parts, format="csr")) if parts else csr_array((0, len(public)), dtype=np.float32)


def refine(coordinates: NDArray[np.number], releases: Releases, *, seed: int) -> Releases:
    """Return probabilities for every public point, from its own release (if any) and from all others.

    The prior is a softmax regression on the coordinates, fitted to the shares of all neighbourhoods (`Shares`), and the
    likelihood comes from the point's own counts. The regression averages out the noise of many releases, and separates
    the classes of a neighbourhood that contains several. The posterior is then spread between near points (`spread`),
    to the extent that held-out releases support it. The result can therefore follow nonlinear class boundaries, if
    points of a class lie together.

    Args:
        coordinates: `(P, d)` of all public points in the space used for voting.
        releases: Releases about neighbourhoods of some of them.
        seed: Seed of the held-out sample.

    Returns:
        Probabilities of all points, in the form of releases of model predictions.
    """
    points = np.asarray(coordinates, np.float32)
    columns = points / max(float(points.std()), 1e-9)

    def posterior(part: Releases) -> NDArray[np.float64]:
        prior = Shares().learn(columns, part, seed=seed).predict_proba(columns)
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


def smooth(coordinates: NDArray[np.number], releases: Releases, voters: float) -> Releases:
    """Return probabilities for every public point, from noisy counts of some of them.

    Counts before noise are modelled as a Gaussian process over the graph of nearest neighbours (Zhu, Ghahramani and
    Lafferty 2003, "Semi-supervised learning using Gaussian fields"): along an eigenvector of its Laplacian with
    eigenvalue ℓ, their prior variance is proportional to (ℓ + β)^(−p), and every point also varies independently. The
    noise of the counts is known. β, p and both variances maximise the likelihood of the released counts. Many points
    with much noise can therefore be as informative as few points with little noise.

    Args:
        coordinates: `(P, d)` of all public points in a public representation.
        releases: Plain counts of some of them, about the points themselves.
        voters: Public weight of all votes, which is the sum of every point's counts before noise.

    Returns:
        Probabilities `(P, C)` that each class leads, in the form of releases of model predictions.
    """
    if len(coordinates) == 1:
        return predicted([0], releases.leading)
    mean, deviation = Smoother(coordinates).counts(releases, voters)
    return predicted(np.arange(len(mean)), leading_probabilities(mean, deviation))


class Smoother:
    """Graph of public points with coordinates `(P, d)`, reduced to the smoothest `most` of its eigenvectors."""

    def __init__(self, coordinates: NDArray[np.number], most: int = _MOST) -> None:
        self.values, self.vectors = eigenvectors(similarities(coordinates), most)

    def counts(self, releases: Releases, voters: float) -> tuple[Floats, Floats]:
        """Return means `(P, C)` and standard deviations `(P,)` of all points' counts before noise; see `smooth`.

        The settings with the largest evidence are used.
        """
        return self.most_likely([releases], voters)[0]

    def most_likely(self, drawn: Sequence[Releases], voters: float) -> list[tuple[Floats, Floats]]:
        """Return the result of `counts` for several draws of the same counts, all with the first draw's settings."""
        surfaces = [_Surface(self.values, self.vectors, releases, voters) for releases in drawn]
        settings = list(product(_FLOORS, _POWERS, _SPREADS, _MISFITS))
        best = max(settings, key=lambda each: surfaces[0].fit(each).evidence)
        return [surface.posterior(surface.fit(best)) for surface in surfaces]


@dataclass(frozen=True, eq=False)
class _Fit:
    """Posterior of the eigenvectors' coefficients for given settings, and the logarithm of the settings' evidence."""

    evidence: float
    misfit: float
    noise: float
    factor: Floats
    half: Floats


class _Surface:
    """Gaussian process of one release."""

    def __init__(self, values: Floats, vectors: Floats, releases: Releases, voters: float) -> None:
        self.laplacian, self.vectors, self.voters = np.maximum(1.0 - values, 0.0), vectors, voters
        self.rows, self.sigma = releases.rows, float(releases.sigma.mean())
        self.counts = releases.counts - voters / releases.classes
        asked = vectors[self.rows]
        self.gram, self.projected = asked.T @ asked, asked.T @ self.counts
        self.total, self.size = float((self.counts**2).sum()), self.counts.size

    def fit(self, settings: tuple[float, float, float, float]) -> _Fit:
        from scipy.linalg import solve_triangular

        floor, power, spread, misfit = settings
        shape = (self.laplacian + floor) ** -power
        prior = (spread * self.voters) ** 2 * shape / (shape @ (self.vectors**2).mean(axis=0))
        noise = self.sigma**2 + (misfit * self.voters) ** 2
        factor = np.asarray(np.linalg.cholesky(np.diag(1 / prior) + self.gram / noise), np.float64)
        half = solve_triangular(factor, self.projected, lower=True) / noise
        classes = self.counts.shape[1]
        determinant = (
            classes * (np.log(np.diag(factor)).sum() + np.log(prior).sum() / 2) + self.size * np.log(noise) / 2
        )
        evidence = float((half**2).sum() / 2 - self.total / noise / 2 - determinant)
        return _Fit(evidence, misfit, noise, factor, half)

    def posterior(self, fitted: _Fit) -> tuple[Floats, Floats]:
        """Return means `(P, C)` of the counts before noise, and their standard deviations `(P,)`."""
        from scipy.linalg import solve_triangular

        own = (fitted.misfit * self.voters) ** 2
        mean = self.vectors @ solve_triangular(fitted.factor.T, fitted.half)
        shared = (solve_triangular(fitted.factor, self.vectors.T, lower=True) ** 2).sum(axis=0)
        variance, kept = shared + own, own / fitted.noise
        mean[self.rows] += kept * (self.counts - mean[self.rows])
        variance[self.rows] -= kept * own
        return mean + self.voters / self.counts.shape[1], np.sqrt(variance)
