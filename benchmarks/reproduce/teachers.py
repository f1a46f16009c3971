"""Teachers of rehearsals: what each predicts for all points that are not private, kept in the cache.

Levels are drawn whatever the records are. So teachers of equal parts of all records serve every setting in which a
teacher learns from one group: the first of them are those of the first group, and so on. Upsampling and levels that
depend on the class have teachers of their own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.cache import Json, kept_array
from benchmarks.reproduce.progress import progress
from benchmarks.sgd.study import splits_load
from benchmarks.students.teachers import LEARNERS
from learning.learners import learner_parameters

TEACHERS = 250
CHUNK = 25
Integers = NDArray[np.integer[Any]]


@cache
def points(name: str) -> tuple[NDArray[np.floating[Any]], Integers]:
    """Points that are not private, public ones first, and their classes."""
    splits = splits_load(name)
    both = (splits.public, splits.test)
    return np.concatenate([part.x for part in both]), np.concatenate([part.y for part in both])


def taught(name: str, parts: list[Integers], about: Json) -> Integers:
    """Classes `(teachers, points)` by teachers that learn from these rows of the private records.

    parts: for each teacher its rows.  about: what the parts follow from, as JSON, for the cache.
    Predictions are kept for every 25 teachers, so that an interrupted run goes on there.
    """
    splits, learner = splits_load(name), LEARNERS[name]
    x, y = splits.private.x, splits.private.y
    queries, _ = points(name)
    classes = len(splits.schema.classes)
    settings = {"name": f"teachers-{name}", "learner": learner.name, "of": about} | {
        "parameters": sorted((key, str(value)) for key, value in learner_parameters(learner).items())
    }

    def chunk(first: int) -> Integers:
        found = []
        for teacher in range(first, min(first + CHUNK, len(parts))):
            rows = parts[teacher]
            found.append(learner.fit(x[rows], y[rows], classes=classes, seed=teacher).predict(queries).astype(np.int8))
            bar.update()
        return np.stack(found)

    with progress(len(parts), f"teachers of {name}") as bar:
        chunks = []
        for first in range(0, len(parts), CHUNK):
            chunks.append(kept_array(settings | {"first": first}, lambda first=first: chunk(first)))  # type: ignore[misc]
            bar.update(min(first + CHUNK, len(parts)) - bar.n)
    return np.concatenate(chunks)


def equal_parts(name: str, teachers: int, *, seed: int = 0) -> list[Integers]:
    """Rows of each teacher where every record is in one of them, as in the papers: sizes differ by one at most."""
    order = np.random.default_rng(seed).permutation(len(splits_load(name).private))
    return np.array_split(order, teachers)


def one_group(name: str, teachers: int = TEACHERS, *, seed: int = 0) -> Integers:
    """Predictions of teachers of equal parts of all records."""
    return taught(name, equal_parts(name, teachers, seed=seed), {"equal parts": teachers, "seed": seed})
