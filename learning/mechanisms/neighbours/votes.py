"""Votes of all holders near a query for the classes of their own records, as far as their accounts allow.

This is Individualized PATE with one teacher per holder, also known as private nearest neighbours with individual
accounting: Zhu, Yu, Chandraker, Wang, "Private-kNN" (CVPR 2020); Zhu, Wang et al., "Private prediction strikes back!"
(2023). The guarantee is that of a Gaussian mechanism with one account per holder; see `accounting.privacy`.

A holder's contribution to a query depends only on the query, public points and the holder's own records. The
contribution is a vector of multiples of 2⁻¹⁶, whose squared norm is a multiple of 2⁻³². Sums and charges are therefore
exact in float64 and do not depend on blocks, shards or other people.

Coordinates are integers of at most 127 in absolute value. With `d` coordinates, the product of two points plus half a
squared norm stays below 1.5·127²·d. Multiples of ½ up to 2²³ are exact in float32, so for d ≤ 346 every product, every
partial sum and the comparison with the radius are exact in any order. For larger d, the same holds in float64.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack

from learning.libraries import one_thread

LARGEST = 127
MOST_DIMENSIONS = 1040
"""Largest number of coordinates for which the product of two points stays below 2²⁴."""

QUERIES_AT_A_TIME = 256
"""Number of queries in a block; fixed, so that blocks do not depend on the records."""
_RECORDS_AT_A_TIME = 8192
_SINGLE = 346  # largest number of coordinates for which float32 is exact

Coordinates = NDArray[np.signedinteger]
Near = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

UNIT = 2**16
"""Contributions are integer multiples of 1 / UNIT, so that sums are exact in any order."""

KERNELS = ("uniform", "epanechnikov")


def squared_norms(points: Coordinates) -> NDArray[np.int64]:
    """Return exact squared lengths `(n,)`.

    >>> squared_norms(np.array([[3, 4], [0, -127]], np.int8))
    array([   25, 16129])
    """
    return np.einsum("ij,ij->i", points, points, dtype=np.int64)


def near_blocks(
    queries: Coordinates, radii: NDArray[np.int64], records: Coordinates, norms: NDArray[np.int64]
) -> Iterator[Near]:
    """Yield all pairs of a query and a record within its radius, one block of records at a time.

    A block has at most `QUERIES_AT_A_TIME` times as many pairs as records, regardless of the records and their owners.

    Args:
        queries: `(b, d)`, at most 127 in absolute value.
        radii: `(b,)` squared; records at exactly this distance are near. If a radius is negative, no records are near.
        records: `(n, d)`, at most 127 in absolute value.
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
    """Return the pairs of all blocks together, ordered by query and then by record; see `near_blocks`."""
    blocks = list(near_blocks(queries, radii, records, norms))
    row, column, distance = (
        (np.concatenate(parts) for parts in zip(*blocks, strict=True)) if blocks else _no_neighbours()
    )
    if len(blocks) > 1:
        order = by_query(row)
        row, column, distance = row[order], column[order], distance[order]
    return row, column, distance


def by_query(row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order that groups pairs from several blocks by query and otherwise preserves their order."""
    return np.argsort(row.astype(np.int16), kind="stable")


def squared_distances(queries: Coordinates, points: Coordinates) -> NDArray[np.int32]:
    """Return all exact squared distances `(q, p)`, which must fit into memory together."""
    result = np.empty((len(queries), len(points)), np.int32)
    norms = squared_norms(points)
    for block in range(0, len(queries), QUERIES_AT_A_TIME):
        batch = queries[block : block + QUERIES_AT_A_TIME]
        own = squared_norms(batch)[:, None]
        for start, scores in _scores(batch, points, norms):
            result[block : block + len(batch), start : start + scores.shape[1]] = own - (2.0 * scores).astype(np.int64)
    return result


def kth_distances(queries: Coordinates, points: Coordinates, ks: Sequence[int]) -> NDArray[np.int64]:
    """Return squared distances `(q, len(ks))` of every query to its k-th nearest point, k counted from 1."""
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
    """Return the weight of each pair, from 0 to `UNIT`.

    "uniform": every record within the radius has full weight. "epanechnikov": 1 - (distance / radius)², so near records
    have the most weight, and records at the rim hardly any. Charges for contributions grow with the square of the
    weight.

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
    """Yield each block's start and ⟨q, r⟩ - ‖r‖²/2, `(b, block)`, in an array that the next block overwrites."""
    kind = np.float32 if queries.shape[1] <= _SINGLE else np.float64
    # an extra coordinate (1 in a query, -‖r‖²/2 in a record) makes the product subtract half the squared norm
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


def _no_neighbours() -> Near:
    empty = np.zeros(0, np.int64)
    return empty, empty, empty


class HolderAccounts(Protocol):
    """Accounts that limit every holder's contributions, for example `accounting.privacy.IndividualAccounts`."""

    @property
    def spent(self) -> NDArray[np.float64]:
        """Spending so far, `(holders,)`."""
        ...

    def charge(self, squared_norms: Any, sigma: float) -> Any:
        """Charge a CSR array `(queries, holders)` row by row; return an array of the same pattern, True if allowed."""
        ...


def radii(queries: ArrayLike, public: ArrayLike, radius_share: float | Sequence[float]) -> NDArray[np.int64]:
    """Return the squared radius of each query: the smallest that contains at least this share of the public points.

    Radii depend only on public points. The query itself is included if it is a public point. Points exactly at the
    radius are within it, so ties do not matter.

    Args:
        queries: `(Q, d)` coordinates from a fitted representation.
        public: `(P, d)` coordinates of the public points, from the same representation.
        radius_share: Share above 0 and at most 1, or several shares.

    Returns:
        `(Q,)`, or `(Q, shares)` for several.

    Raises:
        ValueError: The arrays do not contain such coordinates, or a share is out of range.

    >>> radii([[0], [10]], [[0], [1], [5], [10]], 0.5)
    array([ 1, 25])
    """
    shares = np.atleast_1d(np.asarray(radius_share, np.float64))
    if not ((shares > 0) & (shares <= 1)).all():
        raise ValueError(
            f"radius_share must lie above 0 and be at most 1, not {radius_share!r}: a usual value is 0.01."
        )
    points = _require_public("public", public)
    if len(points) == 0:
        raise ValueError("There are no public points to determine the radius from: give some.")
    # reduced slightly, so that a share of 0.07 of 100 points is 7 points despite rounding
    ks = np.maximum(1, np.ceil(shares * len(points) - 1e-9)).astype(int).tolist()
    result = kth_distances(_require_public("queries", queries, points.shape[1]), points, ks)
    return result[:, 0] if np.ndim(radius_share) == 0 else result


def neighbour_votes(
    queries: ArrayLike,
    public: ArrayLike,
    records: ArrayLike,
    classes_of: ArrayLike,
    holder_of: ArrayLike,
    *,
    radius_share: float,
    n_classes: int,
    accounts: HolderAccounts,
    sigma: float,
    predicted: ArrayLike | None = None,
    kernel: str = "uniform",
) -> tuple[NDArray[np.float64], csr_array]:
    """Return the votes of all holders on a batch of queries, before noise, and their charges.

    A holder contributes the mean of the one-hot vectors of their records within the query's radius (e_y for one
    record), a vector of norm at most 1. If `predicted` gives a public guess ŷ for each query, e_ŷ is subtracted. The
    result is then 0 if all their records agree with the guess, and its squared norm is 2 if none do. Accounts are
    charged query by query, in the order given. Refused contributions are 0 and cost nothing.

    Args:
        queries: `(Q, d)` integer coordinates of at most 127 in absolute value.
        public: `(P, d)` coordinates of the public points, which determine the radii.
        records: `(N, d)` coordinates of the records.
        classes_of: `(N,)` class numbers; a record with any other number has no vote.
        holder_of: `(N,)` in 0 … H - 1, where H is the number of accounts.
        radius_share: See `radii`.
        n_classes: Number of classes C.
        accounts: Charged as a side effect.
        sigma: Standard deviation of the noise that will be added to each count.
        predicted: `(Q,)` class numbers, for residual votes.
        kernel: One of `KERNELS`. With kernels other than "uniform", the mean is weighted, and its norm shrinks with the
            distance.

    Returns:
        The unnoised votes `(Q, C)`, and the squared norms that were charged, CSR `(Q, H)`. Both are secret.

    Raises:
        ValueError: The shapes of the arrays do not match. The content of a record never raises an error.
    """
    return shard_contributions(
        queries,
        radii(queries, public, radius_share),
        records,
        classes_of,
        holder_of,
        n_classes=n_classes,
        accounts=accounts,
        sigma=sigma,
        predicted=predicted,
        kernel=kernel,
    )


def shard_contributions(
    queries: ArrayLike,
    squared_radii: ArrayLike,
    records: ArrayLike,
    classes_of: ArrayLike,
    holder_of: ArrayLike,
    *,
    n_classes: int,
    accounts: HolderAccounts,
    sigma: float,
    predicted: ArrayLike | None = None,
    kernel: str = "uniform",
) -> tuple[NDArray[np.float64], csr_array]:
    """Return the result of `neighbour_votes` for a shard: some holders, numbered from 0, with all their records.

    The sums of all shards add up to the sums of all holders, bit for bit, however the holders are split. A shard's
    charges are the columns of its own holders.

    Args:
        squared_radii: `(Q,)`, from `radii`.
        accounts: Accounts of the holders of this shard.

    Returns:
        Partial sums `(Q, C)` and charged squared norms, CSR `(Q, H)` with the shard's H.
    """
    points = _require_public("queries", queries)
    guesses = None if predicted is None else _require_classes(predicted, len(points), n_classes)
    reach = np.asarray(squared_radii, np.int64)
    if reach.shape != (len(points),):
        raise ValueError(
            f"squared_radii has the shape {reach.shape}, but there are {len(points)} queries: pass a number for each."
        )
    holders = len(accounts.spent)
    voters = _voters(records, classes_of, holder_of, n_classes=n_classes, holders=holders, dimensions=points.shape[1])
    norms = squared_norms(voters.points)
    sums = np.zeros((len(points), n_classes))
    charged = []
    for start in range(0, len(points), QUERIES_AT_A_TIME):
        batch = slice(start, start + QUERIES_AT_A_TIME)
        blocks = near_blocks(points[batch], reach[batch], voters.points, norms)
        votes = _votes(_vote_weights(voters, *block, reach[batch], kernel) for block in blocks)
        if guesses is not None:
            votes = votes.against(guesses[batch])
        size = len(points[batch])
        offered = votes.squared_norms(size, holders)
        allowed = np.asarray(accounts.charge(offered, sigma).data, np.bool_)
        sums[batch] = votes.sums(allowed, size, n_classes)
        offered.data = np.where(allowed, offered.data, 0.0)
        offered.eliminate_zeros()
        charged.append(offered)
    if not charged:
        return sums, csr_array((0, holders))
    return sums, csr_array(vstack(charged, format="csr"))


@dataclass(frozen=True, eq=False)
class _Voters:
    """Records that have a vote, ordered by holder and class."""

    points: Coordinates
    label: NDArray[np.int64]
    holder: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Votes:
    """Holders' contributions to the queries of a block, before accounts are charged, in multiples of 1 / UNIT.

    Attributes:
        row, holder: `(votes,)`, one vote per holder and query, ordered by both.
        vote, label, amount: `(entries,)` entries of the vectors, each with its vote.
        guess: `(votes,)` public guess for the query; None if there are no guesses.
        against: `(votes,)` amount subtracted from the guess's entry; None if there are no guesses.
    """

    row: NDArray[np.int64]
    holder: NDArray[np.int64]
    vote: NDArray[np.int64]
    label: NDArray[np.int64]
    amount: NDArray[np.int64]
    guess: NDArray[np.int64] | None = None
    subtracted: NDArray[np.int64] | None = None

    def against(self, guesses: NDArray[np.int64]) -> "_Votes":
        """Return votes minus their totals at the guess, so that votes for the guess cancel out."""
        guess = guesses[self.row]
        differs = self.label != guess[self.vote]
        vote, amount = self.vote[differs], self.amount[differs]
        subtracted = np.bincount(vote, amount, len(self.row)).astype(np.int64)
        return _Votes(self.row, self.holder, vote, self.label[differs], amount, guess, subtracted)

    def squared_norms(self, queries: int, holders: int) -> csr_array:
        """Return CSR `(queries, holders)`. Zeros are stored explicitly, so that each vote has an entry."""
        squares = np.bincount(self.vote, self.amount.astype(np.float64) ** 2, len(self.row)).astype(np.float64)
        if self.subtracted is not None:
            squares = squares + self.subtracted.astype(np.float64) ** 2
        pointers = np.concatenate([[0], np.cumsum(np.bincount(self.row, minlength=queries))])
        return csr_array((squares / UNIT**2, self.holder, pointers), shape=(queries, holders))

    def sums(self, allowed: NDArray[np.bool_], queries: int, classes: int) -> NDArray[np.float64]:
        """Return the sums `(queries, classes)` of the allowed votes, exact because all numbers are integers."""
        cells = self.row[self.vote] * classes + self.label
        # for empty input, bincount returns integers regardless of the weights
        sums = np.bincount(cells, self.amount * allowed[self.vote], queries * classes).astype(np.float64)
        if self.guess is not None and self.subtracted is not None:
            cells = self.row * classes + self.guess
            sums -= np.bincount(cells, self.subtracted * allowed, queries * classes)
        return sums.reshape(queries, classes) / UNIT


VoteWeights = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Holders' answers to queries: query, holder, class and weight, sorted by the first three, without duplicates."""


def _vote_weights(
    voters: _Voters,
    row: NDArray[np.int64],
    record: NDArray[np.int64],
    distance: NDArray[np.int64],
    radii: NDArray[np.int64],
    kernel: str,
) -> VoteWeights:
    """Reduce a block of pairs to one weight for each query, holder and class, by adding up the records' weights."""
    weight = kernel_weights(kernel, distance, radii[row])
    return _added(row, voters.holder[record], voters.label[record], weight)


def _added(
    row: NDArray[np.int64], holder: NDArray[np.int64], label: NDArray[np.int64], weight: NDArray[np.int64]
) -> VoteWeights:
    """Add up the weights of adjacent entries with equal query, holder and class."""
    first = np.ones(len(row), np.bool_)
    first[1:] = (row[1:] != row[:-1]) | (holder[1:] != holder[:-1]) | (label[1:] != label[:-1])
    if first.all():
        return row, holder, label, weight
    entries = np.flatnonzero(first)
    return row[entries], holder[entries], label[entries], np.add.reduceat(weight, entries)


def _votes(blocks: Iterator[VoteWeights]) -> _Votes:
    """Return one vote per query and holder: the weighted mean of their records from all blocks."""
    pieces = list(blocks) or [(np.zeros(0, np.int64),) * 4]
    row, holder, label, weight = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    if len(pieces) > 1:
        order = by_query(row)
        row, holder, label, weight = _added(row[order], holder[order], label[order], weight[order])
    first = np.ones(len(row), np.bool_)
    first[1:] = (row[1:] != row[:-1]) | (holder[1:] != holder[:-1])
    vote = np.cumsum(first) - 1
    total = np.bincount(vote, weight).astype(np.int64)
    amount = weight * UNIT // np.maximum(total, UNIT)[vote]  # rounded down, so that the norm is never above 1
    return _Votes(row[first], holder[first], vote, label, amount)


def _voters(
    records: ArrayLike, classes_of: ArrayLike, holder_of: ArrayLike, *, n_classes: int, holders: int, dimensions: int
) -> _Voters:
    points = _require_coordinates("records", records)
    label, holder = np.asarray(classes_of), np.asarray(holder_of)
    if points.shape[1] != dimensions and len(points):
        raise ValueError(f"records have {points.shape[1]} coordinates, queries {dimensions}: use one representation.")
    for name, values in (("classes_of", label), ("holder_of", holder)):
        if values.shape != (len(points),):
            raise ValueError(
                f"{name} has the shape {values.shape}, but there are {len(points)} records: pass a number for each."
            )
    label, holder = label.astype(np.int64), holder.astype(np.int64)
    if len(holder) and (holder.min() < 0 or holder.max() >= holders):
        raise ValueError(f"holder_of must lie between 0 and {holders - 1}: pass accounts for all holders.")
    rows = np.flatnonzero((label >= 0) & (label < n_classes))
    order = rows[np.lexsort((label[rows], holder[rows]))]
    return _Voters(np.clip(points[order], -LARGEST, LARGEST), label[order], holder[order])


def _require_coordinates(name: str, points: ArrayLike) -> Coordinates:
    array = np.asarray(points)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.signedinteger):
        raise ValueError(f"{name} must be whole-number coordinates (n, d), not {array.dtype} of {array.shape}.")
    if not 1 <= array.shape[1] <= MOST_DIMENSIONS:
        raise ValueError(f"{name} have {array.shape[1]} coordinates: use 1 to {MOST_DIMENSIONS}.")
    return array


def _require_public(name: str, points: ArrayLike, dimensions: int | None = None) -> Coordinates:
    array = _require_coordinates(name, points)
    if dimensions is not None and array.shape[1] != dimensions:
        raise ValueError(
            f"{name} have {array.shape[1]} coordinates, public points {dimensions}: use the same representation."
        )
    if array.size and (array.min() < -LARGEST or array.max() > LARGEST):
        raise ValueError(f"{name} have coordinates beyond ±{LARGEST}: transform them with the fitted representation.")
    return array


def _require_classes(classes: ArrayLike, count: int, n_classes: int) -> NDArray[np.int64]:
    array = np.asarray(classes)
    if array.shape != (count,) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"predicted must be {count} class numbers, not {array.dtype} of {array.shape}: pass one for each query."
        )
    if array.size and (array.min() < 0 or array.max() >= n_classes):
        raise ValueError(f"predicted must lie between 0 and {n_classes - 1}: pass class numbers.")
    return array.astype(np.int64)
