"""Comparison of the methods and of their students for the same people, promises, public points and test points.

Every row of these parts is stored as soon as it is measured, so that a stopped run resumes where it left off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.cells import Cell, Row
from benchmarks.neighbours.study import Data, data_load
from benchmarks.sgd.study import Case, case_of, splits_load
from benchmarks.sgd.study import hold as hold_steps
from benchmarks.students import teachers
from benchmarks.students.parts import LEVELS, judged, teacher, true_labels
from benchmarks.students.study import data_split, hold, split_order
from learning.learners import Model, learner_create
from learning.mechanisms.steps.steps_plan import STEPS, Steps
from learning.students import Releases, labelled, predicted

Promise = float | Sequence[float]
IMAGES: tuple[Promise, ...] = (LEVELS, 1.0, 0.25, 0.1)
TABLES: tuple[Promise, ...] = (1.0, 0.25, LEVELS)
CLOTHES = {"rotation": 3.3, "shift": 0.047, "stretch": 0.033, "bend": 0.0, "mirror": True, "erase": 0.3}
"""Augmentation for Fashion-MNIST: clothes are upright, and can be mirrored."""
STUDENTS = {
    "mnist": ("consistency",),
    "fashion": ("consistency",),
    "adult": ("boosting", "shares"),
    "diabetes": ("boosting", "shares"),
}


@dataclass(frozen=True)
class Study:
    """Data of a measurement: for MNIST, a split of the official test images; for tables, the catalogue's split.

    split: its seed, which is also the seed of the noise.  public: number of public points, None for all. holders:
    number of holders who take part, None for all.  thorough: the student of images, None for the usual one.
    """

    name: str
    split: int = 0
    public: int | None = None
    holders: int | None = None
    thorough: bool | None = None

    @property
    def about(self) -> Row:
        """Return values that identify the study in a row."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def images(self) -> bool:
        """Return whether the points are images, whose releases are refined and which are divided at random."""
        return self.name in ("mnist", "fashion")

    @property
    def parameters(self) -> Row:
        """Return parameters of the student that differ from its defaults."""
        if not self.thorough:
            return {}
        return {"thorough": True} | (CLOTHES if self.name == "fashion" else {})

    @property
    def data(self) -> Data:
        return _data(self)


def splits(quick: bool) -> Iterator[Cell]:
    """Measure every method on MNIST, with random splits of the test images into 9,000 public and 1,000 test points."""
    for split in range(1 if quick else 5):
        study = Study("mnist", split)
        yield from _cells(study, (3.0, *IMAGES), neighbours)
        for method in (sgd, pate):
            yield from _cells(study, IMAGES, method)
        yield study.about | {"method": "truth"}, lambda study=study: _learned(study, true_labels(study.data))
    for split in range(2):
        yield from _cells(Study("mnist", split), (0.25, 0.1), two_rounds)


def thorough(quick: bool) -> Iterator[Cell]:
    """Measure the thorough student on five splits of MNIST and Fashion-MNIST. This takes hours, or a GPU."""
    for split in range(1 if quick else 5):
        yield from _cells(Study("mnist", split, thorough=True), IMAGES, neighbours)
    for split in range(1 if quick else 5):
        clothes = Study("fashion", split, thorough=True)
        yield from _cells(clothes, (LEVELS, 1.0, 0.1), neighbours)
        yield from _cells(clothes, (LEVELS, 1.0), sgd)


def compared(quick: bool) -> Iterator[Cell]:
    """Measure every method at every promise and without a promise, on Adult and on Diabetes by patient."""
    for draw in range(1 if quick else 3):
        yield from _cells(Study("adult", draw), TABLES, sgd)
        yield from _cells(Study("diabetes", draw), () if quick else TABLES, linear)
    for name in ("adult",) if quick else ("adult", "diabetes"):
        yield from _cells(Study(name), TABLES, neighbours)
        yield from _cells(Study(name), TABLES, pate)
        yield Study(name).about | {"method": "no promise"}, lambda name=name: _no_promise(Study(name))


def few(quick: bool) -> Iterator[Cell]:
    """Measure results for few public points or few holders, with everyone at ε = 1."""
    for name in ("adult",) if quick else ("adult", "mnist"):
        for public in (1_000, 300):
            for method in (neighbours, sgd):
                yield from _cells(Study(name, public=public), (1.0,), method)
        for holders in (10_000, 3_000, 1_000, 300):
            for method in (sgd,) if name == "mnist" else (neighbours, sgd):
                yield from _cells(Study(name, holders=holders), (1.0,), method)


def _cells(study: Study, promises: Sequence[Promise], method: Callable[[Study, Promise], Row]) -> Iterator[Cell]:
    for promise in promises:
        epsilon = promise if isinstance(promise, float) else list(promise)
        about = study.about | {"method": method.__name__, "epsilon": epsilon}
        yield about, lambda promise=promise: method(study, promise)


def neighbours(study: Study, epsilon: Promise) -> Row:
    """Measure the method *neighbours*, with one planned round."""
    held = hold(study.data, epsilon, seed=1 + study.split)
    row = {"asked": held.rounds, "release_seconds": held.rounds[-1]["seconds"]}
    return row | _learned(study, held.releases, refine=study.images)


def two_rounds(study: Study, epsilon: Promise) -> Row:
    """Measure the method *neighbours*, with two rounds and a student published in between."""
    teach = teacher(STUDENTS[study.name][0], study.data if study.images else None)
    held = hold(study.data, epsilon, teach, seed=1 + study.split)
    row = {"asked": held.rounds, "release_seconds": sum(one["seconds"] for one in held.rounds)}
    return row | _learned(study, held.releases, refine=study.images)


def sgd(study: Study, epsilon: Promise) -> Row:
    """Measure one round of *sgd* (individual) with default choices: the model, and students of its predictions."""
    row, model = _steps(study, epsilon)
    return row | _learned(study, predicted(np.arange(len(study.data.x)), model.predict_proba(study.data.x)))


def linear(study: Study, epsilon: Promise) -> Row:
    """Measure only the linear model of the method *sgd*."""
    return _steps(study, epsilon)[0]


def _steps(study: Study, epsilon: Promise) -> tuple[Row, Model]:
    taken = hold_steps(_case(study), epsilon, steps=Steps(), seed=1 + study.split)
    scores = _judged(study.data, taken.model)
    return {
        "linear": scores,
        "students": {},
        "spent": taken.spent,
        "release_seconds": STEPS * taken.seconds,
    }, taken.model


def pate(study: Study, epsilon: Promise) -> Row:
    """Measure students of the labels that *pate* (weighting, 250 teachers) can pay for; none for very few labels."""
    data, private = study.data, splits_load(study.name).private
    # levels are independent of records, so teachers for three levels can also be used if all have the same level
    partition, places = teachers.weighted_plan(study.name, LEVELS, data.holders)
    plan, _ = teachers.weighted_plan(study.name, epsilon, data.holders)
    points, order = _points_not_private(study)
    predictions = teachers.teach(study.name, partition, places, private.x, private.y, data.holder, points)
    said = predictions.predictions[:, order[: len(data.x)]]
    answers = teachers.vote(study.name, plan, said, data.classes, seed=1 + study.split)
    row = {
        "asked": answers.points,
        "labels": len(answers.releases),
        "teachers_right": float((said == data.truth).mean()),
        "release_seconds": predictions.seconds,
    }
    if len(answers.releases) < data.classes:
        return row | {"students": {}}
    return row | _learned(study, answers.releases)


def _no_promise(study: Study) -> Row:
    """Measure boosted trees and a linear model trained directly on the private records."""
    data, case, private = study.data, _case(study), splits_load(study.name).private
    everyone = labelled(np.arange(len(private.x)), private.y, classes=data.classes)
    boosted = teacher("boosting")(private.x, everyone)
    columns = [case.fitted.transform(part) / 127 for part in (private.x, data.x, data.test_x)]
    fitted = learner_create("logistic_regression", {"iterations": 200}).fit(
        columns[0], private.y, classes=data.classes, seed=1
    )
    scores = _scores(data, *(fitted.predict_proba(part) for part in columns[1:]))
    return {"students": {"boosting": _judged(data, boosted)}, "linear": scores}


def _learned(study: Study, releases: Releases, *, refine: bool = False) -> Row:
    """Return scores of the students of the releases."""
    data, rows = study.data, {}
    for student in STUDENTS[study.name]:
        clock = time.process_time()
        model: Model = teacher(student, data if refine else None, **study.parameters)(data.x, releases)
        seconds = time.process_time() - clock
        rows[student] = _judged(data, model) | {"seconds": seconds}
    labels = float((releases.labels == data.truth[releases.rows]).mean())
    return {"labels_right": labels, "students": rows}


def _judged(data: Data, model: Model) -> Row:
    """Return the scores of `judged`; for tables, also those on public and test points together."""
    if data.name in ("mnist", "fashion"):
        return judged(data, model)
    return judged(data, model) | _scores(data, model.predict_proba(data.x), model.predict_proba(data.test_x))


def _scores(data: Data, public: np.ndarray, test: np.ndarray) -> Row:
    """Return the accuracy and area under the curve on the test points, and on all points that are not private."""
    row = {}
    both = np.concatenate([test, public]), np.concatenate([data.test_truth, data.truth])
    for where, (probabilities, truth) in {"": (test, data.test_truth), "_all": both}.items():
        row[f"test{where}"] = float((probabilities.argmax(axis=1) == truth).mean())
        row[f"auc{where}"] = float(roc_auc_score(truth, probabilities[:, 1]))
    return row


@cache
def _data(study: Study) -> Data:
    if study.images:
        data = data_split(study.name, study.split, study.public)
    else:
        data = data_load(study.name)
        data = Data(**(vars(data) | {name: getattr(data, name)[: study.public] for name in ("x", "truth", "public")}))
    return data.first(study.holders) if study.holders else data


@cache
def _case(study: Study) -> Case:
    data = study.data
    case = case_of(study.name, splits_load(study.name).private, data.x, data.test_x, data.test_truth, Steps())
    return case.first(study.holders) if study.holders else case


def _points_not_private(study: Study) -> tuple[np.ndarray, np.ndarray]:
    """Return the catalogue's public and test points, and their order in the study."""
    splits = splits_load(study.name)
    points = np.concatenate([splits.public.x, splits.test.x])
    in_order = study.name != "mnist"
    return points, np.arange(len(points)) if in_order else split_order("mnist", len(points), study.split)
