"""Students that learn from releases, each beside the same student on true labels of the public points.

    IPATE_DATA_DIR=… python -m benchmarks.students [images few_points few_people digits tables steps] [--quick]

Prints tables and keeps the numbers in benchmarks/results/students.json, each part under its name. `--quick` takes fewer
steps and datasets, and keeps nothing. How constants were chosen: docs/students.md.
"""

import argparse
import json
import os
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results" / "students.json"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.neighbours.__main__ import table
    from benchmarks.students import parts

    every = (parts.images, parts.few_points, parts.few_people, parts.digits, parts.tables, parts.steps)
    known = {each.__name__: each for each in every}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="all if none is named", metavar="part")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(known):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join(known)}")
    for name in options.parts or known:
        rows = []
        for row in known[name](options.quick):
            rows.append(row)
            if not options.quick:
                kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                RESULTS.write_text(json.dumps(kept | {name: rows}, indent=1) + "\n")
        print(f"\n{name}: {known[name].__doc__}")
        table(rows)


if __name__ == "__main__":
    main()
