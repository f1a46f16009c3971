"""Forecasts compared with results on splits of public points, to tune the forecast without private records."""

from __future__ import annotations

from typing import Any

import numpy as np

from accounting.privacy import IndividualAccounts
from benchmarks.neighbours.results import measured
from benchmarks.neighbours.study import DELTAS, Data, ask, caps_draw, data_load, levels_of
from common.noise import SimulationNoise
from learning.mechanisms.neighbours.forecast import propose
from learning.mechanisms.neighbours.released_counts import read_counts, release_counts
from learning.mechanisms.neighbours.surrogates import Sample

SIZES = {"as digits": (1_300, 300, 197), "larger": (6_000, 2_000, 1_000)}
"""Numbers of holders, public points and labelled points, drawn from the public points of a dataset."""
DRAWS = 4


def split(data: Data, sizes: tuple[int, int, int], seed: int) -> Data:
    """Return only public points: some as holders with one record each, some as public points, some as the sample."""
    drawn = np.split(np.random.default_rng(seed).permutation(len(data.public))[: sum(sizes)], np.cumsum(sizes)[:2])
    private, public, test = drawn
    changed = {
        "x": data.x[public],
        "truth": data.truth[public],
        "test_x": data.x[test],
        "test_truth": data.truth[test],
        "private": data.public[private],
        "private_truth": data.truth[private],
        "holder": np.arange(len(private)),
        "public": data.public[public],
        "test": data.public[test],
    }
    return Data(**(vars(data) | changed))


def splits(quick: bool) -> list[dict[str, Any]]:
    """Measure errors in forecasts of label accuracy, over draws of public points."""
    cells = [
        {"data": name, "sizes": size, "epsilon": epsilon}
        for size in SIZES
        for name in ("mnist", "adult", "diabetes")
        for epsilon in (0.25, 1.0, 3.0)
    ]
    return measured("splits", cells[:9] if quick else cells, _cell, quick)


def _cell(data: str, sizes: str, epsilon: float) -> dict[str, Any]:
    drawn = [_draw(split(data_load(data), SIZES[sizes], seed), epsilon) for seed in range(DRAWS)]
    apart = [forecast - right for forecast, right in drawn]
    return {
        "right": float(np.mean([right for _, right in drawn])),
        "forecast_less_right": float(np.mean(apart)),
        "root_mean_square": float(np.sqrt(np.mean(np.square(apart)))),
    }


def _draw(data: Data, epsilon: float) -> tuple[float, float]:
    """Return the forecast's label accuracy, and the mean share of correct labels over draws of the noise only."""
    caps = caps_draw(epsilon, data.holders, DELTAS[data.name])
    sample = Sample(data.test, data.test_truth)
    made = propose(data.public, data.public, levels_of(caps, 1.0), share=1.0, n_classes=data.classes, sample=sample)
    sums = ask(data, np.arange(len(data.public)), made.radius_share, made.sigma, [IndividualAccounts(caps)])
    counts = [release_counts(sums, made.sigma, SimulationNoise(seed)) for seed in range(5)]
    right = [float((read_counts(one, made.sigma).labels == data.truth).mean()) for one in counts]
    return made.forecast.labels.value, float(np.mean(right))
