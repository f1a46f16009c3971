"""Slow, plain reference computations for the accounting, without shared code or shared shortcuts."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np
from scipy import special


def displacements(classes: int, moves: int = 1) -> set[tuple[int, ...]]:
    """Every change of the counts by at most ``moves`` votes that each go from one class to another."""
    single = [tuple(int(k == b) - int(k == a) for k in range(classes)) for a in range(classes) for b in range(classes)]
    return {tuple(map(sum, zip(*chosen, strict=True))) for chosen in itertools.product(single, repeat=moves)}


@dataclass(frozen=True)
class PlainNoise:
    """Noise of scale 1 as two textbook formulas, and nodes and weights to sum on, from low to high at a given scale."""

    cdf: Callable[[np.ndarray], np.ndarray]
    pdf: Callable[[np.ndarray], np.ndarray]
    nodes: Callable[[float, float, float], tuple[np.ndarray, np.ndarray]]


def _even_steps(low: float, high: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    grid = np.arange(low - 12 * scale, high + 12 * scale, scale / 10)
    return grid, np.full(grid.size, scale / 10)


def _four_in_every_half_vote(low: float, high: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The Laplace density has a kink at every count: counts and weights must be multiples of a half."""
    points, weights = np.polynomial.legendre.leggauss(4)
    cells = np.arange(np.floor(low - 40 * scale), np.ceil(high + 40 * scale), 0.5)
    return (cells[:, None] + (points + 1) / 4).ravel(), np.tile(weights / 4, cells.size)


NORMAL = PlainNoise(special.ndtr, lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), _even_steps)
LAPLACE = PlainNoise(
    lambda x: np.where(x < 0, np.exp(-np.abs(x)) / 2, 1 - np.exp(-np.abs(x)) / 2),
    lambda x: np.exp(-np.abs(x)) / 2,
    _four_in_every_half_vote,
)


def win_probabilities(votes: np.ndarray, noise: PlainNoise, scale: float) -> np.ndarray:
    """Pr[class wins] for counts of shape (rows, classes), one plain sum after the other."""
    grid, weights = noise.nodes(votes.min(), votes.max(), scale)
    offset = (grid[:, None, None] - votes) / scale
    cdf, pdf = noise.cdf(offset), noise.pdf(offset) / scale
    others = [[j for j in range(votes.shape[1]) if j != k] for k in range(votes.shape[1])]
    return np.stack([weights @ (pdf[..., k] * cdf[..., rest].prod(axis=2)) for k, rest in enumerate(others)], axis=1)


def renyi(p: np.ndarray, q: np.ndarray, orders: float | np.ndarray) -> np.ndarray:
    """D_α(p‖q) over the last axis, by definition, in logarithms; of several orders (R,), they are the last axis."""
    order = np.asarray(orders, np.float64)[..., None]
    p, q = (np.expand_dims(np.log(each), tuple(range(-order.ndim, -1))) for each in (p, q))
    return special.logsumexp(order * p + (1 - order) * q, axis=-1) / (order[..., 0] - 1)


def divergences(
    votes: np.ndarray,
    noise: PlainNoise,
    scale: float,
    weight: float,
    orders: np.ndarray,
    may_leave: np.ndarray | None = None,
    moves: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Forward and reverse divergence, largest over every move from a class that holds the weight; (queries, R)."""
    p = win_probabilities(votes, noise, scale)
    forward, reverse = np.zeros((2, len(votes), len(orders)))
    for change in map(np.array, displacements(votes.shape[1], moves)):
        moved = votes + weight * change
        possible = (moved >= 0).all(axis=1) & (may_leave is None or bool(np.all(may_leave | (change >= 0))))
        q = win_probabilities(moved, noise, scale)
        forward[possible] = np.maximum(forward, renyi(p, q, orders))[possible]
        reverse[possible] = np.maximum(reverse, renyi(q, p, orders))[possible]
    return forward, reverse


def precise_win_probabilities(
    votes: Sequence[float], scale: float, laplace: bool = False, reach: float = 0.0
) -> list[mpmath.mpf]:
    """Pr[class wins] by Gauss–Legendre quadrature of 24 nodes in every six standard deviations or less.

    ``reach`` makes neighbouring counts share the nodes.
    """
    cdf, pdf = (_laplace_cdf, _laplace_pdf) if laplace else (_normal_cdf, _normal_pdf)
    counts = [mpmath.mpf(v) / mpmath.mpf(scale) for v in votes]
    outside = (90 if laplace else 12) + reach / scale
    low, high = mpmath.floor(min(counts) - outside), mpmath.ceil(max(counts) + outside)
    breaks = [low + 6 * i for i in range(int((high - low) / 6) + 2)]
    if laplace:
        breaks = sorted({*breaks, *(c + d * mpmath.mpf(reach) / mpmath.mpf(scale) for c in counts for d in (-1, 0, 1))})
    found = [mpmath.mpf(0)] * len(counts)
    for start, end in itertools.pairwise(breaks):
        for t, width in _LEGENDRE.get_nodes(start, end, degree=4, prec=mpmath.mp.prec):
            below = [cdf(t - c) for c in counts]
            for k, c in enumerate(counts):
                found[k] += width * pdf(t - c) * mpmath.fprod(below[:k] + below[k + 1 :])
    return found


_LEGENDRE = mpmath.calculus.quadrature.GaussLegendre(mpmath.mp)


@cache
def _normal_cdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.ncdf(x)


@cache
def _normal_pdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.npdf(x)


def _laplace_cdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2


def _laplace_pdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(-abs(x)) / 2
