"""Records for gradient steps: ordered by holder, with holders who have equally many records grouped together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learning.representations.coordinates import LARGEST

INTERCEPT = LARGEST
"""The last coordinate of every record, a constant after those of the representation."""

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
        """Yield the positions `(m, …)` in blocks: several holders' at once, a single holder's in parts."""
        for start in range(0, self.records.shape[1], _RECORDS_AT_A_TIME):
            yield self.records[:, start : start + _RECORDS_AT_A_TIME]


@dataclass(frozen=True, eq=False)
class OwnedRecords:
    """All records of some holders, ordered by holder; secret.

    x: `(N, …)` records or their whole-number coordinates; may be a memory map.  y: `(N,)` class numbers; a record whose
    number is not that of a class contributes nothing.  first: `(H + 1,)` where the records of each holder begin, and N.
    identity: `(H,)` a number of each holder that stays the same when others come or go, such as a primary key.
    """

    x: NDArray[np.floating] | NDArray[np.integer]
    y: NDArray[np.int64]
    first: NDArray[np.int64]
    identity: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.identity)

    @property
    def holder(self) -> NDArray[np.int64]:
        """Return `(N,)` the owner of each record, from 0 to H - 1."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def stacks(self, numbers: int) -> Iterator[Stack]:
        """Yield all holders with records in stacks; a holder with very many records has a separate stack.

        A stack has at most `_RECORDS_AT_A_TIME` records, or one holder.

        Args:
            numbers: Size of a contribution, which bounds the holders of a stack.
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
        """Return `(m, n, d + 1)` the coordinates of some records `(m, n)`, with the constant `INTERCEPT` last.

        Raises:
            ValueError: The records are not coordinates, see `learning.representations`.
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
    """Return the records in the order of their holders.

    Args:
        x: `(N, …)`.
        y: `(N,)` class numbers. A number outside the classes, or one that is not finite, makes the record contribute
            nothing; it raises no error, because an error would reveal it.
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
