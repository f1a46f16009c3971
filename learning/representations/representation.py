"""Representations fitted only on public points, and label spreading over a graph of points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from common.sentences import Sentence
from learning.formats.rows import as_numbers
from learning.learners.learner import parameter_check
from learning.libraries import one_thread
from learning.representations.coordinates import Arrays, Coordinates, PointEncoder

if TYPE_CHECKING:
    from learning.exports.graph import Graph


_BATCH = 4096


@dataclass(frozen=True)
class Representation(ABC):
    """Method of representing points by coordinates. Subclasses are frozen dataclasses with fields made by `parameter`.

    Attributes:
        name: Name in stored runs.
        label: Human-readable name.
        images, texts, encoded: Whether points must be images, texts or vectors of an encoder.
        statement: Statement that the operator must confirm before using the representation; may be empty.
        costly: Whether fitting is so slow that it is done only once.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    images: ClassVar[bool] = False
    texts: ClassVar[bool] = False
    encoded: ClassVar[bool] = False
    statement: ClassVar[str] = ""
    costly: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for spec in fields(self):
            if spec.metadata:
                parameter_check(spec.name, getattr(self, spec.name), type(spec.default), **spec.metadata)

    def fit(self, public: NDArray[np.floating]) -> FittedRepresentation:
        """Learn the statistics of the public points and nothing else.

        Args:
            public: `(n, *shape)` points without labels, at least two.

        Raises:
            ValueError: There are too few points, values that are not finite, or an unsupported shape.
        """
        points = as_numbers(np.asarray(public))
        if points.ndim < 2 or len(points) < 2:
            raise ValueError(
                f"A representation is fitted on at least 2 public points, not on an array of {points.shape}: add some."
            )
        if not np.isfinite(points).all():
            raise ValueError("A public point has a value that is not finite: remove or replace it first.")
        with one_thread():
            encoder = self._encoder(points)
            return FittedRepresentation(self, encoder, self._coordinates(encoder, encoder.encode(points)))

    @abstractmethod
    def sentence(self) -> Sentence:
        """Return the description for the plan and the model card."""

    def parameters(self) -> dict[str, int | float | bool]:
        """Return the values of all parameters, for storage as JSON."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, int | float | bool)}

    @abstractmethod
    def _encoder(self, public: NDArray[np.floating]) -> PointEncoder: ...

    @abstractmethod
    def _coordinates(self, encoder: PointEncoder, features: NDArray[np.float64]) -> Coordinates: ...


class FittedRepresentation:
    """Immutable representation, with the statistics of the public points on which it was fitted."""

    def __init__(self, representation: Representation, encoder: PointEncoder, coordinates: Coordinates) -> None:
        self.representation, self.encoder, self.coordinates = representation, encoder, coordinates

    @property
    def dimensions(self) -> int:
        return self.coordinates.matrix.shape[1]

    def transform(self, points: NDArray[np.floating]) -> NDArray[np.int8]:
        """Return the coordinates of points, bit for bit independent of the other points.

        Args:
            points: `(n, *shape)`; values that are not finite are treated as 0.

        Returns:
            Coordinates `(n, dimensions)`, at most 127 in absolute value.

        Raises:
            ValueError: The shape of the points differs from that of the public points.
        """
        array = np.asarray(points)
        if array.shape[1:] != self.encoder.shape:
            raise ValueError(f"These points have the shape {array.shape[1:]}, the public ones {self.encoder.shape}.")
        transformed = np.empty((len(array), self.dimensions), np.int8)
        with one_thread():
            for start in range(0, len(array), _BATCH):
                batch = slice(start, start + _BATCH)
                transformed[batch] = self.coordinates(self.encoder.encode(as_numbers(array[batch])))
        return transformed

    def to_graph(self, graph: Graph, points: str) -> str:
        """Add nodes for the coordinates, double `(rows, dimensions)`, of float points `(rows, *shape)`, bit for bit."""
        return self.coordinates.to_graph(graph, self.encoder.to_graph(graph, points))

    def state(self) -> Arrays:
        """Return all numbers of the representation by name; with its name and parameters, they reproduce it."""
        encoder = {f"encoder.{name}": array for name, array in self.encoder.state().items()}
        coordinates = {f"coordinates.{name}": array for name, array in self.coordinates.state().items()}
        return {"kind": np.array(self.encoder.kind), **encoder, **coordinates}


def within(state: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the part of a state whose names begin with `prefix` and a dot, with this prefix removed.

    >>> within({"a.x": np.zeros(1), "b": np.ones(1)}, "a")
    {'x': array([0.])}
    """
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in state.items() if name.startswith(start)}


_NEAREST = 10
_STEPS = 60
_LEAST = 1e-9
_DENSE = 1500
"""Number of points up to which a dense decomposition is faster."""
_TOLERANCE = 1e-4


def spread(similar: csr_array, probabilities: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return probabilities after label spreading (Zhou et al. 2004, "Learning with local and global consistency").

    The step F ← α·S·F + (1 − α)·Y is repeated 60 times, where Y is the difference between the probabilities and chance.
    Points with uninformative probabilities therefore adopt those of points close to them.

    Args:
        similar: `(P, P)` S, see `similarities`.
        probabilities: `(P, C)` probabilities of the points.
        share: α, the share of a point's result that comes from its neighbours; 0 changes nothing.

    Returns:
        Probabilities `(P, C)`; rows sum to 1.
    """
    if share == 0:
        return probabilities
    excess = probabilities - 1 / probabilities.shape[1]
    over = excess
    for _ in range(_STEPS):
        over = share * (similar @ over) + (1 - share) * excess
    result = np.maximum(over, 0.0) + _LEAST
    return result / result.sum(axis=1, keepdims=True)


def eigenvectors(similar: csr_array, most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smoothest functions on the graph: the eigenvectors of S with the largest eigenvalues.

    Args:
        similar: `(P, P)` S, see `similarities`.

    Returns:
        Eigenvalues `(k,)` in descending order, and eigenvectors `(P, k)`.
    """
    if len(similar.indptr) - 1 <= _DENSE:
        values, vectors = np.linalg.eigh(similar.toarray())
    else:
        from scipy.sparse.linalg import eigsh

        start = np.full(similar.shape[0], similar.shape[0] ** -0.5)
        values, vectors = eigsh(similar.astype(np.float64), k=most, which="LA", v0=start, tol=_TOLERANCE)
    return values[::-1][:most], vectors[:, ::-1][:, :most]


def similarities(coordinates: NDArray[np.number]) -> csr_array:
    """Return S = D^(−1/2) W D^(−1/2), `(P, P)`, for points `(P, d)`, where D contains the row sums of W.

    W contains exp(−d²/s²) for each point and its ten nearest points at distances d, and is made symmetric. s is the
    median of all these distances.
    """
    from sklearn.neighbors import NearestNeighbors

    points = np.asarray(coordinates, np.float32)
    count = min(_NEAREST, len(points) - 1)
    if not count:
        return csr_array((len(points), len(points)))
    distances, nearest = NearestNeighbors(n_neighbors=count).fit(points).kneighbors()
    scale = max(float(np.median(distances)), _LEAST)
    rows = np.repeat(np.arange(len(points)), count)
    weights = csr_array(
        (np.exp(-((distances / scale) ** 2)).ravel(), (rows, nearest.ravel())), shape=(len(points),) * 2
    )
    weights = (weights + weights.T) / 2
    shrunk = 1 / np.sqrt(np.maximum(np.asarray(weights.sum(axis=1)).ravel(), _LEAST))
    return csr_array(weights.multiply(shrunk[:, None]).multiply(shrunk[None, :]))
