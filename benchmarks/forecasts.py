"""Forecasts of plans compared with results, for every method, on real data.

    IPATE_DATA_DIR=… python -m benchmarks.forecasts [FOLDER]

A plan makes its forecast before its run is approved, using only the labelled test points and public numbers of people.
The results are from `benchmarks.sgd` (accuracy of the linear model on the test points, mean of the draws) and
`benchmarks.students` (share of right labels); both are measured on private records. With FOLDER, as in
`benchmarks.outcomes`, times to an event are also learned. benchmarks/results/methods.md has the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from accounting.caps import caps_of
from accounting.privacy import gdp_mu
from benchmarks import outcomes
from benchmarks.neighbours.study import DELTAS, caps_draw, data_load, levels_of
from benchmarks.sgd.study import CLASSES, case_load
from benchmarks.sgd.study import caps_draw as caps_of_steps
from benchmarks.students.study import data_split
from benchmarks.students.teachers import LEARNERS, weighted_plan
from learning.forecasts import Forecast
from learning.mechanisms.neighbours.rounds import plan_rounds
from learning.mechanisms.neighbours.surrogates import Sample
from learning.mechanisms.pate.ballots import VoteBudget
from learning.mechanisms.pate.teachers import forecast_votes
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.rehearsals import forecast_steps, forecast_target
from learning.mechanisms.steps.steps_plan import Steps, plan_steps, strength_of
from learning.representations import representation_create

Promise = float | tuple[float, ...]
LEVELS = (1.0, 2.0, 3.0)
NAMES = ("mnist", "adult", "diabetes")
_SAMPLE = 600
_RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str]) -> None:
    """Print a line of Markdown for each method, dataset and promise."""
    for method, name, promise, forecast, came in _rows(arguments):
        noted = "–" if came is None else f"{100 * came:.1f}"
        inside = "" if came is None else "yes" if forecast.low - 0.005 <= came <= forecast.high + 0.005 else "**no**"
        low, high = (f"{100 * end:.1f}" for end in (forecast.low, forecast.high))
        said = f"{100 * forecast.noisy:.1f} ({low} to {high}) | {forecast.judged}"
        sys.stdout.write(f"| {method} | {name} | {promise} | {said} | {noted} | {inside} |\n")
        sys.stdout.flush()


def _rows(arguments: Sequence[str]) -> Iterator[tuple[str, str, str, Forecast, float | None]]:
    for name in NAMES:
        for promise in (0.25, 1.0, LEVELS):
            said = ", ".join(f"{each:g}" for each in np.atleast_1d(promise))
            yield "steps, model", name, said, steps(name, promise), _came("sgd", name, promise, "accuracy")
            voted = neighbours(name, promise)
            if voted is not None:
                came = _came("students", name, promise, "labels_right", method="neighbours")
                yield "neighbours, labels", name, said, voted, came
            taught = pate(name, promise)
            if taught is not None:
                yield (
                    "pate, labels",
                    name,
                    said,
                    taught,
                    _came("students", name, promise, "labels_right", method="pate"),
                )
    for folder in map(Path, arguments):
        for case in (outcomes.flchain(folder), outcomes.support2(folder)):
            for name in ("1", "1-2-3"):
                found = times(case, name)
                if found is not None:
                    came = outcomes.measures(case, name, 0)["concordance"]
                    yield "steps, concordance", case.name, name.replace("-", ", "), found, came


def steps(name: str, promise: Promise) -> Forecast:
    """Return the forecast for a linear model trained in one round with default choices."""
    case = case_load(name, 0, Steps())
    levels = [
        PlannedLevel(f"{cap:.3g}", float(cap), float(count))
        for cap, count in zip(*np.unique(caps_of_steps(promise, case.people), return_counts=True), strict=True)
    ]
    case, classes = case.placed(Steps(), strength_of(levels, share=1.0, steps=Steps())), CLASSES[name]
    plan = plan_steps(levels, dimensions=case.public.shape[1], n_classes=classes, share=1.0, steps=Steps())
    return forecast_steps(plan, case.test, classes, labels=case.truth)[0]


def neighbours(name: str, promise: Promise) -> Forecast | None:
    """Return the forecast for the labels of one round by the planner."""
    data = data_split("mnist") if name == "mnist" else data_load(name)
    levels = levels_of(caps_draw(promise, data.holders, DELTAS[name]), len(data.private) / data.holders)
    sample = Sample(data.test, data.test_truth)
    plan = plan_rounds(data.public, levels, share=1.0, n_classes=data.classes, rounds=1, sample=sample)
    return plan.rounds[0].forecast.labels


def pate(name: str, promise: Promise) -> Forecast | None:
    """Return the forecast for the labels of 250 teachers."""
    data = data_split("mnist") if name == "mnist" else data_load(name)
    plan, _places = weighted_plan(name, promise, data.holders)
    chosen = np.linspace(0, len(data.test_x) - 1, min(len(data.test_x), _SAMPLE)).astype(np.int64)  # as a plan would
    points, labels = data.test_x[chosen], data.test_truth[chosen]
    charges = [(plan.aggregator.charge(group.sensitivity), group.epsilon) for group in plan.groups]
    affords = [VoteBudget(cap := float(caps_of(epsilon, DELTAS[name])), cap, **asdict(one)) for one, epsilon in charges]
    answers = min(int(each.answers) for each in affords if each.answers is not None)
    return forecast_votes(plan, LEARNERS[name], data.classes, points=points, labels=labels, answers=answers)


def times(case: outcomes.Case, promise: str) -> Forecast | None:
    """Return the forecast for the concordance of one round with default choices, in the first division."""
    public, private, tested = outcomes.division(case, 0)
    epsilons = outcomes.PROMISES[promise]
    drawn = np.random.default_rng(0).choice(
        len(epsilons), len(private), p=outcomes.SHARES if len(epsilons) == 3 else None
    )
    levels = [
        PlannedLevel(str(each), float(gdp_mu(epsilon, outcomes.DELTA)) ** 2, float((drawn == each).sum()))
        for each, epsilon in enumerate(epsilons)
    ]
    placed = Steps().placed(case.x, strength_of(levels, share=1.0, steps=Steps()))
    fitted = representation_create(placed.representation, placed.representation_parameters).fit(case.x[public])
    points = fitted.transform(case.x[tested])
    target = case.target
    plan = plan_steps(
        levels, dimensions=points.shape[1], n_classes=target.outputs, share=1.0, steps=Steps(), loss=target.loss
    )
    return forecast_target(plan, points, case.codes[tested], target)


def _came(kept: str, name: str, promise: Promise, measure: str, **about: Any) -> float | None:
    """Return the mean of the stored rows for this dataset and promise, or None if there are none."""
    epsilon = list(promise) if isinstance(promise, tuple) else promise
    wanted = {"epsilon": epsilon} | about
    parts = json.loads((_RESULTS / f"{kept}.json").read_text())
    rows = parts[name] if kept == "sgd" else parts["splits"] + parts["compared"]
    found = [
        row[measure]
        for row in rows
        if wanted.items() <= row.items() and name in (row.get("name"), row.get("data")) and measure in row
    ]
    return float(np.mean(found)) if found else None


if __name__ == "__main__":
    main(sys.argv[1:])
