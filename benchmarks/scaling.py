"""Processor time by holders, queries, classes and sites: slopes, and a comparison with other libraries.

    python -m benchmarks.scaling [holders queries classes sites] [--quick]

Simulated holders with one record of 64 coordinates each (`benchmarks.neighbours.speed`), one thread. Each size is
measured three times, and the shortest time is used; all contenders for a size run one after the other. Slopes are for a
least-squares line through the logarithms, so 1 means proportional. `pairs` finds all records within a radius of each
query, like scikit-learn and faiss-cpu (if installed; it is not a requirement); `votes` also looks up accounts, charges
them and adds up every holder's vote; `one sum` is a masked sum of all sites and the hub together. Numbers are stored in
benchmarks/results/scaling.json, leaving other parts unchanged; docs/performance-*.svg are drawn from them.
"""

from __future__ import annotations

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
SITES = (3, 6, 12, 25, 50)
#: Fixed sizes while another size grows.
FEW_QUERIES, SOME_HOLDERS, TEN = 1_000, 60_000, 10
#: Numbers in a sum of sites.
NUMBERS = 7_850
#: With more pairs of a query and a record than this, a library that stores all distances needs too much memory.
MOST = 1_000_000_000

GROWN = {"holders": HOLDERS, "queries": QUERIES, "classes": CLASSES, "sites": SITES}

Row = dict[str, Any]
Work = Callable[[], Any]


def sizes(over: list[str], quick: bool) -> Iterator[tuple[str, int]]:
    """Yield each growing quantity with each of its values."""
    for name in over:
        for value in GROWN[name][:2] if quick else GROWN[name]:
            yield name, value


def works(over: str, value: int) -> dict[str, Work]:
    """Return the work to measure for this value of the growing quantity, by name."""
    if over == "sites":
        return {"one sum": site_sum(value)}
    usual = {"holders": SOME_HOLDERS, "queries": FEW_QUERIES, "classes": TEN}
    known = contenders(**(usual | {over: value}))
    return {name: work for name, work in known.items() if (over, name) != ("queries", "one step")}  # it has none


def site_sum(sites: int, numbers: int = NUMBERS) -> Work:
    """Return the work for one question to all sites: their endorsements and answers, and the hub's addition."""
    import numpy as np

    from common.noise import SystemNoise
    from tests.learning.sites.alliances import Joint

    joint, question_numbers, values = Joint(sites), iter(range(1, 1_000)), np.arange(numbers)

    def work() -> None:
        joint.total(joint.question(next(question_numbers), spread=1e6), [values] * sites, lambda _place: SystemNoise())

    return work


def contenders(holders: int, queries: int, classes: int) -> dict[str, Work]:
    """Return the work to measure at a size, by name."""
    import numpy as np
    from sklearn.neighbors import NearestNeighbors

    from accounting.privacy import IndividualAccounts
    from benchmarks.neighbours.speed import clustered
    from learning.mechanisms.neighbours.votes import (
        QUERIES_AT_A_TIME,
        near_pairs,
        radii,
        shard_contributions,
        squared_norms,
    )
    from learning.mechanisms.steps.linear import owned_records, step_contributions

    places, records = clustered(1, queries), clustered(2, holders)
    labels = np.random.default_rng(3).integers(0, classes, holders)
    # one radius for all queries, because scikit-learn and faiss support only that
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


def measured(over: list[str], quick: bool) -> Iterator[Row]:
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from benchmarks.neighbours.speed import timed

    with threadpool_limits(1):
        for name, value in tqdm(list(sizes(over, quick)), desc="scaling"):
            for what, work in works(name, value).items():
                seconds = min(timed(lambda work=work: work() or 0)[2] for _ in range(3))
                yield {"over": name, "value": value, "what": what, "cpu_seconds": round(seconds, 5)}


def slopes(rows: list[Row]) -> Iterator[Row]:
    """Yield the slope of every contender for each growing quantity."""
    import numpy as np

    for over, name in dict.fromkeys((row["over"], row["what"]) for row in rows):
        mine = [row for row in rows if (row["over"], row["what"]) == (over, name)]
        if len(mine) > 1:
            logs = np.log([(row["value"], row["cpu_seconds"]) for row in mine])
            yield {"over": over, "what": name, "slope": round(float(np.polyfit(*logs.T, 1)[0]), 2)}


def draw(rows: list[Row]) -> None:
    from benchmarks.neighbours.figure import Line, figure

    for over in dict.fromkeys(row["over"] for row in rows):
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
    from benchmarks.neighbours.__main__ import parts_of_arguments, table

    over, quick = parts_of_arguments(__doc__, GROWN)
    rows = list(measured(over, quick))
    table(rows)
    table(list(slopes(rows)))
    if not quick:
        kept = json.loads(RESULTS.read_text())["seconds"] if RESULTS.exists() else []
        rows = [row for row in kept if row["over"] not in over] + rows
        RESULTS.write_text(json.dumps({"seconds": rows, "slopes": list(slopes(rows))}, indent=1) + "\n")
        draw(rows)


if __name__ == "__main__":
    main()
