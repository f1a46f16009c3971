"""Charge of a whole run of Gaussian sums over Poisson samples (DP-SGD), in Gaussian differential privacy."""

import math

import numpy as np

from accounting.privacy.checks import FloatArray, checked_delta, checked_positive
from accounting.privacy.loss_distribution import Losses, sampled_losses
from common.gaussian_dp import gdp_delta, gdp_epsilon, gdp_mu

#: Smallest noise multiplier of a run that leaves some people out by chance.
SMALLEST_NOISE = 0.3

#: Smallest δ, or slack of it, for computing the cost of a run that leaves some people out by chance.
SMALLEST_SLACK = 1e-12

_PARTS = (32, 128)  # points of the losses' grid for a standard deviation: both are tried, or only the first if roughly
_EPSILON_PARTS = 192
_POINTS, _FEW_POINTS = 20_000, 4_000


def sampled_gaussian_mu(
    sample_rate: float, noise_multiplier: float, steps: int, slack: float, *, roughly: bool = False
) -> float:
    """Return the smallest μ, to about 1/1000, such that the run costs a holder at most (μ, δ′), δ′ = ``slack``.

    At each of T = ``steps`` steps every holder is drawn with probability q, independently, and the sum of the clipped
    vectors of those drawn is released with Gaussian noise of σ times the clipping norm. q, σ and T are fixed before the
    first step and equal for all. The run may be charged as μ² in the account and δ′ out of δ if, for both directions,

        δ_run(ε) ≤ δ′ + (1 − δ′)·δ_μ(ε)   for all ε ≥ 0:

    the right side belongs to a mechanism that reveals everything with probability δ′ and is Gaussian otherwise, and one
    that is dominated at every ε can be simulated from it (Blackwell; Dong, Roth and Su 2022, Theorem 2.10). ε < 0 of
    one direction is ε > 0 of the other.

    δ_run is the hockey-stick divergence of the dominating pair, (1 − q)·N(0, σ²) + q·N(1, σ²) against N(0, σ²),
    composed T times. :func:`accounting.privacy.loss_distribution.sampled_losses` bounds it from above, cut tails and
    all roundings included. The remaining step is from points to all ε:

    * *between points* ε_k < ε < ε_{k+1}: both sides fall as ε grows, so that δ_run(ε_k) ≤ δ′ + (1 − δ′)·δ_μ(ε_{k+1})
      implies the condition on the interval;
    * *beyond the last point* ε_K, chosen so that δ_run(ε_K) ≤ δ′: δ_run(ε) ≤ δ_run(ε_K) ≤ δ′.

    Args:
        sample_rate: q, from 0 to 1.
        noise_multiplier: σ over the largest norm of one holder's contribution, above 0; at least 0.3 unless q = 1.
        steps: T, at least 0.
        slack: δ′, at least 1e-12, subtracted from δ elsewhere (:func:`accounting.privacy.available_delta`). 0 is
            possible if every holder is in every step or in none.
        roughly: for a search: equally valid, up to a hundredth larger, and several times faster.

    Returns:
        μ. For q = 1 exactly √T/σ, rounded up. Takes some tenths of a second.

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
    """Return the smallest ε, to about a thousandth, such that the whole run is (ε, δ)-DP in both directions.

    Bounded from above like :func:`sampled_gaussian_mu`, which takes the same other arguments.

    Args:
        sample_rate: q, from 0 to 1.
        noise_multiplier: σ over the largest norm of one holder's contribution; at least 0.3 unless q = 1.
        steps: T, at least 0.
        delta: δ of (ε, δ)-DP, at least 1e-12 unless q = 1.

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
        raise ValueError(f"noise_multiplier must be at least {SMALLEST_NOISE}, not {sigma}: less protects nobody")
    return sigma


def _dominating_mu(losses: tuple[Losses, Losses], slack: float, count: int) -> float:
    """Return μ such that `slack` and N(μ, 1) against N(0, 1) dominate both directions' losses; infinity if none."""
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
    while (gdp_delta(mu, beyond) * (1 - 1e-11) < needed).any():  # gdp_mu rounds down, a charge has to be rounded up
        mu *= 1 + excess
        excess *= 2
    return mu
