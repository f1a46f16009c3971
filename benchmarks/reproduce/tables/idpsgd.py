"""Individualized DP-SGD (Boenisch et al. 2023): what `python -m benchmarks.sgd_sampled` has measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import Any

from benchmarks.reproduce.published import published
from benchmarks.reproduce.results import Case, Row

Run = dict[str, Any]


def table2(quick: bool) -> Iterator[Case]:
    """MNIST: one case for each variant and division into groups that was taken for all 9,375 steps."""
    from benchmarks.sgd_sampled import FULL  # loads PyTorch

    settings: dict[tuple[str, str], list[Run]] = {}
    for run in _runs("mnist"):
        if run["steps"] == FULL:
            shares = "/".join(f"{100 * share:g}" for share in run["shares"])
            settings.setdefault((run["variant"], f"{shares} %"), []).append(run)
    for (variant, shares), found in settings.items():
        known = published("individualized-dp-sgd")["table2"]["MNIST"][shares][variant]
        yield Case(f"{variant}, {shares}", tuple(run["seed"] for run in found), partial(_rows, found, *known))


def table3(quick: bool) -> Iterator[Case]:
    """MNIST at ε = 0.3, 1,000 steps."""
    printed = published("individualized-dp-sgd")["table3_mnist_eps_0.3"]
    names = {"standard": "standard", "sample": "accounting and assignment 0.30/0.31"}
    for run in _runs("small"):
        known = printed[names[run["variant"]]]
        yield Case(f"{names[run['variant']]}, {run['steps']:,} steps", (run["seed"],), partial(_rows, [run], *known))


def table9(quick: bool) -> Iterator[Case]:
    """MNIST with promises by class, *sample*, 1,000 steps."""
    printed = published("individualized-dp-sgd")["table9_mnist_by_class"]
    for run in _runs("classes"):
        if run["variant"] == "sample" and run["epsilons"] == printed["budgets"]:
            rows = [
                Row(f"right on digit {digit} (ε {epsilon:g}), %", known, right)
                for digit, (epsilon, known, right) in enumerate(
                    zip(printed["budgets"], printed["sample"], run["by_class"], strict=True)
                )
            ]
            yield Case(f"sample, {run['steps']:,} steps", (run["seed"],), partial(_same, rows))


def _same(rows: Sequence[Row]) -> Sequence[Row]:
    return rows


def _runs(part: str) -> list[Run]:
    from benchmarks.sgd_sampled import RESULTS

    return list(json.loads(RESULTS.read_text()).get(part, [])) if RESULTS.exists() else []


def _rows(runs: list[Run], known: float, known_spread: float) -> list[Row]:
    right = [float(run["right"]) for run in runs]
    spread = stdev(right) if len(right) > 1 else None
    return [Row("test accuracy, %", known, fmean(right), known_spread, here_spread=spread)]
