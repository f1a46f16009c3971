"""Processor time of votes and gradient steps over holders, queries and classes: slopes, and other libraries beside.

    python -m benchmarks.scaling [--quick]

Simulated holders with one record of 64 coordinates each (`benchmarks.neighbours.speed`), one thread. A size is measured
three times, and the least counts; all contenders of a size follow each other. Slopes are those of a least-squares line
through the logarithms: 1 is in proportion. `pairs` finds all records within a radius of each query, as scikit-learn
and faiss-cpu (where it is installed; it is no requirement) do; `votes` also looks up accounts, charges them and adds up
what every holder says. Numbers are kept in benchmarks/results/scaling.json; docs/performance-*.svg are drawn from them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "scaling.json"
DOCS = Path(__file__).resolve().parents[1] / "docs"
HOLDERS = (10_000, 31_623, 100_000, 316_228, 1_000_000)
QUERIES = (100, 1_000, 10_000, 100_000)
CLASSES = (2, 5, 15, 50, 150)
#: What stays the same while something else grows.
FEW_QUERIES, SOME_HOLDERS, TEN = 1_000, 60_000, 10
#: Of more pairs of a query and a record than these, a library that keeps all distances needs too much memory.
MOST = 1_000_000_000

Row = dict[str, Any]
Work = Callable[[], Any]


def sizes(quick: bool) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Pairs of a quantity that grows and its value, with the numbers of holders, queries and classes."""
    usual = {"holders": SOME_HOLDERS, "queries": FEW_QUERIES, "classes": TEN}
    grown = {"holders": HOLDERS, "queries": QUERIES, "classes": CLASSES}
    for over, values in grown.items():
        for value in values[:2] if quick else values:
            yield over, value, usual | {over: value}


def contenders(holders: int, queries: int, classes: int) -> dict[str, Work]:
    """Work that is measured at a size, by name."""
    import numpy as np
    from sklearn.neighbors import NearestNeighbors

    from accounting.privacy import IndividualAccounts
    from benchmarks.neighbours.speed import clustered
    from learning.mechanisms.neighbours.products import QUERIES_AT_A_TIME, near_pairs, squared_norms
    from learning.mechanisms.neighbours.votes import radii, shard_contributions
    from learning.mechanisms.steps.linear import step_contributions
    from learning.mechanisms.steps.records import owned_records

    places, records = clustered(1, queries), clustered(2, holders)
    labels = np.random.default_rng(3).integers(0, classes, holders)
    # one radius for all queries: scikit-learn and faiss know no other
    reach = int(np.median(radii(places[:1_000], records[:10_000], 0.0025)))
    limits, norms = np.full(queries, reach), squared_norms(records)
    mine = owned_records(records, labels, np.arange(holders), np.arange(holders))
    weights = np.zeros((records.shape[1] + 1, classes))

    def pairs() -> None:
        for start in range(0, queries, QUERIES_AT_A_TIME):
            some = slice(start, start + QUERIES_AT_A_TIME)
            near_pairs(places[some], limits[some], records, norms)

    def votes() -> None:
        accounts = IndividualAccounts(np.full(holders, 0.0718))
        own = np.arange(holders)
        shard_contributions(places, limits, records, labels, own, n_classes=classes, accounts=accounts, sigma=30.0)

    def step() -> None:
        accounts = IndividualAccounts(np.ones(holders))
        step_contributions(mine, weights, clip_norm=30.0, accounts=accounts, sigma=100.0)

    known: dict[str, Work] = {"pairs": pairs, "votes": votes, "one step": step}
    if holders * queries > MOST:
        return known
    singles = [points.astype(np.float32) for points in (places, records)]

    def scikit_learn() -> None:
        model = NearestNeighbors(radius=math.sqrt(reach), algorithm="brute", n_jobs=1).fit(singles[1])
        model.radius_neighbors(singles[0], return_distance=False)

    known["scikit-learn"] = scikit_learn
    try:
        import faiss
    except ImportError:
        return known
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(records.shape[1])
    index.add(singles[1])
    return known | {"faiss-cpu": lambda: index.range_search(singles[0], reach + 0.5)}


def measured(quick: bool) -> Iterator[Row]:
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from benchmarks.neighbours.speed import timed

    with threadpool_limits(1):
        for over, value, size in tqdm(list(sizes(quick)), desc="scaling"):
            for name, work in contenders(**size).items():
                if name == "one step" and over == "queries":
                    continue  # it knows none
                seconds = min(timed(lambda work=work: work() or 0)[2] for _ in range(3))
                yield {"over": over, "value": value, "what": name, "cpu_seconds": round(seconds, 5)}


def slopes(rows: list[Row]) -> Iterator[Row]:
    """Slope of every contender over whatever grew."""
    import numpy as np

    for over, name in dict.fromkeys((row["over"], row["what"]) for row in rows):
        mine = [row for row in rows if (row["over"], row["what"]) == (over, name)]
        if len(mine) > 1:
            logs = np.log([(row["value"], row["cpu_seconds"]) for row in mine])
            yield {"over": over, "what": name, "slope": round(float(np.polyfit(*logs.T, 1)[0]), 2)}


def draw(rows: list[Row]) -> None:
    from benchmarks.neighbours.figure import Line, figure

    for over in ("holders", "queries", "classes"):
        names = dict.fromkeys(row["what"] for row in rows if row["over"] == over)
        lines = [
            Line(
                name,
                {
                    row["value"]: math.log10(row["cpu_seconds"])
                    for row in rows
                    if (row["over"], row["what"]) == (over, name)
                },
            )
            for name in names
        ]
        logs = [log for line in lines for log in line.values.values()]
        drawing = figure(
            lines,
            title=f"Processor seconds over {over}",
            across=over,
            up="processor seconds",
            span=(math.floor(min(logs)), math.ceil(max(logs))),
            shown=lambda log: f"{10**log:.3g}",
        )
        (DOCS / f"performance-{over}.svg").write_text(drawing)


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.cells import table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sizes of each; keeps nothing")
    quick = parser.parse_args().quick
    rows = list(measured(quick))
    table(rows)
    found = list(slopes(rows))
    table(found)
    if not quick:
        RESULTS.write_text(json.dumps({"seconds": rows, "slopes": found}, indent=1) + "\n")
        draw(rows)


if __name__ == "__main__":
    main()
