"""Parts of `python -m benchmarks.neighbours`; every part returns rows for its table, and prints nothing."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from tqdm import tqdm

from accounting.privacy import IndividualAccounts
from benchmarks.neighbours.study import (
    DELTAS,
    PROMISES,
    STUDENTS,
    ask,
    caps_draw,
    data_load,
    hold,
    levels_of,
    test_accuracy,
    test_auc,
)
from common.noise import SimulationNoise
from training.learners.registry import learner_create
from training.methods.neighbours.planner import plan_rounds
from training.methods.neighbours.release import read_counts, release_counts

Rows = list[dict[str, Any]]
HOLDERS, EPSILONS = (300, 1_000, 3_000, 10_000, 60_000), (0.1, 0.25, 0.5, 1.0, 2.0, 8.0)


def labels(quick: bool) -> Rows:
    """MNIST, everyone at ε = 1, all 9,000 public points in one round; 1, 3 and 7 shards."""
    data = data_load("mnist").first(6_000 if quick else 60_000)
    caps = caps_draw(1.0, data.holders, DELTAS["mnist"])
    clock = time.process_time()
    planned = plan_rounds(data.public, levels_of(caps, 1.0), share=1.0, n_classes=10, rounds=1).rounds[0]
    planning, rows, sums = time.process_time() - clock, [], []
    for shards in tqdm((1, 3, 7), desc="labels"):
        accounts = [IndividualAccounts(part) for part in np.array_split(caps, shards)]
        clock = time.process_time()
        sums.append(ask(data, planned.queries, planned.radius_share, planned.sigma, accounts))
        seconds = time.process_time() - clock
        counts = release_counts(sums[-1], planned.sigma, SimulationNoise(1))
        read = read_counts(counts, planned.sigma).labels
        rows.append(
            {
                "shards": shards,
                "answered": len(read),
                "right": float((read == data.truth[planned.queries]).mean()),
                "sigma": planned.sigma,
                "radius_share": planned.radius_share,
                "cpu_seconds": seconds,
                "planning_seconds": planning,
                "equal": bool((sums[-1] == sums[0]).all()),
            }
        )
    return rows


def rounds(quick: bool) -> Rows:
    """One and two rounds: labels and student, at three sets of promises."""
    names = ("digits", "adult") if quick else ("digits", "adult", "mnist", "diabetes")
    cases = [(name, told, count) for name in names for told in PROMISES for count in (1, 2)]
    rows = []
    for name, told, count in tqdm(cases, desc="rounds"):
        data = data_load(name)
        outcome = hold(data, PROMISES[told], rounds=count)
        rows.append(
            {
                "data": name,
                "epsilon": told,
                "rounds": count,
                "clear": outcome.plan.rounds[0].forecast.clear,
                "asked": [len(one.queries) for one in outcome.held],
                "sigma": [one.sigma for one in outcome.held],
                "radius_share": [one.radius_share for one in outcome.held],
                "right": outcome.right,
                "all_right": float((outcome.labels == data.truth).mean()),
                "student": test_accuracy(data, outcome.student),
                "auc": test_auc(data, outcome.student) if data.classes == 2 else None,
                "spent": float(outcome.spent.mean()),
                "seconds": outcome.seconds,
            }
        )
    return rows


def forecasts(quick: bool) -> Rows:
    """One round's forecast from public points and the labelled test points, against its outcome."""
    names = ("digits", "adult") if quick else tuple(STUDENTS)
    rows = []
    for name, told in tqdm([(name, told) for name in names for told in PROMISES], desc="forecasts"):
        data = data_load(name)
        outcome = hold(data, PROMISES[told], rounds=1, labelled=True, student=("nearest_neighbour", {}))
        made = outcome.plan.rounds[0].forecast
        caps = caps_draw(PROMISES[told], data.holders, DELTAS[name])
        rows.append(
            {
                "data": name,
                "epsilon": told,
                "forecast": made.accuracy[1],
                "interval": [made.accuracy[0], made.accuracy[2]],
                "right": outcome.right[0],
                "share": 1.0,
                "largest_spent": float(outcome.spent.max()),
                "spent_forecast": [level.spent for level in made.levels],
                "spent": [float(outcome.spent[caps == value].mean()) for value in np.unique(caps)],
            }
        )
    return rows


def spaces(quick: bool) -> Rows:
    """Labels of one round in the usual representation and in one learned from the public points, everyone at one ε."""
    names = ("digits",) if quick else ("digits", "mnist", "adult")
    cases = [(name, space, epsilon) for name in names for space in ("", "learned") for epsilon in (1.0, 0.25)]
    rows = []
    for name, space, epsilon in tqdm(cases, desc="spaces"):
        outcome = hold(data_load(name, space), epsilon, rounds=1, student=("nearest_neighbour", {}))
        asked = outcome.held[0]
        rows.append(
            {
                "data": name,
                "representation": space or "usual",
                "epsilon": epsilon,
                "sigma": asked.sigma,
                "radius_share": asked.radius_share,
                "right": outcome.right[0],
            }
        )
    return rows


def people(quick: bool) -> Rows:
    """MNIST: number of holders × ε, with logistic regression on the public coordinates as the student."""
    everyone, student = data_load("mnist"), ("logistic_regression", {})
    x = everyone.public / np.float32(127)
    best = learner_create(*student).fit(x, everyone.truth, classes=10, seed=1)
    target = test_accuracy(everyone, best, coordinates=True)
    cases = [(n, eps) for n in (HOLDERS[:3] if quick else HOLDERS) for eps in EPSILONS]
    rows = []
    for holders, epsilon in tqdm(cases, desc="people"):
        data = everyone.first(holders)
        outcome = hold(data, epsilon, student=student, coordinates=True)
        rows.append(
            {
                "holders": holders,
                "epsilon": epsilon,
                "rounds": len(outcome.held),
                "right": float((outcome.labels == data.truth).mean()),
                "student": test_accuracy(data, outcome.student, coordinates=True),
                "on_true_labels": target,
                "warnings": len(outcome.plan.warnings),
            }
        )
    return rows


def students(quick: bool) -> Rows:
    """Learners on public points whose labels are true but for a few: two in nine of the public points judge."""
    tried: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "mnist": [
            ("cnn", {"epochs": 10}),
            ("cnn", {"epochs": 3, "copies": 8}),
            STUDENTS["mnist"],
            ("nearest_neighbour", {"copies": 8}),
        ],
        "digits": [("cnn", {"epochs": 20, "copies": 20}), STUDENTS["digits"], ("nearest_neighbour", {"copies": 20})],
        "adult": [
            ("logistic_regression", {}),
            ("random_forest", {}),
            ("random_forest", {"leaf": 20}),
        ],
        "diabetes": [
            ("logistic_regression", {}),
            ("random_forest", {"leaf": 20, "balanced": True}),
            ("random_forest", {"leaf": 50}),
        ],
    }
    rows = []
    names = ("digits", "adult") if quick else tuple(tried)
    cases = [(name, *student) for name in names for student in tried[name]]
    for name, learner, parameters in tqdm(cases, desc="students"):
        data, rng = data_load(name), np.random.default_rng(3)
        order, wrong = rng.permutation(len(data.x)), rng.random(len(data.x)) < (0.02 if data.classes > 2 else 0.1)
        noisy = np.where(wrong, rng.integers(0, data.classes, len(data.x)), data.truth)
        learned, judged = order[: len(order) * 7 // 9], order[len(order) * 7 // 9 :]
        clock = time.process_time()
        model = learner_create(learner, parameters).fit(data.x[learned], noisy[learned], classes=data.classes, seed=1)
        right = model.predict(data.x[judged]) == data.truth[judged]
        rows.append(
            {
                "data": name,
                "learner": learner,
                "parameters": parameters,
                "right": float(right.mean()),
                "cpu_seconds": time.process_time() - clock,
            }
        )
    return rows
