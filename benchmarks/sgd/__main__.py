"""Private gradient steps, every holder's contribution charged to their own account: models, constants, speed.

    IPATE_DATA_DIR=… python -m benchmarks.sgd
        [mnist fashion adult cardio support2 diabetes beyond noiseless
         patients calibrated learned images constants levels speed] [--quick]

Tables, photographs and texts that the catalogue does not know are read as benchmarks/sgd/elsewhere.py says. Prints
tables and keeps the numbers in benchmarks/results/sgd.json, each part under its name. Rows that are kept are not
measured again; take them out of the file to have them anew. `--quick` takes fewer runs, and keeps nothing. Constants
were tuned on public points alone: see docs/sgd.md.
"""

import json
import os
from pathlib import Path

from benchmarks.cells import Row, missing
from benchmarks.neighbours.__main__ import parts_of_arguments, table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "sgd.json"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.sgd import parts

    every = (
        parts.mnist,
        parts.fashion,
        parts.adult,
        parts.cardio,
        parts.support2,
        parts.diabetes,
        parts.beyond,
        parts.noiseless,
        parts.patients,
        parts.calibrated,
        parts.learned,
        parts.images,
        parts.constants,
        parts.levels,
        parts.speed,
    )
    known = {part.__name__: part for part in every}
    names, quick = parts_of_arguments(__doc__, known)
    for name in names:
        rows = [] if quick else _kept().get(name, [])
        for row in missing(rows, known[name](quick)):
            rows.append(row)
            if not quick:
                RESULTS.write_text(json.dumps(_kept() | {name: rows}, indent=1) + "\n")
        print(f"\n{name}: {known[name].__doc__}")
        table(rows)


def _kept() -> dict[str, list[Row]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


if __name__ == "__main__":
    main()
