"""Parts of a benchmark, named on its command line, printed as tables, and stored row by row in a file.

A stopped benchmark resumes where it left off, because stored rows are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Cell = tuple[Row, Callable[[], Row]]
"""Values that identify a row, and the function that measures its other values."""


def missing(rows: list[Row], cells: Iterable[Cell]) -> Iterator[Row]:
    """Measure the cells that have no row yet."""
    for about, measure in cells:
        if not any(about.items() <= row.items() for row in rows):
            yield about | measure()


def kept(results: Path) -> dict[str, list[Row]]:
    """Return the rows of every part in a file of results."""
    return json.loads(results.read_text()) if results.exists() else {}


def keep(results: Path, part: str, rows: list[Row]) -> None:
    """Replace the stored rows of this part."""
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(kept(results) | {part: rows}, indent=1) + "\n")


def parts_measure(
    description: str | None, results: Path, known: Mapping[str, Callable[[bool], Iterable[Cell]]]
) -> None:
    """Measure missing rows of the parts named on the command line, store them, and print the tables."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names, quick = parts_of_arguments(description, known)
    for name in names:
        rows = [] if quick else kept(results).get(name, [])
        for row in missing(rows, known[name](quick)):
            rows.append(row)
            if not quick:
                keep(results, name, rows)
        print(f"\n{name}: {known[name].__doc__}")
        table(rows)


def parts_of_arguments(description: str | None, known: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Return the parts named on the command line (by default, all of them), and whether to be quick."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(known)}; all if none is given", metavar="part")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(known):
        parser.error(f"unknown part {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    return options.parts or list(known), options.quick


def table(rows: list[Row]) -> None:
    """Print rows as an aligned table."""
    lines = [list(rows[0]), *([_shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    if isinstance(value, list):
        return "/".join(_shown(one) for one in value)
    if isinstance(value, dict):
        return " ".join(f"{name}={_shown(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
