"""The learners by name, and what a form needs to ask for their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from training.learners.base import Learner, Model, Parametrised
from training.learners.cnn import CNN
from training.learners.scikit import LogisticRegression, NearestNeighbour, RandomForest

LEARNERS: dict[str, type[Learner]] = {
    learner.name: learner for learner in (RandomForest, LogisticRegression, NearestNeighbour, CNN)
}


Described = TypeVar("Described", bound=Parametrised)


def learner_class(name: str) -> type[Learner]:
    """The learner of this name; ValueError lists the names there are."""
    if name not in LEARNERS:
        raise ValueError(f"There is no learner “{name}”; choose one of: {', '.join(LEARNERS)}.")
    return LEARNERS[name]


@dataclass(frozen=True)
class LearnerField:
    """One parameter of a learner; ``type`` is int, float or bool, the range is closed and may be open-ended."""

    name: str
    type: type
    default: Any
    help: str
    minimum: float | None
    maximum: float | None


def learner_fields(name: str) -> tuple[LearnerField, ...]:
    """The parameters of a learner, in order.

    >>> [field.name for field in learner_fields("logistic_regression")]
    ['inverse_penalty', 'iterations', 'balanced']
    """
    return tuple(
        LearnerField(spec.name, type(spec.default), spec.default, **spec.metadata)
        for spec in fields(learner_class(name))
    )


def learner_create(name: str, parameters: Mapping[str, Any] | None = None) -> Learner:
    """The learner with these parameters, defaults for the rest; ValueError says what is unknown or out of range.

    >>> learner_create("random_forest", {"trees": 50}).trees
    50
    """
    return created(LEARNERS, name, parameters)


def created(registered: Mapping[str, type[Described]], name: str, parameters: Mapping[str, Any] | None) -> Described:
    """One of the registered kinds with these parameters; see ``learner_create``."""
    if name not in registered:
        raise ValueError(f"There is no learner “{name}”; choose one of: {', '.join(registered)}.")
    known = [field.name for field in fields(registered[name])]
    if unknown := sorted(set(parameters or {}) - set(known)):
        raise ValueError(f"{name} has no parameter {', '.join(unknown)}; it has: {', '.join(known)}.")
    return registered[name](**(parameters or {}))


def learner_parameters(learner: Learner) -> dict[str, int | float | bool]:
    """All parameters of a learner, as ``learner_create`` takes them.

    >>> learner_parameters(learner_create("random_forest", {"trees": 50}))["trees"]
    50
    """
    return asdict(learner)


def learner_suggested(kind: str) -> Learner:
    """The learner that a first run on records of this kind, "image" or "table", may begin with.

    >>> learner_suggested("image").name
    'nearest_neighbour'
    """
    return NearestNeighbour(copies=20) if kind == "image" else RandomForest()


def model_format(name: str) -> str:
    """The format of the stored models of the learner ``name``, which is the suffix of their files.

    >>> model_format("nearest_neighbour"), model_format("cnn")
    ('skops', 'safetensors')
    """
    return learner_class(name).model_format


def model_save(model: Model) -> bytes:
    """The model as bytes that ``model_load`` reads under the name of its learner."""
    return model.to_bytes()


def model_load(name: str, data: bytes) -> Model:
    """The model that the learner ``name`` has fitted, from ``model_save``; reading it runs no code.

    Raises:
        ValueError: The bytes are no model of this learner.

    >>> model = learner_create("nearest_neighbour").fit([[0.0], [1.0]], [0, 1], classes=2, seed=1)
    >>> model_load("nearest_neighbour", model_save(model)).predict([[0.1], [0.8]]).tolist()
    [0, 1]
    """
    return learner_class(name).model_from_bytes(data)
