"""Models as bytes and back: safetensors for networks, skops for scikit-learn; reading them runs no code.

Both libraries are loaded when a model is: skops loads all of scikit-learn and PyTorch, which takes seconds.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from sklearn.dummy import DummyClassifier

from training.learners.base import Model
from training.learners.registry import learner_class
from training.learners.scikit import ScikitLearner, ScikitModel

if TYPE_CHECKING:
    from training.learners.network import NetworkModel

TRUSTED_TYPES = ["sklearn.tree._tree.Tree"]
"""What a random forest holds beyond the types that skops itself trusts."""

_SHAPE = "record_shape"


def model_save(model: Model) -> bytes:
    """The model as bytes that ``model_load`` reads under the name of its learner.

    >>> from training.learners import learner_create
    >>> model = learner_create("nearest_neighbour").fit([[0.0], [1.0]], [0, 1], classes=2, seed=1)
    >>> model_load("nearest_neighbour", model_save(model)).predict([[0.1], [0.8]]).tolist()
    [0, 1]
    """
    return _scikit_save(model) if isinstance(model, ScikitModel) else _network_save(model)


def model_format(name: str) -> str:
    """The format of the bytes that ``model_save`` gives for a model of the learner ``name``.

    >>> model_format("nearest_neighbour"), model_format("cnn")
    ('skops', 'safetensors')
    """
    return "skops" if issubclass(learner_class(name), ScikitLearner) else "safetensors"


def model_load(name: str, data: bytes) -> Model:
    """The model that the learner ``name`` has learned; ValueError where the bytes are no such model."""
    learner = learner_class(name)
    return _scikit_load(learner, data) if issubclass(learner, ScikitLearner) else _network_load(data)


def _scikit_save(model: ScikitModel) -> bytes:
    from skops.io import dumps

    content = {"estimator": model.estimator, "classes": model.classes, "shape": list(model.shape)}
    return dumps(content, compression=zipfile.ZIP_DEFLATED)


def _scikit_load(learner: type[ScikitLearner], data: bytes) -> ScikitModel:
    from skops.io import loads
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        content = loads(data, trusted=TRUSTED_TYPES)
        estimator, classes, shape = content["estimator"], content["classes"], tuple(content["shape"])
    except UntrustedTypesFoundException as error:
        raise ValueError(f"The stored model holds types that are not trusted; it is refused. {error}") from error
    except (zipfile.BadZipFile, KeyError, TypeError) as error:
        raise ValueError("The stored model cannot be read; train it again.") from error
    if not isinstance(estimator, learner.estimator | DummyClassifier):
        raise ValueError(f"The stored model is a {type(estimator).__name__}, not one of {learner.name}.")
    return ScikitModel(estimator, classes, shape)


def _network_save(model: Model) -> bytes:
    import torch
    from safetensors.torch import save

    from training.learners.network import NetworkModel

    if not isinstance(model, NetworkModel):
        raise ValueError(f"A {type(model).__name__} cannot be stored; give the model of a learner of the registry.")
    tensors = {name: tensor.contiguous() for name, tensor in model.network.state_dict().items()}
    return save({**tensors, _SHAPE: torch.tensor(model.shape)})


def _network_load(data: bytes) -> NetworkModel:
    from safetensors import SafetensorError
    from safetensors.torch import load

    from training.learners.network import Network, NetworkModel

    try:
        tensors = load(data)
        shape, classes = tuple(tensors.pop(_SHAPE).tolist()), len(tensors["output.bias"])
        network = Network(shape, classes)
        network.load_state_dict(tensors)
    except (SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError("The stored network cannot be read; train it again.") from error
    return NetworkModel(network, classes, shape)
