"""Semi-supervised knowledge transfer from private training data (Papernot et al. 2017): LNMax."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from accounting.caps import epsilon_of
from accounting.privacy import epsilon_from_rdp, gdp_epsilon, lnmax_charge, lnmax_rdp
from benchmarks.reproduce import teachers
from benchmarks.reproduce.folders import Json, data_dir, kept_json
from benchmarks.reproduce.results import Case, Promises, Row, mean_row
from benchmarks.reproduce.votes import Votes, published_counts, published_votes, trained_votes, truth_of, votes_of
from benchmarks.sgd.study import splits_load
from benchmarks.students.teachers import LEARNERS
from common.noise import SimulationNoise
from learning.mechanisms.pate import LNMax

DELTA, MOMENTS = 1e-5, np.arange(2.0, 10.0)  # the orders of the moments 1 to 8
QUERIES, SEEDS = 500, (0, 1, 2)
PROMISED = Promises("adult", (2.66,))
STUDENT_ROWS = "mnist_250_teachers_100_indices_used_by_student"


@dataclass(frozen=True)
class SeedResult:
    """ε by the paper's moments, and accuracies of students in per cent."""

    epsilon: float
    right: float
    student: float


def moments_epsilon(votes: NDArray[np.float64], gamma: float, sensitivity: float = 1.0) -> float:
    """Return ε of labels by LNMax: Theorem 3, eight moments."""
    cost = lnmax_rdp(votes, gamma, sensitivity=sensitivity, orders=MOMENTS, method="data_dependent").sum(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eight moments are few, so the last one is the best
        return float(epsilon_from_rdp(cost, DELTA, MOMENTS, "classic")[0])


def accounts_epsilon(labels: int, gamma: float, teachers_per_holder: int = 1) -> float:
    """Return ε of the same labels by this project's accounts."""
    charge = labels * lnmax_charge(1.0, gamma, teachers_per_holder)
    try:
        return epsilon_of(charge, DELTA)
    except (ValueError, OverflowError):  # so large that rounding, which takes part of δ, would use all of it
        return float(gdp_epsilon(math.sqrt(charge), DELTA))


def figure4(quick: bool) -> Iterator[Case]:
    """Yield cases for MNIST: 100 queries, the student's own queries, and 1,000 queries."""
    for gamma in (0.1, 0.05):
        yield Case(f"MNIST, the student's 100 queries, γ {gamma}", (), partial(_student_queries, gamma))
    for gamma in (0.1, 0.05):
        yield Case(f"MNIST, the first 1,000 queries, γ {gamma}", (), partial(_thousand, gamma, None))
        yield Case(f"MNIST, 1,000 queries by chance, γ {gamma}", SEEDS, partial(_thousand, gamma, SEEDS))


def adult(quick: bool) -> Iterator[Case]:
    """Yield cases for Adult: 500 queries to 250 random forests, the authors' and ours."""
    yield Case("published votes of 2018, γ 0.05", SEEDS, lambda: _adult(published_votes("adult")), PROMISED)
    yield Case("250 random forests trained here, γ 0.05", SEEDS, lambda: _adult(trained_votes("adult")), PROMISED)
    yield Case("no privacy: one forest on all private records", (0,), partial(_no_privacy, "adult", 85.0))


def diabetes(quick: bool) -> Iterator[Case]:
    """Yield cases for Diabetes: with patients as holders, and the claim based on dividing by records."""
    yield Case("divided by patient, γ 0.05", SEEDS, _by_patient)
    yield Case("divided by record, γ 0.05", SEEDS, _by_record)
    yield Case("no privacy: one forest on all private records", (0,), partial(_no_privacy, "diabetes", None))


def _student_queries(gamma: float) -> Sequence[Row]:
    votes = published_counts("mnist_250_teachers").astype(float)[published_counts(STUDENT_ROWS)]
    return [Row("ε of 100 labels", 2.04, moments_epsilon(votes, gamma), accounts=accounts_epsilon(100, gamma))]


def _thousand(gamma: float, seeds: Sequence[int] | None) -> Sequence[Row]:
    votes = published_counts("mnist_250_teachers").astype(float)
    orders = [np.arange(len(votes))] if seeds is None else [_order(len(votes), seed) for seed in seeds]
    found = [moments_epsilon(votes[order[:1_000]], gamma) for order in orders]
    accounts, spread = accounts_epsilon(1_000, gamma), float(np.std(found)) if seeds else None
    return [Row("ε of 1,000 labels", 8.03, float(np.mean(found)), here_spread=spread, accounts=accounts)]


def _adult(votes: Votes) -> Sequence[Row]:
    found = results_by_seed(votes, 0.05)
    return [
        mean_row("ε of 500 labels", 2.66, [one.epsilon for one in found], accounts_epsilon(QUERIES, 0.05)),
        mean_row("labels right, %", None, [one.right for one in found], holders="right"),
        mean_row("student, %", 83.0, [one.student for one in found], holders="student"),
    ]


def _by_patient() -> Sequence[Row]:
    holder = _patients()
    order = np.random.default_rng(0).permutation(int(holder.max()) + 1)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) % teachers.TEACHERS
    parts = [np.flatnonzero(place[holder] == teacher) for teacher in range(teachers.TEACHERS)]
    votes = _diabetes(parts, "patient")
    found = results_by_seed(votes, 0.05)
    return [
        mean_row("ε of 500 labels", 1.44, [one.epsilon for one in found], accounts_epsilon(QUERIES, 0.05)),
        mean_row("labels right, %", None, [one.right for one in found]),
        mean_row("student, %", 93.94, [one.student for one in found]),
        Row("always “no”, %", None, 100 * float((truth_of("diabetes") == 0).mean())),
    ]


def _by_record() -> Sequence[Row]:
    holder = _patients()
    place = np.random.default_rng(0).permutation(len(holder)) % teachers.TEACHERS
    parts = [np.flatnonzero(place == teacher) for teacher in range(teachers.TEACHERS)]
    votes = _diabetes(parts, "record")
    found = results_by_seed(votes, 0.05)
    of_patient = np.bincount(np.unique(np.stack([holder, place]), axis=1)[0])
    rows = [mean_row("ε claimed, of a record", None, [one.epsilon for one in found], accounts_epsilon(QUERIES, 0.05))]
    for share in (90, 99, 100):
        many = int(np.quantile(of_patient, share / 100, method="higher"))
        found_many = [moments_epsilon(_queries(votes, seed).counts, 0.05, many) for seed in SEEDS]
        words = f"ε of a patient in {many} teachers ({'most of any' if share == 100 else f'{share} % have no more'})"
        rows.append(mean_row(words, None, found_many, accounts_epsilon(QUERIES, 0.05, many)))
    return rows


def _diabetes(parts: list[NDArray[np.int64]], by: str) -> Votes:
    splits = splits_load("diabetes")
    predictions = teachers.taught("diabetes", splits.private, splits.public.x, parts, {"by": by})
    return votes_of("diabetes", predictions, splits.public.y)


def _patients() -> NDArray[np.int64]:
    data_dir()
    return np.unique(np.array(splits_load("diabetes").private.holders), return_inverse=True)[1]


def _no_privacy(name: str, published: float | None) -> Sequence[Row]:
    data_dir()

    def measure() -> Json:
        splits = splits_load(name)
        model = LEARNERS[name].fit(splits.private.x, splits.private.y, classes=2, seed=0)
        return {"right": 100 * float((model.predict(splits.test.x) == splits.test.y).mean())}

    found = kept_json({"name": f"no-privacy-{name}"}, measure)["right"]
    return [Row("test records right, %", published, float(found))]


def results_by_seed(votes: Votes, gamma: float) -> list[SeedResult]:
    """Put 500 public records to the vote, and train a forest on the labels, once for each seed."""
    splits, found = splits_load(votes.name), []
    for seed in SEEDS:
        some = _queries(votes, seed)
        labels = LNMax(gamma).release(some.counts, SimulationNoise(seed)).labels
        rows = _order(len(splits.public), seed)[:QUERIES]
        model = LEARNERS[votes.name].fit(splits.public.x[rows], labels, classes=votes.classes, seed=seed)
        found.append(
            SeedResult(
                moments_epsilon(some.counts, gamma),
                100 * float((labels == some.truth).mean()),
                100 * float((model.predict(splits.test.x) == splits.test.y).mean()),
            )
        )
    return found


def _queries(votes: Votes, seed: int) -> Votes:
    public = len(splits_load(votes.name).public)
    return votes.at(_order(public, seed)[:QUERIES])


def _order(points: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(points)
