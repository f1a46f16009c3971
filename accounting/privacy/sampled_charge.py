"""Charge of a whole run of Gaussian sums over Poisson samples (DP-SGD), computed from its privacy loss.

In one step, the output has distribution A = (1 − q)·N(0, σ²) + q·N(1, σ²) with the holder and B = N(0, σ²) without. The
loss is put on a grid: mass between two grid points is divided between them so that the total masses of A and B are
preserved ("connect the dots": Doroshenko et al. 2022). The losses of T steps are added by convolution. Every number is
an upper bound that includes all rounding (proof: docs/gaussian-accounts.md, "Sampled gradients").
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from accounting.privacy.checks import FloatArray, checked_delta, checked_positive
from common.gaussian_dp import gdp_delta, gdp_epsilon, gdp_mu

_UNIT = 2.0**-52  # twice the relative error of one operation
_TINY = 1e-290  # more than the sum of all products that are too small for a double
_CUT = 1e-4  # part of `negligible` that may be moved to an infinite loss each time the number of steps doubles
_PARTS_OF_ONE = 1 / 3  # grid points per standard deviation of one step's loss, as a multiple of `parts`
_MOST_LOSSES = 6_144  # largest grid of one step


@dataclass(frozen=True)
class Losses:
    """Upper bound on the distribution of a privacy loss, as masses on a grid.

    Each mass is at least the true mass, and belongs to the true loss or a larger one.

    Attributes:
        spacing: h.
        first: index of the first mass, whose loss is first·h.
        masses: (n,) masses of the losses first·h, (first + 1)·h, …
        beyond: mass of an infinite loss.
        shift: upper bound on how far a loss may exceed its grid point.
    """

    spacing: float
    first: int
    masses: FloatArray
    beyond: float
    shift: float

    def plus(self, other: "Losses", cut: float) -> "Losses":
        """Return the losses of both steps together; the largest, of total mass at most ``cut``, become infinite."""
        masses = np.convolve(self.masses, other.masses) * _above(min(len(self.masses), len(other.masses)))
        totals = [float(each.masses.sum()) * _above(len(each.masses)) for each in (self, other)]
        beyond = (self.beyond * (totals[1] + other.beyond) + other.beyond * totals[0]) * _above(4) + _TINY
        shift = (self.shift + other.shift) * _above(1)
        return Losses(self.spacing, self.first + other.first, masses, beyond, shift)._cut(cut)

    def coarser(self) -> "Losses":
        """Return the losses on every second grid point; mass in between is split, and the upper part is rounded up."""
        first = self.first - self.first % 2
        padded = np.zeros(2 * ((len(self.masses) + self.first - first) // 2) + 3)
        padded[self.first - first :][: len(self.masses)] = self.masses
        even, odd = padded[::2], padded[1::2]
        upwards = 1 / (1 + math.exp(-self.spacing)) * _above(4)
        masses = even.copy()
        masses[1:] += odd * upwards
        masses[:-1] += odd * (1 - upwards)  # 1 - upwards is exact, because upwards is between ½ and 1
        return replace(self, spacing=2 * self.spacing, first=first // 2, masses=masses * _above(4))

    def deviation(self) -> float:
        """Return the approximate standard deviation of the losses, without a guarantee."""
        places, total = np.arange(len(self.masses)), self.masses.sum()
        mean = places @ self.masses / total
        return float(math.sqrt((places - mean) ** 2 @ self.masses / total) * self.spacing)

    def delta(self, epsilons: FloatArray) -> FloatArray:
        """Return δ at each ε ≥ 0, never below the true value."""
        grid, deltas = self._curve
        wanted = epsilons - self.shift - 2.0**-48 * (epsilons + self.shift + self.spacing)  # below its exact value
        place = np.clip(np.searchsorted(grid, wanted, side="right") - 1, 0, len(grid) - 1)
        share = np.expm1(np.clip(wanted - grid[place], 0.0, self.spacing)) / math.expm1(self.spacing)
        share = np.minimum(share * (1 - 32 * _UNIT), 1.0)
        following = deltas[np.minimum(place + 1, len(grid) - 1)]
        return (deltas[place] * (1 - share) + following * share) * _above(8)

    def epsilon(self, delta: float) -> float:
        """Return nearly the smallest ε ≥ 0 for which :meth:`delta` is at most ``delta`` (infinity if there is none)."""
        grid, deltas = self._curve
        enough = np.flatnonzero(deltas * _above(16) <= delta)
        if not len(enough):
            return math.inf
        place = int(enough[0])
        epsilon = grid[place] + 2 * self.shift + 2.0**-40 * (abs(grid[place]) + self.spacing)
        if place:
            share = (deltas[place - 1] - delta) / (deltas[place - 1] - deltas[place]) + 1e-9
            between = grid[place - 1] + math.log1p(share * math.expm1(self.spacing)) + 2 * self.shift
            if between >= 0 and self.delta(np.array([between]))[0] <= delta:
                epsilon = between
        return max(float(epsilon), 0.0)

    @property
    def _curve(self) -> tuple[FloatArray, FloatArray]:
        """Return grid points starting below 0, and δ at each; between points, δ lies below chords in e^ε.

        If S(s) is the mass of losses above s, then δ(l) = ∫_{s>l} e^{l−s}·S(s) ds. From a grid point to the previous
        one this is δ ← e^{−h}·δ + (1 − e^{−h})·S, without any subtraction.
        """
        from scipy.signal import lfilter

        added = max(self.first + math.ceil(self.shift / self.spacing) + 2, 0)
        masses = np.concatenate([np.zeros(added), self.masses])
        above = np.concatenate([np.cumsum(masses[:0:-1])[::-1], [0.0]])
        stay, go = math.exp(-self.spacing), -math.expm1(-self.spacing)
        finite: FloatArray = lfilter([go], [1.0, -stay], above[::-1])[::-1]
        grid: FloatArray = (np.arange(len(masses), dtype=np.float64) + (self.first - added)) * self.spacing
        return grid, finite * _above(16 * len(masses)) + self.beyond * _above(1)

    def _cut(self, cut: float) -> "Losses":
        """Raise the smallest losses (total mass at most ``cut``) to the next larger loss; make the largest infinite."""
        size, above, below = len(self.masses), np.cumsum(self.masses[::-1]), np.cumsum(self.masses)
        gone = min(int(np.searchsorted(above, cut, side="right")), size - 1)
        low = min(int(np.searchsorted(below, cut, side="right")), size - gone - 1)
        masses = self.masses[low : size - gone].copy()
        masses[0] += below[low - 1] * _above(size) if low else 0.0
        masses[0] *= _above(1)
        beyond = (self.beyond + (float(above[gone - 1]) * _above(size) if gone else 0.0)) * _above(1)
        return replace(self, first=self.first + low, masses=masses, beyond=beyond)


def sampled_losses(
    sample_rate: float, sigma: float, steps: int, *, negligible: float, parts: int
) -> tuple[Losses, Losses]:
    """Return the losses of a whole run, for A against B and for B against A.

    Args:
        sample_rate: q, above 0 and below 1.
        sigma: σ divided by the largest norm of a contribution.
        steps: T, at least 1.
        negligible: the smallest δ of interest; cutting tails increases δ by less than a hundredth of it.
        parts: minimum number of grid points per standard deviation of the whole run's loss. μ is never underestimated;
            its relative error is about 1/``parts``².
    """
    deviation = sample_rate * math.sqrt(math.expm1(sigma**-2))
    spacing = deviation / (parts * max(_PARTS_OF_ONE, 1 / math.sqrt(steps)))
    cut = _CUT * negligible / steps
    first, second = _one_step(sample_rate, sigma, spacing, cut)
    return _repeated(first, steps, cut, parts), _repeated(second, steps, cut, parts)


def _repeated(base: Losses, steps: int, cut: float, parts: int) -> Losses:
    total, taken = base, 1
    for bit in bin(steps)[3:]:
        total, taken = total.plus(total, 2 * taken * cut), 2 * taken
        if bit == "1":
            total, taken = total.plus(base, taken * cut), taken + 1
        while total.deviation() >= 2 * parts * total.spacing:
            total, base = total.coarser(), base.coarser()
    return total


def _one_step(q: float, sigma: float, spacing: float, tail: float) -> tuple[Losses, Losses]:
    """Return the losses of one step in both directions, on one grid."""
    far = -float(ndtri(tail)) * sigma
    lowest, highest = _loss(np.array([-far, 1 + far]), q, sigma)
    spacing = max(spacing, float(highest - lowest) / _MOST_LOSSES)
    first, last = math.floor(lowest / spacing), math.ceil(highest / spacing)
    grid = np.arange(first, last + 1) * spacing
    with np.errstate(divide="ignore"):
        x = sigma**2 * np.log(np.maximum(np.expm1(grid) + q, 0.0) / q) + 0.5
    # These doubles are the cell edges; any difference between their losses and the grid's is included in `shift`.
    x = np.maximum.accumulate(x)
    amiss = np.abs(_loss(x, q, sigma) - grid)
    amiss[0] = 0.0 if np.isneginf(x[0]) else amiss[0]
    finite = x[np.isfinite(x)]
    largest = float(np.abs(finite - 0.5).max()) / sigma**2 + float(np.abs(grid).max())
    shift = float(amiss.max()) + 16 * _UNIT * (4 + largest)
    (least_a, most_a), (least_b, most_b) = _masses(x, q, sigma)
    # All mass of the outer tails goes to the first and last points, below and above the grid.
    upwards = _split(most_a[1:-1], least_b[1:-1], grid[:-1], spacing, shift)
    upwards[0] += most_a[0]
    downwards = _split(most_b[1:-1][::-1], least_a[1:-1][::-1], -grid[:0:-1], spacing, shift)
    downwards[0] += most_b[-1]
    more = _above(2)
    return (
        Losses(spacing, first, upwards * more, float(most_a[-1]) * more, shift),
        Losses(spacing, -last, downwards * more, float(most_b[0]) * more, shift),
    )


def _loss(x: FloatArray, q: float, sigma: float) -> FloatArray:
    """Return ln A/B at x."""
    return np.log((1 - q) + q * np.exp((x - 0.5) / sigma**2))


def _masses(x: FloatArray, q: float, sigma: float) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Return lower and upper bounds on A's and B's masses below, between and above the edges, (n + 1,)."""
    without, with_holder = _normal_masses(x / sigma), _normal_masses((x - 1) / sigma)
    least, most = (
        ((1 - q) * without[side] + q * with_holder[side]) * (1 + sign * 8 * _UNIT) for side, sign in ((0, -1), (1, 1))
    )
    return (least, most), without


def _normal_masses(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds on the masses of N(0, 1) between edges, and in the two tails."""
    inner = np.concatenate([[-np.inf], z, [np.inf]])
    # One tail of mass below ½ is subtracted from another, so the errors of both, including that of z, are added.
    lower, upper = ndtr(inner), ndtr(-inner)
    errors = np.where(np.isfinite(inner), (16 + 4 * np.where(np.isfinite(inner), inner, 0.0) ** 2) * _UNIT, 0.0)
    left = inner[1:] <= 0
    masses = np.where(left, np.diff(lower), -np.diff(upper))
    weights = np.where(left, (errors * lower)[1:] + (errors * lower)[:-1], (errors * upper)[1:] + (errors * upper)[:-1])
    weights = weights * _above(4) + _TINY
    return np.maximum(masses - weights, 0.0), np.maximum(masses + weights, 0.0)


def _split(most: FloatArray, least: FloatArray, low: FloatArray, spacing: float, shift: float) -> FloatArray:
    """Return the masses at the grid points, (n + 1,): each cell's mass is split so that both laws keep their mass.

    Args:
        most: (n,) upper bound on each cell's mass under the law whose loss is split.
        least: (n,) lower bound on its mass under the other law.
        low: (n,) loss at the lower end.
    """
    mass = 1 - 2 * shift - 4 * _UNIT * (8 + np.abs(low))
    up = (most - least * np.exp(low) * mass) / -math.expm1(-spacing) * _above(16)
    up = np.clip(up, 0.0, most)
    return (np.append(most - up, 0.0) + np.append(0.0, up)) * _above(4)


def _above(operations: int) -> float:
    """Return a factor that makes the result of this many operations an upper bound on the true one."""
    return 1 + (operations + 4) * _UNIT


#: Smallest noise multiplier of a run with random participation.
SMALLEST_NOISE = 0.3

#: Smallest δ or slack for which the cost of a run with random participation is computed.
SMALLEST_SLACK = 1e-12

_PARTS = (32, 128)  # grid points per standard deviation of the losses: both, or only the first with ``roughly``
_EPSILON_PARTS = 192
_POINTS, _FEW_POINTS = 20_000, 4_000


def sampled_gaussian_mu(
    sample_rate: float, noise_multiplier: float, steps: int, slack: float, *, roughly: bool = False
) -> float:
    """Return the smallest μ, to about 1/1000, such that the run costs a holder at most (μ, δ′) with δ′ = ``slack``.

    At each of T = ``steps`` steps every holder is drawn independently with probability q, and the sum of the drawn
    holders' clipped vectors is released with Gaussian noise of σ times the clipping norm. q, σ and T are fixed before
    the first step and equal for all holders. The run may be charged as μ² in the account and δ′ out of δ if, in both
    directions,

        δ_run(ε) ≤ δ′ + (1 − δ′)·δ_μ(ε)   for all ε ≥ 0.

    "Sampled gradients" in docs/gaussian-accounts.md proves this, and that it suffices to compare δ_run(ε_k) with
    δ_μ(ε_{k+1}) on a grid, up to an ε_K at which δ_run is at most δ′. `sampled_losses` bounds δ_run from above.

    Args:
        sample_rate: q, from 0 to 1.
        noise_multiplier: σ divided by the largest norm of a contribution, above 0; at least 0.3 unless q = 1.
        steps: T, at least 0.
        slack: δ′, at least 1e-12, subtracted from δ elsewhere (:func:`accounting.privacy.available_delta`). It may be 0
            if all holders are in every step or in none.
        roughly: for searches: return a valid μ that is up to a hundredth larger, several times faster.

    Returns:
        μ; for q = 1 exactly √T/σ, rounded up. The computation takes a few tenths of a second.

    Raises:
        ValueError: an argument is out of range, or there is so little noise that no μ is found for this slack.

    >>> round(sampled_gaussian_mu(1.0, 40.0, 100, 0.0), 6)
    0.25
    """
    sigma = _checked_run(sample_rate, noise_multiplier, steps)
    if not 0 <= slack < 1:
        raise ValueError(f"slack must lie between 0 and 1, not {slack}; it is subtracted from delta")
    if sample_rate == 0 or steps == 0:
        return 0.0
    if sample_rate == 1:
        return math.sqrt(steps) / sigma * (1 + 1e-15)
    if slack < SMALLEST_SLACK:
        raise ValueError(f"slack must be at least {SMALLEST_SLACK:g}, not {slack:g}: tails have to be cut somewhere")
    best = min(  # every grid gives a valid μ
        _dominating_mu(
            sampled_losses(sample_rate, sigma, int(steps), negligible=slack, parts=parts),
            slack,
            _FEW_POINTS if roughly else _POINTS,
        )
        for parts in _PARTS[: 1 if roughly else None]
    )
    if math.isinf(best):
        raise ValueError(f"no mu covers this run with slack {slack:g}: use more noise, fewer steps or a larger slack")
    return best


def sampled_gaussian_epsilon(sample_rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    """Return the smallest ε, to about a thousandth, for which the whole run is (ε, δ)-DP in both directions.

    It is an upper bound, like the result of :func:`sampled_gaussian_mu`.

    Args:
        sample_rate: q, from 0 to 1.
        noise_multiplier: σ divided by the largest norm of one holder's contribution; at least 0.3 unless q = 1.
        steps: T, at least 0.
        delta: δ of (ε, δ)-DP, at least 1e-12 unless q = 1.

    Returns:
        ε, never below the true value. The computation takes a tenth of a second.

    Raises:
        ValueError: an argument is out of range, or there is no ε for so small a δ.

    >>> round(sampled_gaussian_epsilon(512 / 60000, 3.42529, 9375, 1e-5), 3)
    0.917
    """
    sigma = _checked_run(sample_rate, noise_multiplier, steps)
    checked_delta(delta)
    if sample_rate == 0 or steps == 0:
        return 0.0
    if sample_rate == 1:
        return float(gdp_epsilon(math.sqrt(steps) / sigma * (1 + 1e-15), delta))
    if delta < SMALLEST_SLACK:
        raise ValueError(f"delta must be at least {SMALLEST_SLACK:g}, not {delta:g}: tails have to be cut somewhere")
    losses = sampled_losses(sample_rate, sigma, int(steps), negligible=delta, parts=_EPSILON_PARTS)
    best = max(each.epsilon(delta) for each in losses)
    if math.isinf(best):
        raise ValueError(
            f"no epsilon covers this run with delta {delta:g}: use more noise, fewer steps or a larger delta"
        )
    return best


def _checked_run(sample_rate: float, noise_multiplier: float, steps: int) -> float:
    sigma = checked_positive("noise_multiplier", noise_multiplier)
    if not 0 <= sample_rate <= 1:
        raise ValueError(f"sample_rate must lie between 0 and 1, not {sample_rate}; divide the batch by the holders")
    if steps != int(steps) or steps < 0:
        raise ValueError(f"steps must be a whole number of at least 0, not {steps}")
    if 0 < sample_rate < 1 and steps and sigma < SMALLEST_NOISE:
        raise ValueError(f"noise_multiplier must be at least {SMALLEST_NOISE}, not {sigma}: less noise protects no one")
    return sigma


def _dominating_mu(losses: tuple[Losses, Losses], slack: float, count: int) -> float:
    """Return μ such that `slack` and N(μ, 1) against N(0, 1) dominate losses in both directions; infinity if none."""
    last = max(each.epsilon(slack) for each in losses)
    if math.isinf(last):
        return math.inf
    points: FloatArray = np.linspace(0.0, last, count + 1)
    reached = np.maximum(*(each.delta(points) for each in losses))
    needed = (reached[:-1] - slack) / (1 - slack) * (1 + 1e-15)
    if not (reached[-1] <= slack and (needed < 1).all()):
        return math.inf
    matters = needed > 0
    if not matters.any():
        return 0.0
    needed, beyond = needed[matters], points[1:][matters]
    mu, excess = float(gdp_mu(beyond, needed).max()), 1e-11
    while (gdp_delta(mu, beyond) * (1 - 1e-11) < needed).any():  # gdp_mu rounds down, but charges must be rounded up
        mu *= 1 + excess
        excess *= 2
    return mu
