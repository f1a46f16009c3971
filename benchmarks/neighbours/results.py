"""The numbers that are kept, in benchmarks/results/neighbours.json: rows by part, each as soon as it was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.cells import Row, keep, kept

RESULTS = Path(__file__).resolve().parents[1] / "results" / "neighbours.json"


def kept_rows(part: str) -> list[Row]:
    """The rows of a part, none if it was not run yet."""
    return kept(RESULTS).get(part, [])


def keep_rows(part: str, rows: list[Row]) -> None:
    """Put these rows in the place of what was kept of this part."""
    keep(RESULTS, part, rows)


def measured(
    part: str, cells: list[dict[str, Any]], measure: Callable[..., dict[str, Any]], quick: bool
) -> list[dict[str, Any]]:
    """A row for each cell, that cell and what `measure` says of it; goes on where an earlier run stopped."""
    rows = [] if quick else kept_rows(part)
    known = [{name: row.get(name) for name in cells[0]} for row in rows]
    for cell in tqdm([cell for cell in cells if cell not in known], desc=part):
        rows.append(cell | measure(**cell))
        if not quick:
            keep_rows(part, rows)
    return rows
