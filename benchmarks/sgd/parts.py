"""Parts of `python -m benchmarks.sgd`; every part returns rows for its table, and prints nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from accounting.privacy import IndividualAccounts
from benchmarks.sgd.study import Case, case_load, hold, rehearsal_load
from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.linear import step_contributions
from learning.mechanisms.steps.records import owned_records

Rows = list[dict[str, Any]]
Promise = float | tuple[float, ...]
PROMISES: dict[str, tuple[Promise, ...]] = {
    "mnist": (0.1, 0.3, 1.0, (1.0, 2.0, 3.0)),
    "adult": (0.1, 0.25, 1.0, (1.0, 2.0, 3.0)),
    "diabetes": (0.1, 0.25, 1.0, (1.0, 2.0, 3.0)),
}


def mnist(quick: bool) -> Rows:
    """One round by the rules, private records as holders; three splits of the official test images."""
    return _goals("mnist", range(1 if quick else 3))


def adult(quick: bool) -> Rows:
    """One round by the rules, private rows as holders; three draws of the noise."""
    return _goals("adult", [0] * (1 if quick else 3))


def diabetes(quick: bool) -> Rows:
    """One round by the rules, patients as holders; three draws of the noise."""
    return _goals("diabetes", [0] * (1 if quick else 3))


def patients(quick: bool) -> Rows:
    """Diabetes, patients divided anew into private, public and test ones; one draw of the noise for each division."""
    cases = [case_load("diabetes", split, Steps()) for split in range(1, 2 if quick else 5)]
    promises: tuple[Promise, ...] = (0.25, 1.0, 8.0)
    return [_row("diabetes", promise, cases, Steps(), tried="divided anew") for promise in tqdm(promises)]


def learned(quick: bool) -> Rows:
    """MNIST, one split of the test images: wavelets, and an embedding learned from the public points without labels."""
    rows = []
    embedding = Steps(representation="learned", representation_parameters={"components": 200})
    for name, steps in (("learned", embedding), ("wavelets", Steps())):
        cases = [case_load("mnist", 0, steps)]
        promises = PROMISES["mnist"][1:2] if quick else PROMISES["mnist"][:3]
        rows += [_row("mnist", promise, cases, steps, tried=name) for promise in promises]
    return rows


def constants(quick: bool) -> Rows:
    """Rehearsals on public points alone, three splits: one constant changed at a time."""
    tried: dict[str, dict[str, Any]] = {
        "by the rules": {},
        "clip 0.05": {"clip_norm": 0.05},
        "clip 1": {"clip_norm": 1.0},
        "30 steps": {"steps": 30},
        "200 steps": {"steps": 200},
        "momentum 0": {"momentum": 0.0},
    }
    names = ("adult",) if quick else tuple(PROMISES)
    rows = []
    for name in names:
        cases = [rehearsal_load(name, split, Steps()) for split in range(3)]
        for label, chosen in tqdm(tried.items(), desc=name):
            rows += [_row(name, promise, cases, Steps(**chosen), tried=label) for promise in PROMISES[name][:3]]
    return rows


def levels(quick: bool) -> Rows:
    """Rehearsals at ε = 1, 2, 3: gradients weighted by √cap, and everybody alike until their account is used up."""
    rows = []
    for name in ("adult",) if quick else ("mnist", "adult"):
        cases = [rehearsal_load(name, split, Steps()) for split in range(3)]
        for label, weighted in (("by √cap", True), ("all alike", False)):
            rows.append(_row(name, (1.0, 2.0, 3.0), cases, Steps(), tried=label, weighted=weighted))
        rows.append(_row(name, 1.0, cases, Steps(), tried="everyone at 1"))
    return rows


def speed(quick: bool) -> Rows:
    """One step: 60,000 holders with a record each, and the same records with 30,000 holders; 200 coordinates."""
    rng, records, dimensions, classes = np.random.default_rng(0), 6_000 if quick else 60_000, 200, 10
    coordinates = np.clip(np.rint(rng.normal(0, 9, (records, dimensions))), -127, 127).astype(np.int8)
    labels, weights = rng.integers(0, classes, records), rng.normal(0, 0.01, (dimensions + 1, classes))
    rows = []
    for each in (1, 2):
        mine = owned_records(coordinates, labels, np.arange(records) // each, np.arange(records // each))
        taken = []
        for _ in range(5):
            accounts = IndividualAccounts(np.ones(len(mine)))
            wall, clock = time.perf_counter(), time.process_time()
            step_contributions(mine, weights, clip_norm=30.0, accounts=accounts, sigma=100.0)
            taken.append((time.process_time() - clock, time.perf_counter() - wall))
        cpu, wall = min(taken)
        rows.append({"holders": len(mine), "records": records, "cpu_seconds": cpu, "wall_seconds": wall})
    return rows


def _goals(name: str, splits: Sequence[int]) -> Rows:
    loaded = {split: case_load(name, split, Steps()) for split in set(splits)}
    cases = [loaded[split] for split in splits]
    return [_row(name, promise, cases, Steps()) for promise in tqdm(PROMISES[name], desc=name)]


def _row(
    name: str, promise: Promise, cases: list[Case], steps: Steps, *, tried: str = "", weighted: bool = True
) -> dict[str, Any]:
    outcomes = [hold(case, promise, steps=steps, seed=seed, weighted=weighted) for seed, case in enumerate(cases)]
    right = [one.accuracy for one in outcomes]
    areas = [one.auc for one in outcomes if one.auc is not None]
    return {
        "data": name,
        "epsilon": list(promise) if isinstance(promise, tuple) else promise,
        "tried": tried,
        "runs": len(cases),
        "accuracy": float(np.mean(right)),
        "lowest": min(right),
        "highest": max(right),
        "auc": float(np.mean(areas)) if areas else None,
        "auc_deviation": float(np.std(areas, ddof=1)) if len(areas) > 1 else None,
        "spent": float(np.mean([one.spent for one in outcomes])),
        "cpu_seconds_a_step": float(np.mean([one.seconds for one in outcomes])),
    }
