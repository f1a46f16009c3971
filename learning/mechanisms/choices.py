"""Choices that a run of a method has: fields with a range and a help text, and the space of its first round.

The choices of a method are a frozen dataclass whose fields are made by :func:`choice`. Form, API and checks read them
from :func:`fields_of`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self, cast

from learning.representations import REPRESENTATIONS, Representation, default_representation, representation_create


@dataclass(frozen=True)
class AskingField:
    """One choice of a method; ``type`` is bool, dict, float, int or str, the range is closed.

    ``optional``: None, too, leaves it to a public rule.
    """

    name: str
    type: type
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    optional: bool = False

    def check(self, value: object) -> None:
        """Raise ValueError where ``value`` is of another type, out of range or none of the choices."""
        if self.optional and value is None:
            return
        if self.choices is not None and value not in self.choices:
            raise ValueError(f"{self.name} is {value!r}; choose one of {', '.join(filter(None, self.choices))}.")
        if self.type in (int, float) and not self._is_in_range(value):
            kind = "whole number" if self.type is int else "number"
            raise ValueError(
                f"{self.name} is {value!r}; it must be a {kind} from {self.minimum:g} to {self.maximum:g}."
            )

    def _is_in_range(self, value: object) -> bool:
        accepted = int if self.type is int else int | float
        if isinstance(value, bool) or not isinstance(value, accepted):
            return False
        return math.isfinite(value) and cast(float, self.minimum) <= value <= cast(float, self.maximum)


def choice(kind: type, default: Any, help: str, **limits: Any) -> Any:
    """A dataclass field from which :func:`fields_of` makes an :class:`AskingField`; None as default is optional."""
    return field(default=default, metadata={"type": kind, "help": help, "optional": default is None, **limits})


@dataclass(frozen=True)
class Choices:
    """The choices that every method on a public representation has; subclasses add their own by :func:`choice`.

    Raises:
        ValueError: A value is out of range; TypeError: of another type.
    """

    representation: str = choice(
        str,
        "",
        "Name of the space in which neighbours are near; empty for the usual one of the data.",
        choices=("", *(name for name in REPRESENTATIONS if name != "student")),
    )
    representation_parameters: dict[str, Any] = field(
        default_factory=dict,
        metadata={"type": dict, "help": "Its parameters; what is missing has its default."},
    )
    stated: bool = choice(
        bool,
        False,
        "That you state what the representation asks you to: of embeddings, that they were made without the private "
        "data.",
    )

    def __post_init__(self) -> None:
        if self.representation == "student":
            raise ValueError(
                "The inner layer of the student is for rounds after the first: choose another representation for the "
                "first."
            )
        if self.representation:
            chosen = representation_create(self.representation, self.representation_parameters)
            if chosen.statement and self.stated is not True:
                raise ValueError(f"{chosen.label} need a statement: “{chosen.statement}” Set stated, if it is so.")
        elif self.representation_parameters:
            raise ValueError("Parameters belong to a representation: name it.")
        for one in fields_of(type(self)):
            one.check(getattr(self, one.name))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The choices that a run was given; what is missing has its default.

        Raises:
            ValueError: A name is unknown, or a value out of range.
        """
        known = {spec.name for spec in fields(cls)}
        if unknown := sorted(set(document) - known):
            raise ValueError(
                f"There is no {', '.join(unknown)}; how holders are asked has: {', '.join(sorted(known))}."
            )
        return cls(**document)

    def to_json(self) -> dict[str, Any]:
        """The values, as :meth:`from_json` reads them."""
        return asdict(self)

    def space(self, shape: tuple[int, ...]) -> Representation:
        """The representation of the first round, for points of this shape."""
        if not self.representation:
            return self.usual_space(shape)
        return representation_create(self.representation, self.representation_parameters)

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        """The representation where none is named."""
        return default_representation(shape)


def fields_of(kind: type[Choices]) -> tuple[AskingField, ...]:
    """Fields that can be chosen, in order."""
    return tuple(
        AskingField(spec.name, default={} if spec.default is MISSING else spec.default, **spec.metadata)
        for spec in fields(kind)
    )
