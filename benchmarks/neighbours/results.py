"""Numbers stored in benchmarks/results/neighbours.json: rows by part, stored as soon as they are measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.cells import Row, keep, kept

RESULTS = Path(__file__).resolve().parents[1] / "results" / "neighbours.json"


def kept_rows(part: str) -> list[Row]:
    """Return the stored rows of a part, if any."""
    return kept(RESULTS).get(part, [])


def keep_rows(part: str, rows: list[Row]) -> None:
    """Replace the stored rows of this part."""
    keep(RESULTS, part, rows)


def measured(
    part: str, cells: list[dict[str, Any]], measure: Callable[..., dict[str, Any]], quick: bool
) -> list[dict[str, Any]]:
    """Return a row for each cell, with the results of `measure`; resume where an earlier run stopped."""
    rows = [] if quick else kept_rows(part)
    known = [{name: row.get(name) for name in cells[0]} for row in rows]
    for cell in tqdm([cell for cell in cells if cell not in known], desc=part):
        rows.append(cell | measure(**cell))
        if not quick:
            keep_rows(part, rows)
    return rows
