"""Study of the method *sgd* (individual), run as the services do but without a database: plan, steps, model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of
from accounting.privacy import IndividualAccounts
from benchmarks.sgd.elsewhere import (
    ELSEWHERE,
    cifar10_load,
    elsewhere_load,
    encoded,
    fashion_load,
    news_load,
    rare_load,
    sms_load,
)
from common.noise import SimulationNoise
from learning.formats import catalogue_load
from learning.formats.catalogue import Splits
from learning.formats.read import read_file
from learning.formats.rows import Rows
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import INTERCEPT, OwnedRecords, owned_records, release_sums, step_contributions
from learning.mechanisms.steps.steps_plan import Steps, plan_steps, strength_of
from learning.representations import FittedRepresentation, LinearModel

DELTA = 1e-5
SHARES = (0.34, 0.43, 0.23)
TEST = 1000
BY_ENCODER = "-encoder"
"""Suffix of the name of data whose records are encoded."""
LOADS = {"cifar10": cifar10_load, "fashion": fashion_load, "sms": sms_load, "news": news_load, "rare": rare_load}
CLASSES = {"digits": 10, "mnist": 10, "adult": 2, "diabetes": 2, "cardio": 2, "support2": 2}
CLASSES |= {"cifar10": 10, "fashion": 10, "sms": 2, "news": 4, "rare": 4}

Points = NDArray[np.floating]
Labels = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Case:
    """Holders' records, and public and test points, in the coordinates of a representation fitted on public points.

    people: number of holders that the records represent, more than there are in a rehearsal.  fitted: the
    representation. mine, points, test_points: records in the order of their holders, public and test points, unchanged.
    """

    name: str
    records: OwnedRecords
    public: NDArray[np.int8]
    test: NDArray[np.int8]
    truth: Labels
    people: int
    fitted: FittedRepresentation
    mine: Points
    points: Points
    test_points: Points

    def first(self, holders: int) -> Case:
        """Return the same with only the first holders."""
        return self.of(np.arange(len(self.records)) < holders)

    def of(self, taking_part: NDArray[np.bool_]) -> Case:
        """Return the same with only some of the holders (mask `(holders,)`)."""
        records, kept = self.records, taking_part[self.records.holder]
        number = np.cumsum(taking_part) - 1
        some = owned_records(
            records.x[kept], records.y[kept], number[records.holder[kept]], records.identity[taking_part]
        )
        return replace(self, records=some, people=len(some), mine=self.mine[kept])

    def placed(self, steps: Steps, strength: float) -> Case:
        """Return the same in the representation that a plan for people of this strength would have."""
        chosen = steps.placed(self.points, strength).space(self.points)
        if chosen == self.fitted.representation:
            return self
        fitted = chosen.fit(self.points)
        records = replace(self.records, x=fitted.transform(self.mine))
        public, test = fitted.transform(self.points), fitted.transform(self.test_points)
        return replace(self, fitted=fitted, records=records, public=public, test=test)


@dataclass(frozen=True)
class Outcome:
    """Model after a round of steps, its accuracy and AUC (two classes only) on test points, and mean share of caps."""

    model: LinearModel
    accuracy: float
    auc: float | None
    spent: float
    seconds: float


@cache
def splits_load(name: str) -> Splits:
    if name.endswith(BY_ENCODER):
        plain = name.removesuffix(BY_ENCODER)
        return encoded(plain, splits_load(plain))
    if name in LOADS:
        return LOADS[name](_data_dir())
    return elsewhere_load(name, _data_dir()) if name in ELSEWHERE else catalogue_load(name, _data_dir())


def _data_dir() -> Path:
    beside = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
    return Path(os.environ.get("IPATE_DATA_DIR") or beside)


def case_load(name: str, split: int, steps: Steps) -> Case:
    """Return the private records as holders; the 10,000 test images of MNIST and Fashion-MNIST are divided again.

    Adult keeps the catalogue's split, as does Diabetes for split 0; for other splits, its patients are divided again.
    """
    splits = _divided(name, split)
    return case_of(name, splits.private, splits.public.x, splits.test.x, splits.test.y, steps)


def public_load(name: str) -> Case:
    """Return split 0 with all its public points as the test; their labels have no other use."""
    splits = _divided(name, 0)
    return case_of(name, splits.private, splits.public.x, splits.public.x, splits.public.y, Steps())


def case_of(name: str, private: Rows, public: Points, test: Points, truth: Labels, steps: Steps) -> Case:
    """Return a case with these private records and holders, and these public and test points."""
    fitted = steps.space(public).fit(public)
    holder = np.unique(np.array(private.holders), return_inverse=True)[1]
    everyone = np.arange(int(holder.max()) + 1)
    records = owned_records(fitted.transform(private.x), private.y, holder, everyone)
    coordinates = fitted.transform(public), fitted.transform(test)
    mine = private.x[np.argsort(holder, kind="stable")]
    return Case(name, records, *coordinates, truth, len(records), fitted, mine, public, test)


def _divided(name: str, split: int) -> Splits:
    splits = splits_load(name)
    if name == "diabetes" and split:
        return _patients_divided(split)
    if name not in ("mnist", "fashion"):
        return splits
    x, y = (np.concatenate([getattr(part, of) for part in (splits.public, splits.test)]) for of in ("x", "y"))
    order = np.random.default_rng(100 + split).permutation(len(x))
    rest = Rows(x[order], y[order])
    return Splits(splits.private, rest[TEST:], rest[:TEST], splits.schema)


def _patients_divided(split: int) -> Splits:
    """Return Diabetes with other private, public and test patients, as many of each as in the catalogue."""
    schema = splits_load("diabetes").schema
    rows = read_file(_data_dir() / "diabetes130" / "dataset_diabetes.zip", schema, member="diabetic_data.csv")
    patient = np.unique(np.array(rows.holders), return_inverse=True)[1]
    place = np.random.default_rng(split).permutation(int(patient.max()) + 1)[patient]
    public = rows.without_holders()
    return Splits(rows[place < 60_000], public[(place >= 60_000) & (place < 69_000)], public[place >= 69_000], schema)


def rehearsal_load(name: str, split: int, steps: Steps) -> Case:
    """Return only public points, with two thirds as many holders as there are private ones, and a third as the test."""
    splits = splits_load(name)
    people = len(np.unique(np.array(splits.private.holders)))
    fitted = steps.space(splits.public.x).fit(splits.public.x)
    coordinates = fitted.transform(splits.public.x)
    order = np.random.default_rng(split).permutation(len(coordinates))
    test, mine = np.split(order, [len(order) // 3])
    records = owned_records(coordinates[mine], splits.public.y[mine], np.arange(len(mine)), np.arange(len(mine)))
    points = splits.public.x[mine], splits.public.x, splits.public.x[test]
    return Case(name, records, coordinates, coordinates[test], splits.public.y[test], people, fitted, *points)


def caps_draw(epsilon: float | Sequence[float], holders: int) -> NDArray[np.float64]:
    """Return `(holders,)` μ². For several ε, each holder has a random one in the proportions of `SHARES`."""
    values = caps_of(np.atleast_1d(np.asarray(epsilon, np.float64)), DELTA)
    shares = SHARES if len(values) > 1 else (1.0,)
    return values[np.random.default_rng(0).choice(len(values), holders, p=shares)]


@dataclass(frozen=True)
class Taken:
    """All steps of a round in the representation of `case`: state before and release of each step; the end state."""

    case: Case
    steps: list[tuple[Descent, NDArray[np.int64]]]
    final: Descent
    spent: float
    seconds: float

    @property
    def logits(self) -> NDArray[np.float64]:
        """Return `(n, C)` logits of the test points."""
        return self.logits_of(self.case.test)

    def logits_of(self, points: NDArray[Any]) -> NDArray[np.float64]:
        """Return `(n, C)` logits of points in the coordinates of the case."""
        return points.astype(np.float64) @ self.final.learned[:-1] + INTERCEPT * self.final.learned[-1]

    @property
    def area(self) -> float | None:
        """Return the area under the curve of the test points; None for more than two classes."""
        from sklearn.metrics import roc_auc_score

        logits = self.logits
        return float(roc_auc_score(self.case.truth, logits[:, 1] - logits[:, 0])) if logits.shape[1] == 2 else None


def take(
    case: Case,
    epsilon: float | Sequence[float],
    *,
    steps: Steps,
    seed: int,
    weighted: bool = True,
    caps: NDArray[np.float64] | None = None,
    share: float = 1.0,
) -> Taken:
    """Plan and take all steps of one round with this share of every cap.

    caps: `(holders,)` instead of random caps from `epsilon`.  weighted: whether to weight levels by √cap, as planned,
    or equally until accounts are used up. In a rehearsal, a record represents several holders' accounts and is counted
    that often.
    """
    caps = caps_draw(epsilon, len(case.records)) if caps is None else caps
    copies = case.people / len(case.records)
    values, counts = np.unique(caps, return_counts=True)
    levels = [PlannedLevel(f"{cap:.3g}", float(cap), count * copies) for cap, count in zip(values, counts, strict=True)]
    classes = CLASSES[case.name.removesuffix(BY_ENCODER)]
    case = case.placed(steps, strength_of(levels, share=share, steps=steps))
    plan = plan_steps(levels, dimensions=case.public.shape[1], n_classes=classes, share=share, steps=steps)
    accounts, noise, weights = IndividualAccounts(caps), SimulationNoise(seed), plan.level_weights(caps)
    if not weighted:
        weights, plan = np.ones(len(caps)), replace(plan, people=float(case.people))
    state, clock, taken = Descent.begin(plan, case.public, classes), time.process_time(), []
    while not state.finished:
        sums, _ = step_contributions(
            case.records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=accounts,
            sigma=plan.sigma,
            level_weights=weights,
        )
        taken.append((state, release_sums(np.rint(sums * copies).astype(np.int64), plan.sigma, noise)))
        state = state.after(taken[-1][1])
    seconds = (time.process_time() - clock) / plan.steps
    return Taken(case, taken, state, float((accounts.spent / caps).mean()), seconds)


def hold(case: Case, epsilon: float | Sequence[float], **how: Any) -> Outcome:
    """Return the result of a round of steps; `how` as in `take`."""
    taken = take(case, epsilon, **how)
    accuracy = float((taken.logits.argmax(axis=1) == taken.case.truth).mean())
    return Outcome(taken.final.model(taken.case.fitted), accuracy, taken.area, taken.spent, taken.seconds)
