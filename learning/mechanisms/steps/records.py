"""Records as gradient steps need them: ordered by holder, and holders with equally many records side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learning.representations.coordinates import LARGEST

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

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """The positions `(m, …)` a block at a time: of more than one holder all at once, of one holder part by part."""
        for start in range(0, self.records.shape[1], _RECORDS_AT_A_TIME):
            yield self.records[:, start : start + _RECORDS_AT_A_TIME]


@dataclass(frozen=True, eq=False)
class OwnedRecords:
    """All records of some holders, ordered by holder; secret.

    x: `(N, …)` records or their whole-number coordinates; a memory map serves, too.  y: `(N,)` class numbers; a record
    whose number is not that of a class contributes nothing.  first: `(H + 1,)` where the records of each holder begin,
    and N.  identity: `(H,)` a number of each holder that stays the same when others come or go, such as a primary key.
    """

    x: NDArray[np.floating] | NDArray[np.integer]
    y: NDArray[np.int64]
    first: NDArray[np.int64]
    identity: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.identity)

    @property
    def holder(self) -> NDArray[np.int64]:
        """`(N,)` whose each record is, from 0 to H - 1."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def stacks(self, numbers: int) -> Iterator[Stack]:
        """All holders with records, a stack at a time; a holder with very many records is alone in theirs.

        A stack has at most `_RECORDS_AT_A_TIME` records, or one holder.

        Args:
            numbers: How many numbers a contribution has, which bounds the holders of a stack.
        """
        counts, starts = np.diff(self.first), self.first[:-1]
        for count in np.unique(counts[counts > 0]).tolist():
            holders = np.flatnonzero(counts == count)
            most = _RECORDS_AT_A_TIME // count
            if count > 1:
                most = min(most, _NUMBERS_AT_A_TIME // numbers)
            for part in np.array_split(holders, -(-len(holders) // max(1, most))):
                yield Stack(part, starts[part][:, None] + np.arange(count))

    def features(self, records: NDArray[np.int64]) -> NDArray[np.float64]:
        """`(m, n, d + 1)` the coordinates of some records `(m, n)`, and the constant `INTERCEPT` last.

        Raises:
            ValueError: The records are no coordinates, see `learning.representations`.
        """
        if self.x.ndim != 2 or self.x.dtype != np.int8:
            raise ValueError(
                f"Coordinates are int8 of shape (records, dimensions), not {self.x.dtype} of shape {self.x.shape}: "
                "transform the records by a fitted representation."
            )
        features = np.full((*records.shape, self.x.shape[1] + 1), float(INTERCEPT))
        features[..., :-1] = self.x[records]
        return features


def owned_records(x: ArrayLike, y: ArrayLike, holder: ArrayLike, identity: ArrayLike) -> OwnedRecords:
    """The records put in the order of their holders.

    Args:
        x: `(N, …)`.
        y: `(N,)` class numbers. Any number outside the classes, like a value that is not finite, makes the record count
            for nothing; it raises no error, which would tell of it.
        holder: `(N,)` in 0 … H - 1.
        identity: `(H,)`.

    Raises:
        ValueError: the arrays do not fit together.
    """
    records, numbers = np.asarray(x), np.asarray(identity, np.int64)
    labels, owner = np.asarray(y, np.int64), np.asarray(holder, np.int64)
    if not len(records) == len(labels) == len(owner):
        raise ValueError(f"There are {len(records)} records, {len(labels)} labels and {len(owner)} holders of records.")
    if len(owner) and not 0 <= owner.min() <= owner.max() < len(numbers):
        raise ValueError(f"holder must lie between 0 and {len(numbers) - 1}, one less than there are identities.")
    order = np.argsort(owner, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(numbers)))])
    return OwnedRecords(records[order], labels[order], first, numbers)
