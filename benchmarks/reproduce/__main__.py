"""The papers' tables, recomputed with this project's code and compared with the published ones.

    IPATE_DATA_DIR=… python -m benchmarks.reproduce [TABLE …] [--quick]
    python -m benchmarks.reproduce --list
    python -m benchmarks.reproduce --document

By default, all tables are computed. Results are stored case by case in benchmarks/results/reproduce, one file per
table. Stored cases are not measured again; to repeat one, remove it from the file. `--quick` uses few cases and draws,
and stores nothing there. Predictions of teachers are stored in var/reproduce, or in the folder IPATE_REPRODUCE_CACHE.
`--document` writes docs/reproduction.md from the results.
"""

import argparse
import os
import sys
import time


def main() -> None:
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(threads, "1")
    from benchmarks.reproduce.folders import DataMissing, progress
    from benchmarks.reproduce.registry import TABLES
    from benchmarks.reproduce.rendering import DOCUMENT, document, text_of
    from benchmarks.reproduce.results import keep, kept, measured

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="all if none is given")
    parser.add_argument("--quick", action="store_true", help="few cases and draws; stores nothing")
    parser.add_argument("--list", action="store_true", help="list the tables")
    parser.add_argument("--document", action="store_true", help="write docs/reproduction.md from the results")
    options = parser.parse_args()
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"unknown table {', '.join(unknown)}: choose from {', '.join(TABLES)}")
    if options.list:
        for table in TABLES.values():
            print(f"{table.name:18} {table.title}")
        return
    if options.document:
        DOCUMENT.write_text(document())
        return
    missing: dict[str, str] = {}
    for name in options.tables or TABLES:
        table, began = TABLES[name], time.perf_counter()
        keeps = not options.quick and not table.derived
        cases = list(table.cases(options.quick))
        order = [case.setting for case in cases]
        found = [one for one in kept(name) if one["setting"] in order] if keeps else []
        todo = [case for case in cases if case.setting not in {one["setting"] for one in found}]
        try:
            with progress(len(todo), name) as bar:
                for case in todo:
                    found = sorted([*found, measured(case)], key=lambda one: order.index(one["setting"]))
                    if keeps:
                        keep(name, found)
                    bar.update()
        except DataMissing as error:
            missing[name] = str(error)
            continue
        print(
            f"\n{name}: {table.title}. {table.source}. {time.perf_counter() - began:.0f} s\n{text_of(name, found)}",
            flush=True,
        )
    if missing:
        sys.exit("\n".join([f"Not measured: {', '.join(missing)}.", *sorted(set(missing.values()))]))


if __name__ == "__main__":
    main()
