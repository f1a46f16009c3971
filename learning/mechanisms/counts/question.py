"""Question of a table of counts: each person is one vector of norm 1 at most, divided among the cells of their records.

A person with m records adds k/m to a cell that k of them are in, times their weight. So they count as one person in
all, however many records they own, and the norm of what they add is at most their weight (‖k/m‖ ≤ Σ k/m = 1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.noise import Noise
from learning.mechanisms.base import Arrays, Draws, People, Records, Release, content_digest
from learning.mechanisms.counts.columns import Column, cells_of
from learning.mechanisms.counts.planner import CountsPlan

PERSON = 2**18
"""Whole numbers that a person of weight 1 adds; so are the released sums counted."""


@dataclass(frozen=True)
class CountsQuestion:
    """See :class:`learning.mechanisms.base.Question`. ``caps`` are those of the promises of the run's plan, in μ²."""

    plan: CountsPlan
    columns: tuple[Column, ...]
    caps: tuple[float, ...]

    fitted = None
    size = 1

    @property
    def sigma(self) -> float:
        return self.plan.sigma

    def digest(self) -> str:
        return content_digest({}, json.dumps([self.plan.to_json(), *map(asdict, self.columns)]))

    def describe(self) -> dict[str, Any]:
        return {
            "name": "counts",
            "columns": [column.name for column in self.columns],
            "cells": self.plan.cells,
            "sigma": self.plan.sigma,
            "reference": self.plan.reference,
        }

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> None:
        """Nothing: there is one question, which nothing follows."""

    def bounds(self, part: slice) -> list[float]:
        del part
        return (self.plan.weights(self.caps) ** 2 / self.sigma**2).tolist()

    def contributions(self, people: People, records: Records) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The unnoised sums (cells,) in `PERSON` and what each person is charged (H,), in μ²; both are secrets."""
        number, cells = len(people.holders), self.plan.cells
        owned = np.bincount(records.owner, minlength=number)
        cell = cells_of(self.columns, records)
        inside = cell >= 0
        pairs, times = np.unique(records.owner[inside] * cells + cell[inside], return_counts=True)
        owner, cell = pairs // cells, pairs % cells
        most = np.floor(self.plan.weights(people.caps) * PERSON)
        shares = most[owner] * times / owned[owner]
        values = np.rint(shares)
        # Rounded to the nearest, a person divided among very many records could exceed their weight.
        exceeds = np.bincount(owner, values**2, number) > most**2
        values = np.where(exceeds[owner], np.floor(shares), values)
        accounts = people.accounts()
        allowed = accounts.charge(np.bincount(owner, values**2, number) / PERSON**2, self.sigma)
        sums = np.bincount(cell, values * allowed[owner], cells)  # whole numbers below 2⁵³
        return sums.astype(np.int64), accounts.spent - people.spent

    def answer(
        self, part: slice, state: None, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        sums, charge = self.contributions(people, records())
        return {"sums": sums, "charge": charge}

    def release(self, part: slice, state: None, answers: Sequence[Arrays], noise: Noise) -> Release:
        total = np.sum([answer["sums"] for answer in answers], axis=0)
        sums = total + noise.rounded_normal(self.sigma * PERSON, total.shape)
        return Release(
            size=self.size,
            content={"cells": len(sums), "digest": sums_digest(sums)},
            arrays={"sums": sums},
        )


def sums_digest(sums: NDArray[np.int64]) -> str:
    """SHA-256 of released sums (cells,)."""
    return content_digest({"sums": sums})
