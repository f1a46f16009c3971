"""Scalable private learning with PATE (Papernot et al. 2018): Confident-GNMax on the published votes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from accounting.caps import caps_of, epsilon_of
from accounting.privacy import check_charge, label_charge
from benchmarks.reproduce.results import Case, Promises, Row
from benchmarks.reproduce.smooth_sensitivity import conditions_hold, published_epsilon
from benchmarks.reproduce.votes import published_counts

DELTA, SIGMA = 1e-5, 40.0
ORDERS = np.concatenate([np.arange(2, 100.5, 0.5), np.geomspace(100, 500, 100)[1:]])
"""Orders of the authors' script, smooth_sensitivity_table.py."""

# Queries, T, σ_T from the authors' generate_table.sh; published: answered, ε before, ε published and its deviation.
SETTINGS = {
    "mnist": (640, 200.0, 150.0, (282.72, 1.9988, 2.516, 0.385)),
    "adult": (1_500, 300.0, 200.0, (None, None, 2.086, 0.263)),
}


def cases(quick: bool) -> Iterator[Case]:
    """Yield one case for each of the two datasets, with every holder at ε = 2 for comparison."""
    for name, (queries, threshold, deviation, _) in SETTINGS.items():
        setting = f"{name}, {queries:,} queries, T {threshold:g}, σ_T {deviation:g}, σ {SIGMA:g}"
        yield Case(setting, (), partial(_rows, name), Promises(name, (2.0,)))


def _rows(name: str) -> Sequence[Row]:
    """Return the expected number of answers, and ε."""
    queries, threshold, deviation, (answered, before, mean, spread) = SETTINGS[name]
    votes = published_counts(f"{name}_250_teachers")[:queries]
    found = published_epsilon(
        votes, sigma=SIGMA, threshold=threshold, sigma_threshold=deviation, delta=DELTA, orders=ORDERS
    )
    if not conditions_hold(SIGMA, votes.shape[1], found.order):
        raise ValueError(f"conditions C5 and C6 do not hold at the order {found.order}: its sensitivity is not a bound")
    share = found.answered / queries
    per_query = check_charge(1.0, deviation) + share * label_charge(1.0, SIGMA)
    affordable = share * float(caps_of(found.before, DELTA)) / per_query
    return [
        Row("labels, expected", answered, found.answered, accounts=affordable, holders="labels"),
        Row("ε, secret", before, found.before, accounts=epsilon_of(queries * per_query, DELTA)),
        Row("ε with smooth sensitivity", mean, found.mean, spread=spread, here_spread=found.deviation),
        Row("the same, its release by the divergence of two normals", None, found.mended, here_spread=found.deviation),
    ]
