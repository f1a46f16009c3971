"""Baselines of individualized DP-SGD, for rehearsals and benchmarks: runs in which every group keeps its ε, too.

Boenisch et al. 2023, Appendix E. Each is a list of phases; the state of one is where the next begins. All have the same
number of steps and as many holders in a step, on average, as the run that they are compared with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from training.methods.sgd.calibration import Floats, sample_rates
from training.methods.sgd.sampled import SampledMechanism

Phases = tuple[tuple[SampledMechanism, int], ...]
"""Mechanisms, and how many steps each is used for."""


def standard(
    epsilons: ArrayLike, group_sizes: ArrayLike, *, delta: float, steps: int, rate: float, clip_norm: float
) -> Phases:
    """DP-SGD with the smallest ε for everybody."""
    promised, sizes = np.asarray(epsilons, np.float64), np.asarray(group_sizes, np.float64)
    taking_part = np.ones(len(promised), bool)
    return (_phase(promised, sizes, taking_part, delta=delta, steps=steps, rate=rate, clip_norm=clip_norm),)


def without_strictest(
    epsilons: ArrayLike, group_sizes: ArrayLike, *, delta: float, steps: int, rate: float, clip_norm: float
) -> Phases:
    """E.1: DP-SGD with the second smallest ε, without the groups of the smallest.

    Raises:
        ValueError: all groups have the same ε.
    """
    promised, sizes = np.asarray(epsilons, np.float64), np.asarray(group_sizes, np.float64)
    others = promised > promised.min()
    if not others.any():
        raise ValueError("All groups have the same epsilon: without the strictest nobody is left.")
    return (_phase(promised, sizes, others, delta=delta, steps=steps, rate=rate, clip_norm=clip_norm),)


def group_after_group(
    epsilons: ArrayLike, group_sizes: ArrayLike, *, delta: float, steps: int, rate: float, clip_norm: float
) -> Phases:
    """E.2: DP-SGD with each group alone, from the smallest ε to the largest, in steps in proportion to the sizes."""
    promised, sizes = np.asarray(epsilons, np.float64), np.asarray(group_sizes, np.float64)
    ends = np.rint(np.cumsum(sizes[np.argsort(promised)]) / sizes.sum() * steps).astype(int)
    phases = []
    for group, count in zip(np.argsort(promised), np.diff(ends, prepend=0).tolist(), strict=True):
        alone = np.arange(len(promised)) == group
        if count:
            phases.append(_phase(promised, sizes, alone, delta=delta, steps=count, rate=rate, clip_norm=clip_norm))
    return tuple(phases)


def _phase(
    epsilons: Floats,
    sizes: Floats,
    taking_part: np.ndarray,
    *,
    delta: float,
    steps: int,
    rate: float,
    clip_norm: float,
) -> tuple[SampledMechanism, int]:
    expected = rate * float(sizes.sum())
    own = min(1.0, expected / float(sizes[taking_part].sum()))
    sigma, _ = sample_rates([epsilons[taking_part].min()], [1], delta=delta, steps=steps, rate=own)
    rates = np.where(taking_part, own, 0.0)
    norms = np.full(len(sizes), float(clip_norm))
    return SampledMechanism(rates, norms, sigma, clip_norm, expected=float(rates @ sizes)), steps
