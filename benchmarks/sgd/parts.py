"""Parts of `python -m benchmarks.sgd`. Every part returns the cells of its table without printing them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import softmax

from accounting.privacy import IndividualAccounts
from benchmarks.cells import Cell, Row
from benchmarks.sgd.study import BY_ENCODER, Case, caps_draw, case_load, hold, public_load, rehearsal_load, take
from learning.calibration import Balance
from learning.measures import balanced_accuracy, base_loss, brier, calibration, losses
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.descent import RECORDS, descent_calibration, descent_shares
from learning.mechanisms.steps.linear import owned_records, step_contributions
from learning.mechanisms.steps.steps_plan import Steps, strength_of

Promise = float | tuple[float, ...]
Load = Callable[[int], Case]
PROMISES: tuple[Promise, ...] = (0.1, 0.25, 1.0, 3.0, (1.0, 2.0, 3.0))
PRINTED: dict[str, tuple[Promise, ...]] = {"mnist": (0.3,)}
"""Promises of published tables, for comparison."""
BEYOND = ("sms", "news", "sms-encoder", "news-encoder", "cifar10", "cifar10-encoder")
"""Photographs and texts, unchanged and as encoded."""


def mnist(quick: bool) -> Iterator[Cell]:
    """Measure one round on MNIST: default choices, private records as holders, five splits of the test images."""
    return _goals("mnist", range(1 if quick else 5))


def fashion(quick: bool) -> Iterator[Cell]:
    """Measure Fashion-MNIST in the same way as `mnist`."""
    return _goals("fashion", range(1 if quick else 5))


def adult(quick: bool) -> Iterator[Cell]:
    """Measure one round on Adult: default choices, private rows as holders, five draws of the noise."""
    return _goals("adult", [0] * (1 if quick else 5))


def cardio(quick: bool) -> Iterator[Cell]:
    """Measure one round on Cardio: default choices, 50,000 patients as holders, five draws of the noise."""
    return _goals("cardio", [0] * (1 if quick else 5))


def support2(quick: bool) -> Iterator[Cell]:
    """Measure one round on SUPPORT2: default choices, 6,105 patients as holders, five draws of the noise."""
    return _goals("support2", [0] * (1 if quick else 5))


def diabetes(quick: bool) -> Iterator[Cell]:
    """Measure one round on Diabetes: default choices, patients as holders, five draws of the noise."""
    return _goals("diabetes", [0] * (1 if quick else 5))


def beyond(quick: bool) -> Iterator[Cell]:
    """Measure CIFAR-10, SMS spam and AG News: default choices without and with an encoder, five draws of the noise."""
    for name in ("sms",) if quick else BEYOND:
        yield from _goals(name, [0] * (1 if quick else 5))


def noiseless(quick: bool) -> Iterator[Cell]:
    """Measure logistic regression without a promise on private records, in the default coordinates at ε = 1, 2, 3."""
    for name in ("adult",) if quick else ("support2", "cardio", "diabetes", "adult", "fashion", "mnist", *BEYOND):
        yield {"data": name}, partial(_noiseless, name)


def patients(quick: bool) -> Iterator[Cell]:
    """Measure other divisions of Diabetes into private, public and test patients; one draw of the noise for each."""
    load = partial(_case, "diabetes")
    for promise in (0.1, 0.25, 1.0):
        yield _cell("diabetes", promise, load, range(1, 2 if quick else 5), Steps(), tried="divided anew")


def calibrated(quick: bool) -> Iterator[Cell]:
    """Measure test points' probabilities before and after calibration: one round, default choices, one draw."""
    for name in ("adult",) if quick else ("adult", "cardio", "support2", "mnist", "diabetes"):
        for promise in (1.0, 0.25, 0.1):
            yield {"data": name, "epsilon": promise}, partial(_calibration, name, promise)


def balanced(quick: bool) -> Iterator[Cell]:
    """Compare answers without and with balance: generated rare classes, Adult and Diabetes; three draws."""
    for name in ("rare",) if quick else ("rare", "adult", "diabetes"):
        for promise in (0.25, 1.0):
            yield {"data": name, "epsilon": promise}, partial(_balanced, name, promise, range(1 if quick else 3))


def constants(quick: bool) -> Iterator[Cell]:
    """Change one constant at a time, and measure on the labels of public points; two draws of the noise."""
    tried: dict[str, dict[str, Any]] = {
        "by the rules": {},
        "clip 0.35": {"clip_norm": 0.35},
        "clip 1.4": {"clip_norm": 1.4},
        "30 steps": {"steps": 30},
        "120 steps": {"steps": 120},
        "ridge 2": {"ridge": 2.0},
        "ridge 20": {"ridge": 20.0},
    }
    for name in ("adult",) if quick else ("adult", "support2", "cardio", "mnist"):
        load = lru_cache(partial(public_load, name))
        for label, chosen in tried.items():
            for promise in (0.1, 0.25, 1.0):
                yield _cell(name, promise, lambda _, load=load: load(), [0, 0], Steps(**chosen), tried=label)


def levels(quick: bool) -> Iterator[Cell]:
    """Measure rehearsals at ε = 1, 2, 3: gradients weighted by √cap, and equal weights until accounts are used up."""
    for name in ("adult",) if quick else ("mnist", "adult"):
        load = lru_cache(partial(rehearsal_load, name, steps=Steps()))
        for label, weighted in (("by √cap", True), ("all alike", False)):
            yield _cell(name, (1.0, 2.0, 3.0), load, range(3), Steps(), tried=label, weighted=weighted)
        yield _cell(name, 1.0, load, range(3), Steps(), tried="everyone at 1")


def speed(quick: bool) -> Iterator[Cell]:
    """Measure one step with 60,000 records of 200 coordinates, from 60,000 holders and from 30,000."""
    for each in (1, 2):
        yield {"records each": each}, partial(_step_time, each, 6_000 if quick else 60_000)


def _step_time(each: int, records: int) -> Row:
    rng, dimensions, classes = np.random.default_rng(0), 200, 10
    coordinates = np.clip(np.rint(rng.normal(0, 9, (records, dimensions))), -127, 127).astype(np.int8)
    labels, weights = rng.integers(0, classes, records), rng.normal(0, 0.01, (dimensions + 1, classes))
    mine = owned_records(coordinates, labels, np.arange(records) // each, np.arange(records // each))
    taken = []
    for _ in range(5):
        accounts = IndividualAccounts(np.ones(len(mine)))
        wall, clock = time.perf_counter(), time.process_time()
        step_contributions(mine, weights, clip_norm=30.0, accounts=accounts, sigma=100.0)
        taken.append((time.process_time() - clock, time.perf_counter() - wall))
    cpu, wall = min(taken)
    return {"holders": len(mine), "records": records, "cpu_seconds": cpu, "wall_seconds": wall}


@lru_cache(maxsize=2)
def _case(name: str, split: int) -> Case:
    return case_load(name, split, _chosen(name))


def _noiseless(name: str) -> Row:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    case, steps = _case(name, 0), _chosen(name)
    caps, counts = np.unique(caps_draw((1.0, 2.0, 3.0), len(case.records)), return_counts=True)
    levels = [PlannedLevel(str(cap), float(cap), float(count)) for cap, count in zip(caps, counts, strict=True)]
    case = case.placed(steps, strength_of(levels, share=1.0, steps=steps))
    x, test = (each.astype(np.float32) / 127 for each in (case.records.x, case.test))
    probabilities = LogisticRegression(max_iter=200).fit(x, case.records.y).predict_proba(test)
    area = float(roc_auc_score(case.truth, probabilities[:, 1])) if probabilities.shape[1] == 2 else None
    return {
        "accuracy": float((probabilities.argmax(axis=1) == case.truth).mean()),
        "auc": area,
        "coordinates": x.shape[1],
    }


def _calibration(name: str, promise: float) -> Row:
    taken = take(_case(name, 0), promise, steps=Steps(), seed=0)
    truth, probabilities = taken.case.truth, softmax(taken.logits, axis=1)
    fit = descent_calibration(taken.steps, taken.final, taken.case.public, records=RECORDS)
    row = {"base log loss": base_loss(truth, probabilities.shape[1])}
    for when, p in (("before", probabilities), ("after", fit.applied(probabilities))):
        row[f"accuracy {when}"] = float((p.argmax(axis=1) == truth).mean())
        row[f"log loss {when}"] = float(losses(p, truth).mean())
        row[f"Brier {when}"] = brier(p, truth).value
        row[f"error {when}"] = calibration(p, truth)[0].value
    return row


def _balanced(name: str, promise: float, seeds: Sequence[int]) -> Row:
    rows = []
    for seed in seeds:
        taken = take(_case(name, 0), promise, steps=Steps(), seed=seed)
        fit = descent_calibration(taken.steps, taken.final, taken.case.public, records=RECORDS)
        test, public = (
            fit.applied(softmax(logits, axis=1)) for logits in (taken.logits, taken.logits_of(taken.case.public))
        )
        released = descent_shares(*taken.steps[0])
        assert released is not None
        rules = {
            "balanced": Balance.of(public),
            "by the first step": Balance(tuple(max(each.value, 0.005) for each in released)),
        }
        said = {"likeliest": test.argmax(axis=1)} | {way: rule.labels(test) for way, rule in rules.items()}
        truth = taken.case.truth
        rows.append(
            {
                f"{measure}, {way}": value
                for way, each in said.items()
                for measure, value in (
                    ("accuracy", float((each == truth).mean())),
                    ("balanced accuracy", balanced_accuracy(each, truth).value or 0.0),
                )
            }
        )
    return {column: float(np.mean([row[column] for row in rows])) for column in rows[0]}


def _goals(name: str, splits: Sequence[int]) -> Iterator[Cell]:
    for promise in (*PROMISES, *PRINTED.get(name, ())):
        yield _cell(name, promise, partial(_case, name), splits, _chosen(name))


def _chosen(name: str) -> Steps:
    """Return no choices, except an encoder if there is one."""
    return Steps(encoder="measured") if name.endswith(BY_ENCODER) else Steps()


def _cell(
    name: str,
    promise: Promise,
    load: Load,
    splits: Sequence[int],
    steps: Steps,
    *,
    tried: str = "",
    weighted: bool = True,
) -> Cell:
    """Return the mean over splits; the index of each split is the seed of its noise."""
    epsilon = list(promise) if isinstance(promise, tuple) else promise
    about = {"data": name, "epsilon": epsilon, "tried": tried, "runs": len(splits)}
    return about, lambda: _measured(promise, load, splits, steps, weighted)


def _measured(promise: Promise, load: Load, splits: Sequence[int], steps: Steps, weighted: bool) -> Row:
    outcomes = [
        hold(load(split), promise, steps=steps, seed=seed, weighted=weighted) for seed, split in enumerate(splits)
    ]
    right = [one.accuracy for one in outcomes]
    areas = [one.auc for one in outcomes if one.auc is not None]
    return {
        "accuracy": float(np.mean(right)),
        "lowest": min(right),
        "highest": max(right),
        "auc": float(np.mean(areas)) if areas else None,
        "auc_deviation": float(np.std(areas, ddof=1)) if len(areas) > 1 else None,
        "spent": float(np.mean([one.spent for one in outcomes])),
        "cpu_seconds_a_step": float(np.mean([one.seconds for one in outcomes])),
    }
