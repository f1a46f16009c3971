"""What a teacher says of the public points, from which it also learns without their labels.

Teachers share nothing but what follows from the public points: a representation, and the graph of nearest neighbours
in it. What a teacher says depends on its members' records and on these alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from learning.learners.learner import Learner
from learning.learners.scikit import NearestNeighbour
from learning.representations.representation import FittedRepresentation
from learning.representations.spreading import similarities, spread

_NEAREST = 5
"""Public points that take over the class of a record."""
_STEPS = 60
_FAR, _NEAR = 0.95, 0.8
"""How far classes of single records, and a model's probabilities, are spread."""


@dataclass(frozen=True, eq=False)
class PublicGraph:
    """The public points as teachers see them: how records are represented, `coordinates` (P, d), and the graph."""

    fitted: FittedRepresentation
    coordinates: NDArray[np.float32]
    similar: csr_array

    @classmethod
    def of(cls, fitted: FittedRepresentation, coordinates: NDArray[np.number]) -> PublicGraph:
        """Return the graph of points with these coordinates."""
        return cls(fitted, np.asarray(coordinates, np.float32), similarities(coordinates))


def teacher_classes(
    learner: Learner,
    x: NDArray[np.floating],
    y: NDArray[np.integer],
    points: NDArray[np.floating],
    graph: PublicGraph | None,
    *,
    classes: int,
    seed: int,
) -> NDArray[np.int64]:
    """Return the class (P,) that a teacher of these records says each public point has.

    With a graph, the classes of single records spread from the public points nearest to them where the learner is
    nearest neighbour (Zhou et al. 2004), each class with the same weight in all, and need no moved copies; other
    learners' probabilities are spread from every point to those close to it.

    Args:
        learner: Of the teacher.
        x: `(n, …)` records.
        y: `(n,)` their classes.
        points: `(P, …)` public points.
        graph: Of the public points; None where teachers learn from their records alone.
        classes: How many there are.
        seed: Of the teacher.
    """
    if graph is None:
        return learner.fit(x, y, classes=classes, seed=seed).predict(points)
    if not isinstance(learner, NearestNeighbour):
        probabilities = learner.fit(x, y, classes=classes, seed=seed).predict_proba(points)
        return spread(graph.similar, probabilities, _NEAR).argmax(axis=1)
    seeds = _seeds(graph, graph.fitted.transform(x), np.asarray(y, np.int64), classes)
    over = seeds
    for _ in range(_STEPS):
        over = _FAR * (graph.similar @ over) + (1 - _FAR) * seeds
    return (over / np.maximum(over.sum(axis=0), 1e-12)).argmax(axis=1)


def _seeds(
    graph: PublicGraph, coordinates: NDArray[np.number], labels: NDArray[np.int64], classes: int
) -> NDArray[np.float64]:
    """Return `(P, C)` how many records of each class are among the nearest of each public point."""
    near = min(_NEAREST, len(graph.coordinates))
    seeds = np.zeros((len(graph.coordinates), classes))
    squares = (graph.coordinates**2).sum(axis=1)
    for start in range(0, len(labels), 256):
        part = slice(start, start + 256)
        distances = squares - 2 * (np.asarray(coordinates[part], np.float32) @ graph.coordinates.T)
        nearest = np.argpartition(distances, near - 1, axis=1)[:, :near]
        np.add.at(seeds, (nearest.ravel(), np.repeat(labels[part], near)), 1 / near)
    return seeds
