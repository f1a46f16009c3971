"""Every holder votes: labels, rounds, forecasts, and the number of people needed.

    IPATE_DATA_DIR=… python -m benchmarks.neighbours [part …] [--quick]

Parts: labels, rounds, forecasts, splits, spaces, people, speed, workers, million. Prints tables and stores the numbers
in benchmarks/results/neighbours.json, each part under its name; rounds and people resume where they stopped. `--quick`
uses fewer holders and datasets, and stores nothing. `speed` compares with scikit-learn, and with faiss-cpu if installed
(it is not a requirement of the project); `million` asks a million holders 10,000 times. Constants were tuned only on
public splits; see benchmarks/results/methods.md.
"""

import os

from benchmarks.cells import parts_of_arguments, table
from benchmarks.neighbours.results import keep_rows


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.neighbours import parts, people, speed, splits, workers

    known = {
        "labels": parts.labels,
        "rounds": parts.rounds,
        "forecasts": parts.forecasts,
        "splits": splits.splits,
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
