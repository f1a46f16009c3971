"""Question of tables of counts, in which each person is a vector of norm 1 at most, divided among their cells.

A person with m records adds k/m to a cell that k of them are in, times their weight. So each counts as one person in a
table, however many records they own, and their contribution's norm is at most their weight (‖k/m‖ ≤ Σ k/m = 1).
The tables of one question are one vector: its squared norm is the sum of theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.noise import Noise
from learning.mechanisms.counts.columns import Column, Places, number_of_cells
from learning.mechanisms.counts.table_plan import CountsPlan
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, Records, content_digest

PERSON = 2**18
"""Whole number that a person of weight 1 adds, and the unit of the released sums."""

ASKED = frozenset({"sigma", "reference", "people", "weight", "cells"})
"""Fields of a plan that determine its question."""


@dataclass(frozen=True)
class CountsQuestion:
    """See :class:`learning.mechanisms.protocol.Question`.

    Attributes:
        plan: its noise and weights.
        tables: the columns of each table.
        caps: the caps of the promises in the run's plan, in μ².
        name: the name of the mechanism, for the register and the card.
    """

    plan: CountsPlan
    tables: tuple[tuple[Column, ...], ...]
    caps: tuple[float, ...]
    name: str = "counts"

    fitted = None
    size = 1
    grain = 1.0

    @property
    def sigma(self) -> float:
        return self.plan.sigma

    @property
    def spread(self) -> float:
        return self.sigma * PERSON

    def digest(self) -> str:
        # What a plan says about the error of numbers is no part of the question; older plans say less.
        asked = {name: value for name, value in self.plan.to_json().items() if name in ASKED}
        tables = [list(map(asdict, columns)) for columns in self.tables]
        return content_digest({}, json.dumps([asked, tables], sort_keys=True))

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "columns": list(dict.fromkeys(column.name for columns in self.tables for column in columns)),
            "cells": self.cells,
            "sigma": self.plan.sigma,
            "reference": self.plan.reference,
        }

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> None:
        """Return None: there is only one question."""

    @property
    def cells(self) -> int:
        """Number of cells of all tables."""
        return sum(map(number_of_cells, self.tables))

    def of_tables(self, sums: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split the sums (cells,) of all tables: each in the shape of its columns."""
        ends = np.cumsum([number_of_cells(columns) for columns in self.tables])
        shapes = [tuple(column.size for column in columns) for columns in self.tables]
        return [part.reshape(shape) for part, shape in zip(np.split(sums, ends[:-1]), shapes, strict=True)]

    def bounds(self, part: slice) -> list[float]:
        del part
        return (len(self.tables) * self.plan.weights(self.caps) ** 2 / self.sigma**2).tolist()

    def contributions(self, people: People, records: Records) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the unnoised sums (cells,) in `PERSON` and each person's charge (H,), in μ²; both are secrets."""
        number = len(people.holders)
        most = np.floor(self.plan.weights(people.caps) * PERSON)
        owned = np.bincount(records.owner, minlength=number)
        places = Places(records)
        added = [self._added(columns, places, records.owner, most, owned) for columns in self.tables]
        squares = np.sum([np.bincount(owner, values**2, number) for owner, _cell, values in added], axis=0)
        accounts = people.accounts()
        allowed = accounts.charge(squares / PERSON**2, self.sigma)
        sums = [
            np.bincount(cell, values * allowed[owner], number_of_cells(columns))  # whole numbers below 2⁵³
            for columns, (owner, cell, values) in zip(self.tables, added, strict=True)
        ]
        return np.concatenate(sums).astype(np.int64), accounts.spent - people.spent

    @staticmethod
    def _added(
        columns: tuple[Column, ...],
        places: Places,
        owner: NDArray[np.int64],
        most: NDArray[np.float64],
        owned: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return owners, cells and whole numbers of people's contributions to one table."""
        cells, cell = number_of_cells(columns), places.cells(columns)
        inside = cell >= 0
        owner, cell = owner[inside], cell[inside]
        times = np.ones(len(owner), np.int64)
        if owned.max(initial=0) > 1:  # sorting takes longer than everything else
            pairs, times = np.unique(owner * cells + cell, return_counts=True)
            owner, cell = pairs // cells, pairs % cells
        shares = most[owner] * times / owned[owner]
        values = np.rint(shares)
        # Rounding to the nearest could let a person divided among very many records exceed their weight.
        exceeds = np.bincount(owner, values**2, len(most)) > most**2
        return owner, cell, np.where(exceeds[owner], np.floor(shares), values)

    def answer(
        self, part: slice, state: None, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        sums, charge = self.contributions(people, records())
        return {"sums": sums, "charge": charge}

    def release(self, part: slice, state: None, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        total = np.sum([answer["sums"] for answer in answers], axis=0)
        sums = total + noise.rounded_normal(self.spread, total.shape)
        return PartRelease(
            size=self.size,
            content={"cells": len(sums), "digest": sums_digest(sums)},
            arrays={"sums": sums},
        )


def sums_digest(sums: NDArray[np.int64]) -> str:
    """Return the SHA-256 of released sums (cells,)."""
    return content_digest({"sums": sums})


def at_least_zero(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest numbers (B,) of at least 0 with the same total (Duchi et al. 2008, Figure 1)."""
    total = max(float(sums.sum()), 0.0)
    falling = np.sort(sums)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(sums) + 1)
    threshold = excess[np.flatnonzero(falling > excess)[-1]] if (falling > excess).any() else falling[0]
    return np.maximum(sums - threshold, 0.0)
