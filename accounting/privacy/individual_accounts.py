"""One account per holder in Gaussian differential privacy: its cap, and the filter that enforces the cap.

Charges are added as pairs (high, low) of doubles that represent the real number high + low, where low is the rounding
error of high. See Dekker, "A floating-point technique for extending the available precision" (1971); Knuth, "The Art of
Computer Programming", volume 2, section 4.2.2.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import erfinv, ndtri_exp

from accounting.privacy.checks import FloatArray, checked_delta, checked_positive, checked_sensitivity, checked_teachers
from common.gaussian_dp import gdp_mu

_LARGEST_CAP = 1e30
_SIGMAS = (1e-50, 1e50)
_SMALLEST_NORM = 1e-100  # within these limits, every charge that can be allowed keeps all its digits

#: Smallest δ that may be promised. A smaller one would require a new review of rounding errors elsewhere.
SMALLEST_DELTA = 1e-9

Pair = tuple[FloatArray, FloatArray]

_SPLITTER = 2.0**27 + 1.0
_RESERVE = 2.0**-50  # relative to the low part; exceeds the rounding of the few operations that compute it


class IndividualAccounts:
    """Accounts of all holders, in μ²: amounts spent, and whether further contributions fit below the caps.

    A step releases Σ_i x_i + N(0, σ²·I) and costs holder i ‖x_i‖²/σ². A contribution that would take the account above
    its cap is refused: it costs 0, and the caller replaces it by 0 *before* summing. A smaller contribution may still
    be allowed later. On every path the charges of holder i therefore add up to at most the cap μ_i², so all these steps
    together are μ_i-GDP for holder i, regardless of queries, σ, the number of steps and the stopping rule
    (docs/gaussian-accounts.md; Feldman and Zrnic 2021; Koskela, Tobaben and Honkela 2023).

    *Rounding.* Charges are added with twice the digits of a double, and rounding errors are added back: a contribution
    is allowed only if the exact sum of ‖x‖²/σ² and the amount spent is at most the cap. ``spent`` is that sum rounded
    up, and no charge takes it above the cap. The only contributions that may be refused although they fit are those for
    which the sum is not a double and lies within a relative 1e-29 of the cap. Storing an account as ``spent`` and
    loading it again raises it by at most one rounding, a relative 2e-16.

    Accounts are secret. An account may exclude its own holder, but must not affect anything else.

    Args:
        caps: μ² that each holder may spend in total, shape (H,), from 0 to 1e30.
        spent: μ² already spent, shape (H,); zeros if None. It may exceed the cap, because caps can be lowered; then
            nothing more is allowed, not even a contribution of 0.

    Raises:
        ValueError: shapes do not match, or numbers are out of range.

    >>> accounts = IndividualAccounts(caps=[0.5, 0.25])
    >>> accounts.charge([1.0, 1.0], sigma=2.0)
    array([ True,  True])
    >>> accounts.charge([1.0, 1.0], sigma=2.0)
    array([ True, False])
    >>> accounts.spent
    array([0.5 , 0.25])
    """

    def __init__(self, caps: ArrayLike, spent: ArrayLike | None = None) -> None:
        self._caps = _checked("caps", caps)
        if (self._caps > _LARGEST_CAP).any():
            raise ValueError(f"caps must not exceed {_LARGEST_CAP:g}; give every holder a limit")
        high = np.zeros(self._caps.shape) if spent is None else _checked("spent", spent)
        if high.shape != self._caps.shape:
            raise ValueError(f"spent must have the shape of caps, {self._caps.shape}, not {high.shape}")
        self._sum: Pair = (high, np.zeros(high.shape))

    @property
    def spent(self) -> FloatArray:
        """μ² spent so far, shape (H,), rounded up. Each call returns a new array."""
        high, low = self._sum
        return np.where(low > 0, np.nextafter(high, np.inf), high)

    def charge(self, squared_norms: Any, sigma: ArrayLike) -> Any:
        """Charge contributions that fit, refuse the rest, and return which are allowed.

        Args:
            squared_norms: ‖x_i‖² ≥ 0 of the contributions to one step, shape (H,); or a CSR matrix or array of shape
                (Q, H), whose rows are charged one after the other and whose missing entries contribute nothing. An
                infinite norm is refused like any norm that does not fit; a norm between 0 and 1e-100 counts as 1e-100.
            sigma: standard deviation of the noise, from 1e-50 to 1e50; a scalar, or shape (Q,) for a CSR matrix.

        Returns:
            Whether each contribution is allowed: bool of shape (H,); for CSR, the same type with the same entries in
            the same order, so that ``values.data[~allowed.data] = 0`` removes refused contributions. Time is linear in
            the number of stored entries. The result does not depend on how rows are divided into calls.

        Raises:
            ValueError: shapes do not match, norms are negative or NaN, a CSR matrix has two entries in one place, or σ
                is out of range. In that case nothing is charged.
        """
        sparse = issparse(squared_norms)
        if sparse and squared_norms.format != "csr":
            raise ValueError(f"squared_norms must be CSR, not {squared_norms.format}; call .tocsr()")
        norms = np.asarray(squared_norms.data if sparse else squared_norms, dtype=np.float64)
        shape = squared_norms.shape if sparse else norms.shape
        holders = self._caps.size
        if shape != ((shape[0], holders) if sparse else (holders,)):
            raise ValueError(f"squared_norms must have the shape ({holders},), or (Q, {holders}) as CSR, not {shape}")
        if not (norms >= 0).all():
            raise ValueError(
                "squared_norms must not be negative or NaN; pass 0 for a contribution that is not a number"
            )
        sigmas = np.asarray(sigma, dtype=np.float64)
        if sigmas.shape not in [(), shape[:1] if sparse else ()]:
            raise ValueError(f"sigma must be one number, or one per row of a CSR matrix, not of shape {sigmas.shape}")
        if not ((sigmas >= _SIGMAS[0]) & (sigmas <= _SIGMAS[1])).all():
            raise ValueError("sigma must be a number between 1e-50 and 1e50; without noise there is no privacy")
        norms = np.where(norms > 0, np.maximum(norms, _SMALLEST_NORM), 0.0)
        spent = (self._sum[0].copy(), self._sum[1].copy())
        with np.errstate(all="ignore"):  # contributions too large to be allowed may overflow
            if sparse:
                allowed = self._charge_rows(spent, squared_norms, norms, np.broadcast_to(sigmas, shape[:1]))
            else:
                allowed = self._charge_row(spent, slice(None), norms, sigmas)
        self._sum = spent
        return allowed

    def _charge_rows(self, spent: Pair, matrix: Any, norms: FloatArray, sigmas: FloatArray) -> Any:
        allowed = np.empty(norms.shape, dtype=bool)
        _refuse_duplicates(matrix)
        for row, (start, end) in enumerate(zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)):
            allowed[start:end] = self._charge_row(spent, matrix.indices[start:end], norms[start:end], sigmas[row])
        return type(matrix)((allowed, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)

    def _charge_row(
        self, spent: Pair, holders: NDArray[np.integer] | slice, norms: FloatArray, sigma: FloatArray
    ) -> NDArray[np.bool_]:
        """Charge ``holders`` for one step, in place; each holder occurs at most once."""
        cost = quotient_above(norms, exact_product(sigma, sigma))
        wanted = sum_above((spent[0][holders], spent[1][holders]), cost)
        fits = at_most(wanted, self._caps[holders])
        for total, new in zip(spent, wanted, strict=True):
            total[holders] = np.where(fits, new, total[holders])
        return fits


def available_delta(
    delta: float, epsilon: float, *, draws: int = 0, distance: float = 0.0, slacks: Iterable[float] = ()
) -> float:
    """Return the δ for computing μ such that (ε, δ)-DP holds with actual noise: δ − (1 + e^ε)·n·τ − Σ δ′.

    Each of the n released numbers is drawn from a distribution within total variation τ of the ideal distribution,
    regardless of earlier releases. Replacing one draw after the other shows that the transcripts P̃, Q̃ are within n·τ
    of the ideal P, Q, so that for every event S: P̃(S) ≤ P(S) + nτ ≤ e^ε·Q(S) + δ₀ + nτ ≤ e^ε·Q̃(S) + δ₀ + (1 +
    e^ε)·nτ. A run that is charged as (μ, δ′) adds its δ′ (:func:`accounting.privacy.sampled_gaussian_mu`).

    Args:
        delta: δ of the study, at least 1e-9 and below 1.
        epsilon: the promised ε ≥ 0, or the largest of several.
        draws: n, the total number of noisy numbers that the study may release.
        distance: τ of one draw; :data:`common.noise.ROUNDED_NORMAL_DISTANCE` for integers.
        slacks: δ′ of all runs with a slack.

    Returns:
        The remaining δ, at least 1e-9.

    Raises:
        ValueError: an argument is out of range, or less than 1e-9 remains.

    >>> available_delta(1e-5, 1.0, draws=10**9, distance=1e-15, slacks=[1e-7])
    6.181718...e-06
    """
    checked_delta(delta)
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be finite and not negative, not {epsilon}")
    if draws != int(draws) or draws < 0:
        raise ValueError(f"draws must be a whole number of at least 0, not {draws}; count every noisy number")
    if not 0 <= distance <= 1:
        raise ValueError(f"distance must lie between 0 and 1, not {distance}; it is a total variation distance")
    losses = list(slacks)
    if not all(0 <= slack < 1 for slack in losses):
        raise ValueError(f"slacks must lie between 0 and 1, not {losses}")
    left = math.fsum([delta, -(1 + math.exp(epsilon)) * draws * distance, *(-slack for slack in losses)])
    if left < SMALLEST_DELTA:
        raise ValueError(
            f"only {left:.3g} of delta {delta:g} is left for the promise, which needs {SMALLEST_DELTA:g}: release "
            "fewer numbers, use a sampler with a smaller distance, smaller slacks, or a larger delta"
        )
    return left


def promise_caps(epsilons: ArrayLike, left: Callable[[float], float]) -> FloatArray:
    """Return the cap of an account, in μ², for each promised ε.

    Each value is computed separately. If they were computed as one array, the last bit of a value would depend on the
    others, so other people's caps would reveal whether the only holder with a certain promise takes part.

    Args:
        epsilons: ε of each promise, any shape.
        left: Function that returns the δ that remains for a promise of this ε; see `available_delta`.

    >>> promise_caps([1.0, 2.0], lambda epsilon: 1e-5).round(4)
    array([0.0719, 0.2516])
    """
    array = np.asarray(epsilons, dtype=np.float64)
    distinct, place = np.unique(array, return_inverse=True)
    squares = np.array([float(gdp_mu(each, left(each))) ** 2 for each in distinct.tolist()])
    return squares[place].reshape(array.shape)


def exact_sum(a: FloatArray, b: FloatArray) -> Pair:
    """Return a + b, exactly.

    >>> exact_sum(np.array([1.0]), np.array([2.0**-60]))[1] == 2.0**-60
    array([ True])
    """
    high = a + b
    rest = high - a
    return high, (a - (high - rest)) + (b - rest)


def exact_product(a: FloatArray, b: FloatArray) -> Pair:
    """Return a · b, exactly unless something over- or underflows (both between 1e-140 and 1e140, or 0)."""
    high = a * b
    a1, b1 = _leading_half(a), _leading_half(b)
    a2, b2 = a - a1, b - b1
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def quotient_above(a: FloatArray, b: Pair) -> Pair:
    """Return a / b for a ≥ 0, b > 0: exact if this is a double, otherwise too large by at most a relative 2^-100."""
    high = a / b[0]
    product, rest = exact_product(high, b[0])
    left, correction = (a - product) - rest, high * b[1]
    return high, ((left - correction) + (np.abs(left) + np.abs(correction)) * _RESERVE) / b[0]


def sum_above(a: Pair, b: Pair) -> Pair:
    """Return a + b, exact if the low parts of a, b and the sum are 0, else too large by at most a relative 2^-100."""
    high, low = exact_sum(a[0], b[0])
    low = low + (np.abs(low) + np.abs(a[1]) + np.abs(b[1])) * _RESERVE + (a[1] + b[1])
    return exact_sum(high, low)


def at_most(a: Pair, bound: FloatArray) -> NDArray[np.bool_]:
    """Return whether a ≤ bound, for a pair whose high part is the nearest double; False for NaN."""
    return (a[0] < bound) | ((a[0] == bound) & (a[1] <= 0))


def _refuse_duplicates(matrix: Any) -> None:
    if matrix.has_canonical_format:
        return
    ordered = matrix.copy()
    ordered.sort_indices()
    if not ordered.has_canonical_format:
        raise ValueError("squared_norms has two entries for one holder in one row; add up the vectors, then take norms")


def _checked(name: str, values: ArrayLike) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must have the shape (holders,), not {array.shape}")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{name} must be finite and not negative; give one μ² per holder")
    return array


def _leading_half(a: FloatArray) -> FloatArray:
    """Return the leading 26 bits of each number."""
    scaled = _SPLITTER * a
    return scaled - (scaled - a)


_ROUNDING = 1e-12  # above the relative error of the formulas below, so that a charge is never too small


def label_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of a label or a histogram of votes with noise N(0, σ²) on each count: 2·(kw)²/σ².

    >>> label_charge(weight=1.0, sigma=32.0)
    0.001953125
    """
    return 2 * _relative(weight, teachers, sigma) ** 2


def check_charge(weight: float, sigma: float, teachers: int = 1) -> float:
    """Return the charge of checking whether the largest count plus N(0, σ_T²) reaches a threshold: (kw)²/σ_T².

    The charge is the same if the student's share is subtracted first.

    >>> check_charge(weight=3.0, sigma=150.0)
    0.0004
    """
    return _relative(weight, teachers, sigma) ** 2


def lnmax_charge(weight: float, gamma: float, teachers: int = 1) -> float:
    """Return the charge of the top class with Lap(1/γ) noise on each count: `pure_dp_mu` squared, with ε₀ = 2γkw.

    >>> round(lnmax_charge(weight=1.0, gamma=0.05), 6)
    0.015702
    """
    pure = 2 * checked_positive("gamma", gamma) * checked_sensitivity(weight) * checked_teachers(teachers)
    return float(pure_dp_mu(pure) ** 2)


def residual_vote_charge(weight: float, sigma: float, disagreements: int, teachers: int = 1) -> float:
    """Return the charge, due in advance, for a residual vote with at most d disagreements per teacher: 4d·(kw)²/σ².

    A teacher stops voting after d = ``disagreements`` votes against the public prediction.

    >>> residual_vote_charge(weight=1.0, sigma=64.0, disagreements=16)
    0.015625
    """
    if disagreements != int(disagreements) or disagreements < 0:
        raise ValueError(f"disagreements must be a whole number of at least 0, not {disagreements}")
    return 4 * int(disagreements) * _relative(weight, teachers, sigma) ** 2


def pure_dp_mu(epsilon: ArrayLike) -> FloatArray:
    """Return the smallest μ such that every ε-DP release is μ-GDP: 2·Φ⁻¹(e^ε/(1 + e^ε)), rounded up.

    This is Lemma 6 of docs/gaussian-accounts.md; randomised response shows that no smaller μ is possible.

    Args:
        epsilon: ε ≥ 0, any shape.

    Returns:
        μ in the same shape; approximately √(π/2)·ε for small ε and 2·√(2ε) for large ε.

    Raises:
        ValueError: ε is negative, infinite or NaN.

    >>> pure_dp_mu([0.0, 0.01, 1.0, 10.0]).round(4)
    array([0.    , 0.0125, 1.232 , 7.8279])
    """
    array = np.asarray(epsilon, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("epsilon must be finite and not negative; a release without noise has no ε")
    # e^ε/(1 + e^ε) equals (1 + tanh(ε/2))/2; beyond 1, computing the tail 1/(1 + e^ε) keeps more digits.
    near = 2 * np.sqrt(2) * erfinv(np.tanh(np.minimum(array, 1.0) / 2))
    far = -2 * ndtri_exp(-np.logaddexp(0.0, np.maximum(array, 1.0)))
    return (np.where(array <= 1, near, far) * (1 + _ROUNDING))[()]


def _relative(weight: float, teachers: int, sigma: float) -> float:
    return checked_sensitivity(weight) * checked_teachers(teachers) / checked_positive("sigma", sigma)
