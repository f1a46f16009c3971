"""Individualized DP-SGD (Boenisch et al. 2023): what `python -m benchmarks.sgd_sampled mnist` has measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from statistics import fmean, stdev
from typing import Any

from benchmarks.reproduce.results import Case, Row

Run = dict[str, Any]


def measured(quick: bool) -> Iterator[Case]:
    """One case for each variant and division into groups that was taken for all 9,375 steps."""
    from benchmarks.sgd_sampled import FULL, RESULTS  # loads PyTorch

    runs = json.loads(RESULTS.read_text())["mnist"] if RESULTS.exists() else []
    settings: dict[str, list[Run]] = {}
    for run in runs:
        if run["steps"] == FULL:
            shares = " / ".join(f"{100 * share:g}" for share in run["shares"])
            settings.setdefault(f"{run['variant']}, {shares} %", []).append(run)
    for setting, found in settings.items():
        yield Case(setting, tuple(run["seed"] for run in found), partial(_rows, found))


def _rows(runs: list[Run]) -> list[Row]:
    right = [float(run["right"]) for run in runs]
    spread = stdev(right) if len(right) > 1 else None
    return [Row("test accuracy, %", runs[0]["published"], fmean(right), here_spread=spread)]
