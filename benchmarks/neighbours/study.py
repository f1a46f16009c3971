"""Study of the method *neighbours*, run as the services do but without a database: plan, rounds, labels, student."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of
from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.formats import catalogue_load
from learning.learners import learner_create
from learning.mechanisms.neighbours.released_counts import read_counts, release_counts
from learning.mechanisms.neighbours.rounds import PlannedRound, RoundsPlan, next_round, plan_rounds
from learning.mechanisms.neighbours.surrogates import Sample
from learning.mechanisms.neighbours.votes import radii, shard_contributions
from learning.mechanisms.protocol import PlannedLevel
from learning.representations import default_representation, representation_create

DELTAS = {"digits": 5e-5, "mnist": 1e-5, "fashion": 1e-5, "adult": 1e-5, "diabetes": 1e-5}
SHARES = (0.34, 0.43, 0.23)
PROMISES: dict[str, float | tuple[float, ...]] = {"1": 1.0, "0.25": 0.25, "1, 2, 3": (1.0, 2.0, 3.0)}
Student = tuple[str, dict[str, Any]]
STUDENTS: dict[str, Student] = {
    "digits": ("cnn", {"epochs": 20, "copies": 20, "rotation": 15.0, "shift": 0.12}),
    "mnist": ("cnn", {"epochs": 3, "copies": 8, "rotation": 12.0, "shift": 0.1, "batch": 64, "learning_rate": 0.002}),
    "adult": ("logistic_regression", {}),
    "diabetes": ("random_forest", {"leaf": 50}),
}


@dataclass(frozen=True, eq=False)
class Data:
    """A dataset in the coordinates of a representation: private, public and test points, and holders' numbers."""

    name: str
    classes: int
    x: NDArray[np.floating]
    truth: NDArray[np.integer]
    test_x: NDArray[np.floating]
    test_truth: NDArray[np.integer]
    private: NDArray[np.int8]
    private_truth: NDArray[np.integer]
    holder: NDArray[np.integer]
    public: NDArray[np.int8]
    test: NDArray[np.int8]

    @property
    def holders(self) -> int:
        return int(self.holder.max()) + 1

    def first(self, holders: int) -> Data:
        """Return the dataset with only the first holders."""
        return self.of(np.arange(self.holders) < holders)

    def of(self, taking_part: NDArray[np.bool_]) -> Data:
        """Return the dataset with only some of the holders (mask `(holders,)`), renumbered."""
        kept, number = taking_part[self.holder], np.cumsum(taking_part) - 1
        changed = {"private": self.private[kept], "private_truth": self.private_truth[kept]}
        return Data(**(vars(self) | changed | {"holder": number[self.holder[kept]]}))


@cache
def data_load(name: str, representation: str = "") -> Data:
    """Return a dataset of the catalogue in a representation (default: the usual one) with its usual parameters."""
    beside = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
    splits = catalogue_load(name, Path(os.environ.get("IPATE_DATA_DIR") or beside))
    chosen = (
        representation_create(representation) if representation else default_representation(splits.public.x.shape[1:])
    )
    fitted = chosen.fit(splits.public.x)
    return Data(
        name,
        len(splits.schema.classes),
        splits.public.x,
        splits.public.y,
        splits.test.x,
        splits.test.y,
        fitted.transform(splits.private.x),
        splits.private.y,
        np.unique(np.array(splits.private.holders), return_inverse=True)[1],
        fitted.transform(splits.public.x),
        fitted.transform(splits.test.x),
    )


@dataclass(eq=False)
class Outcome:
    """Plan and result of a study.

    labels: `(P,)`, -1 if not requested.  student: trained on all labels.  spent: `(H,)` shares of caps. seconds:
    processor time for planning, asking and learning.
    """

    plan: RoundsPlan
    held: list[PlannedRound] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    labels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    student: Any = None
    spent: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    seconds: dict[str, float] = field(default_factory=dict)


def caps_draw(epsilon: float | Sequence[float], holders: int, delta: float) -> NDArray[np.float64]:
    """Return the μ² of every holder: the same for all, or three levels at random as in Boenisch et al. 2023."""
    values = np.atleast_1d(np.asarray([float(caps_of(one, delta)) for one in np.atleast_1d(epsilon)]))
    if len(values) == 1:
        return np.full(holders, values[0])
    return values[np.random.default_rng(0).choice(3, holders, p=SHARES)]


def levels_of(caps: NDArray[np.float64], records: float, taking_part: float = 1.0) -> list[PlannedLevel]:
    values, counts = np.unique(caps, return_counts=True)
    return [
        PlannedLevel(f"{value:.3g}", float(value), int(count) / taking_part, records)
        for value, count in zip(values, counts, strict=True)
    ]


def ask(
    data: Data,
    queries: NDArray[np.int64],
    radius_share: float,
    sigma: float,
    accounts: list[IndividualAccounts],
    predicted: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return unnoised votes. Holders are divided into as many shards as there are account objects."""
    reach = radii(data.public[queries], data.public, radius_share)
    sums = np.zeros((len(queries), data.classes))
    first = 0
    for shard in accounts:
        end = first + len(shard.spent)
        mine = (data.holder >= first) & (data.holder < end)
        part, _ = shard_contributions(
            data.public[queries],
            reach,
            data.private[mine],
            data.private_truth[mine],
            data.holder[mine] - first,
            n_classes=data.classes,
            accounts=shard,
            sigma=sigma,
            predicted=predicted,
        )
        sums, first = sums + part, end
    return sums


def hold(
    data: Data,
    epsilon: float | Sequence[float],
    *,
    rounds: int | None = None,
    student: Student | None = None,
    labelled: bool = False,
    coordinates: bool = False,
    wanted: int | None = None,
    taking_part: float = 1.0,
    seed: int = 1,
) -> Outcome:
    """Plan and carry out a study with these promises, using every cap in full.

    Args:
        rounds: Number of rounds; None for the planner's choice.
        student: Learner and parameters, None for the usual ones.
        labelled: Whether the planner sees the test points with their labels.
        coordinates: Whether the student learns from coordinates instead of the points themselves.
        wanted: Number of labels, None for all public points.
        taking_part: Actual share of the planned head count.
    """
    caps = caps_draw(epsilon, data.holders, DELTAS[data.name])
    levels = levels_of(caps, len(data.private) / data.holders, taking_part)
    noise, name = SimulationNoise(seed), student or STUDENTS[data.name]
    x = data.public / np.float32(127) if coordinates else data.x
    clock = time.process_time()
    sample = Sample(data.test, data.test_truth) if labelled else None
    plan = plan_rounds(
        data.public, levels, share=1.0, n_classes=data.classes, rounds=rounds, wanted=wanted, sample=sample
    )
    outcome = Outcome(plan, labels=np.full(len(data.public), -1), spent=np.zeros(data.holders))

    def lap(what: str) -> None:
        nonlocal clock
        outcome.seconds[what] = outcome.seconds.get(what, 0.0) + time.process_time() - clock
        clock = time.process_time()

    lap("plan")
    current, predicted, voters = plan.rounds[0], None, None
    while True:
        accounts = IndividualAccounts(caps * current.share, outcome.spent)
        guesses = None if predicted is None else predicted[current.queries]
        sums = ask(data, current.queries, current.radius_share, current.sigma, [accounts], guesses)
        counts = release_counts(sums, current.sigma, noise)
        read = read_counts(counts, current.sigma, predicted=guesses, voters=0.0 if voters is None else voters)
        outcome.labels[current.queries], outcome.spent = read.labels, accounts.spent
        outcome.held.append(current)
        outcome.right.append(float((read.labels == data.truth[current.queries]).mean()))
        lap("ask")
        known = outcome.labels >= 0
        learner = learner_create(*name)
        outcome.student = learner.fit(x[known], outcome.labels[known], classes=data.classes, seed=seed)
        lap("learn")
        if len(outcome.held) == len(plan.rounds):
            outcome.spent = outcome.spent / caps
            return outcome
        probabilities = outcome.student.predict_proba(x)
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
            queries=np.setdiff1d(plan.rounds[1].queries, current.queries),
            sample=sample,
        )
        lap("plan")


def test_accuracy(data: Data, model: Any, coordinates: bool = False) -> float:
    x = data.test / np.float32(127) if coordinates else data.test_x
    return float((model.predict(x) == data.test_truth).mean())


def test_auc(data: Data, model: Any) -> float:
    """Return the area under the curve of class 1."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(data.test_truth == 1, model.predict_proba(data.test_x)[:, 1]))
