"""Individualized PATE where one class alone has larger budgets: what teachers, votes and students know of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce import teachers
from benchmarks.reproduce.cache import Json, kept_json
from benchmarks.reproduce.rehearsals import by_paper, plan_of
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.reproduce.votes import data_dir, votes_of
from benchmarks.students.teachers import LEARNERS
from training.methods.pate import Group, Plan, assign

SEEDS = (0, 1, 2)
RICH = 1  # the class above 50K

# notebooks/adult/skew_experiments/analyze_votings.ipynb of the authors' first repository, by factor and share of the
# rich who have the larger ε: recall of teachers, votes right, labels, students right, recall of students; all but
# labels in per cent.
PUBLISHED = {
    (2, 0.25): (56.05, 86.68, 89.66, 81.26, 36.77),
    (2, 0.50): (61.70, 86.61, 95.24, 81.41, 45.93),
    (2, 0.75): (66.24, 86.19, 101.04, 81.35, 54.74),
    (2, 1.00): (69.68, 85.64, 108.98, 80.57, 63.39),
    (4, 0.25): (61.73, 86.60, 93.32, 81.51, 45.91),
    (4, 0.50): (69.84, 85.64, 107.88, 80.72, 62.25),
    (4, 0.75): (75.46, 84.12, 132.16, 78.60, 72.61),
    (4, 1.00): (79.44, 82.57, 162.26, 77.78, 77.36),
    (8, 0.25): (66.12, 86.25, 95.68, 81.39, 54.00),
    (8, 0.50): (75.48, 84.12, 128.60, 78.74, 72.68),
    (8, 0.75): (81.01, 81.82, 171.64, 77.36, 79.42),
    (8, 1.00): (84.79, 79.52, 224.60, 76.24, 83.59),
}
BASELINE = (48.82, 86.18, 88.46, 79.85, 24.78)
Integers = NDArray[np.integer[Any]]


def table6(quick: bool) -> Iterator[Case]:
    """Teachers."""
    return _cases(quick, _teachers)


def table10(quick: bool) -> Iterator[Case]:
    """Votes."""
    return _cases(quick, _votes)


def table11(quick: bool) -> Iterator[Case]:
    """Students."""
    return _cases(quick, _students)


def _cases(quick: bool, rows: Callable[[Json, tuple[float, ...]], Iterator[Row]]) -> Iterator[Case]:
    everybody = Promises("adult", (math.log(2),))
    yield Case("everybody at ln 2, PATE", SEEDS, partial(_measured, None, BASELINE, rows), everybody)
    for cell in [] if quick else PUBLISHED:
        factor, share = cell
        setting = f"ln {2 * factor} for {100 * share:g} % of those above 50K, ln 2 for all others, upsampling"
        yield Case(setting, SEEDS, partial(_measured, cell, PUBLISHED[cell], rows), _promises(cell))


def _measured(
    cell: tuple[int, float] | None,
    published: tuple[float, ...],
    rows: Callable[[Json, tuple[float, ...]], Iterator[Row]],
) -> Sequence[Row]:
    data_dir()
    return list(rows(_found(cell), published))


def _teachers(found: Json, published: tuple[float, ...]) -> Iterator[Row]:
    yield Row("teachers right on those above 50K, %", published[0], found["teachers"][1])
    yield Row("teachers right on those below, %", None, found["teachers"][0])


def _votes(found: Json, published: tuple[float, ...]) -> Iterator[Row]:
    yield Row("labels right, %", published[1], found["right"], holders="right")
    yield Row("labels", published[2], found["labels"], here_spread=found["spread"], holders="labels")
    yield Row("votes right on those above 50K, %", None, found["votes"][1])
    yield Row("votes right on those below, %", None, found["votes"][0])


def _students(found: Json, published: tuple[float, ...]) -> Iterator[Row]:
    yield Row("student, %", published[3], found["student"], holders="student")
    yield Row("student right on those above 50K, %", published[4], found["student_by_class"][1])
    yield Row("student right on those below, %", None, found["student_by_class"][0])


def _promises(cell: tuple[int, float]) -> Promises:
    factor, share = cell
    return Promises("adult", (math.log(2), math.log(2 * factor)), (1 - share, share), RICH)


def _found(cell: tuple[int, float] | None) -> Json:
    return kept_json({"name": "skew-adult", "cell": cell, "seeds": len(SEEDS)}, lambda: _measure(cell))


def _measure(cell: tuple[int, float] | None) -> Json:
    truth = teachers.splits_load("adult").private.y
    place = np.zeros(len(truth), np.int64)
    groups = [Group("all", math.log(2), len(truth))]
    if cell is not None:
        (low, high), (_, share) = _promises(cell).epsilons, _promises(cell).shares
        rich = np.random.default_rng(0).permutation(np.flatnonzero(truth == RICH))
        place[rich[: round(share * len(rich))]] = 1
        sizes = np.bincount(place, minlength=2)
        groups = [Group("low", low, int(sizes[0])), Group("high", high, int(sizes[1]))]
    plan = plan_of("PATE" if cell is None else "upsampling", groups)
    predictions = _predictions(plan, place, cell)
    votes = votes_of("adult", predictions)
    held = [by_paper(votes, plan, groups, seed) for seed in SEEDS]
    students = np.array([_student(one.rows, one.labels, seed) for one, seed in zip(held, SEEDS, strict=True)])
    said = votes.counts.argmax(axis=1)
    assert votes.predictions is not None
    return {
        "teachers": [100 * float((votes.predictions[:, votes.truth == one] == one).mean()) for one in (0, 1)],
        "votes": [100 * float((said[votes.truth == one] == one).mean()) for one in (0, 1)],
        "labels": float(np.mean([len(one.rows) for one in held])),
        "spread": float(np.std([len(one.rows) for one in held], ddof=1)),
        "right": 100 * float(np.mean([one.right for one in held])),
        "student": float(students[:, 2].mean()),
        "student_by_class": students[:, :2].mean(axis=0).tolist(),
    }


def _predictions(plan: Plan, place: Integers, cell: tuple[int, float] | None) -> Integers:
    if cell is None:
        return teachers.one_group("adult")
    records, taught_by = assign(plan, place, np.random.default_rng(0))
    parts = [records[taught_by == teacher] for teacher in range(plan.teachers)]
    return teachers.taught("adult", parts, {"rich": list(cell)})


def _student(rows: Integers, labels: Integers, seed: int) -> tuple[float, float, float]:
    x, _ = teachers.points("adult")
    test = teachers.splits_load("adult").test
    said = LEARNERS["adult"].fit(x[rows], labels, classes=2, seed=seed).predict(test.x)
    by_class = [100 * float((said[test.y == one] == one).mean()) for one in (0, 1)]
    return by_class[0], by_class[1], 100 * float((said == test.y).mean())
