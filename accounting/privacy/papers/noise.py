"""The noise of the noisy arg-max: its densities, who wins between two classes, and nodes to integrate it on."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import gammaln, log_ndtr

from accounting.privacy.checks import FloatArray

_RELATIVE_ERROR = 1e-12  # what truncation and discretisation together may add to or take from any probability


class Quadrature(NamedTuple):
    """∫ f(t) dt ≈ Σ exp(log_weights) · f(nodes), for every query; both of shape (queries, nodes)."""

    nodes: FloatArray
    log_weights: FloatArray


class ArgmaxNoise(Protocol):
    """Independent, log-concave noise added to every count."""

    @property
    def scale(self) -> float:
        """Unit of the noise, in votes."""

    def log_pdf(self, x: FloatArray) -> FloatArray:
        """Log density."""

    def log_cdf(self, x: FloatArray) -> FloatArray:
        """Log distribution function."""

    def log_win(self, margin: FloatArray) -> FloatArray:
        """ln Pr[a count ahead by margin (behind, if negative) is still ahead after noise on both]."""

    def quadrature(self, votes: FloatArray, reach: float) -> Quadrature:
        """Nodes for Pr[class k wins], for all classes at once and all counts within ``reach`` of the votes."""


@dataclass(frozen=True)
class GaussianNoise:
    """N(0, σ²), as in GNMax.

    >>> GaussianNoise(40.0).log_win(np.array([0.0])).round(4)
    array([-0.6931])
    """

    scale: float

    def log_pdf(self, x: FloatArray) -> FloatArray:
        """Log density."""
        return -0.5 * (x / self.scale) ** 2 - np.log(self.scale * np.sqrt(2 * np.pi))

    def log_cdf(self, x: FloatArray) -> FloatArray:
        """Log distribution function, from the tails."""
        return log_ndtr(x / self.scale)

    def log_win(self, margin: FloatArray) -> FloatArray:
        """ln Φ(margin / (√2·σ))."""
        return log_ndtr(margin / (np.sqrt(2) * self.scale))

    def quadrature(self, votes: FloatArray, reach: float) -> Quadrature:
        """The trapezoid rule, whose error here has a proof (docs/privacy-accounting.md, "Exact costs").

        The integrands are f(t) = φ(t − n_k)·Π_{j≠k} Φ(t − n_j), in units of σ, or with a second φ for a derivative.

        * Discretisation: |φ(t + id)| = e^{d²/2}·φ(t) and |Φ(t + id)| ≤ e^{d²/2}·Φ(t), hence, for m classes,
          |f(t + id)| ≤ e^{m·d²/2}·f(t), and the trapezoid rule of step h errs by at most 2·e^{m·d²/2}/(e^{2πd/h} − 1)
          of the integral. With d = 2π/(h·m) this is about 2·exp(−2π²/(h²·m)), which gives h.
        * Truncation: −ln f has a second derivative of at least 1, so that no more than Φ(−s) + Φ(−s), relatively, lies
          further than s from the mode; the mode lies between (2·min n + max n)/3 and max n + √(2·ln m).
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
        """Log density."""
        return -np.abs(x) / self.scale - np.log(2 * self.scale)

    def log_cdf(self, x: FloatArray) -> FloatArray:
        """Log distribution function, from the tails."""
        tail = -np.abs(x) / self.scale - np.log(2)
        return np.where(x < 0, tail, np.log1p(-np.exp(tail)))

    def log_win(self, margin: FloatArray) -> FloatArray:
        """ln of (2 + γΔ)/(4·e^{γΔ}) when Δ votes behind: PATE 2017, Lemma 4, which is exact for two classes."""
        behind = np.abs(margin) / self.scale
        log_upset = np.log((2 + behind) / 4) - behind
        return np.where(margin < 0, log_upset, np.log1p(-np.exp(log_upset)))

    def quadrature(self, votes: FloatArray, reach: float) -> Quadrature:
        """Gauss–Legendre between the kinks, in pieces of at most one scale; exact polynomials in the two tails.

        Kinks lie at every count and at ``reach`` from it. Between them the integrand is a product of m exponentials or
        one minus exponentials, and its error follows from the derivatives of e^{xt} (docs/privacy-accounting.md).
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


def _legendre_nodes(classes: int) -> int:
    """Fewest Gauss–Legendre nodes for the target error on a piece of one scale, and exact in the tails.

    On [−1, 1] and for e^{xt}, N nodes err by at most 2^{2N+1}·(N!)⁴ / ((2N+1)·(2N)!³)·x^{2N}·e^{|x|}. The integrand has
    exponents up to x = (m+1)/2, coefficients that add up to 3^m times its value, and varies by e^{2x} on the piece.
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
