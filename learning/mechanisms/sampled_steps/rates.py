"""Steps on Poisson samples: noise, rates and clipping norms at which every privacy group spends its own promise.

Boenisch, Mühl, Dziedzic, Rinberg, Papernot, "Have it your way: individualized privacy assignment for DP-SGD" (2023),
Algorithms 1 and 2. Promises are checked with the run's privacy loss distribution, bounded from above in both directions
(:func:`accounting.privacy.sampled_gaussian_epsilon`), because the Rényi costs used in the paper give a larger ε for the
same parameters. Derivations: docs/sgd-sampled.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import gdp_mu, sampled_gaussian_epsilon
from accounting.privacy.sampled_charge import SMALLEST_NOISE

Floats = NDArray[np.float64]

FINENESS = 2**20
"""Number of units in the clipping norm. Contributions and noise are multiples of the unit."""

Cost = Callable[[float, float], float]
"""Cost of a run with rate q and noise multiplier σ, in units of μ; it grows with q and falls with σ."""

_CLOSE = 2e-4  # the search stops at this relative distance from the target
_MORE_NOISE = 2e-4  # step by which σ is raised until no group exceeds its target
_TRIALS = 60
_ROUNDED = 1e-12  # tolerance within which a rate is treated as 1


@dataclass(frozen=True, eq=False)
class SampledMechanism:
    """Public plan of each step.

    Attributes:
        rates: Probability that a holder in each group is drawn for a step, shape (groups,); 0 for groups left out.
        norms: Largest norm of a contribution in each group, shape (groups,).
        noise_multiplier: σ; the noise of a coordinate has standard deviation σ·clip_norm. 0 means no privacy.
        clip_norm: Norm c to which σ refers.
        expected: Average number of holders in a step according to public sizes; sums are divided by it.
    """

    rates: Floats
    norms: Floats
    noise_multiplier: float
    clip_norm: float
    expected: float

    @property
    def unit(self) -> float:
        """Unit of contributions and noise, which are integer multiples of this."""
        return float(self.norms.max()) / FINENESS


Phases = tuple[tuple[SampledMechanism, int], ...]
"""Mechanisms with their numbers of steps; each phase starts from the final state of the previous phase."""


def phases_within(phases: Phases, start: int, steps: int) -> Phases:
    """Return the parts of the phases within the ``steps`` steps that begin at step ``start``."""
    parts, begin = [], 0
    for mechanism, count in phases:
        length = min(begin + count, start + steps) - max(begin, start)
        if length > 0:
            parts.append((mechanism, length))
        begin += count
    return tuple(parts)


def sample_rates(
    epsilons: ArrayLike, group_sizes: ArrayLike, *, delta: float, steps: int, rate: float
) -> tuple[float, Floats]:
    """Compute a common noise multiplier, and the Poisson rate at which each group spends its ε (Algorithm 1, *sample*).

    Args:
        epsilons: Promised ε of each group, above 0, shape (groups,).
        group_sizes: Numbers of holders in each group, or nonnegative numbers proportional to these, shape (groups,).
        delta: δ of (ε, δ)-DP.
        steps: Number of steps T, at least 1.
        rate: Mean q of the rates, weighted by the sizes, above 0 and at most 1.

    Returns:
        σ, the standard deviation of the noise divided by the clipping norm, and the rates, shape (groups,). Every
        group's ε is at most its promise and above 99 % of the promise.

    Raises:
        ValueError: An argument is out of range, or a group would need a rate above 1 or noise below 0.3.

    >>> sigma, rates = sample_rates([1.0, 2.0], [300, 100], delta=1e-5, steps=200, rate=0.02)
    >>> round(sigma, 2), rates.round(4)
    (1.21, array([0.0163, 0.0311]))
    """
    targets, cost = _promises(epsilons, delta, steps)
    return spend_equally(cost, targets, shares_of(group_sizes, len(targets)), steps=steps, rate=rate)


def scale_norms(
    epsilons: ArrayLike, group_sizes: ArrayLike, *, delta: float, steps: int, rate: float, clip_norm: float
) -> tuple[float, Floats]:
    """Compute a common noise multiplier, and the clipping norm at which each group spends its ε (Algorithm 2, *scale*).

    If ε_p requires the noise multiplier σ_p, the noise is σ·c, where σ = (Σ_p w_p/σ_p)⁻¹ is the harmonic mean, and the
    norm of group p is c_p = c·σ/σ_p. Then σ·c/c_p = σ_p for every group, and the mean norm Σ_p w_p·c_p is c. With the
    arithmetic mean, which the published code uses, privacy is the same, but the mean norm exceeds c.

    Args:
        epsilons, group_sizes, delta, steps: As in :func:`sample_rates`.
        rate: Rate q of every holder, above 0 and at most 1.
        clip_norm: Mean c of the norms, weighted by the sizes, above 0.

    Returns:
        σ, the standard deviation of the noise divided by ``clip_norm``, and the norms, shape (groups,).

    Raises:
        ValueError: An argument is out of range, or a group would need noise below 0.3.

    >>> sigma, norms = scale_norms([1.0, 2.0], [300, 100], delta=1e-5, steps=200, rate=0.02, clip_norm=1.0)
    >>> round(sigma, 2), norms.round(3), float((norms @ [0.75, 0.25]).round(12))
    (1.24, array([0.906, 1.282]), 1.0)
    """
    targets, cost = _promises(epsilons, delta, steps)
    noise = [required_noise(cost, target, steps=steps, rate=rate) for target in targets.tolist()]
    return balanced_norms(noise, shares_of(group_sizes, len(targets)), clip_norm)


def required_noise(cost: Cost, target: float, *, steps: int, rate: float) -> float:
    """Return the noise multiplier at which a run with this rate costs exactly the target."""
    return spend_equally(cost, np.array([target]), np.ones(1), steps=steps, rate=rate)[0]


def balanced_norms(noise_multipliers: ArrayLike, weights: Floats, clip_norm: float) -> tuple[float, Floats]:
    """Return the noise and the norms that give groups these noise multipliers; the mean norm is ``clip_norm``."""
    if not (math.isfinite(clip_norm) and clip_norm > 0):
        raise ValueError(f"clip_norm must be a finite number above 0, not {clip_norm}.")
    own = np.asarray(noise_multipliers, np.float64)
    sigma = 1.0 / float(weights @ (1.0 / own))
    return sigma, clip_norm * sigma / own


def spend_equally(cost: Cost, targets: Floats, weights: Floats, *, steps: int, rate: float) -> tuple[float, Floats]:
    """Return σ and the rates at which a run costs every group its target, for the mean rate ``rate``.

    In the limit of many small steps, a run costs μ = q·√(T·(e^{1/σ²} − 1)) (Bu, Dong, Long, Su 2020, Corollary 4). If
    the run actually costs group p r_p times as much, the targets μ_p require q_p = μ_p/(r_p·√(T·(e^{1/σ²} − 1))), and
    the mean q of these rates requires √(T·(e^{1/σ²} − 1)) = Σ_p w_p·μ_p/(r_p·q). The r_p hardly change with q_p and σ
    while σ is above 1, but they change more below that. Computing r_p and then the rates, again and again with
    Anderson's acceleration (1965) of ln r_p, converges in four to ten rounds. Finally, σ is increased until no group
    exceeds its target.

    Args:
        cost: Monotone, see `Cost`.
        targets: μ_p above 0, shape (groups,).
        weights: w_p that add up to 1, shape (groups,).

    Raises:
        ValueError: There are no such rates, or an argument is out of range.
    """
    if not (0 < rate <= 1 and steps == int(steps) and steps >= 1):
        raise ValueError(f"rate must lie above 0 and be at most 1, and steps be at least 1, not {rate} and {steps}.")
    logs, before = np.zeros(len(targets)), None
    for _ in range(_TRIALS):
        slope = float(weights @ (targets / np.exp(logs))) / rate
        sigma = max(SMALLEST_NOISE, math.log1p(slope**2 / steps) ** -0.5)
        slope = math.sqrt(steps * math.expm1(sigma**-2))
        demand = targets / (np.exp(logs) * slope)
        rates = np.where(demand > 1 - _ROUNDED, 1.0, demand)  # exactly 1 costs less and is faster to compute
        reached = _costs(cost, rates, sigma)
        if np.all(np.abs(reached / targets - 1) <= _CLOSE):
            break
        move = np.log(np.clip(reached / (rates * slope), 1e-3, 1e3))
        logs, before = _accelerated(logs, move, before), (move, move - logs)
    if sigma <= SMALLEST_NOISE or abs(weights @ demand / rate - 1) > 1e-9:
        raise ValueError(
            f"Spending these promises in {steps} steps would need a noise multiplier below {SMALLEST_NOISE}: use "
            "more steps or a larger rate."
        )
    if demand.max() > 1 + _ROUNDED:
        raise ValueError(f"A group would have to be sampled at a rate of {demand.max():.3g}: use a smaller rate.")
    for _ in range(_TRIALS):
        if (reached <= targets).all():
            return sigma, rates
        sigma *= 1 + _MORE_NOISE
        reached = _costs(cost, rates, sigma)
    raise ArithmeticError("The search for rates did not converge: use other promises, steps or another rate.")


def shares_of(group_sizes: ArrayLike, groups: int) -> Floats:
    """Return the sizes as fractions that add up to 1, shape (groups,)."""
    sizes = np.asarray(group_sizes, np.float64)
    if sizes.shape != (groups,):
        raise ValueError(f"group_sizes has the shape {sizes.shape}, but there are {groups} groups: give one for each.")
    if not (np.isfinite(sizes).all() and (sizes >= 0).all() and sizes.sum() > 0):
        raise ValueError("group_sizes must be finite, not negative, and not all 0.")
    return sizes / sizes.sum()


def epsilon_cost(steps: int, delta: float) -> Cost:
    """Return the cost function of runs with this many steps: ε at δ, converted to the μ of the same (ε, δ)."""
    return lambda rate, sigma: float(gdp_mu(sampled_gaussian_epsilon(rate, sigma, steps, delta), delta))


def _accelerated(point: Floats, image: Floats, before: tuple[Floats, Floats] | None) -> Floats:
    """Return the next point of a fixed-point iteration: it minimises the linearised residual of the last two points."""
    if before is None:
        return image
    residual = image - point
    change = residual - before[1]
    length = float(change @ change)
    share = float(residual @ change) / length if length else 0.0
    return image - share * (image - before[0])


def _promises(epsilons: ArrayLike, delta: float, steps: int) -> tuple[Floats, Cost]:
    promised = np.asarray(epsilons, np.float64)
    if promised.ndim != 1 or not promised.size or not (np.isfinite(promised) & (promised > 0)).all():
        raise ValueError("epsilons must be a list of finite numbers above 0, one for each group.")
    return np.array([float(gdp_mu(each, delta)) for each in promised]), epsilon_cost(steps, delta)


def _costs(cost: Cost, rates: Floats, sigma: float) -> Floats:
    distinct, place = np.unique(rates, return_inverse=True)
    return np.array([cost(each, sigma) for each in distinct.tolist()])[place]
