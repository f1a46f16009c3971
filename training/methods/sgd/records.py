"""Records as gradient steps need them: ordered by holder, and holders with equally many records side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from training.representations.coordinates import LARGEST

INTERCEPT = LARGEST
"""The last coordinate of every record, a constant beside those of the representation."""

_RECORDS_AT_A_TIME = 4096
_NUMBERS_AT_A_TIME = 2**22


@dataclass(frozen=True)
class Stack:
    """Holders with the same number of records each.

    holders: `(m,)` their numbers.  records: `(m, n)` the positions of their records.
    """

    holders: NDArray[np.int64]
    records: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HolderRecords:
    """All records of some holders. A secret.

    coordinates: `(N, d)` int8, see `training.representations`.  label: `(N,)` class numbers; a record whose number is
    not that of a class contributes nothing.  holder: `(N,)` in 0 … holders - 1, ascending.  holders: H; some may have
    no records.

    Raises:
        ValueError: Arrays that do not fit together, or a wrong order.
    """

    coordinates: NDArray[np.int8]
    label: NDArray[np.integer]
    holder: NDArray[np.integer]
    holders: int

    def __post_init__(self) -> None:
        count = len(self.coordinates)
        if self.coordinates.ndim != 2 or self.coordinates.dtype != np.int8:
            raise ValueError(
                f"coordinates must be int8 of shape (records, dimensions), not {self.coordinates.dtype} of shape "
                f"{self.coordinates.shape}: transform the points by a fitted representation."
            )
        if self.label.shape != (count,) or self.holder.shape != (count,):
            raise ValueError(f"label and holder must have shape ({count},): {self.label.shape}, {self.holder.shape}.")
        if count and (self.holder[0] < 0 or self.holder[-1] >= self.holders or (np.diff(self.holder) < 0).any()):
            raise ValueError(f"holder must ascend from 0 to {self.holders - 1} at most: order the records by holder.")

    def stacks(self, numbers: int) -> Iterator[Stack]:
        """All holders with records, a stack at a time; a holder with very many records is alone in theirs.

        Args:
            numbers: How many numbers a contribution has, which bounds the holders of a stack.
        """
        counts, starts = self._places
        for count in np.unique(counts[counts > 0]).tolist():
            holders = np.flatnonzero(counts == count)
            most = _RECORDS_AT_A_TIME // count
            if count > 1:
                most = min(most, _NUMBERS_AT_A_TIME // numbers)
            for part in np.array_split(holders, -(-len(holders) // max(1, most))):
                yield Stack(part, starts[part][:, None] + np.arange(count))

    def features(self, stack: Stack) -> NDArray[np.float64]:
        """`(m, n, d + 1)` the coordinates of a stack, and the constant `INTERCEPT` last."""
        features = np.full((*stack.records.shape, self.coordinates.shape[1] + 1), float(INTERCEPT))
        features[..., :-1] = self.coordinates[stack.records]
        return features

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counts = np.bincount(self.holder, minlength=self.holders)
        return counts, np.cumsum(counts) - counts
