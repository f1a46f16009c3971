"""Releases of the method *neighbours* for training students, in one or two rounds on random splits of the data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.privacy import IndividualAccounts
from benchmarks.neighbours.study import DELTAS, Data, ask, caps_draw, levels_of
from benchmarks.sgd.study import splits_load
from common.noise import SimulationNoise
from learning.learners import Model
from learning.mechanisms.neighbours.released_counts import release_counts
from learning.mechanisms.neighbours.rounds import next_round, plan_rounds
from learning.mechanisms.neighbours.votes import radii
from learning.representations import default_representation
from learning.students.releases import Releases, counted, joined
from learning.students.smoothing import neighbourhoods

Teach = Callable[[NDArray[np.floating], Releases], Model]
TUNED_SHARE = 2 / 9
"""Share of public points that judge when constants are chosen; the others are asked."""


def split_order(name: str, points: int, seed: int) -> NDArray[np.int64]:
    """Return the order in which the points that are not private become public points, then test points."""
    # Diabetes is already split by patient, and patients have several records
    return np.arange(points) if name == "diabetes" else np.random.default_rng(seed).permutation(points)


@cache
def data_split(name: str, seed: int = 0, public: int | None = None, tuning: bool = False) -> Data:
    """Return a dataset whose public and test points are drawn again from all points that are not private.

    public: number of public points, None for all.  tuning: whether some of the public points replace the test points,
    which are then not used.
    """
    splits = splits_load(name)
    x, y = (np.concatenate([getattr(splits.public, part), getattr(splits.test, part)]) for part in ("x", "y"))
    order = split_order(name, len(x), seed)
    public_rows, test = order[: len(splits.public)], order[len(splits.public) :]
    if tuning:
        cut = round(len(public_rows) * (1 - TUNED_SHARE))
        public_rows, test = public_rows[:cut], public_rows[cut:]
    public_rows = public_rows[:public]
    fitted = default_representation(x.shape[1:]).fit(x[public_rows])
    return Data(
        name,
        len(splits.schema.classes),
        x[public_rows],
        y[public_rows],
        x[test],
        y[test],
        fitted.transform(splits.private.x),
        splits.private.y,
        np.unique(np.array(splits.private.holders), return_inverse=True)[1],
        fitted.transform(x[public_rows]),
        fitted.transform(x[test]),
    )


@dataclass(eq=False)
class Held:
    """Releases of all rounds, processor seconds for planning and asking, and the last student."""

    releases: Releases
    rounds: list[dict[str, Any]] = field(default_factory=list)
    student: Model | None = None


def hold(
    data: Data,
    epsilon: float | Sequence[float],
    teach: Teach | None = None,
    *,
    radius_share: float | None = None,
    sigma: float | None = None,
    caps: NDArray[np.float64] | None = None,
    seed: int = 1,
) -> Held:
    """Release counts of all public points in one round, or in two with a student trained by `teach` in between.

    radius_share, sigma: replace the plan for the first round.  caps: `(holders,)` instead of random caps from
    `epsilon`.
    """
    caps = caps_draw(epsilon, data.holders, DELTAS[data.name]) if caps is None else caps
    levels = levels_of(caps, len(data.private) / data.holders)
    noise, spent, clock = SimulationNoise(seed), np.zeros(data.holders), time.process_time()
    plan = plan_rounds(data.public, levels, share=1.0, n_classes=data.classes, rounds=1 if teach is None else 2)
    current, predicted, voters, held = plan.rounds[0], None, 0.0, []
    reach, deviation = radius_share or current.radius_share, sigma or current.sigma
    outcome = Held(Releases(np.zeros(0, np.int64), np.zeros((0, data.classes)), np.zeros(0)))
    while True:
        accounts = IndividualAccounts(caps * current.share, spent)
        guesses = None if predicted is None else predicted[current.queries]
        counts = release_counts(ask(data, current.queries, reach, deviation, [accounts], guesses), deviation, noise)
        near = neighbourhoods(current.queries, data.public, radii(data.public[current.queries], data.public, reach))
        held.append(counted(current.queries, counts, deviation, predicted=guesses, voters=voters, reach=near))
        spent, outcome.releases = accounts.spent, joined(held)
        right = float((held[-1].labels == data.truth[current.queries]).mean())
        outcome.rounds.append(
            {
                "asked": len(counts),
                "sigma": deviation,
                "radius_share": reach,
                "right": right,
                "spent": float((spent / caps).mean()),
                "seconds": time.process_time() - clock,
            }
        )
        if teach is None or len(held) == len(plan.rounds):
            return outcome
        outcome.student = teach(data.x, outcome.releases)
        clock = time.process_time()
        probabilities = outcome.student.predict_proba(data.x)
        predicted = probabilities.argmax(axis=1)
        current, voters = next_round(
            current.as_earlier_round,
            data.public,
            counts,
            data.public,
            probabilities,
            levels,
            share=1.0,
            n_classes=data.classes,
        )
        reach, deviation = current.radius_share, current.sigma
