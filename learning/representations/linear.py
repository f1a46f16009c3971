"""A linear softmax model on a fitted representation: what private gradient steps learn, as it is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.special import softmax

from learning.learners.base import Model, Records
from learning.representations.base import FittedRepresentation
from learning.representations.storage import representation_load, representation_save

if TYPE_CHECKING:
    from learning.exports.graph import Graph


class LinearModel(Model):
    """Probabilities from the coordinates of a point.

    Args:
        fitted: The representation.
        weights: `(dimensions + 1, classes)`, the last row for a constant coordinate.
        constant: That coordinate.
    """

    def __init__(self, fitted: FittedRepresentation, weights: NDArray[np.float64], constant: float) -> None:
        super().__init__(weights.shape[1], fitted.encoder.shape)
        self.fitted, self.weights, self.constant = fitted, weights, constant

    def to_bytes(self) -> bytes:
        space = np.frombuffer(representation_save(self.fitted), np.uint8)
        return save({"representation": space, "weights": self.weights, "constant": np.array([self.constant])})

    @classmethod
    def from_bytes(cls, data: bytes) -> LinearModel:
        """The model that `to_bytes` stored.

        Raises:
            ValueError: The bytes are no such model.
        """
        try:
            arrays = load(data)
            fitted = representation_load(arrays["representation"].tobytes())
            return cls(fitted, arrays["weights"], float(arrays["constant"][0]))
        except (SafetensorError, KeyError) as error:
            raise ValueError("The stored model cannot be read; train it again.") from error

    def to_graph(self, graph: Graph, records: str) -> str:
        coordinates = self.fitted.to_graph(graph, records)
        product = graph.node("MatMul", coordinates, graph.constant(self.weights[:-1]))
        logits = graph.node("Add", product, graph.constant(self.constant * self.weights[-1]))
        return graph.node("Softmax", logits, axis=1)

    def _probabilities(self, x: Records) -> NDArray[np.float64]:
        coordinates = self.fitted.transform(x).astype(np.float64)
        return softmax(coordinates @ self.weights[:-1] + self.constant * self.weights[-1], axis=1)
