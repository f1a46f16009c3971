"""The mechanism of steps over Poisson samples: rates, norms and noise, all of it public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FINENESS = 2**20
"""Units in the clipping norm: contributions and noise are whole multiples of the unit."""


@dataclass(frozen=True, eq=False)
class SampledMechanism:
    """Plan of each step; public.

    Attributes:
        rates: probability of each group's holders to be in a step, shape (groups,); 0 for a group that is left out.
        norms: largest norm of a contribution of each group, shape (groups,).
        noise_multiplier: σ; the noise of a coordinate has the standard deviation σ·clip_norm. 0 protects nobody.
        clip_norm: c, to which σ refers.
        expected: how many holders a step has, on average, by public sizes: what a sum is divided by.
    """

    rates: Floats
    norms: Floats
    noise_multiplier: float
    clip_norm: float
    expected: float

    @property
    def unit(self) -> float:
        """Unit of which contributions and noise are whole multiples."""
        return float(self.norms.max()) / FINENESS


Phases = tuple[tuple[SampledMechanism, int], ...]
"""Mechanisms, and how many steps each is used for; the state of one is where the next begins."""


def phases_within(phases: Phases, start: int, steps: int) -> Phases:
    """Parts of the phases that fall into some steps from the step ``start`` on."""
    parts, begin = [], 0
    for mechanism, count in phases:
        length = min(begin + count, start + steps) - max(begin, start)
        if length > 0:
            parts.append((mechanism, length))
        begin += count
    return tuple(parts)
