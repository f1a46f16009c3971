"""Question for a round of votes, and the labels that its noisy counts determine.

The question fixes the public points, the space and the guess.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import GRID, Noise
from learning.mechanisms.neighbours.votes import shard_contributions
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, Records, content_digest
from learning.outcomes import Outcome, Target
from learning.representations import FittedRepresentation, representation_load

if TYPE_CHECKING:
    from common.noise import Noise


@dataclass(frozen=True, eq=False)
class CountsRelease:
    """Noisy counts of a batch, and the labels that follow from them.

    Attributes:
        counts: `(Q, C)` rounded noisy counts.
        labels: `(Q,)` class with the largest count; the lowest number in a tie.
        margins: `(Q,)` lead of that class, in units of σ.
    """

    counts: NDArray[np.int64]
    labels: NDArray[np.int64]
    margins: NDArray[np.float64]


def release_counts(totals: ArrayLike, sigma: float, noise: Noise) -> NDArray[np.int64]:
    """Return `totals + N(0, σ²)`, rounded to whole numbers after adding the noise.

    Args:
        totals: `(Q, C)` sums over all shards.
        sigma: Standard deviation of the noise.
        noise: `SystemNoise`, or `SimulationNoise` in rehearsals; called once, for all numbers together.

    Returns:
        Noisy counts `(Q, C)`.
    """
    sums = np.asarray(totals, np.float64)
    return np.rint(sums + noise.normal(sigma, sums.shape)).astype(np.int64)


def read_counts(
    counts: ArrayLike, sigma: float, *, predicted: ArrayLike | None = None, voters: ArrayLike = 0.0
) -> CountsRelease:
    """Return labels and margins from noisy counts.

    Args:
        counts: `(Q, C)` released counts.
        predicted: `(Q,)` public guess that residual votes were cast against; None for plain votes.
        voters: `(Q,)` or a number: public estimate of the total number of voters at each query. Residual counts show
            only votes against the guess; another class is chosen only if its votes outweigh this number.

    >>> read_counts([[-30, 30]], 10.0, predicted=[0], voters=100.0).labels
    array([0])
    """
    released = np.asarray(counts, np.int64)
    votes = released.astype(np.float64)
    if predicted is not None:
        votes[np.arange(len(votes)), np.asarray(predicted)] += voters
    labels = votes.argmax(axis=1)
    if votes.shape[1] == 1:
        return CountsRelease(released, labels, np.full(len(labels), np.inf))
    ordered = np.partition(votes, -2, axis=1)
    return CountsRelease(released, labels, (ordered[:, -1] - ordered[:, -2]) / sigma)


@dataclass(frozen=True, eq=False)
class VotesQuestion:
    """Question for a round of votes; see :class:`learning.mechanisms.protocol.Question`.

    Attributes:
        rows: (Q,) rows of the public dataset, in the order of the queries.
        queries: (Q, d) coordinates of the rows.
        radii: (Q,) squared radii.
        voters: (Q,) forecast numbers of voters.
        predicted: (Q,) public guesses if votes are residual, else None.
        outcome: Outcome whose categories are voted on.
        index: Index of the round.
        promises: Number of promises in the plan.
    """

    rows: NDArray[np.int64]
    queries: NDArray[Any]
    radii: NDArray[np.int64]
    voters: NDArray[np.float64]
    predicted: NDArray[np.int64] | None
    fitted: FittedRepresentation
    sigma: float
    radius_share: float | None
    kernel: str
    outcome: Outcome
    index: int
    promises: int

    grain = GRID

    @classmethod
    def from_arrays(cls, arrays: Arrays, **about: Any) -> VotesQuestion:
        """Return the question from the arrays in a round's file and details of the round and its run."""
        return cls(
            rows=arrays["rows"],
            queries=arrays["queries"],
            radii=arrays["radii"],
            voters=arrays["voters"],
            predicted=arrays.get("predicted"),
            fitted=representation_load(arrays["representation"].tobytes()),
            **about,
        )

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def spread(self) -> float:
        return self.sigma

    @property
    def norm(self) -> float:
        """Largest squared norm of a contribution to a query: 2 if votes are residual, else 1."""
        return 1.0 if self.predicted is None else 2.0

    def digest(self) -> str:
        arrays = {"rows": self.rows, "queries": self.queries, "radii": self.radii, "voters": self.voters}
        guessed = {} if self.predicted is None else {"predicted": self.predicted}
        target = json.dumps(self.outcome.to_json()) if isinstance(self.outcome, Target) else ""
        return content_digest(arrays | guessed | self.fitted.state(), target)

    def describe(self) -> dict[str, Any]:
        return {
            "name": "neighbours",
            "sigma": self.sigma,
            "radius_share": self.radius_share,
            "kernel": self.kernel,
            "round": self.index + 1,
        }

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch
        return slice(start, min(start + most, self.size))

    def state(self, released: Arrays | None) -> None:
        """Return None, because queries do not depend on the releases of other queries."""

    def bounds(self, part: slice) -> list[float]:
        return [(part.stop - part.start) * self.norm / self.sigma**2] * self.promises

    def answer(
        self, part: slice, state: Any, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        del state, alone, draws  # noise is drawn only once, for the total over all shards
        sums, charges = self.contributions(part, people, records())
        return {"sums": sums, "charge": charges}

    def contributions(
        self, part: slice, people: People, records: Records
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return unnoised sums (Q, C) of people's contributions to a part, and each person's charge (H,) in μ²."""
        accounts = people.accounts()
        sums, _norms = shard_contributions(
            self.queries[part],
            self.radii[part],
            records.x,
            self.outcome.categories_of(records.classes),
            records.owner,
            n_classes=len(self.outcome.categories),
            accounts=accounts,
            sigma=self.sigma,
            predicted=self._guessed(part),
            kernel=self.kernel,
        )
        # Charges are differences of accounts rather than sums of norms, so that they agree with the remaining budgets.
        return sums, accounts.spent - people.spent

    def release(self, part: slice, state: Any, answers: Sequence[Arrays], noise: Noise) -> PartRelease:
        del state
        totals = np.sum([answer["sums"] for answer in answers], axis=0)
        counts = release_counts(totals, self.spread, noise)
        rows, labels = self.rows[part], self.labels(part, counts)
        return PartRelease(
            size=len(rows),
            content={"queries": len(rows), "labels": len(rows), "digest": counts_digest(rows, labels, counts)},
            rows=rows.tolist(),
            labels=labels.tolist(),
            counts=counts.tolist(),
        )

    def labels(self, part: slice, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the labels (Q,) of a part, derived from its noisy counts (Q, C)."""
        return read_counts(counts, self.sigma, predicted=self._guessed(part), voters=self.voters[part]).labels

    def _guessed(self, part: slice) -> NDArray[np.int64] | None:
        return None if self.predicted is None else self.predicted[part]


def counts_digest(rows: NDArray[Any], labels: NDArray[Any], counts: NDArray[Any]) -> str:
    """Return the SHA-256 of released counts: rows of the public dataset with their labels and noisy counts."""
    entries = [[int(row), int(label), each] for row, label, each in zip(rows, labels, counts.tolist(), strict=True)]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
