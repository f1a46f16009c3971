"""Result and error types of the readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from common.identities import PseudonymError, canonical


class DataError(ValueError):
    """Unusable data: where (file, row, column), what is wrong, and what to do.

    ``row`` counts from 1, as an editor counts lines; ``remedy`` is the sentence that says what to do. Pages translate
    both where they are a ``Sentence`` or marked for translation.

    >>> print(DataError("“x” is no number.", "Write a number.", file="a.csv", row=3, column="age"))
    a.csv, row 3, column age: “x” is no number. Write a number.
    """

    def __init__(
        self,
        problem: str,
        remedy: str = "",
        *,
        file: str | PathLike[str] | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.problem, self.remedy, self.file, self.row, self.column = problem, remedy, file, row, column
        place = [str(file)] if file is not None else []
        place += [f"row {row}"] if row is not None else []
        place += [f"column {column}"] if column is not None else []
        message = " ".join(part for part in (problem, remedy) if part)
        super().__init__(f"{', '.join(place)}: {message}" if place else message)

    def at(self, *, file: str | PathLike[str] | None = None, row: int | None = None) -> DataError:
        """The same error with file and row filled in by the reader."""
        return DataError(
            self.problem,
            self.remedy,
            file=self.file if file is None else file,
            row=self.row if row is None else row,
            column=self.column,
        )


def as_numbers(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Records as they are learned from: bytes of images as pixels in [0, 1], everything else as it is.

    >>> as_numbers(np.full((1, 1, 2), 255, np.uint8)).tolist()
    [[[1.0, 1.0]]]
    """
    if x.dtype != np.uint8 or is_text(x):
        return x
    return x.astype(np.float32) / np.float32(255)


def is_text(x: npt.NDArray[Any]) -> bool:
    """Whether records are texts: bytes of UTF-8, which are no numbers.

    >>> is_text(np.zeros((1, 4), np.uint8)), is_text(np.zeros((1, 2, 2), np.uint8))
    (True, False)
    """
    return x.dtype == np.uint8 and x.ndim == 2


@dataclass(frozen=True)
class Rows:
    """Records of a dataset.

    Attributes:
        x: (n, features) float32 for tables; (n, height, width) or (n, height, width, channels) for images, float32 in
            [0, 1] or the bytes that files hold of them (uint8); (n, bytes) UTF-8 filled up with 0 for texts (uint8).
        y: int64 class numbers (n,), or None if unknown.
        holders: pseudonyms, one per record, or None for public data.

    >>> rows = Rows(np.zeros((2, 3), np.float32), np.array([0, 1]), ["ada", "ben"])
    >>> len(rows), rows[np.array([1])].holders
    (2, ['ben'])
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64] | None = None
    holders: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name, values in (("labels", self.y), ("holders", self.holders)):
            if values is not None and len(values) != len(self.x):
                raise DataError(f"There are {len(self.x)} records but {len(values)} {name}.", "Give one per record.")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, which: slice | npt.NDArray[np.bool_] | npt.NDArray[np.integer]) -> Rows:
        """Records at these positions, in this order."""
        positions = np.arange(len(self))[which]
        return Rows(
            self.x[positions],
            None if self.y is None else self.y[positions],
            None if self.holders is None else [self.holders[position] for position in positions],
        )

    def one_holder_per_row(self, prefix: str) -> Rows:
        """The same records, each with a holder of its own, named by its place: ``prefix-00001`` and so on.

        Raises:
            DataError: the pseudonym is invalid.
        """
        try:
            prefix = canonical(f"{prefix}-1").removesuffix("-1")
        except PseudonymError as error:
            raise DataError(error.problem, error.remedy) from error
        return replace(self, holders=_Numbered(prefix, len(self)))

    def without_holders(self) -> Rows:
        """The same records as public data, without holders."""
        return replace(self, holders=None)


class _Numbered(Sequence[str]):
    """Pseudonyms of as many people, ``prefix-01`` and so on, which are made when they are asked for."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix, self._places, self._width = prefix, range(1, count + 1), len(str(count))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> list[str]: ...
    def __getitem__(self, which: int | slice) -> str | list[str]:
        places = self._places[which]
        return self._named(places) if isinstance(places, int) else list(map(self._named, places))

    def _named(self, place: int) -> str:
        return f"{self._prefix}-{place:0{self._width}d}"
