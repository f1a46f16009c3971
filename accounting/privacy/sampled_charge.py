"""The charge of a whole run of Gaussian sums over Poisson samples (DP-SGD), in Gaussian differential privacy."""

import math
from typing import Any

import numpy as np

from accounting.privacy.checks import checked_delta, checked_positive
from accounting.privacy.orders import FloatArray
from common.gaussian_dp import gdp_delta, gdp_epsilon, gdp_mu

#: Bound on the error of δ by rounding: per step, and besides.
ROUNDING = (2e-13, 2e-9)

#: Smallest noise multiplier of a run in which some are left out by chance.
SMALLEST_NOISE = 0.3

_SPACINGS = (6.0, 24.0)  # spacings of the losses tried, as parts of one step's standard deviation; the first if roughly
_COARSEST_SPACING = 1e-2
_MOST_LOSSES = 50_000  # of one step
_POINTS, _FEW_POINTS = 20_000, 4_000


def sampled_gaussian_mu(
    sample_rate: float, noise_multiplier: float, steps: int, slack: float, *, roughly: bool = False
) -> float:
    """Smallest μ, to a thousandth or so, such that the whole run costs a holder no more than (μ, δ′), δ′ = ``slack``.

    At each of T = ``steps`` steps every holder is drawn with probability q, independently, and the sum of the clipped
    vectors of those drawn is released with Gaussian noise of σ times the clipping norm. q, σ and T are fixed before the
    first step and equal for all. The run may be charged as μ² in the account and δ′ out of δ if, for both directions,

        δ_run(ε) ≤ δ′ + (1 − δ′)·δ_μ(ε)   for all ε ≥ 0:

    the right side belongs to a mechanism that reveals everything with probability δ′ and is Gaussian otherwise, and one
    that is dominated at every ε can be simulated from it (Blackwell; Dong, Roth and Su 2022, Theorem 2.10). ε < 0 of
    one direction is ε > 0 of the other.

    δ_run comes from dp-accounting's privacy loss distribution of the dominating pair, (1 − q)·N(0, σ²) + q·N(1, σ²)
    against N(0, σ²), composed T times, rounded pessimistically ("connect the dots", Doroshenko et al. 2022), its own
    cut tails counted as an infinite loss. What remains to be shown is the step from a grid to all ε:

    * *between points* ε_k < ε < ε_{k+1}: both sides fall as ε grows, so that δ_run(ε_k) ≤ δ′ + (1 − δ′)·δ_μ(ε_{k+1})
      implies the condition on the interval;
    * *beyond the last point* ε_K, chosen so that δ_run(ε_K) ≤ δ′: δ_run(ε) ≤ δ_run(ε_K) ≤ δ′.

    *Rounding.* The probabilities come from a Fourier transform of N points, its T-th power, and back. An entry of a
    transform of non-negative numbers that add up to 1 errs by at most η = 5u·log₂N (u = 2^-53, five roundings for each
    of log₂N levels), its T-th power by T·η·|p̂|^{T−1} to first order; transformed back, every probability errs by
    T·η·mean|p̂|^{T−1}, and δ by at most N times that. For σ ≥ 0.3 this is below 1e-13·T + 1e-9: a sum of many losses is
    nearly normal, so that the mean is about the spacing over 2.5 standard deviations, N about 20 standard deviations
    over the spacing. (Measured against transforms in extended precision: below 1e-15·T + 1e-13.) The sums over losses
    that make δ from probabilities err by 2·N·u, below 2e-10. What is added to δ_run, 2e-13·T + 2e-9, exceeds both.

    Args:
        sample_rate: q, from 0 to 1.
        noise_multiplier: σ over the largest norm of one holder's contribution, above 0; at least 0.3 unless q = 1.
        steps: T, at least 0.
        slack: δ′ > 4e-13·T + 4e-9, subtracted from δ elsewhere (:func:`accounting.privacy.available_delta`). 0 is
            possible if every holder is in every step or in none.
        roughly: for a search: as valid, up to a hundredth larger, and six times as fast.

    Returns:
        μ. For q = 1 exactly √T/σ, rounded up. Takes half a second.

    Raises:
        ValueError: an argument out of range, or a run so weak in noise that no μ is found for this slack.

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
    rounding = ROUNDING[0] * steps + ROUNDING[1]
    if slack <= 2 * rounding:
        raise ValueError(
            f"slack must exceed {2 * rounding:g} for {steps} steps, not {slack:g}: less is lost in rounding"
        )
    # Every spacing gives a valid μ: a wide one rounds losses up, a narrow one adds rounding errors of probabilities.
    best = min(
        _dominating_mu(
            _composed(sample_rate, sigma, int(steps), spacing), rounding, slack, _FEW_POINTS if roughly else _POINTS
        )
        for spacing in _spacings(sample_rate, sigma, _SPACINGS[: 1 if roughly else None])
    )
    if math.isinf(best):
        raise ValueError(f"no mu covers this run with slack {slack:g}: use more noise, fewer steps or a larger slack")
    return best


def sampled_gaussian_epsilon(sample_rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    """Smallest ε such that the whole run is (ε, δ)-DP, as dp-accounting's privacy loss distribution bounds it.

    Both directions; rounded pessimistically, and errors of rounding are taken from δ, as :func:`sampled_gaussian_mu`
    says, which takes the same arguments besides.

    Args:
        sample_rate: q, from 0 to 1.
        noise_multiplier: σ over the largest norm of one holder's contribution; at least 0.3 unless q = 1.
        steps: T, at least 0.
        delta: δ of (ε, δ)-DP, above 2e-13·T + 2e-9.

    Returns:
        ε, never too small. Takes a tenth of a second.

    Raises:
        ValueError: an argument out of range, or no ε for so small a δ.

    >>> round(sampled_gaussian_epsilon(512 / 60000, 3.42529, 9375, 1e-5), 3)
    0.917
    """
    sigma = _checked_run(sample_rate, noise_multiplier, steps)
    checked_delta(delta)
    if sample_rate == 0 or steps == 0:
        return 0.0
    if sample_rate == 1:
        return float(gdp_epsilon(math.sqrt(steps) / sigma * (1 + 1e-15), delta))
    rounding = ROUNDING[0] * steps + ROUNDING[1]
    if delta <= rounding:
        raise ValueError(f"delta must exceed {rounding:g} for {steps} steps, not {delta:g}: less is lost in rounding")
    best = min(
        float(_composed(sample_rate, sigma, int(steps), spacing).get_epsilon_for_delta(delta - rounding))
        for spacing in _spacings(sample_rate, sigma)
    )
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
        raise ValueError(f"noise_multiplier must be at least {SMALLEST_NOISE}, not {sigma}: less protects nobody")
    return sigma


def _spacings(sample_rate: float, sigma: float, parts: tuple[float, ...] = _SPACINGS) -> set[float]:
    one_step = sample_rate * math.sqrt(math.expm1(sigma**-2))  # standard deviation of one step's loss, about
    largest_loss = math.log1p(sample_rate * math.expm1(10 / sigma + 0.5 / sigma**2))
    return {max(min(one_step / part, _COARSEST_SPACING), largest_loss / _MOST_LOSSES) for part in parts}


def _composed(sample_rate: float, sigma: float, steps: int, spacing: float) -> Any:
    # Imported here: it takes a second, which neither the site nor a worker should spend to start.
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        pessimistic_estimate=True,
        value_discretization_interval=spacing,
        sampling_prob=sample_rate,
        use_connect_dots=True,
    ).self_compose(steps)


def _dominating_mu(losses: Any, rounding: float, slack: float, count: int) -> float:
    """μ such that `slack` and N(μ, 1) against N(0, 1) dominate the losses, in both directions; infinity if none."""
    last = losses.get_epsilon_for_delta(slack - 2 * rounding)
    if math.isinf(last):
        return math.inf
    points: FloatArray = np.linspace(0.0, last, count + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        reached = losses.get_delta_for_epsilon(points) + rounding
    needed = (reached[:-1] - slack) / (1 - slack)
    if not (reached[-1] <= slack and (needed < 1).all()):
        return math.inf  # also where e^ε overflowed
    matters = needed > 0
    if not matters.any():
        return 0.0
    needed, beyond = needed[matters], points[1:][matters]
    mu, excess = float(gdp_mu(beyond, needed).max()), 1e-11
    while (gdp_delta(mu, beyond) * (1 - 1e-11) < needed).any():  # gdp_mu rounds down, a charge has to be rounded up
        mu *= 1 + excess
        excess *= 2
    return mu
