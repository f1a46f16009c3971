"""Students that learn from releases, each beside the same student on true labels of the public points.

    IPATE_DATA_DIR=… python -m benchmarks.students [images few_points …] [--quick]

Prints tables and keeps the numbers in benchmarks/results/students.json, each part under its name. `--quick` takes fewer
steps and datasets, and keeps nothing. What compares methods takes long: rows that are kept are not measured again; take
them out of the file to have them anew. How constants were chosen: docs/students.md.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from benchmarks.cells import missing

RESULTS = Path(__file__).resolve().parents[1] / "results" / "students.json"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.neighbours.__main__ import table
    from benchmarks.students import compared, parts
    from benchmarks.students.summary import summary

    every = (parts.images, parts.few_points, parts.few_people, parts.digits, parts.tables, parts.steps)
    known = {each.__name__: each for each in every}
    sides = (compared.compared, compared.few, compared.splits, compared.thorough)
    cells = {each.__name__: each for each in sides}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="all if none is named", metavar="part")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(known) - set(cells):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join([*known, *cells])}")
    for name in options.parts or [*known, *cells]:
        rows: list[dict[str, Any]] = [] if options.quick or name in known else _kept().get(name, [])
        part = known.get(name) or cells[name]
        for row in part(options.quick) if name in known else missing(rows, cells[name](options.quick)):
            rows.append(row)
            if not options.quick:
                RESULTS.write_text(json.dumps(_kept() | {name: rows}, indent=1) + "\n")
        print(f"\n{name}: {part.__doc__}")
        table(rows if name in known else list(summary(rows)))


def _kept() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


if __name__ == "__main__":
    main()
