"""Learners by name, used as teachers or students, and descriptions of their parameters for forms.

Learners do not deal with privacy. This package does not import Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from learning.learners.cnn import CNN
from learning.learners.learner import Learner, Model, Parametrised
from learning.learners.scikit import LogisticRegression, NearestNeighbour, RandomForest

LEARNERS: dict[str, type[Learner]] = {
    learner.name: learner for learner in (RandomForest, LogisticRegression, NearestNeighbour, CNN)
}

Described = TypeVar("Described", bound=Parametrised)


def registered_class(registered: Mapping[str, type[Described]], name: str) -> type[Described]:
    """Return the registered class with this name. The ValueError for an unknown name lists the available names."""
    if name not in registered:
        raise ValueError(f"There is no learner “{name}”; choose one of: {', '.join(registered)}.")
    return registered[name]


@dataclass(frozen=True)
class LearnerField:
    """Parameter of a learner or student.

    ``type`` is int, float or bool. The range includes its ends and may be unbounded on either side.
    """

    name: str
    type: type
    default: Any
    help: str
    minimum: float | None
    maximum: float | None


def parameter_fields(kind: type[Parametrised]) -> tuple[LearnerField, ...]:
    """Return the parameters of a learner or student, in order.

    >>> [field.name for field in parameter_fields(LogisticRegression)]
    ['inverse_penalty', 'iterations', 'balanced']
    """
    return tuple(LearnerField(spec.name, type(spec.default), spec.default, **spec.metadata) for spec in fields(kind))


def learner_create(name: str, parameters: Mapping[str, Any] | None = None) -> Learner:
    """Return a learner with these parameters and defaults for the rest.

    Raises:
        ValueError: The learner or a parameter is unknown, or a parameter is out of range.

    >>> learner_create("random_forest", {"trees": 50}).trees
    50
    """
    return instance_of(LEARNERS, name, parameters)


def instance_of(
    registered: Mapping[str, type[Described]], name: str, parameters: Mapping[str, Any] | None
) -> Described:
    """Return an instance of a registered class with these parameters; see ``learner_create``."""
    kind = registered_class(registered, name)
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(parameters or {}) - set(known)):
        raise ValueError(f"{name} has no parameter {', '.join(unknown)}; it has: {', '.join(known)}.")
    return kind(**(parameters or {}))


def learner_parameters(learner: Parametrised) -> dict[str, int | float | bool]:
    """Return all parameters of a learner or student, in the form used by ``learner_create``.

    >>> learner_parameters(learner_create("random_forest", {"trees": 50}))["trees"]
    50
    """
    return asdict(learner)


def suggested_learner(kind: str) -> Learner:
    """Return the learner suggested for a first run on records of this kind, "image" or "table".

    >>> suggested_learner("image").name
    'nearest_neighbour'
    """
    return NearestNeighbour(copies=20) if kind == "image" else RandomForest()
