"""The same studies with every holder's vote (method neighbours): labels of all public points, and a student."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from accounting.caps import caps_of
from benchmarks.neighbours.study import SHARES, Data, data_load
from benchmarks.reproduce.folders import data_dir
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.students.parts import teacher
from benchmarks.students.study import hold

DELTA, SEED = 1e-5, 1
STUDENTS = {"mnist": "consistency", "adult": "boosting"}
MEASURED = Path(__file__).resolve().parents[2] / "results" / "students.json"
QUICK = "digits"  # comes with scikit-learn


def measured_elsewhere() -> dict[str, dict[str, float]]:
    """Return the results of `python -m benchmarks.students` by promises (for MNIST, means over the splits)."""
    every = json.loads(MEASURED.read_text())
    found: dict[str, list[dict[str, float]]] = {}
    for row in [*every["splits"], *every["compared"]]:
        if row["method"] == "neighbours" and row["name"] in STUDENTS:
            epsilon = row["epsilon"]
            promises = Promises(
                row["name"], *((tuple(epsilon), SHARES) if isinstance(epsilon, list) else ((epsilon,),))
            )
            student = row["students"][STUDENTS[row["name"]]]["test"]
            numbers = {"labels": row["asked"][0]["asked"], "right": 100 * row["labels_right"], "student": 100 * student}
            found.setdefault(promises.setting, []).append(numbers)
    return {setting: {name: fmean(row[name] for row in rows) for name in rows[0]} for setting, rows in found.items()}


def cases(others: Iterable[Callable[[bool], Iterable[Case]]], quick: bool) -> Iterator[Case]:
    """Yield one case for all promises in cases of the other tables; if quick, digits at ε = 1, 2, 3 instead."""
    promises = [Promises(QUICK, (1.0, 2.0, 3.0), SHARES)]
    if not quick:
        known = measured_elsewhere()
        wanted = (case.promises for cases_of in others for case in cases_of(False))
        promises += [one for one in wanted if one and one.setting not in known]
    for one in dict.fromkeys(promises):
        yield Case(one.setting, (SEED,), partial(_rows, one))


def _rows(promises: Promises) -> Sequence[Row]:
    """Measure one round by the planner, using every cap in full."""
    if promises.data != QUICK:
        data_dir()
    data = data_load(promises.data)
    held = hold(data, list(promises.epsilons), caps=_caps(data, promises), seed=SEED)
    refined = data if data.test_x.ndim > 2 else None
    model = teacher(STUDENTS.get(promises.data, "consistency"), refined)(data.x, held.releases)
    return [
        Row("labels", None, len(held.releases)),
        Row("right", None, 100 * float((held.releases.labels == data.truth[held.releases.rows]).mean())),
        Row("student", None, 100 * float((model.predict(data.test_x) == data.test_truth).mean())),
    ]


def _caps(data: Data, promises: Promises) -> NDArray[np.float64]:
    random = np.random.default_rng(0)
    places = random.choice(len(promises.epsilons), data.holders, p=list(promises.shares))
    if promises.of_class is not None:
        of_holder = np.zeros(data.holders, np.int64)
        of_holder[data.holder] = data.private_truth
        places = np.where(of_holder == promises.of_class, places, 0)
    return caps_of(np.array(promises.epsilons), DELTA)[places]
