"""Students trained on releases, each compared with the same student trained on true labels of the public points.

    IPATE_DATA_DIR=… python -m benchmarks.students [images few_points …] [--quick]

Prints tables and stores the numbers in benchmarks/results/students.json, each part under its name. `--quick` uses fewer
steps and datasets, and stores nothing. Comparing methods takes a long time, so stored rows are not measured again; to
repeat them, remove them from the file. docs/students.md describes how constants were chosen.
"""

import os
from pathlib import Path

from benchmarks.cells import Row, keep, kept, missing, parts_of_arguments, table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "students.json"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.students import compared, parts
    from benchmarks.students.summary import summary

    every = (parts.images, parts.few_points, parts.few_people, parts.digits, parts.tables, parts.steps)
    known = {each.__name__: each for each in every}
    sides = (compared.compared, compared.few, compared.splits, compared.thorough)
    cells = {each.__name__: each for each in sides}
    names, quick = parts_of_arguments(__doc__, known | cells)
    for name in names:
        rows: list[Row] = [] if quick or name in known else kept(RESULTS).get(name, [])
        part = known.get(name) or cells[name]
        for row in part(quick) if name in known else missing(rows, cells[name](quick)):
            rows.append(row)
            if not quick:
                keep(RESULTS, name, rows)
        print(f"\n{name}: {part.__doc__}")
        table(rows if name in known else list(summary(rows)))


if __name__ == "__main__":
    main()
