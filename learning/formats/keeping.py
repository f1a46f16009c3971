"""Where records go while a file is read: into lists, or into files, so that a long table takes no more memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from learning.formats.rows import Rows

Labels = npt.NDArray[np.int64]
#: Lines of a file of names that are decoded at once.
_LINES = 1000


class Keeper(Protocol):
    """Keeps encoded records, part by part."""

    def add(self, x: npt.NDArray[Any], y: Labels | None, holders: Sequence[str] | None) -> None:
        """Keep some more records, with labels and holders where they have them."""


class RowLists:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self._x: list[npt.NDArray[Any]] = []
        self._y: list[Labels] = []
        self._holders: list[str] = []

    def add(self, x: npt.NDArray[Any], y: Labels | None, holders: Sequence[str] | None) -> None:
        """Keep some more records."""
        self._x.append(x)
        self._y += [] if y is None else [y]
        self._holders += holders or ()

    def rows(self, empty: npt.NDArray[Any], *, labels: bool, holders: bool) -> Rows:
        """Return the records; ``empty`` is an array of none. Labels and holders are left out unless all have them."""
        x = np.concatenate(self._x) if self._x else empty
        y = np.concatenate(self._y) if self._y else np.empty(0, np.int64)
        has_labels, has_holders = labels and len(y) == len(x), holders and len(self._holders) == len(x)
        return Rows(x, y if has_labels else None, self._holders if has_holders else None)


class RowFiles:
    """Keeps records in the files of a folder. One object writes them, and another reads them from a mapped file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kind = ""
        self.shape: tuple[int, ...] = ()
        self.counts = {"x": 0, "y": 0, "holders": 0}

    def add(self, x: npt.NDArray[Any], y: Labels | None, holders: Sequence[str] | None) -> None:
        """Write some more records."""
        self.kind, self.shape = x.dtype.str, x.shape[1:]
        self._append("x", len(x), np.ascontiguousarray(x).data if x.size else b"")
        if y is not None:
            self._append("y", len(y), y.astype(np.int64, copy=False).tobytes())
        if holders is not None:
            self._append("holders", len(holders), "".join(f"{name}\n" for name in holders).encode())

    def _append(self, name: str, count: int, content: bytes | memoryview) -> None:
        self.counts[name] += count
        with (self._folder / name).open("ab") as file:
            file.write(content)

    def to_json(self) -> dict[str, Any]:
        """Return what `rows` has to know of what was written."""
        return {"kind": self.kind, "shape": self.shape, "counts": self.counts}

    def rows(self, written: dict[str, Any], empty: npt.NDArray[Any], *, labels: bool, holders: bool) -> Rows:
        """Return the records that were written; the arguments are those of `RowLists.rows`."""
        counts = written["counts"]
        has_labels, has_holders = labels and counts["y"] == counts["x"], holders and counts["holders"] == counts["x"]
        if not counts["x"]:
            return Rows(empty, np.empty(0, np.int64) if has_labels else None, [] if has_holders else None)
        x = np.memmap(self._folder / "x", written["kind"], "c", shape=(counts["x"], *written["shape"]))
        y = np.fromfile(self._folder / "y", np.int64) if has_labels else None
        return Rows(x, y, NameFile(self._folder / "holders") if has_holders else None)


class NameFile(Sequence[str]):
    """Names in the lines of a file, which is mapped: those that are asked for are decoded, some lines at once."""

    def __init__(self, path: Path) -> None:
        self._content = np.memmap(path, np.uint8, "r")
        ends = np.flatnonzero(self._content == ord("\n")) + 1
        self._count = len(ends)
        self._starts = np.concatenate([[0], ends[_LINES - 1 :: _LINES], ends[-1:]]).tolist()
        self._known: tuple[int, list[str]] = (-1, [])

    def _block(self, number: int) -> list[str]:
        if number != self._known[0]:
            content = self._content[self._starts[number] : self._starts[number + 1]].tobytes()
            self._known = (number, content.decode("utf-8").split("\n")[:-1])
        return self._known[1]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for number in range(-(-self._count // _LINES)):
            yield from self._block(number)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> list[str]: ...
    def __getitem__(self, which: int | slice) -> str | list[str]:
        places = range(self._count)[which]
        if isinstance(places, int):
            return self._block(places // _LINES)[places % _LINES]
        return [self._block(place // _LINES)[place % _LINES] for place in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
