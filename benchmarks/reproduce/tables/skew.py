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
from benchmarks.reproduce.progress import progress
from benchmarks.reproduce.published import published
from benchmarks.reproduce.rehearsals import by_paper, plan_of
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.reproduce.votes import data_dir, votes_of
from benchmarks.students.teachers import LEARNERS
from learning.formats.columns import CategoricalColumn
from learning.formats.schema import TabularSchema
from learning.mechanisms.pate import Group, Plan, assign

SEEDS = (0, 1, 2)
RICH = 1  # the class above 50K
CLASSES = ("low income", "high income")
COMPLETE_EACH = 160  # for 250 teachers 40,000 of the 45,222 complete records


Integers = NDArray[np.integer[Any]]
Cell = tuple[int, float] | None
"""Factor of the larger budget's exponential and share of the rich who have it; None where everybody has ln 2."""


def table6(quick: bool) -> Iterator[Case]:
    """Students."""
    return _cases(quick, "table6_adult_student", partial(_by_class, "student", "student_by_class"))


def table10a(quick: bool) -> Iterator[Case]:
    """Teachers, and those of the baseline with more records, none of which lacks a value."""
    yield from _cases(quick, "table10a_adult_teachers", partial(_by_class, "teachers", "teachers"))
    if not quick:
        setting = f"everybody at ln 2, {COMPLETE_EACH} complete records for each teacher"
        known = dict(zip(CLASSES, published("individualized-pate")["table10a_adult_teachers"]["baseline"], strict=True))
        rows = partial(_by_class, "teachers", "teachers")
        yield Case(setting, SEEDS, lambda: rows(_of_complete_records(), known))


def table10b(quick: bool) -> Iterator[Case]:
    """Votes."""
    return _cases(quick, "table10b_adult_votes", partial(_by_class, "votes", "votes"))


def table11(quick: bool) -> Iterator[Case]:
    """Labels."""
    return _cases(quick, "table11_adult_labels", _labels)


def _cases(quick: bool, table: str, rows: Callable[[Json, Any], Sequence[Row]]) -> Iterator[Case]:
    """One case for each printed cell."""
    printed = published("individualized-pate")[table]
    known = printed["baseline"]
    cells: list[tuple[Cell, Any]] = [(None, known if rows is _labels else dict(zip(CLASSES, known, strict=True)))]
    if not quick:
        for larger, row in printed["cells"].items():
            cells += [((_factor(larger), int(share.removesuffix(" %")) / 100), one) for share, one in row.items()]
    for cell, one in cells:
        setting = "everybody at ln 2, PATE"
        if cell is not None:
            setting = f"ln {2 * cell[0]} for {100 * cell[1]:g} % of those above 50K, ln 2 for all others, upsampling"
        promises = Promises("adult", (math.log(2),)) if cell is None else _promises(cell)
        yield Case(setting, SEEDS, partial(_measured, cell, one, rows), promises)


def _factor(larger: str) -> int:
    """By how much the larger budget's exponential is larger: 4 of “ln 8”."""
    return int(larger.removeprefix("ln ")) // 2


def _measured(cell: Cell, known: Any, rows: Callable[[Json, Any], Sequence[Row]]) -> Sequence[Row]:
    data_dir()
    return rows(_found(cell), known)


def _by_class(what: str, key: str, found: Json, known: dict[str, float]) -> Sequence[Row]:
    return [Row(f"{what} right on {named}, %", known[named], found[key][place]) for place, named in enumerate(CLASSES)]


def _labels(found: Json, known: float) -> Sequence[Row]:
    return [
        Row("labels", known, found["labels"], here_spread=found["spread"], holders="labels"),
        Row("labels right, %", None, found["right"], holders="right"),
    ]


def _promises(cell: tuple[int, float]) -> Promises:
    factor, share = cell
    return Promises("adult", (math.log(2), math.log(2 * factor)), (1 - share, share), RICH)


def _found(cell: Cell) -> Json:
    return kept_json({"name": "skewed-adult", "cell": cell, "seeds": len(SEEDS)}, lambda: _measure(cell))


def _measure(cell: Cell) -> Json:
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
    points, classes = teachers.points("adult")
    x, y = np.concatenate([splits.private.x, points]), np.concatenate([splits.private.y, classes])
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


def _predictions(plan: Plan, place: Integers, cell: Cell) -> Integers:
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
