"""Private gradient steps, with contributions charged to the holders' own accounts: models, constants, speed.

    IPATE_DATA_DIR=… python -m benchmarks.sgd
        [mnist fashion adult cardio support2 diabetes beyond noiseless
         patients calibrated balanced constants levels speed] [--quick]

Tables, photographs and texts that are not in the catalogue are read by benchmarks/sgd/elsewhere.py. Prints tables and
stores the numbers in benchmarks/results/sgd.json, each part under its name. Stored rows are not measured again; to
repeat them, remove them from the file. `--quick` uses fewer runs, and stores nothing. Constants were tuned only on
public points; see docs/sgd.md.
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
        parts.balanced,
        parts.constants,
        parts.levels,
        parts.speed,
    )
    parts_measure(__doc__, RESULTS, {part.__name__: part for part in every})


if __name__ == "__main__":
    main()
