"""Votes for rehearsals: published by the papers' authors, or by teachers trained here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce import teachers
from benchmarks.reproduce.folders import SOURCE, DataMissing, data_dir, votes_file
from benchmarks.sgd.study import splits_load
from learning.mechanisms.pate import Plan

Floats = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes of teachers on points with known classes.

    counts: `(points, classes)`.  truth: `(points,)`.  predictions: `(teachers, points)`, or None if individual votes
    are unknown.
    """

    name: str
    counts: Floats
    truth: Integers
    predictions: Integers | None = None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.counts.shape[1]

    def at(self, rows: Integers) -> Votes:
        """Return the same for some of the points, in this order."""
        predictions = None if self.predictions is None else self.predictions[:, rows]
        return Votes(self.name, self.counts[rows], self.truth[rows], predictions)

    def predictions_for(self, plan: Plan, seed: int) -> Integers:
        """Return predictions `(teachers, points)` of the plan's teachers.

        These are the actual predictions if they are known and the plan has as many teachers. Otherwise they are drawn:
        each teacher chooses a class as often as the actual teachers did. Upsampling spreads records over several
        teachers, so real teachers would agree a little more than drawn ones.
        """
        if self.predictions is not None and plan.teachers == len(self.predictions):
            return self.predictions
        below = np.cumsum(self.counts, axis=1) / self.counts.sum(axis=1, keepdims=True)
        random = np.random.default_rng(seed).random((plan.teachers, len(self.counts)))
        drawn = np.zeros(random.shape, np.int64)
        for edge in below.T[:-1]:
            drawn += random > edge
        return drawn


@cache
def published_counts(file: str) -> NDArray[Any]:
    """Return an array from the folder pate_votes.

    Raises:
        DataMissing: the file does not exist.
    """
    path = data_dir() / "pate_votes" / f"{file}.npy"
    if not path.is_file():
        raise DataMissing(f"{path.name} is missing: put it into the folder pate_votes of IPATE_DATA_DIR, from {SOURCE}")
    return np.load(path, allow_pickle=False)


@cache
def published_votes(name: str) -> Votes:
    """Return votes of the 250 teachers of Papernot et al. (2018) on MNIST or Adult. Rows are the first test records."""
    counts = published_counts(f"{name}_250_teachers").astype(np.float64)
    return Votes(name, counts, truth_of(name)[: len(counts)])


def truth_of(name: str) -> Integers:
    """Return classes of the catalogue's points that are not private, starting with the public ones."""
    splits = splits_load(name)
    return np.concatenate([splits.public.y, splits.test.y])


@cache
def printed_votes(name: str, division: int) -> Votes:
    """Return votes of teachers with the set-up of Individualized PATE, on the public records of a division.

    `python -m benchmarks.reproduce.ensembles` trains them; their votes are stored in benchmarks/data.
    """
    with np.load(votes_file(name, division), allow_pickle=False) as arrays:
        counts, truth = arrays["counts"].astype(np.float64), arrays["truth"].astype(np.int64)
        return Votes(name.removesuffix("-weaker"), counts, truth)


@cache
def trained_votes(name: str) -> Votes:
    """Return votes of 250 teachers trained here, on the public points of the catalogue's division."""
    data_dir()
    splits = splits_load(name)
    return votes_of(name, teachers.one_group(name, splits.private, splits.public.x), splits.public.y)


def votes_of(name: str, predictions: Integers, truth: Integers) -> Votes:
    """Return votes of these teachers `(teachers, points)`."""
    counts = np.stack([(predictions == one).sum(axis=0) for one in range(int(truth.max()) + 1)], axis=1)
    return Votes(name, counts.astype(np.float64), truth, predictions.astype(np.int64))
