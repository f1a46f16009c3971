"""Use of three groups' budgets by each variant of Individualized PATE, on the published MNIST votes.

    IPATE_DATA_DIR=… python benchmarks/pate_variants.py [--queries 3000]

The published counts of 250 teachers (Papernot et al. 2018) show how often each class was chosen, but not by which
teacher. Every teacher's prediction is therefore drawn from the counts of its query, and upsampling draws as many
teachers as it needs. This does not model teachers trained on more or less data: it compares what the mechanisms can
afford, not what students learn.

Groups: 34 % HIGH, 43 % AVERAGE, 23 % LOW protection with ε = 1, 2, 3 (shares: Boenisch et al. 2023), δ = 1e-5,
Confident-GNMax with T = 200, σ_T = 150, σ = 40. "used" is ε spent / budget for each group.
"""

import argparse
import gzip
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from accounting.privacy import PAPER_ORDERS
from learning.mechanisms.pate import ConfidentGNMax, Plan, PrivacyGroup, make_plan, simulate_vote

DELTA, TEACHERS, CLASSES, SEED = 1e-5, 250, 10, 1
GROUPS = [PrivacyGroup("HIGH", 1.0, 20_400), PrivacyGroup("AVERAGE", 2.0, 25_800), PrivacyGroup("LOW", 3.0, 13_800)]
AGGREGATOR = ConfidentGNMax(sigma=40.0, sigma_threshold=150.0, threshold=200.0)


def draw_predictions(counts: np.ndarray, teachers: int) -> np.ndarray:
    """Return `(teachers, queries)` predictions. Each teacher chooses a class as often as the published teachers did."""
    below = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    drawn = np.random.default_rng(SEED).random((teachers, len(counts), 1))
    return (drawn > below).sum(axis=2)


def plans(conversion: str) -> dict[str, Plan]:
    how = {"groups": GROUPS, "teachers": TEACHERS, "aggregator": AGGREGATOR, "delta": DELTA, "conversion": conversion}
    made = {
        "standard": make_plan(variant="standard", **how),
        "upsampling": make_plan(variant="upsampling", **how),
        "weighting, proportional": make_plan(variant="weighting", **how),
        "weighting, calibrated": make_plan(variant="weighting", weight_scheme="calibrated", **how),
    }
    weighting = made["weighting, proportional"]
    raw = np.array([group.epsilon * group.teachers for group in weighting.groups])
    sizes = np.array([group.teachers for group in weighting.groups])
    misread = raw * TEACHERS / (raw @ sizes)
    made["weighting by n·ε (Algorithm 2 as printed)"] = replace(
        weighting, groups=tuple(replace(g, weight=float(w)) for g, w in zip(weighting.groups, misread, strict=True))
    )
    for exponent in (1.0, 2.0, 4.0):
        made[f"vanishing, exponent {exponent:g}"] = make_plan(variant="vanishing", exponent=exponent, **how)
    return made


def compare(counts: np.ndarray, truth: np.ndarray, method: str, conversion: str, orders: np.ndarray | None) -> None:
    print(f"\n{method}, {conversion} conversion{'' if orders is None else ', orders 2..50'}")
    print(f"{'variant':44} {'queries':>7} {'labels':>6} {'correct':>8}   used by HIGH AVERAGE LOW   seconds")
    options = {} if orders is None else {"orders": orders}
    for name, plan in plans(conversion).items():
        predictions = draw_predictions(counts, plan.teachers)
        start = time.perf_counter()
        vote = simulate_vote(
            plan, GROUPS, predictions, CLASSES, delta=DELTA, seed=SEED, method=method, conversion=conversion, **options
        )
        seconds = time.perf_counter() - start
        correct = np.mean(vote.labels[vote.answered] == truth[: len(vote.labels)][vote.answered])
        used = "  ".join(f"{e / group.epsilon:6.1%}" for e, group in zip(vote.epsilons, GROUPS, strict=True))
        print(f"{name:44} {len(vote.labels):7} {vote.answered.sum():6} {correct:8.1%}   {used}   {seconds:13.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=3000, help="public points put to the vote, at most 9000")
    queries = parser.parse_args().queries
    beside = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("IPATE_DATA_DIR") or beside)
    counts = np.load(folder / "pate_votes" / "mnist_250_teachers.npy", allow_pickle=False)[:queries].astype(float)
    with gzip.open(folder / "mnist" / "t10k-labels-idx1-ubyte.gz") as file:
        truth = np.frombuffer(file.read(), dtype=np.uint8, offset=8)[: len(counts)]
    compare(counts, truth, "data_independent", "classic", PAPER_ORDERS)
    for method in ("data_independent", "data_dependent", "exact"):
        compare(counts, truth, method, "improved", None)


if __name__ == "__main__":
    main()
