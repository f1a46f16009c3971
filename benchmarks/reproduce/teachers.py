"""Teachers of rehearsals, with cached predictions of each for public points.

Levels are drawn independently of the records. Teachers of equal parts of all records can therefore be used for every
setting in which a teacher learns from one group: the first teachers belong to the first group, and so on. Upsampling
and levels that depend on the class have their own teachers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.folders import Json, kept_array, progress
from benchmarks.students.teachers import LEARNERS
from learning.learners import learner_parameters

if TYPE_CHECKING:
    from benchmarks.reproduce.divided import Part
    from learning.formats import Rows

TEACHERS = 250
CHUNK = 25
Integers = NDArray[np.integer[Any]]
Numbers = NDArray[np.floating[Any]]


def taught(name: str, private: Rows | Part, queries: Numbers, parts: list[Integers], about: Json) -> Integers:
    """Return classes `(teachers, queries)` by teachers trained on these rows of the private records.

    parts: rows of each teacher.  about: description that determines records and parts, as JSON, for the cache.
    Predictions are stored for every 25 teachers, so that an interrupted run resumes there.
    """
    learner, x, y = LEARNERS[name], private.x, private.y
    classes = int(y.max()) + 1
    settings = {"name": f"teachers-{name}", "learner": learner.name, "of": about, "queries": len(queries)} | {
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


def one_group(name: str, private: Rows | Part, queries: Numbers, *, seed: int = 0) -> Integers:
    """Return predictions of teachers of equal parts of all records; sizes differ by at most one."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(private.y)), TEACHERS)
    return taught(name, private, queries, parts, {"equal parts": TEACHERS, "seed": seed})
