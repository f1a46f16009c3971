"""Whole columns of cells: converted at once if Arrow stores them, and cell by cell only if that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from learning.formats.values import NUMBER, cell, key, number

if TYPE_CHECKING:  # it takes a tenth of a second to import, which most commands need not spend
    import pyarrow as pa

Value = TypeVar("Value")


class Vector(Sequence[object]):
    """Cells of a column of plain values in Arrow; single ones read as `values.cell` makes them.

    >>> import pyarrow as pa
    >>> column = Vector(pa.array([" 1.5", "x", None]))
    >>> list(column), column.numbers.tolist()
    (['1.5', 'x', ''], [1.5, nan, nan])
    """

    def __init__(self, array: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            array = array.fill_null("") if array.null_count else array
            if pc.all(pc.string_is_ascii(array)).as_py() is not False:
                array = pc.ascii_trim_whitespace(array)
        self._array = array

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> Vector:
        """Return a column of these texts."""
        import pyarrow as pa

        return cls(pa.array(texts, pa.string()))

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, place: int) -> object: ...
    @overload
    def __getitem__(self, place: slice) -> Vector: ...
    def __getitem__(self, place: int | slice) -> object:
        return Vector(self._array[place]) if isinstance(place, slice) else cell(self._array[place].as_py())

    def __iter__(self) -> Iterator[object]:
        cells, codes = self.distinct
        return map(cells.__getitem__, codes.tolist())

    def take(self, places: Sequence[int] | npt.NDArray[np.integer]) -> Vector:
        """Return the cells at these places."""
        import pyarrow as pa

        return Vector(self._array.take(pa.array(places, pa.int64())))

    @cached_property
    def distinct(self) -> tuple[list[object], npt.NDArray[np.integer]]:
        """The different cells, each at least once, and the place of each cell among them."""
        encoded = self._array.dictionary_encode(null_encoding="encode")
        return [cell(value) for value in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """The number of each cell (n,), NaN if there is none."""
        import pyarrow as pa

        kind = self._array.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        if pa.types.is_string(kind):
            try:
                found = self._array.cast(pa.float64()).to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                return self._numbers_among_texts()
            return found if np.isfinite(found).all() else self._numbers_among_texts()  # “nan” is a text here
        return mapped(self, number, np.float64)

    def _numbers_among_texts(self) -> npt.NDArray[np.float64]:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_number = pc.match_substring_regex(self._array, f"^(?:{NUMBER.pattern})$").to_numpy(zero_copy_only=False)
        found = np.full(len(self), np.nan)
        found[is_number] = self._array.filter(pa.array(is_number)).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return found

    def with_point(self, words: Sequence[str]) -> Vector | None:
        """Return the texts with a point for each comma; None if a cell already has a point and has to be looked at.

        ``words`` are cells that stay as they are.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pa.types.is_string(self._array.type) or any("," in word or "." in word for word in words):
            return None
        has_point = pc.any(pc.match_substring(self._array, ".")).as_py()
        return None if has_point else Vector(pc.replace_substring(self._array, ",", "."))


def mapped(values: Sequence[object], function: Callable[[Any], object], kind: type) -> npt.NDArray[Any]:
    """Return a function's result for each cell (n,), calling it once for equal texts and equal cells of a `Vector`."""
    if isinstance(values, Vector):
        cells, codes = values.distinct
        return np.array([function(each) for each in cells], kind)[codes]
    return np.array(by_text(values, function), kind)


def by_text(values: Sequence[object], function: Callable[[object], Value]) -> list[Value]:
    """Return a function's result for each cell; for a column of texts, it is called once for each different one."""
    if set(map(type, values)) != {str}:
        return [function(value) for value in values]
    made = {value: function(value) for value in set(values)}
    return [made[value] for value in values]


def are_missing(values: Sequence[object], markers: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which cells contain a declared marker for a missing value."""
    missing = np.zeros(len(values), bool)
    keys = {key(marker) for marker in markers}
    if not keys:
        return missing
    if not isinstance(values, Vector):
        return mapped(values, lambda value: key(value) in keys, bool)
    perhaps = np.isnan(values.numbers)
    if amounts := [amount for marker in keys if (amount := number(marker)) == amount]:
        perhaps |= np.isin(values.numbers, amounts)
    if perhaps.any():
        missing[perhaps] = mapped(values.take(np.flatnonzero(perhaps)), lambda value: key(value) in keys, bool)
    return missing


def numbers(values: Sequence[object]) -> npt.NDArray[np.float64]:
    """Return the number of each cell (n,), NaN if there is none."""
    return values.numbers if isinstance(values, Vector) else mapped(values, number, np.float64)


def taken(values: Sequence[object], places: Sequence[int] | npt.NDArray[np.integer]) -> Sequence[object]:
    """Return the cells at these places."""
    return values.take(places) if isinstance(values, Vector) else [values[place] for place in places]


def blank_rows(columns: Iterable[Sequence[object]], count: int) -> npt.NDArray[np.int64]:
    """Return the places of rows in which every cell is empty, of so many rows; none of a table without columns."""
    places = None
    for column in columns:
        part = column if places is None else taken(column, places)
        blank = mapped(part, lambda cell: cell == "", bool)
        places = np.arange(count)[blank] if places is None else places[blank]
        if not len(places):
            break
    return np.empty(0, np.int64) if places is None else places
