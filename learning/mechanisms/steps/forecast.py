"""Forecast of a round of steps: the planned descent, carried out on public points in place of records.

Two thirds of up to 3,000 public points stand for all the people expected, noise and all; the others judge. With labels
of public points, that is a rehearsal, and says how many points will be right if holders' records are spread as the
public points are. Without any, the points are put into as many clusters as there are classes, and what can be said is
how much of an easy task of this size survives the noise: real classes are harder to tell than clusters, so a forecast
from clusters bounds what to expect from above, and tells little but that there is too much noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.planner import StepsPlan
from learning.mechanisms.steps.records import INTERCEPT, OwnedRecords, owned_records

_POINTS = 3000
_SEED = 0  # the noise of a forecast protects nobody, and a plan that is looked at twice should say the same
_PLENTY = 1e30


@dataclass(frozen=True)
class StepsForecast:
    """right: expected share of right points.  noiseless: the same without noise.  from_labels: or from clusters."""

    right: float
    noiseless: float
    from_labels: bool


def forecast_steps(
    plan: StepsPlan, public: ArrayLike, n_classes: int, *, labels: ArrayLike | None = None
) -> StepsForecast:
    """Expectation of what the planned round learns.

    Args:
        plan: The round.
        public: `(P, d)` coordinates of public points, at least three.
        n_classes: C.
        labels: `(P,)` of public points, where they are known; None for clusters.
    """
    points = np.asarray(public)
    chosen = np.random.default_rng(_SEED).permutation(len(points))[:_POINTS]
    points = points[chosen]
    truth = _clusters(points, n_classes) if labels is None else np.asarray(labels)[chosen]
    judged, learned = np.split(np.arange(len(points)), [len(points) // 3])
    everyone = np.arange(len(learned))
    records = owned_records(points[learned], truth[learned], everyone, everyone)
    right, noiseless = (
        float((_descend(plan, records, points[judged], n_classes, noisy) == truth[judged]).mean())
        for noisy in (True, False)
    )
    return StepsForecast(right, noiseless, from_labels=labels is not None)


def _descend(
    plan: StepsPlan, records: OwnedRecords, judged: NDArray[np.int8], n_classes: int, noisy: bool
) -> NDArray[np.int64]:
    """The classes of points by a model that the records taught, each of them standing for several people."""
    state, noise = Descent.begin(plan, records.x, n_classes), SimulationNoise(_SEED)
    accounts, copies = IndividualAccounts(np.full(len(records), _PLENTY)), plan.people / len(records)
    while not state.finished:
        sums, _ = step_contributions(
            records, state.weights, clip_norm=state.clip_norm, accounts=accounts, sigma=plan.sigma
        )
        expected = np.rint(sums * copies).astype(np.int64)
        state = state.after(release_sums(expected, plan.sigma, noise) if noisy else expected)
    return (judged.astype(np.float64) @ state.learned[:-1] + INTERCEPT * state.learned[-1]).argmax(axis=1)


def _clusters(points: NDArray[np.int8], count: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    count = min(count, len(points))
    return KMeans(count, n_init=1, random_state=_SEED).fit_predict(points.astype(np.float64)).astype(np.int64)
