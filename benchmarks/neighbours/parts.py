"""Parts of `python -m benchmarks.neighbours`. Every part returns rows for its table without printing them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from tqdm import tqdm

from accounting.privacy import IndividualAccounts
from benchmarks.neighbours.results import measured
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
from learning.mechanisms.neighbours.released_counts import read_counts, release_counts
from learning.mechanisms.neighbours.rounds import plan_rounds
from learning.mechanisms.neighbours.surrogates import Sample

Rows = list[dict[str, Any]]
EPSILONS = (1.0, 0.25, 0.1)
STUDENT = ("logistic_regression", {})


def labels(quick: bool) -> Rows:
    """Measure one round on MNIST, with everyone at ε = 1, all 9,000 public points, and 1, 3 and 7 shards."""
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
    """Measure one and two planned rounds at three promises, and with a tenth of the head count taking part."""
    usual = [("digits", 1.0)] if quick else [("mnist", 1.0), ("adult", 1.0), ("digits", 1.0), ("diabetes", 1.0)]
    wishes = [(*one, count) for one in usual for count in (1, 2)] + ([] if quick else [("mnist", 0.1, 2)])
    cells = [
        {"data": data, "taking_part": taking_part, "epsilon": epsilon, "rounds": count}
        for epsilon in EPSILONS
        for data, taking_part, count in wishes
    ]
    return measured("rounds", cells, _rounds, quick)


def _rounds(data: str, taking_part: float, epsilon: float, rounds: int) -> dict[str, Any]:
    whole = data_load(data)
    held = whole.first(round(taking_part * whole.holders)) if taking_part < 1 else whole
    images = held.x.ndim > 2  # their coordinates help a linear student more than the pixels do
    outcome = hold(
        held,
        epsilon,
        rounds=rounds,
        student=STUDENT if images else None,
        labelled=True,
        coordinates=images,
        taking_part=taking_part,
    )
    return {
        "forecast": outcome.plan.rounds[0].forecast.labels.value,
        "asked": [len(one.queries) for one in outcome.held],
        "sigma": [one.sigma for one in outcome.held],
        "radius_share": [one.radius_share for one in outcome.held],
        "right": outcome.right,
        "all_right": float((outcome.labels == held.truth).mean()),
        "student": test_accuracy(held, outcome.student, images),
        "auc": test_auc(held, outcome.student) if held.classes == 2 else None,
        "spent": float(outcome.spent.mean()),
        "seconds": outcome.seconds,
    }


def forecasts(quick: bool) -> Rows:
    """Compare forecasts of one round, based on public and labelled test points, with the results of 20 draws."""
    names = ("digits", "adult") if quick else tuple(STUDENTS)
    rows = []
    for name, promise in tqdm([(name, promise) for name in names for promise in PROMISES], desc="forecasts"):
        data = data_load(name)
        caps = caps_draw(PROMISES[promise], data.holders, DELTAS[name])
        levels = levels_of(caps, len(data.private) / data.holders)
        sample = Sample(data.test, data.test_truth)
        planned = plan_rounds(data.public, levels, share=1.0, n_classes=data.classes, rounds=1, sample=sample).rounds[0]
        accounts = IndividualAccounts(caps)
        sums = ask(data, planned.queries, planned.radius_share, planned.sigma, [accounts])
        drawn = [release_counts(sums, planned.sigma, SimulationNoise(seed)) for seed in range(20)]
        right = [
            float((read_counts(counts, planned.sigma).labels == data.truth[planned.queries]).mean()) for counts in drawn
        ]
        made, spent = planned.forecast, accounts.spent / caps
        rows.append(
            {
                "data": name,
                "epsilon": promise,
                "forecast": made.labels.value,
                "interval": [made.labels.low, made.labels.high],
                "right": float(np.mean(right)),
                "from_to": [min(right), max(right)],
                "share": planned.share,
                "largest_spent": float(spent.max()),
                "spent_forecast": [level.spent for level in made.levels],
                "spent": [float(spent[caps == value].mean()) for value in np.unique(caps)],
            }
        )
    return rows


def spaces(quick: bool) -> Rows:
    """Compare labels of one round in the usual representation and in one learned from public points; one ε for all."""
    names = ("digits",) if quick else ("digits", "mnist", "adult")
    cases = [(name, space, epsilon) for name in names for space in ("", "learned") for epsilon in (1.0, 0.25)]
    rows = []
    for name, space, epsilon in tqdm(cases, desc="spaces"):
        outcome = hold(data_load(name, space), epsilon, rounds=1, student=("nearest_neighbour", {}))
        first = outcome.held[0]
        rows.append(
            {
                "data": name,
                "representation": space or "usual",
                "epsilon": epsilon,
                "sigma": first.sigma,
                "radius_share": first.radius_share,
                "right": outcome.right[0],
            }
        )
    return rows
