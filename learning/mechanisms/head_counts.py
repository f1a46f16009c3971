"""Question for a head count, the simplest mechanism: the number of people in each of a few cells."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.noise import Noise
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, content_digest


@dataclass(frozen=True)
class HeadCountQuestion:
    """Question for a head count, with records (cells, H) that state whether each person is in a cell.

    A person in k cells contributes a vector of norm √k. After division by √``most``, its squared norm is k/most ≤ 1 and
    the noise has standard deviation ``noise``, so the person is charged k/(most·noise²).

    Attributes:
        most: Largest number of cells that may contain the same person.
        noise: Standard deviation of the noise, in units of the largest norm.
    """

    cells: int
    most: int
    noise: float

    fitted = None
    size = 1
    grain = 1.0

    @property
    def sigma(self) -> float:
        return self.noise

    @property
    def spread(self) -> float:
        """Standard deviation of the noise in each count, in people."""
        return self.noise * math.sqrt(self.most)

    @property
    def charge(self) -> float:
        """Largest charge of any person, in μ²."""
        return 1 / self.noise**2

    def digest(self) -> str:
        return content_digest({}, json.dumps(self.describe()))

    def describe(self) -> dict[str, Any]:
        return {"name": "head counts", **asdict(self)}

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> None:
        """Return None: the question does not depend on earlier releases."""

    def bounds(self, part: slice) -> list[float]:
        del part
        return [self.charge]

    def answer(
        self,
        part: slice,
        state: None,
        people: People,
        records: Callable[[], NDArray[np.bool_]],
        *,
        alone: bool,
        draws: Draws,
    ) -> Arrays:
        counted = records()
        norms = counted.sum(axis=0) / self.most
        allowed = people.accounts().charge(norms, self.noise)
        return {"sums": (counted & allowed).sum(axis=1), "charge": np.where(allowed, norms * self.charge, 0.0)}

    def release(self, part: slice, state: None, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        total = np.sum([answer["sums"] for answer in answers], axis=0)
        return PartRelease(
            size=self.size, content={}, arrays={"counts": total + noise.rounded_normal(self.spread, self.cells)}
        )
