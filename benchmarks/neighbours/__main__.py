"""Every holder votes: labels, rounds, forecasts, students, and how many people it takes.

    IPATE_DATA_DIR=… python -m benchmarks.neighbours [part …] [--quick]

Parts: labels, rounds, forecasts, splits, students, spaces, people, speed, workers, million. Prints tables and keeps the
numbers in benchmarks/results/neighbours.json, each part under its name; rounds and people go on where they stopped.
`--quick` takes fewer holders and datasets, and keeps nothing. `speed` compares with scikit-learn, and with faiss-cpu
where it is installed (it is no requirement of the project); `million` is a million holders asked 10,000 times.
Constants were tuned on public splits alone: see docs/measurements.md.
"""

import argparse
import os
from typing import Any

from benchmarks.neighbours.results import keep_rows


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    if isinstance(value, list):
        return "/".join(shown(one) for one in value)
    if isinstance(value, dict):
        return " ".join(f"{name}={shown(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: list[dict[str, Any]]) -> None:
    lines = [list(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def parts_of_arguments(description: str | None, known: dict[str, Any]) -> tuple[list[str], bool]:
    """Names of the parts that the command line asks for, all if it names none; and whether it is to be quick."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(known)}; all if none is named", metavar="part")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(known):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join(known)}")
    return options.parts or list(known), options.quick


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.neighbours import parts, people, speed, splits, workers

    known = {
        "labels": parts.labels,
        "rounds": parts.rounds,
        "forecasts": parts.forecasts,
        "splits": splits.splits,
        "students": parts.students,
        "spaces": parts.spaces,
        "people": people.people,
        "speed": speed.beside_others,
        "workers": workers.workers,
        "million": speed.million,
    }
    names, quick = parts_of_arguments(__doc__, known)
    for name in names:
        rows = known[name](quick)
        print(f"\n{name}: {known[name].__doc__}")
        table(rows)
        if not quick:
            keep_rows(name, rows)


if __name__ == "__main__":
    main()
