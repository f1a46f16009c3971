"""Planned steps, taken on public points that stand for all people: what forecasts and adjustments try out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.records import owned_records

_PLENTY = 1e30


def rehearsed(
    begin: Descent, points: NDArray[np.int8], codes: NDArray[np.int64], noise: SimulationNoise | None
) -> Descent:
    """State after all steps, where points `(n, d)` with these targets `(n,)` stand for as many people as are planned.

    Each point counts for several people, or for a part of one. Without ``noise`` nothing is added to the sums.
    """
    everyone, copies = np.arange(len(points)), begin.plan.people / len(points)
    records, accounts = (
        owned_records(points, codes, everyone, everyone),
        IndividualAccounts(np.full(len(points), _PLENTY)),
    )
    state = begin
    while not state.finished:
        sums, _ = step_contributions(
            records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=accounts,
            sigma=begin.plan.sigma,
            loss=begin.loss,
        )
        expected = np.rint(sums * copies).astype(np.int64)
        state = state.after(expected if noise is None else release_sums(expected, begin.plan.sigma, noise))
    return state
