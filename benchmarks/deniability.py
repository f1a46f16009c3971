"""Plausible deniability on Adult: usefulness of its rows for training, pass rate, cost, and how real they look.

    IPATE_DATA_DIR=FOLDER python -m benchmarks.deniability [--seeds 3] [--rows 10000]

Uses eleven columns as in the published experiments, which are on census records of 2013. A quarter of the training part
is used for the structure, a quarter for the parameters and half for seeds; ``adult.test`` is for the test.
benchmarks/results/methods.md has the results.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from accounting.privacy.papers.deniability import composed_epsilon, part_of, row_cost
from learning.mechanisms.deniability import DeniabilityTest, RowNetwork, network_learn, synthesise

COLUMNS = [
    "age",
    "workclass",
    "education",
    "marital",
    "occupation",
    "relationship",
    "race",
    "sex",
    "hours",
    "country",
    "income",
]
_FILE = ["age", "workclass", "weight", "education-name", "education", "marital", "occupation", "relationship", "race"]
_FILE += ["sex", "gain", "loss", "hours", "country", "income"]
_COARSE = {"age": 10, "hours": 15}
"""Bucket widths in years and hours, only for correlations and for parents."""
OMEGAS: dict[str, Sequence[int]] = {"11": [11], "10": [10], "9": [9], "9-11": [9, 10, 11], "5-11": range(5, 12)}
K, GAMMA, EPSILON0 = 50, 4.0, 1.0
MODEL_EPSILON, MODEL_DELTA = 1.0, 1e-9
"""Cost of the network for a record used for the structure or the parameters."""
DELTA, ROW_DELTA = 1e-5, 1e-10

Codes = NDArray[np.int64]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args(arguments)
    private, test = adult(Path(os.environ["IPATE_DATA_DIR"]) / "adult")
    sizes = (np.maximum(private.max(axis=0), test.max(axis=0)) + 1).tolist()
    measured = [cells(private, test, sizes, options.rows, seed) for seed in range(options.seeds)]
    for title in measured[0]:
        print(f"\n{title}")
        for row in measured[0][title]:
            numbers = np.array([each[title][row] for each in measured])
            print(row, "|", " | ".join(f"{mean:.1f}" for mean in numbers.mean(axis=0)))
    print("\ncosts", json.dumps(costs(), indent=1))


def adult(folder: Path) -> tuple[Codes, Codes]:
    """Return the codes of both parts of Adult, (N, 11) each, for rows without missing values."""
    parts = []
    for name, skipped in (("adult.data", 0), ("adult.test", 1)):
        rows = pd.read_csv(folder / name, names=_FILE, skiprows=skipped, skipinitialspace=True, na_values="?").dropna()
        parts.append(rows.assign(income=rows["income"].str.rstrip("."))[COLUMNS])
    both = pd.concat(parts)
    codes = np.stack([np.unique(both[column], return_inverse=True)[1] for column in COLUMNS], axis=1)
    return codes[: len(parts[0])], codes[len(parts[0]) :]


def buckets(sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the coarser value for each code."""
    return [np.arange(size) // _COARSE.get(column, 1) for column, size in zip(COLUMNS, sizes, strict=True)]


def released(
    network: RowNetwork, seeds: Codes, omegas: Sequence[int], rows: int, test: DeniabilityTest, rng: np.random.Generator
) -> Codes:
    """Return the requested number of rows that passed the test."""
    found: list[Codes] = []
    while sum(map(len, found)) < rows:
        made = synthesise(network, seeds, omegas, rows, test.gamma, rng)
        found.append(made.codes[test.passes(made.plausible, rng)])
    return np.concatenate(found)[:rows]


def marginals(network: RowNetwork, parameters: Codes, rows: int, rng: np.random.Generator) -> Codes:
    """Return rows with independent columns, drawn from noisy histograms of the records for the parameters."""
    columns = []
    for column, table in enumerate(network.tables):
        counts = np.bincount(parameters[:, column], minlength=table.shape[1])
        noisy = (
            np.maximum(
                counts + rng.laplace(0, 1 / part_of(MODEL_EPSILON, network.columns, MODEL_DELTA), len(counts)), 0
            )
            + 1e-9
        )
        columns.append(rng.choice(len(counts), rows, p=noisy / noisy.sum()))
    return np.stack(columns, axis=1)


def cells(private: Codes, test: Codes, sizes: list[int], rows: int, seed: int) -> dict[str, dict[str, list[float]]]:
    """Return the numbers for one seed, in per cent."""
    rng = np.random.default_rng(seed)
    learned = network_learn(private, sizes, buckets(sizes), MODEL_EPSILON, MODEL_DELTA, rng)
    network, seeds, parameters = learned.network, learned.seeds, learned.parameters
    deniable = DeniabilityTest(K, GAMMA, EPSILON0)
    real = private[rng.permutation(len(private))]
    synthetic = {name: released(network, seeds, omegas, rows, deniable, rng) for name, omegas in OMEGAS.items()}
    synthetic = {"marginals": marginals(network, parameters, rows, rng), **synthetic}
    encoder = OneHotEncoder(categories=[np.arange(size) for size in sizes[:-1]], sparse_output=True)
    whole = OneHotEncoder(categories=[np.arange(size) for size in sizes], sparse_output=True)
    encoder.fit(real[:, :-1])
    whole.fit(real)
    taught = {
        name: [taught_right(make(seed), encoder, each, test) for make in LEARNERS.values()]
        for name, each in {"reals": real[:rows], **synthetic}.items()
    }
    measures = {
        name: [separability(make(seed), whole, each, real) for make in list(LEARNERS.values())[:2]]
        for name, each in {"reals": real[rows : 2 * rows], **synthetic}.items()
    }
    passing = {}
    for name, omegas in OMEGAS.items():
        for gamma in (2.0, 4.0, 10.0):
            made = synthesise(network, seeds, omegas, rows, gamma, rng)
            passing[f"ω {name}, γ {gamma:g}"] = [
                100 * float(DeniabilityTest(k, gamma, EPSILON0).passes(made.plausible, rng).mean())
                for k in (10, 50, 100, 500)
            ]
    return {
        "right on real test rows (tree, random forest, AdaBoost)": taught,
        "real and synthetic rows told apart (tree, random forest)": measures,
        "rows that pass (k = 10, 50, 100, 500)": passing,
    }


LEARNERS: dict[str, Callable[[int], Any]] = {
    "tree": lambda seed: DecisionTreeClassifier(min_samples_leaf=20, random_state=seed),
    "random forest": lambda seed: RandomForestClassifier(100, min_samples_leaf=3, n_jobs=1, random_state=seed),
    "AdaBoost": lambda seed: AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=1), n_estimators=100, random_state=seed
    ),
}


def taught_right(learner: Any, encoder: OneHotEncoder, rows: Codes, test: Codes) -> float:
    """Return the share of test rows whose income a learner trained on ``rows`` predicts correctly, in per cent."""
    learner.fit(encoder.transform(rows[:, :-1]), rows[:, -1])
    return 100 * float((learner.predict(encoder.transform(test[:, :-1])) == test[:, -1]).mean())


def separability(learner: Any, encoder: OneHotEncoder, synthetic: Codes, real: Codes) -> float:
    """Return the share of rows that a learner correctly classifies as real or synthetic, in per cent."""
    half, number = len(synthetic) // 2, len(synthetic)
    real = real[-number:]
    x = [np.concatenate([real[:half], synthetic[:half]]), np.concatenate([real[half:number], synthetic[half:]])]
    y = [np.repeat([1, 0], [half, half]), np.repeat([1, 0], [number - half, number - half])]
    learner.fit(encoder.transform(x[0]), y[0])
    return 100 * float((learner.predict(encoder.transform(x[1])) == y[1]).mean())


def costs() -> dict[str, Any]:
    """Return the ε of one row, and of many rows together, at δ."""
    epsilon, t = row_cost(K, GAMMA, EPSILON0, ROW_DELTA)
    found: dict[str, Any] = {"row": {"epsilon": round(epsilon, 3), "t": t, "delta": ROW_DELTA}}
    for rows in (1, 10, 100, 1_000, 10_000):
        found[str(rows)] = round(composed_epsilon(epsilon, ROW_DELTA, rows, DELTA), 1)
    return found


if __name__ == "__main__":
    main()
