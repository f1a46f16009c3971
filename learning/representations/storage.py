"""Storage of fitted representations and of linear models on them, as arrays without pickle and parameters as JSON."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.special import softmax

from learning.learners.learner import Model, Records
from learning.outcomes import Target, target_arrays, target_from_arrays
from learning.representations.catalogue import representation_create
from learning.representations.coordinates import (
    ClippedColumnEncoder,
    ColumnEncoder,
    Coordinates,
    InteractionEncoder,
    JoinedEncoder,
    PointEncoder,
    ThresholdEncoder,
)
from learning.representations.images import PatchEncoder, WaveletEncoder
from learning.representations.network import NetworkEncoder
from learning.representations.representation import FittedRepresentation, within
from learning.representations.words import WordEncoder

if TYPE_CHECKING:
    from learning.exports.graph import Graph

_ABOUT = "about"


def representation_save(fitted: FittedRepresentation) -> bytes:
    """Return the fitted representation as an npz file for `representation_load`.

    >>> from learning.representations import Standardised
    >>> points = np.random.default_rng(0).random((20, 3))
    >>> fitted = Standardised().fit(points)
    >>> bool((representation_load(representation_save(fitted)).transform(points) == fitted.transform(points)).all())
    True
    """
    about = {"name": fitted.representation.name, "parameters": fitted.representation.parameters()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{_ABOUT: np.array(json.dumps(about))}, **fitted.state())
    return buffer.getvalue()


def representation_load(data: bytes) -> FittedRepresentation:
    """Return the representation stored by `representation_save`.

    Raises:
        ValueError: The bytes are not a saved representation.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            state = {name: archive[name] for name in archive.files}
        about = json.loads(str(state.pop(_ABOUT)))
        representation = representation_create(about["name"], about["parameters"])
        encoder = _encoder(str(state["kind"]), within(state, "encoder"))
        return FittedRepresentation(representation, encoder, Coordinates.from_state(within(state, "coordinates")))
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError("The stored representation cannot be read: fit it again on the public points.") from error


class LinearModel(Model):
    """Linear model that predicts class probabilities, or another outcome, from the coordinates of a point.

    Args:
        weights: `(dimensions + 1, outputs)`; the last row is for a constant coordinate.
        target: Target that is predicted; None for classes, with one score each.
        adjustment: `(2, outputs)` factors and offsets of a target's scores; None to leave them unchanged.
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
        """Return the model from the result of `to_bytes`.

        Raises:
            ValueError: The bytes are not such a model.
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


def _encoder(kind: str, state: Mapping[str, NDArray[Any]]) -> PointEncoder:
    if kind == JoinedEncoder.kind:
        parts = enumerate(state["parts"].tolist())
        return JoinedEncoder(*(_encoder(part, within(state, str(place))) for place, part in parts))
    kinds = (
        ColumnEncoder,
        ClippedColumnEncoder,
        ThresholdEncoder,
        InteractionEncoder,
        WaveletEncoder,
        PatchEncoder,
        NetworkEncoder,
        WordEncoder,
    )
    known = {encoder.kind: encoder for encoder in kinds}
    return known[kind].from_state(state)
