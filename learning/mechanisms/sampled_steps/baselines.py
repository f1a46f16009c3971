"""Baselines of individualized DP-SGD, for rehearsals and benchmarks: runs in which every group keeps its promise, too.

Boenisch et al. 2023, Appendix E. Each is a list of phases; the state of one is where the next begins. All have the same
number of steps and as many holders in a step, on average, as the run that they are compared with. All take:

targets: μ that each group may spend, above 0, `(groups,)`.  group_sizes: holders of each group, noisy or public
numbers, `(groups,)`.  cost: what a run of so many steps costs, see `calibration.Cost`.  steps, rate, clip_norm: as in
`sampled_planner.plan_sampled`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from learning.mechanisms.sampled_steps.calibration import Cost, Floats, required_noise
from learning.mechanisms.sampled_steps.mechanism import Phases, SampledMechanism

CostOf = Callable[[int], Cost]

_UNCLIPPED = 1000.0  # clipping norms: longer than any gradient of these networks on records of length 1


def standard(
    targets: ArrayLike, group_sizes: ArrayLike, *, cost: CostOf, steps: int, rate: float, clip_norm: float
) -> Phases:
    """DP-SGD with the smallest promise for everybody."""
    allowed, sizes = np.asarray(targets, np.float64), np.asarray(group_sizes, np.float64)
    return (_phase(allowed, sizes, np.ones(len(allowed), bool), cost, steps, rate, clip_norm),)


def without_strictest(
    targets: ArrayLike, group_sizes: ArrayLike, *, cost: CostOf, steps: int, rate: float, clip_norm: float
) -> Phases:
    """E.1: DP-SGD with the second smallest promise, without the groups of the smallest.

    Raises:
        ValueError: all groups have the same promise.
    """
    allowed, sizes = np.asarray(targets, np.float64), np.asarray(group_sizes, np.float64)
    others = allowed > allowed.min()
    if not others.any():
        raise ValueError("All groups have the same promise: without the strictest nobody is left.")
    return (_phase(allowed, sizes, others, cost, steps, rate, clip_norm),)


def group_after_group(
    targets: ArrayLike, group_sizes: ArrayLike, *, cost: CostOf, steps: int, rate: float, clip_norm: float
) -> Phases:
    """E.2: DP-SGD with each group alone, from the smallest promise to the largest, in steps in proportion to sizes."""
    allowed, sizes = np.asarray(targets, np.float64), np.asarray(group_sizes, np.float64)
    order = np.argsort(allowed)
    ends = np.rint(np.cumsum(sizes[order]) / sizes.sum() * steps).astype(int)
    phases = []
    for group, count in zip(order, np.diff(ends, prepend=0).tolist(), strict=True):
        if count:
            alone = np.arange(len(allowed)) == group
            phases.append(_phase(allowed, sizes, alone, cost, count, rate, clip_norm))
    return tuple(phases)


def non_private(group_sizes: ArrayLike, *, steps: int, rate: float, clip_norm: float) -> Phases:
    """No noise, and a norm that clips nothing: what privacy costs is told by the difference. It protects nobody."""
    sizes = np.asarray(group_sizes, np.float64)
    norms = np.full(len(sizes), _UNCLIPPED * clip_norm)
    rates = np.full(len(sizes), float(rate))
    return ((SampledMechanism(rates, norms, 0.0, clip_norm, expected=float(rates @ sizes)), steps),)


def _phase(
    targets: Floats,
    sizes: Floats,
    taking_part: np.ndarray,
    cost: CostOf,
    steps: int,
    rate: float,
    clip_norm: float,
) -> tuple[SampledMechanism, int]:
    """Steps with those who take part alone, at the smallest of their targets."""
    own = min(1.0, rate * float(sizes.sum()) / float(sizes[taking_part].sum()))
    sigma = required_noise(cost(steps), float(targets[taking_part].min()), steps=steps, rate=own)
    rates = np.where(taking_part, own, 0.0)
    norms = np.full(len(sizes), float(clip_norm))
    return SampledMechanism(rates, norms, sigma, clip_norm, expected=float(rates @ sizes)), steps
