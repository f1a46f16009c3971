"""Measurements that are kept one by one, so that a benchmark that was stopped goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Row = dict[str, Any]
Cell = tuple[Row, Callable[[], Row]]
"""What tells a row from others, and what measures the rest of it."""


def missing(rows: list[Row], cells: Iterable[Cell]) -> Iterator[Row]:
    """Measure the cells that have no row yet."""
    for about, measure in cells:
        if not any(about.items() <= row.items() for row in rows):
            yield about | measure()
