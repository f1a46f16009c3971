"""Published models (students, and models from gradient steps), read in the format of their learner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from common.sentences import gettext_noop
from learning.learners.layers import (
    Activation,
    Convolution,
    Dense,
    Flatten,
    MaxPool,
    Normalisation,
    PlainLayer,
    consistency_layers,
)
from learning.learners.learner import Model, Records
from learning.libraries import has_pytorch
from learning.outcomes import Target, target_from_json
from learning.representations import FittedRepresentation, LinearModel
from learning.representations.storage import representation_load
from learning.students import STUDENTS, student_class

if TYPE_CHECKING:
    from learning.exports.graph import Graph

LINEAR = "linear"
_NETWORK = "network_"
LABELS = {
    LINEAR: gettext_noop("linear model trained with gradient steps"),
    f"{_NETWORK}linear": gettext_noop("linear model trained on samples of people"),
    f"{_NETWORK}mlp": gettext_noop("small network trained on samples of people"),
    f"{_NETWORK}cnn": gettext_noop("convolutional network trained on samples of people"),
}
"""Labels of the learners whose models are published directly from gradient steps."""


def network_learner(network: str) -> str:
    """Return the learner that reads networks with this name.

    >>> network_learner("mlp")
    'network_mlp'
    """
    return f"{_NETWORK}{network}"


def released_itself(learner: str) -> bool:
    """Return whether the learner reads models made by private steps, without a student.

    >>> released_itself("linear"), released_itself("consistency")
    (True, False)
    """
    return learner in LABELS


def published_load(learner: str, data: bytes) -> Model:
    """Return the published model stored by `Model.to_bytes`. Reading it runs no code.

    Raises:
        ValueError: The bytes are not a model for this learner, or the learner is unknown.
    """
    if learner == LINEAR:
        return LinearModel.from_bytes(data)
    if published_format(learner) == "safetensors" and not has_pytorch():
        return stored_network(learner, data)
    if released_itself(learner):
        from learning.mechanisms.sampled_steps.networks import network_from_bytes  # PyTorch takes a second to import

        return network_from_bytes(learner.removeprefix(_NETWORK), data)
    return student_class(learner).model_from_bytes(data)


def published_format(learner: str) -> str:
    """Return the format of the model file, which is also its suffix.

    >>> published_format("linear"), published_format("random_forest")
    ('safetensors', 'skops')
    """
    return "safetensors" if released_itself(learner) else student_class(learner).model_format


def published_label(learner: str) -> str:
    """Return the learner's name on pages, in English and marked for translation; its key if the learner is unknown."""
    if released_itself(learner):
        return LABELS[learner]
    return STUDENTS[learner].label if learner in STUDENTS else learner


# --- Networks on machines without PyTorch

Tensors = dict[str, npt.NDArray[Any]]
_PREDICTION_BATCH = 256


class StoredNetwork(Model):
    """Published network, which is read from its file and predicts with ONNX Runtime.

    Workers, which have PyTorch, load the same file as PyTorch modules. The probabilities agree up to single-precision
    rounding.

    Args:
        data: The file, as returned by `to_bytes`.
        layers: Layers of the network; the last one returns scores.
        space: Representation whose coordinates are the network's input; None if records are the input.
        scale: Factor applied to the input of the network.
        target: Target that is predicted; None for classes, with one score each.
    """

    def __init__(
        self,
        data: bytes,
        layers: list[PlainLayer],
        shape: tuple[int, ...],
        *,
        space: FittedRepresentation | None = None,
        scale: float = 1.0,
        target: Target | None = None,
    ) -> None:
        output = layers[-1]
        assert isinstance(output, Dense)
        super().__init__(len(output.weight) if target is None else len(target.columns), shape)
        self._data, self._layers = data, layers
        self._space, self._scale, self._target = space, scale, target

    def to_bytes(self) -> bytes:
        return self._data

    def inner_modules(self) -> tuple[PlainLayer, ...]:
        return tuple(self._layers[:-1])

    def to_graph(self, graph: Graph, records: str) -> str:
        from learning.exports.graph import FLOAT

        entering = records
        if self._space is not None:
            entering = graph.cast(self._space.to_graph(graph, records), FLOAT)
        if self._scale != 1.0:
            entering = graph.node("Mul", entering, graph.constant(np.float32(self._scale)))
        return self._predictions(graph, entering)

    def _predictions(self, graph: Graph, entering: str) -> str:
        from learning.learners.layers import network_probabilities, network_scores

        if self._target is None:
            return network_probabilities(graph, entering, self._entering, self._layers)
        return self._target.to_graph(graph, network_scores(graph, entering, self._entering, self._layers))

    @property
    def _entering(self) -> tuple[int, ...]:
        """Shape of the network's input."""
        return self.shape if self._space is None else (self._space.dimensions,)

    @cached_property
    def _run(self) -> Callable[[Records], npt.NDArray[np.float64]]:
        import onnxruntime  # slow to import

        from learning.exports.graph import DOUBLE, FLOAT, Graph

        graph = Graph()
        values = self._predictions(graph, graph.input("entering", FLOAT, self._entering))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        made = graph.to_bytes({"values": (values, DOUBLE, (self.classes,))}, {})
        session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
        return lambda entering: session.run(None, {"entering": entering})[0]

    def _probabilities(self, x: Records) -> npt.NDArray[np.float64]:
        entering = x if self._space is None else self._space.transform(x).astype(np.float32)
        entering = entering * np.float32(self._scale)
        parts = np.split(entering, range(_PREDICTION_BATCH, len(x), _PREDICTION_BATCH))
        return np.concatenate([self._run(np.ascontiguousarray(part)) for part in parts])


def stored_network(learner: str, data: bytes) -> StoredNetwork:
    """Return the network that a learner, a student or sampled steps stored with `Model.to_bytes`.

    Raises:
        ValueError: The bytes are not such a network.
    """
    try:
        tensors = load(data)
        shape = tuple(tensors.pop("record_shape").tolist())
        if learner == "consistency":
            return StoredNetwork(data, list(_consistency(tensors, shape)), shape)
        if learner == "cnn":
            return StoredNetwork(data, _cnn(tensors, shape), shape)
        scale = float(tensors.pop("scale"))
        space, document = tensors.pop("representation").tobytes(), tensors.pop("target", None)
        return StoredNetwork(
            data,
            list(_steps(tensors)),
            shape,
            space=representation_load(space) if space else None,
            scale=scale,
            target=None if document is None else target_from_json(json.loads(document.tobytes())),
        )
    except (SafetensorError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError("The stored network cannot be read; train it again.") from error


def _dense(tensors: Tensors, name: str) -> Dense:
    return Dense(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))


def _normalisation(tensors: Tensors, name: str) -> Normalisation:
    parts = ("weight", "bias", "running_mean", "running_var")
    return Normalisation(*(tensors[f"{name}.{part}"] for part in parts))


def _cnn(tensors: Tensors, shape: tuple[int, ...]) -> list[PlainLayer]:
    """Return the layers of `learning.learners.network.Network`, whose dense layer takes inputs with channels last."""
    height, width = ((side - 2) // 2 for side in shape[:2])
    hidden = _dense(tensors, "hidden")
    outputs = len(hidden.weight)
    weight = hidden.weight.reshape(outputs, height, width, -1).transpose(0, 3, 1, 2).reshape(outputs, -1)
    return [
        Convolution(tensors["convolution.weight"], tensors["convolution.bias"]),
        Activation("Relu"),
        _normalisation(tensors, "convolution_norm"),
        MaxPool((2, 2), (2, 2)),
        Flatten(),
        Dense(weight, hidden.bias),
        Activation("Relu"),
        _normalisation(tensors, "hidden_norm"),
        _dense(tensors, "output"),
    ]


def _consistency(tensors: Tensors, shape: tuple[int, ...]) -> Iterator[PlainLayer]:
    deep = sum(tensor.ndim == 4 for tensor in tensors.values()) > 3
    for place, (kind, given) in enumerate(consistency_layers(shape, len(tensors["0.weight"]), deep=deep)):
        match kind:
            case "convolution":
                yield Convolution(tensors[f"{place}.weight"], None, (given["stride"],) * 2, (given["padding"],) * 2)
            case "normalisation":
                yield _normalisation(tensors, str(place))
            case "rectify":
                yield Activation("Relu")
            case "pool":
                yield MaxPool((2, 2), (2, 2))
            case "flatten":
                yield Flatten()
            case "dense":
                yield _dense(tensors, str(place))


def _steps(tensors: Tensors) -> Iterator[PlainLayer]:
    """Yield the layers of a network of `learning.mechanisms.sampled_steps.networks`, recognised by their weights."""
    for name in ("first", "second", "hidden"):
        weight = tensors.get(f"{name}.weight")
        if weight is None:
            continue
        if weight.ndim == 4:
            padding = (2, 2) if name == "first" else (0, 0)
            yield Convolution(weight, tensors[f"{name}.bias"], (2, 2), padding)
            yield Activation("Tanh")
            yield MaxPool((2, 2), (1, 1))
        else:
            yield Flatten()
            yield _dense(tensors, name)
            yield Activation("Tanh")
    yield Flatten()
    yield _dense(tensors, "output")
