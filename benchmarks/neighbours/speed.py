"""Speed: all pairs within a radius, compared with scikit-learn and faiss, and a million holders."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from accounting.privacy import IndividualAccounts
from learning.mechanisms.neighbours.votes import (
    QUERIES_AT_A_TIME,
    near_pairs,
    radii,
    shard_contributions,
    squared_norms,
)

DIMENSIONS, CLASSES = 64, 10


def clustered(seed: int, count: int) -> NDArray[np.int8]:
    """Return points around 200 centres, which are the same for every seed."""
    middles = np.random.default_rng(0).normal(0, 14, (200, DIMENSIONS)).astype(np.float32)
    rng = np.random.default_rng(seed)
    points = np.empty((count, DIMENSIONS), np.int8)
    for start in range(0, count, 100_000):
        size = min(100_000, count - start)
        drawn = middles[rng.integers(0, 200, size)] + rng.normal(0, 12, (size, DIMENSIONS)).astype(np.float32)
        points[start : start + size] = np.clip(np.rint(drawn), -127, 127)
    return points


def timed(work: Callable[[], int]) -> tuple[int, float, float]:
    wall, clock = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - clock


def beside_others(quick: bool) -> list[dict[str, Any]]:
    """Measure the search for all pairs of 9,000 queries and 60,000 records within radii of 1 %, on one thread."""
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    queries, records = clustered(1, 1_000 if quick else 9_000), clustered(2, 10_000 if quick else 60_000)
    # one radius for all queries, because scikit-learn and faiss support only that
    reach = int(np.median(radii(queries, queries, 0.01)))
    norms, singles = squared_norms(records), [points.astype(np.float32) for points in (queries, records)]
    blocks = range(0, len(queries), QUERIES_AT_A_TIME)

    def ours() -> int:
        limits = np.full(len(queries), reach)
        cut = [slice(start, start + QUERIES_AT_A_TIME) for start in blocks]
        return sum(len(near_pairs(queries[one], limits[one], records, norms)[0]) for one in cut)

    def scikit() -> int:
        model = NearestNeighbors(radius=float(np.sqrt(reach)), algorithm="brute", n_jobs=1).fit(singles[1])
        return sum(map(len, model.radius_neighbors(singles[0], return_distance=False)))

    def product() -> int:
        return int(sum((singles[0][start : start + QUERIES_AT_A_TIME] @ singles[1].T).shape[0] for start in blocks))

    contenders = {"near_pairs": ours, "scikit-learn": scikit, "matrix product alone (f32)": product}
    try:
        import faiss

        faiss.omp_set_num_threads(1)
        index = faiss.IndexFlatL2(DIMENSIONS)
        index.add(singles[1])
        # faiss excludes points exactly at the radius, so it gets half a unit more
        contenders["faiss-cpu"] = lambda: len(index.range_search(singles[0], reach + 0.5)[1])
    except ImportError:
        pass
    rows = []
    with threadpool_limits(1):
        for name, work in tqdm(contenders.items(), desc="speed"):
            best = min((timed(work) for _ in range(3)), key=lambda one: one[2])
            pairs = 0 if work is product else best[0]
            rows.append({"what": name, "pairs": pairs, "wall_seconds": best[1], "cpu_seconds": best[2]})
    operations = 2.0 * len(queries) * len(records) * DIMENSIONS
    for row in rows:
        row["gflops"] = operations / row["cpu_seconds"] / 1e9
    return rows


def million(quick: bool) -> list[dict[str, Any]]:
    """Measure votes and charges of a million holders for 10,000 queries of 64 coordinates, in four shards."""
    holders, count, shards = (50_000, 1_000, 4) if quick else (1_000_000, 10_000, 4)
    queries, records = clustered(1, count), clustered(2, holders)
    labels = np.random.default_rng(3).integers(0, CLASSES, holders)
    wall, clock = time.perf_counter(), time.process_time()
    reach = radii(queries, queries, 0.0025)
    sums, charges = np.zeros((count, CLASSES)), 0
    for part in tqdm(np.array_split(np.arange(holders), shards), desc="million"):
        accounts = IndividualAccounts(np.full(len(part), 0.0718))
        own, charged = shard_contributions(
            queries,
            reach,
            records[part],
            labels[part],
            np.arange(len(part)),
            n_classes=CLASSES,
            accounts=accounts,
            sigma=30.0,
        )
        sums, charges = sums + own, charges + charged.nnz
    return [
        {
            "holders": holders,
            "queries": count,
            "votes_cast": charges,
            "wall_seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - clock,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
    ]
