"""A linear model on a fitted representation: what private gradient steps learn, as it is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.special import softmax

from learning.learners.base import Model, Records
from learning.outcomes import Target, target_arrays, target_from_arrays
from learning.representations.base import FittedRepresentation
from learning.representations.storage import representation_load, representation_save

if TYPE_CHECKING:
    from learning.exports.graph import Graph


class LinearModel(Model):
    """Probabilities of classes, or what another outcome says, from the coordinates of a point.

    Args:
        fitted: The representation.
        weights: `(dimensions + 1, outputs)`, the last row for a constant coordinate.
        constant: That coordinate.
        target: What is learned; None for classes, one for each score.
        adjustment: `(2, outputs)` what scores of a target are multiplied by, and what is added; None to leave them.
    """

    def __init__(
        self,
        fitted: FittedRepresentation,
        weights: NDArray[np.float64],
        constant: float,
        target: Target | None = None,
        adjustment: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__(weights.shape[1] if target is None else len(target.columns), fitted.encoder.shape)
        self.fitted, self.weights, self.constant = fitted, weights, constant
        self.target, self.adjustment = target, adjustment

    def to_bytes(self) -> bytes:
        space = np.frombuffer(representation_save(self.fitted), np.uint8)
        arrays: dict[str, NDArray[Any]] = {
            "representation": space,
            "weights": self.weights,
            "constant": np.array([self.constant]),
        }
        if self.target is not None:
            arrays |= target_arrays(self.target)
        if self.adjustment is not None:
            arrays["adjustment"] = self.adjustment
        return save(arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> LinearModel:
        """The model that `to_bytes` stored.

        Raises:
            ValueError: The bytes are no such model.
        """
        try:
            arrays = load(data)
            fitted = representation_load(arrays["representation"].tobytes())
            optional = target_from_arrays(arrays), arrays.get("adjustment")
            return cls(fitted, arrays["weights"], float(arrays["constant"][0]), *optional)
        except (SafetensorError, KeyError) as error:
            raise ValueError("The stored model cannot be read; train it again.") from error

    def to_graph(self, graph: Graph, records: str) -> str:
        coordinates = self.fitted.to_graph(graph, records)
        product = graph.node("MatMul", coordinates, graph.constant(self.weights[:-1]))
        scores = graph.node("Add", product, graph.constant(self.constant * self.weights[-1]))
        if self.adjustment is not None:
            scale, offset = map(graph.constant, self.adjustment)
            scores = graph.node("Add", graph.node("Mul", scores, scale), offset)
        return graph.node("Softmax", scores, axis=1) if self.target is None else self.target.to_graph(graph, scores)

    def _probabilities(self, x: Records) -> NDArray[np.float64]:
        coordinates = self.fitted.transform(x).astype(np.float64)
        scores = coordinates @ self.weights[:-1] + self.constant * self.weights[-1]
        if self.adjustment is not None:
            scores = scores * self.adjustment[0] + self.adjustment[1]
        return softmax(scores, axis=1) if self.target is None else self.target.predictions(scores)
