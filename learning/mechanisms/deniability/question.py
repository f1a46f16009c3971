"""Question of a run by plausible deniability, for rehearsals alone: every record answers with its codes, as they are.

What is released is what the paper's mechanism releases. It keeps no promise of iPATE's: nobody is charged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.noise import Noise
from common.sentences import gettext_noop
from learning.mechanisms.base import Arrays, Draws, People, PlanError, Records, Release, content_digest
from learning.mechanisms.counts.columns import Column, Places
from learning.mechanisms.deniability.network import network_learn
from learning.mechanisms.deniability.planner import DeniabilityPlan
from learning.mechanisms.deniability.rows import DeniabilityTest, synthesise
from learning.mechanisms.deniability.structure import Codes

LEAST, ALIKE = (10, 50, 100, 500), (2.0, 4.0, 10.0)
"""k and γ of which a run says how many rows pass."""
_TRIED = 1_000  # rows for each γ and ω
_ATTEMPTS = 50
_COARSE = 10  # groups of the bins of a column of numbers, where it is a parent


@dataclass(frozen=True)
class DeniabilityQuestion:
    """See :class:`learning.mechanisms.base.Question`.

    Attributes:
        plan: its test, and what it costs.
        columns: of the records, the classes last.
    """

    plan: DeniabilityPlan
    columns: tuple[Column, ...]

    fitted = None
    size = 1
    grain = 1.0
    sigma = 0.0
    spread = None

    def digest(self) -> str:
        return content_digest({}, json.dumps([self.plan.to_json(), list(map(asdict, self.columns))]))

    def describe(self) -> dict[str, Any]:
        return {"name": "deniability", "columns": len(self.columns), **self.plan.to_json()}

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch, most
        return slice(start, self.size)

    def state(self, released: Arrays | None) -> None:
        """Nothing: there is one question, which nothing follows."""

    def bounds(self, part: slice) -> None:
        """None: nobody is charged."""

    def answer(
        self, part: slice, state: None, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        places = Places(records())
        codes = np.stack([places.cells((column,)) for column in self.columns], axis=1)
        return {"codes": codes[(codes >= 0).all(axis=1)], "charge": np.zeros(len(people.holders))}

    def release(self, part: slice, state: None, answers: Sequence[Arrays], noise: Noise) -> Release:
        rng = np.random.default_rng(np.abs(noise.rounded_normal(2.0**30, (4,))).tolist())
        codes = np.concatenate([answer["codes"] for answer in answers])
        codes = codes[np.lexsort(codes.T)]  # whoever answered first
        sizes = [column.size for column in self.columns]
        model = network_learn(codes, sizes, list(map(_groups, self.columns)), self.plan.network, self.plan.delta, rng)
        test = DeniabilityTest(self.plan.k, self.plan.gamma, self.plan.epsilon0)
        rows: list[Codes] = []
        tried = accepted = 0
        while accepted < self.plan.rows and tried < _ATTEMPTS * self.plan.rows:
            made = synthesise(model.network, model.seeds, self.plan.omegas, self.plan.rows, self.plan.gamma, rng)
            rows.append(made.codes[test.passes(made.plausible, rng)])
            tried, accepted = tried + self.plan.rows, accepted + len(rows[-1])
        if not accepted:
            raise PlanError(
                gettext_noop(
                    "No row passed the test: too few records could have been the seed of one. Take a smaller k, draw "
                    "more columns anew, or take more records."
                )
            )
        passing = [
            DeniabilityTest(k, gamma, self.plan.epsilon0).passes(plausible, rng).mean()
            for omegas in self.tried
            for gamma in ALIKE
            for plausible in [synthesise(model.network, model.seeds, omegas, _TRIED, gamma, rng).plausible]
            for k in LEAST
        ]
        arrays = {
            "rows": np.concatenate(rows)[: self.plan.rows],
            "tried": np.array([tried, accepted]),
            "passing": np.array(passing).reshape(-1, len(ALIKE), len(LEAST)),
            "parents": _matrix(model.network.parents),
        }
        return Release(size=self.size, content={"digest": content_digest(arrays)}, arrays=arrays)

    @property
    def tried(self) -> list[list[int]]:
        """The ω of which a run says how many rows pass: the planned ones, all columns, one less, two less, half."""
        whole = len(self.columns)
        others = [[omega] for omega in (whole, whole - 1, whole - 2) if omega >= 0]
        return [list(self.plan.omegas), *others, list(range(whole // 2, whole + 1))]


def _groups(column: Column) -> NDArray[np.int64]:
    """The coarser value of each cell: bins of numbers in groups of neighbours, all else as it is."""
    bins, cells = len(column.edges) - 1, np.arange(column.size)
    if bins <= _COARSE:
        return cells
    return np.where(cells < bins, cells * _COARSE // bins, _COARSE + cells - bins)


def _matrix(parents: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """(columns, columns): whether the second is a parent of the first."""
    matrix = np.zeros((len(parents), len(parents)), bool)
    for column, those in enumerate(parents):
        matrix[column, list(those)] = True
    return matrix
