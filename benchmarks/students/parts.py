"""Parts of `python -m benchmarks.students`. Every part yields rows for its table without printing them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.neighbours.study import Data
from benchmarks.sgd.study import case_load
from benchmarks.sgd.study import hold as hold_steps
from benchmarks.students.study import Teach, data_split, hold
from learning.learners import Model
from learning.mechanisms.steps.steps_plan import Steps
from learning.students import Releases, labelled, predicted, refine, student_create, student_learn

Rows = Iterator[dict[str, Any]]
LEVELS = (1.0, 2.0, 3.0)


def teacher(name: str, data: Data | None = None, **parameters: Any) -> Teach:
    """Return a function that trains the student of this name; with `data`, on refined releases."""

    def teach(points: np.ndarray, releases: Releases) -> Model:
        read = releases if data is None else refine(data.public, releases, seed=1)
        return student_learn(student_create(name, parameters), points, read, seed=1)

    return teach


def judged(data: Data, model: Model) -> dict[str, Any]:
    """Return accuracy on test points and on public points (whose true labels no student saw), and test log loss."""
    from sklearn.metrics import roc_auc_score

    probabilities, public = model.predict_proba(data.test_x), model.predict_proba(data.x)
    right = probabilities[np.arange(len(probabilities)), data.test_truth]
    row = {
        "test": float((probabilities.argmax(axis=1) == data.test_truth).mean()),
        "public": float((public.argmax(axis=1) == data.truth).mean()),
        "log_loss": float(-np.log(np.maximum(right, 1e-12)).mean()),
        "confidence": float(probabilities.max(axis=1).mean()),
    }
    if data.classes == 2:
        row["auc"] = float(roc_auc_score(data.test_truth, probabilities[:, 1]))
        row["auc_public"] = float(roc_auc_score(data.truth, public[:, 1]))
    return row


def rows_of(
    data: Data, epsilon: Any, releases: Releases, teachers: dict[str, Teach], **about: Any
) -> Iterator[dict[str, Any]]:
    for name, teach in teachers.items():
        clock = time.process_time()
        model = teach(data.x, releases)
        seconds = time.process_time() - clock
        labels = float((releases.labels == data.truth[releases.rows]).mean())
        yield {
            "data": data.name,
            "epsilon": epsilon,
            **about,
            "student": name,
            "labels_right": labels,
            **judged(data, model),
            "cpu_seconds": seconds,
        }


def true_labels(data: Data) -> Releases:
    return labelled(np.arange(len(data.x)), data.truth, classes=data.classes)


def images(quick: bool) -> Rows:
    """Measure consistency training for one and two rounds on MNIST, compared with training on true public labels."""
    data = data_split("mnist")
    parameters = {"steps": 100} if quick else {}
    teach = teacher("consistency", data, **parameters)
    for epsilon in tqdm((LEVELS, 0.1, 1.0, 0.25), desc="images"):
        held = hold(data, epsilon)
        yield from rows_of(data, epsilon, held.releases, {"consistency": teach}, rounds=1, asked=held.rounds)
    yield from rows_of(
        data, None, true_labels(data), {"consistency": teacher("consistency", **parameters)}, rounds=0, asked=[]
    )
    held = hold(data, 0.1, teach)
    yield from rows_of(data, 0.1, held.releases, {"consistency": teach}, rounds=2, asked=held.rounds)


def few_points(quick: bool) -> Rows:
    """Measure MNIST with 1,000 and 300 public points."""
    for points in tqdm((1_000, 300), desc="few points"):
        data = data_split("mnist", public=points)
        parameters = {"steps": 100 if quick else 500}
        held, teach = hold(data, 1.0), teacher("consistency", data, **parameters)
        yield from rows_of(data, 1.0, held.releases, {"consistency": teach}, rounds=1, asked=held.rounds, points=points)
        true = {"consistency": teacher("consistency", **parameters)}
        yield from rows_of(data, None, true_labels(data), true, rounds=0, asked=[], points=points)


def few_people(quick: bool) -> Rows:
    """Measure one round on MNIST with all public points but only the first holders."""
    everyone = data_split("mnist")
    parameters = {"steps": 100} if quick else {}
    cells = [(epsilon, holders) for epsilon in (1.0, 0.25, 3.0, 0.1) for holders in (300, 1_000, 3_000, 10_000)]
    for epsilon, holders in tqdm(cells[:1] if quick else cells, desc="few people"):
        data = everyone.first(holders)
        held, teach = hold(data, epsilon), teacher("consistency", data, **parameters)
        yield from rows_of(
            data, epsilon, held.releases, {"consistency": teach}, rounds=1, asked=held.rounds, holders=holders
        )


def digits(quick: bool) -> Rows:
    """Measure digits at ε = 1, 2, 3, on three random splits."""
    for split in tqdm(range(1 if quick else 3), desc="digits"):
        data = data_split("digits", seed=split)
        parameters = {"steps": 300}
        held = hold(data, LEVELS)
        teachers = {
            "consistency, refined": teacher("consistency", data, **parameters),
            "consistency": teacher("consistency", **parameters),
            "cnn": teacher("cnn", epochs=20, copies=20, rotation=15.0, shift=0.12),
        }
        yield from rows_of(data, LEVELS, held.releases, teachers, rounds=1, asked=held.rounds, split=split)
        true = {"consistency": teachers["consistency"]}
        yield from rows_of(data, None, true_labels(data), true, rounds=0, asked=[], split=split)


def tables(quick: bool) -> Rows:
    """Measure Adult and Diabetes at ε = 1 and 0.25."""
    for name in ("adult",) if quick else ("adult", "diabetes"):
        data = data_split(name)
        teachers = {each: teacher(each) for each in ("shares", "boosting", "logistic_regression")}
        for epsilon in tqdm((1.0, 0.25), desc=name):
            held = hold(data, epsilon)
            yield from rows_of(data, epsilon, held.releases, teachers, rounds=1, asked=held.rounds)
        yield from rows_of(data, None, true_labels(data), teachers, rounds=0, asked=[])


def steps(quick: bool) -> Rows:
    """Measure private gradient steps: the linear model, and students of its predictions for the public points."""
    from sklearn.metrics import roc_auc_score

    studies = [("mnist", (1.0, 0.1), ("consistency",)), ("adult", (1.0,), ("shares", "boosting"))]
    for name, epsilons, students in studies[1:] if quick else studies:
        case = case_load(name, 0, Steps())
        for epsilon in tqdm(epsilons, desc=name):
            taken = hold_steps(case, epsilon, steps=Steps(), seed=1)
            said = predicted(np.arange(len(case.points)), taken.model.predict_proba(case.points))
            row = {"data": name, "epsilon": epsilon}
            yield row | {
                "student": "none: the linear model",
                "test": taken.accuracy,
                "auc": taken.auc,
                "cpu_seconds": None,
            }
            for student in students:
                clock = time.process_time()
                model = teacher(student)(case.points, said)
                seconds, probabilities = time.process_time() - clock, model.predict_proba(case.test_points)
                yield row | {
                    "student": student,
                    "test": float((probabilities.argmax(axis=1) == case.truth).mean()),
                    "auc": float(roc_auc_score(case.truth, probabilities[:, 1])) if model.classes == 2 else None,
                    "cpu_seconds": seconds,
                }
