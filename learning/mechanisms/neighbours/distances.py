"""Distances of whole-number coordinates, exact in floating point: which records are near, and how much they count.

For coordinates of at most 127 in absolute value, with `d` of them, a product of two points and half a squared norm stay
below 1.5·127²·d. Halves up to 2²³ are exact in float32, so for d ≤ 346 every product, every partial sum and the
comparison with the radius are exact, whatever the order of summation and however a library cuts the matrices; beyond
that the same holds in float64. So whether a record is near a query depends only on these two.

Measured on one core with AMX: float32 needs 0.54 s for 9,000 queries × 60,000 records × 64 coordinates (NumPy and
PyTorch take the same), 8-bit whole numbers (`torch._int_mm`) 0.41 s; comparing and collecting the results takes longer
than either. Float32 is public API, fast on every machine and equally exact.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from common.threads import one_thread

LARGEST = 127
MOST_DIMENSIONS = 1040
"""Largest number of coordinates for which the product of two points stays below 2²⁴."""

QUERIES_AT_A_TIME = 256
"""Fixed, because blocks of queries must not depend on the records."""
_RECORDS_AT_A_TIME = 8192
_SINGLE = 346  # coordinates for which float32 is exact

Coordinates = NDArray[np.signedinteger]
Near = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

UNIT = 2**16
"""Contributions are whole multiples of 1 / UNIT, which makes sums exact in any order."""

KERNELS = ("uniform", "epanechnikov")


def squared_norms(points: Coordinates) -> NDArray[np.int64]:
    """Return `(n,)` exact squared lengths.

    >>> squared_norms(np.array([[3, 4], [0, -127]], np.int8))
    array([   25, 16129])
    """
    return np.einsum("ij,ij->i", points, points, dtype=np.int64)


def near_blocks(
    queries: Coordinates, radii: NDArray[np.int64], records: Coordinates, norms: NDArray[np.int64]
) -> Iterator[Near]:
    """Yield all pairs of a query and a record within its radius, one block of records at a time.

    A block has at most `QUERIES_AT_A_TIME` times as many pairs as records, for any total number of records and
    any owners.

    Args:
        queries: `(b, d)`, at most 127 in absolute value.
        radii: `(b,)` squared; records at exactly this distance are near. Below 0: none are.
        records: `(n, d)`.
        norms: `(n,)`, `squared_norms(records)`.

    Yields:
        Positions of queries, of records, and squared distances, ordered by query and then by record.
    """
    query_norms = squared_norms(queries)
    least = (query_norms - radii) / 2.0
    for start, scores in _scores(queries, records, norms):
        flat = np.flatnonzero(scores >= least.astype(scores.dtype)[:, None])
        row, column = np.divmod(flat, scores.shape[1])
        distances = query_norms[row] - (2.0 * scores.ravel()[flat]).astype(np.int64)
        yield row, column + start, distances


def near_pairs(queries: Coordinates, radii: NDArray[np.int64], records: Coordinates, norms: NDArray[np.int64]) -> Near:
    """Return the pairs of all blocks together, see `near_blocks`, ordered by query and then by record."""
    blocks = list(near_blocks(queries, radii, records, norms))
    row, column, distance = (np.concatenate(parts) for parts in zip(*blocks, strict=True)) if blocks else _nobody()
    if len(blocks) > 1:
        order = by_query(row)
        row, column, distance = row[order], column[order], distance[order]
    return row, column, distance


def by_query(row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order that groups pairs of several blocks by query and otherwise keeps their order."""
    return np.argsort(row.astype(np.int16), kind="stable")


def squared_distances(queries: Coordinates, points: Coordinates) -> NDArray[np.int32]:
    """Return `(q, p)` exact squared distances, if the points fit into memory."""
    result = np.empty((len(queries), len(points)), np.int32)
    norms = squared_norms(points)
    for block in range(0, len(queries), QUERIES_AT_A_TIME):
        batch = queries[block : block + QUERIES_AT_A_TIME]
        own = squared_norms(batch)[:, None]
        for start, scores in _scores(batch, points, norms):
            result[block : block + len(batch), start : start + scores.shape[1]] = own - (2.0 * scores).astype(np.int64)
    return result


def kth_distances(queries: Coordinates, points: Coordinates, ks: Sequence[int]) -> NDArray[np.int64]:
    """Return `(q, len(ks))` squared distances of every query to its k-th nearest of the points, k counted from 1."""
    norms = squared_norms(points)
    places = [len(points) - k for k in ks]
    result = np.empty((len(queries), len(places)), np.int64)
    for block in range(0, len(queries), QUERIES_AT_A_TIME):
        batch = queries[block : block + QUERIES_AT_A_TIME]
        scores = np.concatenate([part.copy() for _, part in _scores(batch, points, norms)], axis=1)
        scores.partition(places, axis=1)
        result[block : block + len(batch)] = squared_norms(batch)[:, None] - (2.0 * scores[:, places]).astype(np.int64)
    return result


def kernel_weights(
    kernel: str, squared_distances: NDArray[np.int64], squared_radii: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the weight of each pair, 0 … `UNIT`.

    "uniform": every record within the radius counts in full. "epanechnikov": 1 - (distance / radius)², which gives near
    records most weight and those at the rim hardly any; the charge of a contribution shrinks with its square.

    Args:
        kernel: One of `KERNELS`.
        squared_distances, squared_radii: `(pairs,)`, distances at most the radii.

    >>> kernel_weights("epanechnikov", np.array([0, 25, 100]), np.array([100, 100, 100])) / UNIT
    array([1.  , 0.75, 0.  ])
    """
    if kernel == "uniform":
        return np.full(len(squared_distances), UNIT)
    if kernel == "epanechnikov":
        return UNIT - (squared_distances * UNIT + squared_radii - 1) // np.maximum(squared_radii, 1)
    raise ValueError(f"There is no kernel {kernel!r}: choose one of {', '.join(KERNELS)}.")


def _scores(
    queries: Coordinates, records: Coordinates, norms: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Yield each block's start and `(b, block)` of ⟨q, r⟩ - ‖r‖²/2; the array is reused for the next block."""
    kind = np.float32 if queries.shape[1] <= _SINGLE else np.float64
    # one extra coordinate, 1 in a query and -‖r‖²/2 in a record, subtracts the norm within the product
    left = np.ones((len(queries), queries.shape[1] + 1), kind)
    left[:, :-1] = queries
    size = min(_RECORDS_AT_A_TIME, max(len(records), 1))
    right = np.empty((size, queries.shape[1] + 1), kind)
    scores = np.empty(len(queries) * size, kind)
    with one_thread():
        for start in range(0, len(records), size):
            end = min(start + size, len(records))
            part = right[: end - start]
            part[:, :-1] = records[start:end]
            part[:, -1] = norms[start:end] / -2.0
            out = scores[: len(queries) * len(part)].reshape(len(queries), len(part))
            yield start, np.matmul(left, part.T, out=out)


def _nobody() -> Near:
    empty = np.zeros(0, np.int64)
    return empty, empty, empty
