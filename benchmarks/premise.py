"""Benefit of personal promises: every method with the same people, asked in three other ways.

    IPATE_DATA_DIR=… python -m benchmarks.premise [counts pate steps votes rows] [--quick]

34, 43 and 23 % of the people allow ε = 1, 2 and 3. *levels*: everyone at the ε that they allow. *threshold*: only
people who allow the best single ε, at that ε (Cyffers, Ziani, "Limits of personalizing differential privacy budgets",
arXiv 2605.13503). *smallest*: everyone at ε = 1. *without strictest*: only people who allow more than ε = 1, at the ε
that they allow. Prints tables and stores the numbers in benchmarks/results/premise.json; stored rows are not measured
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cells import Cell, Row, parts_measure

Floats = NDArray[np.float64]
RESULTS = Path(__file__).resolve().parent / "results" / "premise.json"
LEVELS, SHARES, DELTA = (1.0, 2.0, 3.0), (0.34, 0.43, 0.23), 1e-5
WAYS = ("levels", "threshold", "smallest", "without strictest")
PEOPLE = 60_000


def effective_caps(way: str, caps: Floats) -> Floats:
    """Return everyone's participation in μ² `(people,)`; 0 for people who do not take part."""
    from learning.mechanisms.protocol import PlannedLevel, best_threshold

    if way == "levels":
        return caps
    if way == "smallest":
        return np.full_like(caps, caps.min())
    if way == "without strictest":
        return np.where(caps > caps.min(), caps, 0.0)
    values, counts = np.unique(caps, return_counts=True)
    best = best_threshold(
        [PlannedLevel(str(cap), float(cap), float(count)) for cap, count in zip(values, counts, strict=True)]
    )
    return np.where(caps >= best, best, 0.0)


def _caps(people: int) -> Floats:
    from benchmarks.sgd.study import caps_draw

    return caps_draw(LEVELS, people)


def _cells(method: str, name: str, measure: Callable[[str], Row]) -> Iterator[Cell]:
    for way in WAYS:
        yield {"method": method, "data": name, "way": way}, partial(measure, way)


def counts(quick: bool) -> Iterator[Cell]:
    """Measure a table of 1,024 cells and 60,000 people: its distance from the table without noise, and the signal."""

    def measure(way: str) -> Row:
        from learning.mechanisms.counts.table_plan import Counts, plan_counts
        from learning.mechanisms.protocol import PlannedLevel, signal

        values, people = np.unique(effective_caps(way, _caps(PEOPLE)), return_counts=True)
        levels = [PlannedLevel(str(c), float(c), float(n)) for c, n in zip(values, people, strict=True) if c]
        plan = plan_counts(levels, cells=1_024, share=1.0, counts=Counts(column="any"))
        return {"people": int(people[values > 0].sum()), "distance": plan.distance, "signal": round(signal(levels))}

    return _cells("counts", "any", measure)


def pate(quick: bool) -> Iterator[Cell]:
    """Measure the labels that the accounts can pay for: weights in proportion to μ, σ = 40, 240 people per teacher."""

    def measure(way: str) -> Row:
        from accounting.caps import caps_of
        from learning.mechanisms.pate import GNMax, PrivacyGroup, make_plan

        of_epsilon = {float(caps_of(one, DELTA)): one for one in LEVELS}
        values, people = np.unique(effective_caps(way, _caps(PEOPLE)), return_counts=True)
        groups = [
            PrivacyGroup(f"{of_epsilon[c]:g}", of_epsilon[c], int(n)) for c, n in zip(values, people, strict=True) if c
        ]
        teachers = round(sum(group.holders for group in groups) / 240)
        plan = make_plan(
            groups, variant="weighting", teachers=teachers, aggregator=GNMax(40.0), delta=DELTA, weight_scheme="gdp"
        )
        labels = min(
            int(caps_of(one.epsilon, DELTA) / plan.aggregator.charge(one.sensitivity).label) for one in plan.groups
        )
        return {"people": teachers * 240, "teachers": plan.teachers, "labels": labels}

    return _cells("pate", "MNIST", measure)


def steps(quick: bool) -> Iterator[Cell]:
    """Measure gradient steps of the linear model: share of test points right, and area; three draws of the noise."""
    from benchmarks.sgd.study import case_load, hold
    from learning.mechanisms.steps.steps_plan import Steps

    @lru_cache(maxsize=1)
    def load(name: str) -> Any:
        return case_load(name, 0, Steps())

    def measure(name: str, way: str) -> Row:
        case = load(name)
        caps = effective_caps(way, _caps(len(case.records)))
        some = case.of(caps > 0)
        held = [hold(some, LEVELS, steps=Steps(), seed=seed, caps=caps[caps > 0]) for seed in range(1 if quick else 3)]
        areas = [one.auc for one in held if one.auc is not None]
        row = {"people": int((caps > 0).sum()), "right": float(np.mean([one.accuracy for one in held]))}
        return row | {"area": float(np.mean(areas)) if areas else None}

    for name in ("support2",) if quick else ("support2", "cardio", "adult", "diabetes", "mnist", "fashion"):
        yield from _cells("steps", name, partial(measure, name))


def votes(quick: bool) -> Iterator[Cell]:
    """Measure the correct labels of public points if every holder votes in one round; one draw of the noise."""
    from benchmarks.students.study import data_split, hold

    def measure(name: str, way: str) -> Row:
        data = data_split(name)
        caps = effective_caps(way, _caps(data.holders))
        held = hold(data.of(caps > 0), LEVELS, caps=caps[caps > 0], seed=1)
        return {"people": int((caps > 0).sum()), "right": float(held.rounds[0]["right"])}

    for name in ("adult",) if quick else ("adult", "diabetes", "mnist", "fashion"):
        yield from _cells("votes", name, partial(measure, name))


def rows(quick: bool) -> Iterator[Cell]:
    """Measure boosted trees trained on synthetic rows of Adult, on records not used for asking; five draws."""
    from benchmarks.sgd.study import splits_load
    from benchmarks.synthesis import count, judged, judging
    from learning.mechanisms.protocol import Records
    from learning.mechanisms.synthesis.rounds import rows_draw

    def measure(way: str) -> Row:
        splits = splits_load("adult")
        schema: Any = splits.schema
        caps = effective_caps(way, _caps(len(splits.private)))
        mine = caps > 0
        owner = np.arange(int(mine.sum()))
        records = Records(splits.private.x[mine], splits.private.y[mine], owner)
        draws = (rows_draw(count(schema, records, caps[mine], seed)) for seed in range(1, 2 if quick else 6))
        scores = [judged(drawn.x, drawn.classes, *judging("adult")) for drawn in draws]
        right, area = np.mean(scores, axis=0).tolist()
        return {"people": len(owner), "right": right, "area": area}

    return _cells("rows", "adult", measure)


def main() -> None:
    parts_measure(__doc__, RESULTS, {part.__name__: part for part in (counts, pate, steps, votes, rows)})


if __name__ == "__main__":
    main()
