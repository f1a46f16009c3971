"""Private gradient steps, every holder's contribution charged to their own account: models, constants, speed.

    IPATE_DATA_DIR=… python -m benchmarks.sgd
        [mnist adult cardio support2 diabetes patients calibrated learned images constants levels speed] [--quick]

`cardio`, `support2` and CIFAR-10 are read from files that the catalogue does not know: benchmarks/sgd/elsewhere.py.
Prints tables and keeps the numbers in benchmarks/results/sgd.json, each part under its name. Rows that are kept are not
measured again; take them out of the file to have them anew. `--quick` takes fewer runs, and keeps nothing. Constants
were tuned on public points alone: see docs/sgd.md.
"""

import argparse
import json
import os
from pathlib import Path

from benchmarks.cells import Row, missing
from benchmarks.neighbours.__main__ import table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "sgd.json"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.sgd import parts

    known = {
        "mnist": parts.mnist,
        "adult": parts.adult,
        "cardio": parts.cardio,
        "support2": parts.support2,
        "diabetes": parts.diabetes,
        "patients": parts.patients,
        "calibrated": parts.calibrated,
        "learned": parts.learned,
        "images": parts.images,
        "constants": parts.constants,
        "levels": parts.levels,
        "speed": parts.speed,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="all if none is named", metavar="part")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(known):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join(known)}")
    for name in options.parts or known:
        rows = [] if options.quick else _kept().get(name, [])
        for row in missing(rows, known[name](options.quick)):
            rows.append(row)
            if not options.quick:
                RESULTS.write_text(json.dumps(_kept() | {name: rows}, indent=1) + "\n")
        print(f"\n{name}: {known[name].__doc__}")
        table(rows)


def _kept() -> dict[str, list[Row]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


if __name__ == "__main__":
    main()
