"""Releases about single points, smoothed over the public points that lie close together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from learning.representations.spreading import eigenvectors, similarities
from learning.students.posterior import leading_probabilities
from learning.students.releases import Releases, predicted

_MOST = 300
"""Eigenvectors of the graph, at most."""
_FLOORS = (0.003, 0.01, 0.03, 0.1)
_POWERS = (1.0, 2.0, 3.0)
_SPREADS = (0.1, 0.2, 0.4)
_MISFITS = (0.0, 0.02, 0.05, 0.1)

Floats = NDArray[np.float64]


def smooth(coordinates: NDArray[np.number], releases: Releases, voters: float) -> Releases:
    """Return probabilities of every public point, from noisy counts of some of them.

    Counts before noise are a Gaussian process over the graph of nearest neighbours (Zhu, Ghahramani and Lafferty 2003,
    "Semi-supervised learning using Gaussian fields"): along an eigenvector of its Laplacian with eigenvalue ℓ they have
    a prior variance in proportion to (ℓ + β)^(−p), and beside that every point differs by itself. The noise of the
    counts is known. β, p and both spreads are those under which the released counts are likeliest. Many points with
    much noise so tell as much as few with little.

    Args:
        coordinates: `(P, d)` of all public points in a public representation.
        releases: Plain counts of some of them, about the points themselves.
        voters: The public weight of all votes, which every point's counts add up to before noise.

    Returns:
        Probabilities that each class leads, of all points, as releases of model predictions.
    """
    if len(coordinates) == 1:
        return predicted([0], releases.leading)
    mean, deviation = Smoother(coordinates).counts(releases, voters)
    return predicted(np.arange(len(mean)), leading_probabilities(mean, deviation))


class Smoother:
    """The graph of public points with coordinates `(P, d)`, along the smoothest `most` of its eigenvectors."""

    def __init__(self, coordinates: NDArray[np.number], most: int = _MOST) -> None:
        self.values, self.vectors = eigenvectors(similarities(coordinates), most)

    def counts(self, releases: Releases, voters: float) -> tuple[Floats, Floats]:
        """Return means `(P, C)` of all points' counts before noise and their standard deviations `(P,)`; see `smooth`.

        The settings are those with the largest evidence.
        """
        return self.likeliest([releases], voters)[0]

    def likeliest(self, drawn: Sequence[Releases], voters: float) -> list[tuple[Floats, Floats]]:
        """Return what `counts` does for each of several draws of the same counts; the settings are the first one's."""
        surfaces = [_Surface(self.values, self.vectors, releases, voters) for releases in drawn]
        settings = list(product(_FLOORS, _POWERS, _SPREADS, _MISFITS))
        best = max(settings, key=lambda each: surfaces[0].fit(each).evidence)
        return [surface.posterior(surface.fit(best)) for surface in surfaces]


@dataclass(frozen=True, eq=False)
class _Fit:
    """Posterior of the eigenvectors' coefficients for some settings, with the logarithm of the evidence for these."""

    evidence: float
    misfit: float
    noise: float
    factor: Floats
    half: Floats


class _Surface:
    """The Gaussian process of one release."""

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
