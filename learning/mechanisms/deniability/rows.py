"""Rows from seed records, and the test that lets one of them leave (Mechanism 1 and Privacy Test 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learning.mechanisms.deniability.network import RowNetwork
from learning.mechanisms.deniability.structure import Codes

_MOST_KEYS = 2**62


@dataclass(frozen=True)
class DeniabilityTest:
    """A row leaves if at least k + Lap(1/ε₀) records are as plausible a seed as its own.

    Attributes:
        k: Least number of plausible seeds.
        gamma: Seeds are alike where their probabilities to give the row lie between γ^-(i+1) and γ^-i for the same i.
        epsilon0: ε₀ of the threshold's noise; None for the test without noise, which is not differentially private.
    """

    k: int
    gamma: float
    epsilon0: float | None

    def passes(self, plausible: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """(N,) whether rows with so many plausible seeds leave."""
        noise = 0.0 if self.epsilon0 is None else rng.laplace(0, 1 / self.epsilon0, len(plausible))
        return plausible >= self.k + noise


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows (N, m) of codes; how many ``plausible`` seeds (N,) each has, its own among them, is secret."""

    codes: Codes
    plausible: NDArray[np.int64]


def synthesise(
    network: RowNetwork, seeds: Codes, omegas: Sequence[int], number: int, gamma: float, rng: np.random.Generator
) -> Candidates:
    """Rows of which each copies a random seed but for the last ω columns of the network's order, which are drawn anew.

    ω is drawn from ``omegas`` for each row. The probability that a record gives a row y is
    Σ_ω 1[it agrees with y on the first m - ω columns]·Π p(y_j | parents) / |omegas|, the product being over the others:
    so it follows from the length of the prefix on which both agree.

    Args:
        network: distribution of rows.
        seeds: (S, m) codes.
        omegas: how many columns may be drawn anew, each between 0 and m.
        number: of rows.
        gamma: γ of the test.
        rng: source of chance.
    """
    prefixes = np.array(sorted({network.columns - omega for omega in omegas}))
    if prefixes[0] < 0 or prefixes[-1] > network.columns:
        raise ValueError(f"omegas must lie between 0 and the {network.columns} columns")
    seed = rng.integers(0, len(seeds), number)
    length = rng.choice(prefixes, number)
    rows = seeds[seed]
    for place, column in enumerate(network.order):
        anew = np.flatnonzero(length <= place)
        if len(anew):
            part = rows[anew]
            network.resample(part, column, rng)
            rows[anew] = part
    return Candidates(rows, _plausible(network, seeds, rows, seed, prefixes, gamma))


def _plausible(
    network: RowNetwork,
    seeds: Codes,
    rows: Codes,
    seed: NDArray[np.int64],
    prefixes: NDArray[np.int64],
    gamma: float,
) -> NDArray[np.int64]:
    # Of each prefix: how many seeds agree on it, whether the row's own does, and log Σ of the probabilities so far.
    logs = np.zeros((network.columns + 1, len(rows)))
    for place in reversed(range(network.columns)):
        logs[place] = logs[place + 1] + np.log(network.probability(rows, network.order[place]))
    agree = np.stack([_agreeing(network.order[:prefix], seeds, rows) for prefix in prefixes])
    mine = np.stack([(rows == seeds[seed])[:, network.order[:prefix]].all(axis=1) for prefix in prefixes])
    total = np.logaddexp.accumulate(logs[prefixes], axis=0) - math.log(len(prefixes))
    bucket = np.floor(-total / math.log(gamma) + 1e-9)
    level = mine.sum(axis=0) - 1
    exactly = agree - np.vstack([agree[1:], np.zeros((1, len(rows)), dtype=np.int64)])
    own = np.take_along_axis(bucket, level[None], axis=0)
    return np.where(bucket == own, exactly, 0).sum(axis=0)


def _agreeing(columns: list[int], seeds: Codes, rows: Codes) -> NDArray[np.int64]:
    """(N,) how many seeds agree with each row on these columns."""
    if not columns:
        return np.full(len(rows), len(seeds), dtype=np.int64)
    sizes = [int(max(seeds[:, column].max(), rows[:, column].max())) + 1 for column in columns]
    if math.prod(sizes) >= _MOST_KEYS:
        raise ValueError("The columns have too many combinations of values: take fewer, or coarser ones.")
    weights = np.array([math.prod(sizes[place + 1 :]) for place in range(len(columns))], dtype=np.int64)
    keys, of_rows = np.sort(seeds[:, columns] @ weights), rows[:, columns] @ weights
    return np.searchsorted(keys, of_rows, side="right") - np.searchsorted(keys, of_rows, side="left")
