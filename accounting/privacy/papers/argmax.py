"""The noisy arg-max: each class's probability of winning, on the actual votes and on every neighbouring count.

The type of noise determines the probability that one of two classes wins, and the nodes for integration.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr, logsumexp

from accounting.privacy.checks import FloatArray, checked_group_votes
from accounting.privacy.papers.curves import CLOSED_FORM_ERROR, IndexArray, divergences, tangent_divergence

_RELATIVE_ERROR = 1e-12  # bound on the error from truncation and discretisation in any probability

_BATCH_VALUES = 1 << 18  # numbers in the largest temporary array (2 MiB)
_LARGEST_REACH = 2000.0  # largest range of a query that is integrated, in units of the noise
_LARGEST_RATIO = 600.0  # logarithm of the factor by which a moved vote may change a node

_TOLERANCE = 1e-9  # rounding error of sums of weights


class Quadrature(NamedTuple):
    """∫ f(t) dt ≈ Σ exp(log_weights) · f(nodes), for every query; both fields have shape (queries, nodes)."""

    nodes: FloatArray
    log_weights: FloatArray


class ArgmaxNoise(Protocol):
    """Independent, log-concave noise, which is added to every count."""

    @property
    def scale(self) -> float:
        """Unit of the noise, in votes."""

    def log_pdf(self, x: FloatArray) -> FloatArray:
        """Return the log density."""

    def log_cdf(self, x: FloatArray) -> FloatArray:
        """Return the log distribution function."""

    def log_win(self, margin: FloatArray) -> FloatArray:
        """Return ln Pr[a count that leads by ``margin`` (may be negative) leads after noise is added to both]."""

    def quadrature(self, votes: FloatArray, reach: float) -> Quadrature:
        """Return nodes for Pr[class k wins], valid for all classes and for all counts within ``reach`` of the votes."""


@dataclass(frozen=True)
class GaussianNoise:
    """N(0, σ²), as in GNMax.

    >>> GaussianNoise(40.0).log_win(np.array([0.0])).round(4)
    array([-0.6931])
    """

    scale: float

    def log_pdf(self, x: FloatArray) -> FloatArray:
        return -0.5 * (x / self.scale) ** 2 - np.log(self.scale * np.sqrt(2 * np.pi))

    def log_cdf(self, x: FloatArray) -> FloatArray:
        """Return the log distribution function, accurate in the tails."""
        return log_ndtr(x / self.scale)

    def log_win(self, margin: FloatArray) -> FloatArray:
        """Return ln Φ(margin / (√2·σ))."""
        return log_ndtr(margin / (np.sqrt(2) * self.scale))

    def quadrature(self, votes: FloatArray, reach: float) -> Quadrature:
        """Use the trapezoid rule, with an error bound proved in README.md, "Exact costs".

        The integrands are f(t) = φ(t − n_k)·Π_{j≠k} Φ(t − n_j), in units of σ; for derivatives, they contain a second
        factor φ. For m classes and step h the relative error is about 2·exp(−2π²/(h²·m)), which determines h. The mode
        lies between (2·min n + max n)/3 and max n + √(2·ln m), and at most a fraction 2·Φ(−s) of the integral lies
        further than s from it.
        """
        classes, span = votes.shape[1], 7.5
        step = self.scale * np.pi * np.sqrt(2 / (classes * np.log(4 / _RELATIVE_ERROR)))
        top = votes.max(axis=1)
        start = (2 * votes.min(axis=1) + top) / 3 - reach - span * self.scale
        stop = top + reach + (span + np.sqrt(2 * np.log(classes))) * self.scale
        count = int(np.ceil((stop - start).max() / step)) + 1
        return Quadrature(start[:, None] + step * np.arange(count), np.full((len(votes), count), np.log(step)))


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise of scale 1/γ, as in LNMax.

    >>> LaplaceNoise(10.0).log_win(np.array([0.0, -20.0])).round(4)
    array([-0.6931, -2.    ])
    """

    scale: float

    def log_pdf(self, x: FloatArray) -> FloatArray:
        return -np.abs(x) / self.scale - np.log(2 * self.scale)

    def log_cdf(self, x: FloatArray) -> FloatArray:
        """Return the log distribution function, accurate in the tails."""
        tail = -np.abs(x) / self.scale - np.log(2)
        return np.where(x < 0, tail, np.log1p(-np.exp(tail)))

    def log_win(self, margin: FloatArray) -> FloatArray:
        """Return ln((2 + γΔ)/(4·e^{γΔ})) for a count Δ votes behind (PATE 2017, Lemma 4; exact for two classes)."""
        behind = np.abs(margin) / self.scale
        log_upset = np.log((2 + behind) / 4) - behind
        return np.where(margin < 0, log_upset, np.log1p(-np.exp(log_upset)))

    def quadrature(self, votes: FloatArray, reach: float) -> Quadrature:
        """Use Gauss–Legendre between kinks, in pieces of at most one scale, and exact polynomials in the two tails.

        Kinks lie at every count and at ``reach`` on either side. Between kinks the integrand is a product of m factors,
        each an exponential or 1 minus an exponential; the error follows from the derivatives of e^{xt} (README.md).
        """
        classes = votes.shape[1]
        points, weights = np.polynomial.legendre.leggauss(_legendre_nodes(classes))
        points, weights = (points + 1) / 2, weights / 2
        kinks = np.sort(np.concatenate([votes - reach, votes, votes + reach], axis=1), axis=1)
        widths = np.diff(kinks, axis=1)
        pieces = np.maximum(1, np.ceil(widths.max(axis=0) / self.scale)).astype(int)
        lengths = np.repeat(widths / pieces, pieces, axis=1)
        starts = np.concatenate([kinks[:, :1], kinks[:, :1] + np.cumsum(lengths, axis=1)[:, :-1]], axis=1)
        inner = (starts[..., None] + lengths[..., None] * points).reshape(len(votes), -1)
        with np.errstate(divide="ignore"):
            log_inner = np.log(lengths[..., None] * weights).reshape(len(votes), -1)
        # Beyond the kinks, with y = exp(−distance / scale), the integrand is a polynomial in y times dy/y.
        distance = -self.scale * np.log(points)
        log_outer = np.broadcast_to(np.log(self.scale * weights / points), (len(votes), points.size))
        return Quadrature(
            np.concatenate([kinks[:, :1] - distance, inner, kinks[:, -1:] + distance], axis=1),
            np.concatenate([log_outer, log_inner, log_outer], axis=1),
        )


def log_miss_bound(votes: FloatArray, noise: ArgmaxNoise) -> FloatArray:
    """Return an upper bound on ln Pr[the class with the most votes does not win], shape (queries,).

    This is the union bound of PATE 2018, Proposition 7 and PATE 2017, Lemma 4, computed in logarithms from the tails.
    The probability is at most 1 − 1/classes, because no class is more likely than the leading one.

    >>> from accounting.privacy.papers.argmax import GaussianNoise
    >>> log_miss_bound(np.array([[50.0, 50.0], [5000.0, 0.0]]), GaussianNoise(40.0)).round(3)
    array([-6.930000e-01, -3.911651e+03])
    """
    classes = votes.shape[1]
    if classes == 1:
        return np.full(len(votes), -np.inf)
    ordered = np.sort(votes, axis=1)
    return np.minimum(logsumexp(noise.log_win(ordered[:, :-1] - ordered[:, -1:]), axis=1), np.log1p(-1 / classes))


def argmax_rdp(
    votes: FloatArray,
    noise: ArgmaxNoise,
    weight: float,
    orders: FloatArray,
    group_votes: ArrayLike | None = None,
    teachers_per_holder: int = 1,
) -> FloatArray:
    """Return the largest Rényi divergence, in either direction, to any neighbouring counts, shape (queries, R).

    ``group_votes`` are the group's own unweighted counts, as in :func:`accounting.privacy.gnmax_rdp`; the other
    arguments are those of :func:`argmax_divergences`.
    """
    movable = may_have_voted(votes, weight / teachers_per_holder, group_votes)
    return np.maximum(*argmax_divergences(votes, noise, weight, orders, movable, teachers_per_holder))


def argmax_divergences(
    votes: FloatArray,
    noise: ArgmaxNoise,
    weight: float,
    orders: FloatArray,
    movable: NDArray[np.bool_],
    teachers_per_holder: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Return the largest D_α(M(D)‖M(D′)) and D_α(M(D′)‖M(D)) over all moves of ``weight`` votes; each (queries, R).

    With several teachers per holder, the votes may move between different classes. The divergences are largest when all
    votes move from one class to the same other class (README.md, "Upsampling").

    The result is infinite for queries beyond the floating-point range (noise below a thousandth of the range of the
    votes), so that the caller's data-independent bound applies.

    Args:
        votes: weighted counts, shape (queries, classes).
        noise: noise on every count.
        weight: votes that one holder moves, above 0.
        orders: orders α > 1, shape (R,).
        movable: classes that votes may leave, shape (queries, classes).
        teachers_per_holder: the number of teachers that share the weight.

    >>> from accounting.privacy.papers.argmax import GaussianNoise
    >>> votes = np.array([[200.0, 30.0, 20.0]])
    >>> forward, reverse = argmax_divergences(votes, GaussianNoise(40.0), 1.0, np.array([2.0, 20.0]), votes >= 1)
    >>> forward.round(7), reverse.round(7)
    (array([[2.030e-05, 4.535e-04]]), array([[2.220e-05, 4.921e-04]]))
    """
    classes = votes.shape[1]
    if classes == 1:
        return np.zeros((len(votes), orders.size)), np.zeros((len(votes), orders.size))
    if classes == 2:
        return _two_class_divergences(votes, noise, weight, orders, movable)
    reach = (np.ptp(votes, axis=1) + weight) / noise.scale + 20
    forward, reverse = np.full((2, len(votes), orders.size), np.inf)
    # Queries of similar range share a batch, and therefore the number of nodes.
    queue = np.argsort(reach, kind="stable")
    queue = queue[(reach[queue] * weight / noise.scale < _LARGEST_RATIO) & (reach[queue] < _LARGEST_REACH)]
    while queue.size:
        nodes = noise.quadrature(votes[queue[:1]], weight).nodes.size
        batch, queue = np.split(queue, [max(1, _BATCH_VALUES // (classes**2 * nodes))])
        forward[batch], reverse[batch] = _batch_divergences(
            votes[batch], noise, weight, orders, movable[batch], teachers_per_holder
        )
    return forward, reverse


def may_have_voted(votes: FloatArray, weight: float, group_votes: ArrayLike | None) -> NDArray[np.bool_]:
    """Return whether a teacher of the group with this weight may have voted for each class, shape (queries, classes).

    If the group's own counts are unknown, any count of at least the weight may contain the vote.

    >>> may_have_voted(np.array([[5.0, 0.4, 0.0]]), 0.5, None)
    array([[ True, False, False]])
    >>> may_have_voted(np.array([[5.0, 0.4, 0.0]]), 0.5, [[0, 0, 1]])
    array([[False, False,  True]])
    """
    if group_votes is None:
        return votes >= weight * (1 - _TOLERANCE)
    return checked_group_votes(group_votes, votes) >= 1 - _TOLERANCE


def extreme_maxima(
    votes: FloatArray, weight: float, group_votes: ArrayLike | None, teachers_per_holder: int
) -> FloatArray:
    """Return the lowest and the highest maximum among the votes and their neighbours, shape (queries, 2).

    Without the group's own counts, or if a holder's votes may move to different classes, these are the maximum minus
    and plus the weight. (A student's share may have been subtracted, so a count does not show who voted.)

    >>> extreme_maxima(np.array([[9.0, 1.0, 0.0]]), 1.0, None, 1)
    array([[ 8., 10.]])
    >>> extreme_maxima(np.array([[9.0, 1.0, 0.0]]), 1.0, [[3, 0, 0]], 1)  # a vote can only leave the leading class
    array([[8., 9.]])
    """
    top = votes.max(axis=1)
    if group_votes is None or teachers_per_holder > 1 or votes.shape[1] == 1:
        extremes = np.stack([top - weight, top + weight], axis=1)
        if group_votes is not None:
            fixed = ~may_have_voted(votes, weight, group_votes).any(axis=1)
            extremes[fixed] = top[fixed, None]
        return extremes
    ordered = np.sort(votes, axis=1)
    leads = votes == ordered[:, -1:]
    # For each class that may lose a vote: the largest and the smallest count of the other classes.
    largest = np.where(leads & (ordered[:, -2:-1] < ordered[:, -1:]), ordered[:, -2:-1], ordered[:, -1:])
    trails = votes == ordered[:, :1]
    smallest = np.where(trails & (ordered[:, 1:2] > ordered[:, :1]), ordered[:, 1:2], ordered[:, :1])
    highest = largest + weight
    lowest = np.maximum.reduce([smallest + weight, votes - weight, largest])
    movable = may_have_voted(votes, weight, group_votes)
    highest = np.where(movable, highest, -np.inf).max(axis=1)
    lowest = np.where(movable, lowest, np.inf).min(axis=1)
    return np.stack([np.minimum(lowest, top), np.maximum(highest, top)], axis=1)


def _legendre_nodes(classes: int) -> int:
    """Return the fewest Gauss–Legendre nodes that meet the target error on a piece of one scale; exact in the tails.

    On [−1, 1], the error of N nodes for e^{xt} is at most 2^{2N+1}·(N!)⁴ / ((2N+1)·(2N)!³)·x^{2N}·e^{|x|}. The
    integrand has exponents up to x = (m+1)/2 and coefficients that sum to 3^m times its value, and varies by e^{2x} on
    the piece.
    """
    nodes = np.arange(classes // 2 + 2, 8 * classes + 40)
    x = (classes + 1) / 2
    log_error = (
        (2 * nodes + 1) * np.log(2)
        + 4 * gammaln(nodes + 1)
        - np.log(2 * nodes + 1)
        - 3 * gammaln(2 * nodes + 1)
        + 2 * nodes * np.log(x)
        + 3 * x
        + classes * np.log(3)
    )
    return int(nodes[log_error < np.log(_RELATIVE_ERROR)][0])


def _two_class_divergences(
    votes: FloatArray, noise: ArgmaxNoise, weight: float, orders: FloatArray, movable: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Return the divergences in closed form: a vote changes the margin by two, and larger changes diverge more."""
    margin = votes[:, 0] - votes[:, 1]
    owner, source = np.nonzero(movable)
    moved = margin[owner] + np.where(source == 0, -2 * weight, 2 * weight)
    log_p, log_neighbours = (np.stack([noise.log_win(m), noise.log_win(-m)], axis=1) for m in (margin, moved))
    return divergences(log_p, log_neighbours, owner, orders, CLOSED_FORM_ERROR)


def _batch_divergences(
    votes: FloatArray,
    noise: ArgmaxNoise,
    weight: float,
    orders: FloatArray,
    movable: NDArray[np.bool_],
    teachers_per_holder: int,
) -> tuple[FloatArray, FloatArray]:
    integrals = _Integrals(votes, noise, weight)
    owner, source, target = np.nonzero(movable[:, :, None] & ~np.eye(votes.shape[1], dtype=bool))
    log_neighbours = integrals.log_neighbours(owner, source, target)
    error = integrals.relative_error
    forward, reverse = divergences(integrals.log_p, log_neighbours, owner, orders, error)
    if teachers_per_holder > 1:
        tangents, errors = integrals.tangents(owner, source, target)
        reverse = tangent_divergence(integrals.log_p, tangents, errors, owner, orders, error)
    return forward, reverse


class _Integrals:
    """Pr[k wins] = ∫ f(t − n_k)·Π_{j≠k} F(t − n_j) dt on the votes and with ``weight`` moved, from one set of nodes.

    At the nodes, all integrands are products of the same few factors. If g_k is the integrand of class k on the votes,
    moving a vote from a to b turns it into g_k·F(t − n_a + w)/F(t − n_a)·F(t − n_b − w)/F(t − n_b) for the other
    classes k. Each class has its own scale, so that even probabilities below the smallest float are accurate.
    """

    def __init__(self, votes: FloatArray, noise: ArgmaxNoise, weight: float) -> None:
        nodes, log_weights = noise.quadrature(votes, weight)
        offset = nodes[:, None, :] - votes[:, :, None]
        log_cdf, log_pdf = noise.log_cdf(offset), noise.log_pdf(offset)
        log_all = log_cdf.sum(axis=1, keepdims=True) + log_weights[:, None, :]
        log_integrand = log_all + log_pdf - log_cdf
        scale = log_integrand.max(axis=2, keepdims=True)
        self._weight = weight
        self._scale = scale[:, :, 0]
        self._integrand = np.exp(log_integrand - scale)
        self._hazard = np.exp(log_pdf - log_cdf)
        self._removed = np.exp(noise.log_cdf(offset + weight) - log_cdf)
        self._added = np.exp(noise.log_cdf(offset - weight) - log_cdf)
        self._removed_integrand = np.exp(log_all + noise.log_pdf(offset + weight) - log_cdf - scale)
        self._added_integrand = np.exp(log_all + noise.log_pdf(offset - weight) - log_cdf - scale)
        self._p = self._integrand.sum(axis=2)
        self.log_p = self._scale + np.log(self._p)
        # Twice the error of the quadrature, plus the rounding of exponents, which grow with the square of the range.
        largest = np.abs(offset).max() / noise.scale
        self.relative_error = 1e-11 + 2e-15 * largest**2

    def log_neighbours(self, owner: IndexArray, source: IndexArray, target: IndexArray) -> FloatArray:
        """Return ln Pr[k wins] after the weight has moved from source to target; shape (rows, classes)."""
        queries, classes, nodes = self._integrand.shape
        others = (self._added[:, :, None, :] * self._integrand[:, None, :, :]).reshape(queries, classes**2, nodes)
        p = (self._removed @ others.swapaxes(1, 2)).reshape(queries, classes, classes, classes)
        each = np.arange(classes)
        p[:, :, each, each] = self._removed @ self._added_integrand.swapaxes(1, 2)
        p[:, each, :, each] = (self._removed_integrand @ self._added.swapaxes(1, 2)).swapaxes(0, 1)
        return self._scale[owner] + np.log(p[owner, source, target])

    def tangents(self, owner: IndexArray, source: IndexArray, target: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Return the linear change of ln Pr[k wins] when the weight moves, and error bounds; each (rows, classes)."""
        each = np.arange(self._integrand.shape[1])
        slopes = -(self._integrand @ self._hazard.swapaxes(1, 2))
        slopes[:, each, each] = 0.0
        slopes[:, each, each] = -slopes.sum(axis=2)
        slopes *= self._weight / self._p[:, :, None]
        gain, loss = slopes[owner, :, target], slopes[owner, :, source]
        return gain - loss, 2.5 * self.relative_error * (np.abs(gain) + np.abs(loss))
