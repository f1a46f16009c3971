"""Individualized PATE where one class alone has larger budgets: what teachers, votes and students know of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce import teachers
from benchmarks.reproduce.cache import Json, kept_json
from benchmarks.reproduce.progress import progress
from benchmarks.reproduce.rehearsals import by_paper, plan_of
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.reproduce.votes import data_dir, votes_of
from benchmarks.students.teachers import LEARNERS
from learning.formats.columns import CategoricalColumn
from learning.formats.schema import TabularSchema
from learning.mechanisms.pate import Group, Plan, assign

SEEDS = (0, 1, 2)
RICH = 1  # the class above 50K
COMPLETE_EACH = 160  # for 250 teachers 40,000 of the 45,222 complete records


class Published(NamedTuple):
    """Numbers of a cell; recall and precision are of the class above 50K, all but `labels` are per cent."""

    recall: float
    precision: float
    right: float
    labels: float
    student: float
    student_recall: float


# notebooks/adult/skew_experiments/analyze_votings.ipynb of the authors' first repository, by factor and share of the
# rich who have the larger ε
PUBLISHED = {
    (2, 0.25): Published(56.05, 65.92, 86.68, 89.66, 81.26, 36.77),
    (2, 0.50): Published(61.70, 63.12, 86.61, 95.24, 81.41, 45.93),
    (2, 0.75): Published(66.24, 60.85, 86.19, 101.04, 81.35, 54.74),
    (2, 1.00): Published(69.68, 58.95, 85.64, 108.98, 80.57, 63.39),
    (4, 0.25): Published(61.73, 63.14, 86.60, 93.32, 81.51, 45.91),
    (4, 0.50): Published(69.84, 58.94, 85.64, 107.88, 80.72, 62.25),
    (4, 0.75): Published(75.46, 55.90, 84.12, 132.16, 78.60, 72.61),
    (4, 1.00): Published(79.44, 53.53, 82.57, 162.26, 77.78, 77.36),
    (8, 0.25): Published(66.12, 60.81, 86.25, 95.68, 81.39, 54.00),
    (8, 0.50): Published(75.48, 55.84, 84.12, 128.60, 78.74, 72.68),
    (8, 0.75): Published(81.01, 52.53, 81.82, 171.64, 77.36, 79.42),
    (8, 1.00): Published(84.79, 49.94, 79.52, 224.60, 76.24, 83.59),
}
BASELINE = Published(48.82, 69.41, 86.18, 88.46, 79.85, 24.78)
Integers = NDArray[np.integer[Any]]


def table6(quick: bool) -> Iterator[Case]:
    """Teachers, and those of the baseline with more records, none of which lacks a value."""
    yield from _cases(quick, _teachers)
    if not quick:
        setting = f"everybody at ln 2, {COMPLETE_EACH} complete records for each teacher"
        yield Case(setting, SEEDS, lambda: list(_teachers(_of_complete_records(), BASELINE)))


def table10(quick: bool) -> Iterator[Case]:
    """Votes."""
    return _cases(quick, _votes)


def table11(quick: bool) -> Iterator[Case]:
    """Students."""
    return _cases(quick, _students)


def _cases(quick: bool, rows: Callable[[Json, Published], Iterator[Row]]) -> Iterator[Case]:
    everybody = Promises("adult", (math.log(2),))
    yield Case("everybody at ln 2, PATE", SEEDS, partial(_measured, None, BASELINE, rows), everybody)
    for cell in [] if quick else PUBLISHED:
        factor, share = cell
        setting = f"ln {2 * factor} for {100 * share:g} % of those above 50K, ln 2 for all others, upsampling"
        yield Case(setting, SEEDS, partial(_measured, cell, PUBLISHED[cell], rows), _promises(cell))


def _measured(
    cell: tuple[int, float] | None,
    published: Published,
    rows: Callable[[Json, Published], Iterator[Row]],
) -> Sequence[Row]:
    data_dir()
    return list(rows(_found(cell), published))


def _teachers(found: Json, published: Published) -> Iterator[Row]:
    recall, precision = found.get("recall_spread"), found.get("precision_spread")
    yield Row("teachers right on those above 50K, %", published.recall, found["teachers"][1], here_spread=recall)
    yield Row("right of those said to be above 50K, %", published.precision, found["precision"], here_spread=precision)
    yield Row("teachers right on those below, %", None, found["teachers"][0])


def _votes(found: Json, published: Published) -> Iterator[Row]:
    yield Row("labels right, %", published.right, found["right"], holders="right")
    yield Row("labels", published.labels, found["labels"], here_spread=found["spread"], holders="labels")
    yield Row("votes right on those above 50K, %", None, found["votes"][1])
    yield Row("votes right on those below, %", None, found["votes"][0])


def _students(found: Json, published: Published) -> Iterator[Row]:
    yield Row("student, %", published.student, found["student"], holders="student")
    yield Row("student right on those above 50K, %", published.student_recall, found["student_by_class"][1])
    yield Row("student right on those below, %", None, found["student_by_class"][0])


def _promises(cell: tuple[int, float]) -> Promises:
    factor, share = cell
    return Promises("adult", (math.log(2), math.log(2 * factor)), (1 - share, share), RICH)


def _found(cell: tuple[int, float] | None) -> Json:
    return kept_json({"name": "skewed-adult", "cell": cell, "seeds": len(SEEDS)}, lambda: _measure(cell))


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
        **_teachers_of(votes.predictions, votes.truth),
        "votes": [100 * float((said[votes.truth == one] == one).mean()) for one in (0, 1)],
        "labels": float(np.mean([len(one.rows) for one in held])),
        "spread": float(np.std([len(one.rows) for one in held], ddof=1)),
        "right": 100 * float(np.mean([one.right for one in held])),
        "student": float(students[:, 2].mean()),
        "student_by_class": students[:, :2].mean(axis=0).tolist(),
    }


def _teachers_of(predictions: Integers, truth: Integers) -> Json:
    """Shares of right predictions `(teachers, points)` by class, and the mean precision of a teacher, in per cent."""
    precisions = [float((truth[said == RICH] == RICH).mean()) for said in predictions]
    by_class = [100 * float((predictions[:, truth == one] == one).mean()) for one in (0, 1)]
    return {"teachers": by_class, "precision": 100 * float(np.mean(precisions))}


def _of_complete_records() -> Json:
    """Teachers of equal parts of the complete records, tried on those that are left over, over several divisions."""
    data_dir()
    found = [
        kept_json({"name": "complete-adult", "each": COMPLETE_EACH, "seed": seed}, partial(_complete_measure, seed))
        for seed in SEEDS
    ]
    teachers_right = np.array([one["teachers"] for one in found])
    precisions = np.array([one["precision"] for one in found])
    return {
        "teachers": teachers_right.mean(axis=0).tolist(),
        "recall_spread": float(teachers_right[:, RICH].std(ddof=1)),
        "precision": float(precisions.mean()),
        "precision_spread": float(precisions.std(ddof=1)),
    }


def _complete_measure(seed: int) -> Json:
    splits = teachers.splits_load("adult")
    asked, classes = teachers.points("adult")
    x, y = np.concatenate([splits.private.x, asked]), np.concatenate([splits.private.y, classes])
    assert isinstance(splits.schema, TabularSchema)
    choices = [isinstance(column, CategoricalColumn) for column in splits.schema.features for _ in column.features]
    full = sum(isinstance(column, CategoricalColumn) for column in splits.schema.features)
    complete = np.flatnonzero(x[:, choices].sum(axis=1) == full)  # a value that is missing is in no column
    order = np.random.default_rng(seed).permutation(complete)
    taught = teachers.TEACHERS * COMPLETE_EACH
    parts, left = np.split(order[:taught], teachers.TEACHERS), order[taught:]
    said = []
    with progress(len(parts), "teachers of complete records") as bar:
        for teacher, rows in enumerate(parts):
            said.append(LEARNERS["adult"].fit(x[rows], y[rows], classes=2, seed=teacher).predict(x[left]))
            bar.update()
    return _teachers_of(np.stack(said), y[left])


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
