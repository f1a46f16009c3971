"""Holders' contributions to one full-batch gradient step of a linear model, exact in integer arithmetic.

A holder's gradient is the mean of f ⊗ r over their records, where f are a record's coordinates followed by the
intercept, and r are the residuals of the record's loss (for classes, p - e_y with the model's probabilities p). The
gradient is clipped, rounded to multiples of clip_norm / `CLIP_STEPS`, charged by its norm after rounding, and summed.
All of this is a deterministic function of the holder's own records and of public values, bit for bit
(docs/gaussian-accounts.md, condition 5). All products and sums use integers within 2⁵³, and rounding happens in single
operations that IEEE 754 defines to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from accounting.privacy import IndividualAccounts
from learning.exact_arithmetic import RESIDUAL_STEPS, whole_matrix, whole_product
from learning.libraries import one_thread
from learning.outcomes import CROSS_ENTROPY, Loss
from learning.representations.coordinates import LARGEST

if TYPE_CHECKING:
    from common.noise import Noise


INTERCEPT = LARGEST
"""Last coordinate of every record, a constant that follows the representation's coordinates."""

_RECORDS_AT_A_TIME = 4096
_NUMBERS_AT_A_TIME = 2**22


@dataclass(frozen=True)
class Stack:
    """Holders with the same number of records.

    Attributes:
        holders: `(m,)` numbers of the holders.
        records: `(m, n)` positions of their records.
    """

    holders: NDArray[np.int64]
    records: NDArray[np.int64]

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """Yield the positions `(m, …)` in blocks of several holders, or of parts of a single holder."""
        for start in range(0, self.records.shape[1], _RECORDS_AT_A_TIME):
            yield self.records[:, start : start + _RECORDS_AT_A_TIME]


@dataclass(frozen=True, eq=False)
class OwnedRecords:
    """All records of some holders, ordered by holder. Secret.

    Attributes:
        x: `(N, …)` records or their integer coordinates; may be a memory map.
        y: `(N,)` class numbers; a record with any other number contributes nothing.
        first: `(H + 1,)` position of each holder's first record, and N at the end.
        identity: `(H,)` a number for each holder that does not change when others join or leave, such as a primary key.
    """

    x: NDArray[np.floating] | NDArray[np.integer]
    y: NDArray[np.int64]
    first: NDArray[np.int64]
    identity: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.identity)

    @property
    def holder(self) -> NDArray[np.int64]:
        """Owner of each record, `(N,)`, from 0 to H - 1."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def stacks(self, numbers: int) -> Iterator[Stack]:
        """Yield the holders that have records, grouped into stacks. One with very many records gets a separate stack.

        A stack has at most `_RECORDS_AT_A_TIME` records, or a single holder.

        Args:
            numbers: Size of a contribution, which limits the number of holders in a stack.
        """
        counts, starts = np.diff(self.first), self.first[:-1]
        for count in np.unique(counts[counts > 0]).tolist():
            holders = np.flatnonzero(counts == count)
            most = _RECORDS_AT_A_TIME // count
            if count > 1:
                most = min(most, _NUMBERS_AT_A_TIME // numbers)
            for part in np.array_split(holders, -(-len(holders) // max(1, most))):
                yield Stack(part, starts[part][:, None] + np.arange(count))

    def features(self, records: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the coordinates `(m, n, d + 1)` of some records `(m, n)`, with the constant `INTERCEPT` last.

        Raises:
            ValueError: The records are not coordinates, see `learning.representations`.
        """
        if self.x.ndim != 2 or self.x.dtype != np.int8:
            raise ValueError(
                f"Coordinates must be int8 of shape (records, dimensions), not {self.x.dtype} of shape {self.x.shape}: "
                "transform the records with a fitted representation."
            )
        features = np.full((*records.shape, self.x.shape[1] + 1), float(INTERCEPT))
        features[..., :-1] = self.x[records]
        return features


def owned_records(x: ArrayLike, y: ArrayLike, holder: ArrayLike, identity: ArrayLike) -> OwnedRecords:
    """Return the records ordered by holder.

    Args:
        x: `(N, …)` records.
        y: `(N,)` class numbers. A record with an invalid class or with values that are not finite contributes nothing.
            No error is raised, because the error would reveal the record.
        holder: `(N,)` in 0 … H - 1.
        identity: `(H,)`, see `OwnedRecords`.

    Raises:
        ValueError: The arrays do not fit together.
    """
    records, numbers = np.asarray(x), np.asarray(identity, np.int64)
    labels, owner = np.asarray(y, np.int64), np.asarray(holder, np.int64)
    if not len(records) == len(labels) == len(owner):
        raise ValueError(
            f"There are {len(records)} records, {len(labels)} labels and {len(owner)} owners; give equal numbers."
        )
    if len(owner) and not 0 <= owner.min() <= owner.max() < len(numbers):
        raise ValueError(f"holder must lie between 0 and {len(numbers) - 1}, the largest index of an identity.")
    order = np.argsort(owner, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(numbers)))])
    return OwnedRecords(records[order], labels[order], first, numbers)


Floats = NDArray[np.float64]

CLIP_STEPS = 2**18
"""Contributions and released sums consist of multiples of clip_norm / CLIP_STEPS."""

_MEAN_STEPS = RESIDUAL_STEPS // 2**7  # steps per unit of a mean gradient, so that its squared norm stays below 2⁵³
_ROUNDED = 1.0 - 2.0**-40  # allowance for single operations that round up


def step_contributions(
    records: OwnedRecords,
    weights: ArrayLike,
    *,
    clip_norm: float,
    accounts: IndividualAccounts,
    sigma: float,
    level_weights: ArrayLike = 1.0,
    loss: Loss = CROSS_ENTROPY,
) -> tuple[NDArray[np.int64], Floats]:
    """Return the unnoised sum of all holders' contributions to a step, and the charge of each holder.

    Args:
        weights: `(d + 1, outputs)` public weights for unscaled coordinates (up to 127), followed by the weights of the
            constant `INTERCEPT`.
        clip_norm: Largest norm of a contribution, in units of the product of coordinates and residuals.
        accounts: Accounts of the H holders, which are charged. A contribution that an account cannot pay for is left
            out and costs nothing.
        sigma: Noise multiplier. The sum must be released with noise of σ·`CLIP_STEPS`, see `release_sums`.
        level_weights: `(H,)` or a number, above 0 and at most 1: factor of each holder's clipped gradient, a public
            function of their own cap.
        loss: Loss of a record's scores and target.

    Returns:
        `(d + 1, outputs)` multiples of clip_norm / `CLIP_STEPS`; sums of shards add up exactly. `(H,)` charges in μ², 0
        if a contribution was refused. Both are secret.

    Raises:
        ValueError: Records are not coordinates, weights are not finite, or a level weight is out of range.
    """
    matrix = np.asarray(weights, np.float64)
    if not np.isfinite(matrix).all():
        raise ValueError("The weights are not finite: use smaller steps.")
    scores = Scores(matrix)
    shares = np.broadcast_to(np.asarray(level_weights, np.float64), (len(records),))
    if not ((shares > 0) & (shares <= 1)).all():
        raise ValueError("level_weights must lie above 0 and be at most 1.")
    sums, charged = np.zeros(matrix.shape, np.int64), np.zeros(len(records))
    with one_thread():
        for stack in records.stacks(sums.size):
            contributions = _singles if stack.records.shape[1] == 1 else _means
            parts = _parts(scores, loss, records, stack)
            squared_norms, total = contributions(parts, clip_norm, shares[stack.holders])
            step = csr_array((squared_norms, stack.holders, [0, len(squared_norms)]), shape=(1, len(records)))
            allowed = accounts.charge(step, sigma).data
            charged[stack.holders] = np.where(allowed, squared_norms / sigma**2, 0.0)
            sums += total(allowed).astype(np.int64)
    return sums, charged


def release_sums(sums: NDArray[np.int64], sigma: float, noise: Noise) -> NDArray[np.int64]:
    """Return `sums + N(0, (σ·CLIP_STEPS)²)`, rounded to whole numbers, as the release of a step.

    Args:
        sums: `(d + 1, outputs)` sums over all shards.
        sigma: Noise multiplier, at most `steps_plan.LARGEST_SIGMA`.
        noise: `SystemNoise`, or `SimulationNoise` in rehearsals; called once, for all numbers together.
    """
    return sums + noise.rounded_normal(sigma * CLIP_STEPS, sums.shape)


Parts = Iterator[tuple[Floats, Floats]]
"""Features and residuals, one block of records at a time."""


Contributions = tuple[Floats, Callable[[NDArray[np.bool_]], Floats]]
"""Squared norms `(m,)` in units of the clipping norm, and a function that adds up the allowed contributions."""


class Scores:
    """Linear model on integer features of at most 127.

    Args:
        weights: `(features, outputs)`, rounded to multiples of a power of two for which scores are exact.
    """

    def __init__(self, weights: Floats) -> None:
        self._whole, self._power = whole_matrix(weights, LARGEST)

    def of(self, features: Floats) -> Floats:
        """Return scores `(n, outputs)` for features `(n, features)`.

        >>> Scores(np.array([[0.5, 0.25]])).of(np.array([[2.0]])).tolist()
        [[1.0, 0.5]]
        """
        return whole_product(features, self._whole) / self._power


def _parts(scores: Scores, loss: Loss, records: OwnedRecords, stack: Stack) -> Parts:
    """Yield features `(m, n, d + 1)` and residuals `(m, n, outputs)` of a stack, one block of records at a time."""
    for block in stack.blocks():
        features = records.features(block)
        count, each, dimensions = features.shape
        residuals = loss.residuals(scores.of(features.reshape(-1, dimensions)), records.y[block].reshape(-1))
        yield features, residuals.reshape(count, each, -1)


def _singles(blocks: Parts, clip_norm: float, shares: Floats) -> Contributions:
    """Return contributions of holders with one record. As ‖f ⊗ r‖ = ‖f‖·‖r‖, norms are computed without products."""
    ((features, residuals),) = blocks
    points, parts = features[:, 0], residuals[:, 0]
    squares = (points**2).sum(axis=1)
    lengths = np.sqrt(squares * (parts**2).sum(axis=1))
    # rounding may add half a step to each output
    allowance = 0.5 * np.sqrt(squares * parts.shape[1])
    factors = _factors(lengths, allowance, CLIP_STEPS / (clip_norm * RESIDUAL_STEPS), shares)
    rounded = np.rint(parts * factors[:, None])
    squared_norms = squares * (rounded**2).sum(axis=1) / CLIP_STEPS**2
    return squared_norms, lambda allowed: points.T @ (rounded * allowed[:, None])


def _means(blocks: Parts, clip_norm: float, shares: Floats) -> Contributions:
    """Return contributions of holders with several records: means of their gradients, exact for any blocks."""
    products, each = np.zeros(()), 0
    for features, residuals in blocks:
        products = products + features.transpose(0, 2, 1) @ residuals
        each += residuals.shape[1]
    gradients = np.rint(products / (each * (RESIDUAL_STEPS // _MEAN_STEPS)))
    gradients = gradients.reshape(len(gradients), -1)
    lengths = np.sqrt((gradients**2).sum(axis=1))
    allowance = np.full(len(lengths), 0.5 * np.sqrt(gradients.shape[1]))
    factors = _factors(lengths, allowance, CLIP_STEPS / (clip_norm * _MEAN_STEPS), shares)
    rounded = np.rint(gradients * factors[:, None])
    squared_norms = (rounded**2).sum(axis=1) / CLIP_STEPS**2
    return squared_norms, lambda allowed: rounded[allowed].sum(axis=0).reshape(products.shape[1:])


def _factors(lengths: Floats, allowance: Floats, unit: float, shares: Floats) -> Floats:
    """Return the factors that convert gradients to steps and, where necessary, clip them.

    Args:
        lengths: Norms of the gradients.
        allowance: Upper bounds on the increase of a gradient's norm due to rounding.
        unit: Steps per unit of a gradient.
        shares: Share of the clipping norm for each gradient.
    """
    most = np.maximum(shares * (CLIP_STEPS * _ROUNDED) - allowance, 0.0)
    return np.minimum(shares * unit, most / np.where(lengths > 0, lengths, np.inf))
