"""Private gradient steps, every holder's contribution charged to their own account: models, constants, speed.

    IPATE_DATA_DIR=… python -m benchmarks.sgd
        [mnist fashion adult cardio support2 diabetes beyond noiseless
         patients calibrated constants levels speed] [--quick]

Tables, photographs and texts that the catalogue does not know are read as benchmarks/sgd/elsewhere.py says. Prints
tables and keeps the numbers in benchmarks/results/sgd.json, each part under its name. Rows that are kept are not
measured again; take them out of the file to have them anew. `--quick` takes fewer runs, and keeps nothing. Constants
were tuned on public points alone: see docs/sgd.md.
"""

import os
from pathlib import Path

from benchmarks.cells import parts_measure

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
        parts.constants,
        parts.levels,
        parts.speed,
    )
    parts_measure(__doc__, RESULTS, {part.__name__: part for part in every})


if __name__ == "__main__":
    main()
