"""A study of method sgd, variant individual, as its services hold it, without a database: plan, steps, model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from accounting.caps import caps_of
from accounting.privacy import IndividualAccounts
from common.noise import SimulationNoise
from learning.formats import catalogue_load
from learning.formats.catalogue import Splits
from learning.formats.read import read_file
from learning.mechanisms.levels import Level
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.planner import plan_steps
from learning.mechanisms.steps.records import INTERCEPT, OwnedRecords, owned_records
from learning.representations import FittedRepresentation, LinearModel

DELTA = 1e-5
SHARES = (0.34, 0.43, 0.23)
TEST = 1000
CLASSES = {"digits": 10, "mnist": 10, "adult": 2, "diabetes": 2}

Points = NDArray[np.floating]
Labels = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Case:
    """Holders' records, and public and test points, in the coordinates of a representation fitted on public points.

    people: how many holders the records stand for; more than there are in a rehearsal.  fitted: the representation.
    points, test_points: public and test points as they are.
    """

    name: str
    records: OwnedRecords
    public: NDArray[np.int8]
    test: NDArray[np.int8]
    truth: Labels
    people: int
    fitted: FittedRepresentation
    points: Points
    test_points: Points

    def first(self, holders: int) -> Case:
        """The same with these holders alone."""
        return self.of(np.arange(len(self.records)) < holders)

    def of(self, taking_part: NDArray[np.bool_]) -> Case:
        """The same with some of the holders alone; `(holders,)` says who."""
        records, kept = self.records, taking_part[self.records.holder]
        number = np.cumsum(taking_part) - 1
        some = owned_records(
            records.x[kept], records.y[kept], number[records.holder[kept]], records.identity[taking_part]
        )
        return replace(self, records=some, people=len(some))


@dataclass(frozen=True)
class Outcome:
    """accuracy, auc (of class 1, two classes only): of ``model`` on the test points.  spent: mean share of the caps."""

    model: LinearModel
    accuracy: float
    auc: float | None
    spent: float
    seconds: float


@cache
def splits_load(name: str) -> Splits:
    return catalogue_load(name, _data_dir())


def _data_dir() -> Path:
    beside = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
    return Path(os.environ.get("IPATE_DATA_DIR") or beside)


def case_load(name: str, split: int, steps: Steps) -> Case:
    """The private records as holders; MNIST's 10,000 official test images are split anew into public and test points.

    Adult keeps the split of the catalogue, and so does Diabetes as split 0; with others its patients are divided anew.
    """
    splits = _patients_divided(split) if name == "diabetes" and split else splits_load(name)
    public, test, truth = splits.public.x, splits.test.x, splits.test.y
    if name == "mnist":
        rest, classes = np.concatenate([public, test]), np.concatenate([splits.public.y, truth])
        order = np.random.default_rng(100 + split).permutation(len(rest))
        test, truth, public = rest[order[:TEST]], classes[order[:TEST]], rest[order[TEST:]]
    return case_of(name, public, test, truth, steps)


def case_of(name: str, public: Points, test: Points, truth: Labels, steps: Steps) -> Case:
    """The private records as holders, with these public and test points."""
    splits = splits_load(name)
    fitted = steps.space(public.shape[1:]).fit(public)
    holder = np.unique(np.array(splits.private.holders), return_inverse=True)[1]
    everyone = np.arange(int(holder.max()) + 1)
    records = owned_records(fitted.transform(splits.private.x), splits.private.y, holder, everyone)
    coordinates = fitted.transform(public), fitted.transform(test)
    return Case(name, records, *coordinates, truth, len(records), fitted, public, test)


def _patients_divided(split: int) -> Splits:
    """Diabetes with other patients, as many as in the catalogue, private, public and for the test."""
    schema = splits_load("diabetes").schema
    rows = read_file(_data_dir() / "diabetes130" / "dataset_diabetes.zip", schema, member="diabetic_data.csv")
    patient = np.unique(np.array(rows.holders), return_inverse=True)[1]
    place = np.random.default_rng(split).permutation(int(patient.max()) + 1)[patient]
    public = rows.without_holders()
    return Splits(rows[place < 60_000], public[(place >= 60_000) & (place < 69_000)], public[place >= 69_000], schema)


def rehearsal_load(name: str, split: int, steps: Steps) -> Case:
    """Public points alone: two thirds stand for as many holders as there are private ones, a third is the test."""
    splits = splits_load(name)
    people = len(np.unique(np.array(splits.private.holders)))
    fitted = steps.space(splits.public.x.shape[1:]).fit(splits.public.x)
    coordinates = fitted.transform(splits.public.x)
    order = np.random.default_rng(split).permutation(len(coordinates))
    test, mine = np.split(order, [len(order) // 3])
    records = owned_records(coordinates[mine], splits.public.y[mine], np.arange(len(mine)), np.arange(len(mine)))
    points = splits.public.x, splits.public.x[test]
    return Case(name, records, coordinates, coordinates[test], splits.public.y[test], people, fitted, *points)


def caps_draw(epsilon: float | Sequence[float], holders: int) -> NDArray[np.float64]:
    """`(holders,)` μ²; of several ε, a holder has one by chance, in the proportions of `SHARES`."""
    values = caps_of(np.atleast_1d(np.asarray(epsilon, np.float64)), DELTA)
    shares = SHARES if len(values) > 1 else (1.0,)
    return values[np.random.default_rng(0).choice(len(values), holders, p=shares)]


def hold(
    case: Case,
    epsilon: float | Sequence[float],
    *,
    steps: Steps,
    seed: int,
    weighted: bool = True,
    caps: NDArray[np.float64] | None = None,
) -> Outcome:
    """Plan and take all steps of one round, with the whole of every cap.

    caps: `(holders,)` in place of what `epsilon` gives them by chance.  weighted: whether levels weigh by √cap, as
    planned; otherwise all alike, until accounts are used up.
    In a rehearsal every record stands for several holders with accounts of their own: its contribution counts so often.
    """
    caps = caps_draw(epsilon, len(case.records)) if caps is None else caps
    copies = case.people / len(case.records)
    values, counts = np.unique(caps, return_counts=True)
    levels = [Level(f"{cap:.3g}", float(cap), count * copies) for cap, count in zip(values, counts, strict=True)]
    classes = CLASSES[case.name]
    plan = plan_steps(levels, dimensions=case.public.shape[1], n_classes=classes, share=1.0, steps=steps)
    accounts, noise, weights = IndividualAccounts(caps), SimulationNoise(seed), plan.level_weights(caps)
    if not weighted:
        weights, plan = np.ones(len(caps)), replace(plan, people=float(case.people))
    state, clock = Descent.begin(plan, case.public, classes), time.process_time()
    while not state.finished:
        sums, _ = step_contributions(
            case.records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=accounts,
            sigma=plan.sigma,
            level_weights=weights,
        )
        state = state.after(release_sums(np.rint(sums * copies).astype(np.int64), plan.sigma, noise))
    seconds = (time.process_time() - clock) / plan.steps
    logits = case.test.astype(np.float64) @ state.learned[:-1] + INTERCEPT * state.learned[-1]
    auc = float(roc_auc_score(case.truth, logits[:, 1] - logits[:, 0])) if classes == 2 else None
    accuracy = float((logits.argmax(axis=1) == case.truth).mean())
    return Outcome(state.model(case.fitted), accuracy, auc, float((accounts.spent / caps).mean()), seconds)
