"""Individualized PATE if only one class has larger budgets: the effects on teachers, votes and students."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce import teachers
from benchmarks.reproduce.divided import Divided, divided
from benchmarks.reproduce.folders import Json, data_dir, kept_json, published
from benchmarks.reproduce.rehearsals import AGGREGATORS, by_paper, plan_of
from benchmarks.reproduce.results import Case, Promises, Row, mean_row
from benchmarks.reproduce.votes import votes_of
from benchmarks.students.teachers import LEARNERS
from common.noise import SimulationNoise
from learning.mechanisms.pate import Plan, PrivacyGroup, assign

SEEDS = (0, 1, 2, 3, 4)
"""Seeds of order and noise: five votings of an ensemble, as printed, each with a student."""
RICH = 1  # the class above 50K
CLASSES = ("low income", "high income")

Integers = NDArray[np.integer[Any]]
Cell = tuple[int, float] | None
"""Factor of the larger budget's exponential and share of the rich who have it; None if everyone has ln 2."""


def table6(quick: bool) -> Iterator[Case]:
    """Yield cases for the accuracy of students."""
    return _cases(quick, "table6_adult_student", partial(_by_class, "student"))


def table10a(quick: bool) -> Iterator[Case]:
    """Yield cases for the accuracy of teachers."""
    return _cases(quick, "table10a_adult_teachers", partial(_by_class, "teachers"))


def table10b(quick: bool) -> Iterator[Case]:
    """Yield cases for the accuracy of votes."""
    return _cases(quick, "table10b_adult_votes", _votes)


def table11(quick: bool) -> Iterator[Case]:
    """Yield cases for the number of labels."""
    return _cases(quick, "table11_adult_labels", _labels)


def _cases(quick: bool, table: str, rows: Callable[[Json, Any], Sequence[Row]]) -> Iterator[Case]:
    """Yield one case for each printed cell."""
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
    """Return the exponential of the larger budget divided by that of the smaller: 4 for “ln 8”."""
    return int(larger.removeprefix("ln ")) // 2


def _measured(cell: Cell, known: Any, rows: Callable[[Json, Any], Sequence[Row]]) -> Sequence[Row]:
    data_dir()
    return rows(kept_json({"name": "skewed-adult", "cell": cell, "seeds": SEEDS}, partial(_measure, cell)), known)


def _votes(found: Json, known: dict[str, float | None]) -> Sequence[Row]:
    """Return the labels of the points that the vote would answer, as printed, and the most voted classes of all."""
    return [*_by_class("answers", found, known), *_by_class("votes", found, dict.fromkeys(CLASSES))]


def _by_class(what: str, found: Json, known: dict[str, float | None]) -> Sequence[Row]:
    return [
        mean_row(f"{what} right on {named}, %", known[named], [draw[place] for draw in found[what]])
        for place, named in enumerate(CLASSES)
    ]


def _labels(found: Json, known: float) -> Sequence[Row]:
    return [
        mean_row("labels", known, found["labels"], holders="labels"),
        mean_row("labels right, %", None, found["right"], holders="right"),
    ]


def _promises(cell: tuple[int, float]) -> Promises:
    factor, share = cell
    return Promises("adult", (math.log(2), math.log(2 * factor)), (1 - share, share), RICH)


def _measure(cell: Cell) -> Json:
    """Return accuracies of teachers, votes and students in per cent by class, and labels; students for each seed."""
    data = divided("adult")
    place = np.zeros(len(data.private.y), np.int64)
    groups = [PrivacyGroup("all", math.log(2), len(place))]
    if cell is not None:
        (low, high), (_, share) = _promises(cell).epsilons, _promises(cell).shares
        rich = np.random.default_rng(0).permutation(np.flatnonzero(data.private.y == RICH))
        place[rich[: round(share * len(rich))]] = 1
        sizes = np.bincount(place, minlength=2)
        groups = [PrivacyGroup("low", low, int(sizes[0])), PrivacyGroup("high", high, int(sizes[1]))]
    plan = plan_of("PATE" if cell is None else "upsampling", groups, AGGREGATORS["adult"])
    predictions = _predictions(data, plan, place, cell)
    votes = votes_of("adult", predictions, data.public.y)
    answers = [plan.aggregator.release(votes.counts, SimulationNoise(seed)) for seed in SEEDS]
    held = [by_paper(votes, plan, groups, seed) for seed in SEEDS]
    students = [
        LEARNERS["adult"].fit(data.public.x[one.rows], one.labels, classes=2, seed=seed).predict(data.test.x)
        for one, seed in zip(held, SEEDS, strict=True)
    ]
    return {
        "teachers": [_right(predictions, votes.truth)],
        "votes": [_right(votes.counts.argmax(axis=1), votes.truth)],
        "answers": [_right(one.labels[one.answered], votes.truth[one.answered]) for one in answers],
        "student": [_right(said, data.test.y) for said in students],
        "labels": [len(one.rows) for one in held],
        "right": [100 * one.right for one in held],
    }


def _right(said: Integers, truth: Integers) -> list[float]:
    """Return the share of right answers for each class, in per cent."""
    return [100 * float((said[..., truth == one] == one).mean()) for one in (0, 1)]


def _predictions(data: Divided, plan: Plan, place: Integers, cell: Cell) -> Integers:
    if cell is None:
        return teachers.one_group("adult", data.private, data.public.x)
    records, taught_by = assign(plan, place, np.random.default_rng(0))
    parts = [records[taught_by == teacher] for teacher in range(plan.teachers)]
    return teachers.taught("adult", data.private, data.public.x, parts, {"rich": list(cell), "seed": 0})
