"""Numbers of rows in public cells, where every row counts as much as its own ε allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from learning.estimators.asking import COUNT_NOISE, Asked
from learning.mechanisms.counts.table_plan import CLASSES, CountedColumn, Counts, plan_counts
from learning.mechanisms.counts.tables import CountsQuestion, CountTable
from learning.mechanisms.protocol import Records


class IndividualDPCounts(BaseEstimator):
    """Counts of rows in some public cells, in which no row spends more than its own ε.

    Args:
        epsilons: (n,) ε of each row, or one for all; can be replaced in `fit`.
        delta: δ of all promises.
        cells: All values that a row may have; rows with other values are not counted.
        head_counts: Numbers of rows by ε, if they are public; otherwise they are counted with noise, at a small cost.
        seed: Seed of the noise, for experiments whose results stay secret.

    Attributes:
        counts_: (cells,) estimated numbers of rows.
        intervals_: (cells, 2) that contain the true numbers 95 times in 100, however the ε are spread over the cells.
        caps_: (n,) cap of each row's account in μ², determined by its ε.
        spent_: (n,) μ² that each row has spent, never more than its cap; as secret as the rows.

    >>> answers = np.repeat(["yes", "no"], [3000, 1000])
    >>> counted = IndividualDPCounts(np.tile([1.0, 2.0], 2000), cells=["yes", "no"], seed=1).fit(answers)
    >>> bool(abs(counted.counts_ - [3000, 1000]).max() < 100)
    True
    """

    def __init__(
        self,
        epsilons: ArrayLike = 1.0,
        *,
        delta: float = 1e-5,
        cells: ArrayLike = (),
        head_counts: Mapping[float, float] | None = None,
        seed: int | None = None,
    ) -> None:
        self.epsilons, self.delta, self.cells = epsilons, delta, cells
        self.head_counts, self.seed = head_counts, seed

    def fit(self, X: ArrayLike, y: Any = None, epsilons: ArrayLike | None = None) -> Self:  # noqa: N803
        """Count the rows.

        Args:
            X: (n,) or (n, 1) values of the rows.
            y: Ignored.
            epsilons: (n,) ε of each row, replacing the ones set before.
        """
        values, cells = np.asarray(X).reshape(len(np.asarray(X)), -1), np.asarray(self.cells)
        if values.shape[1] != 1 or not len(cells):
            raise ValueError("Give one column of values, and the cells that they are counted in.")
        matches = values == cells[None, :]
        codes = np.where(matches.any(axis=1), matches.argmax(axis=1), -1)
        asked = Asked(self.epsilons if epsilons is None else epsilons, len(values), self.delta, self.seed)
        levels = asked.levels(self.head_counts)
        noise = COUNT_NOISE if self.head_counts is None else 0.0
        plan = plan_counts(
            levels, cells=len(cells), share=asked.share(levels), counts=Counts(column=CLASSES), head_count_sigma=noise
        )
        column = CountedColumn(CLASSES, tuple(map(str, cells)))
        question = CountsQuestion(plan, ((column,),), tuple(level.cap for level in levels))
        records = Records(np.zeros((len(values), 1), np.float32), codes, np.arange(len(values)))
        (released,) = asked.ask(question, records)
        table = CountTable.released(question, released.arrays["sums"], levels)
        self.counts_ = np.array([cell.count for cell in table])
        self.intervals_ = np.array([(cell.least, cell.most) for cell in table])
        self.caps_, self.spent_ = asked.caps, asked.spent
        return self
