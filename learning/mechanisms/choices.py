"""Choices for a run's method, each described in one place: label, help, limits and conditions.

The choices of a method are a frozen dataclass with fields made by :func:`choice`. Forms, the API, pages and checks get
these fields from :meth:`Choices.described`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Self, cast, get_args, get_origin, get_type_hints

from numpy.typing import NDArray

from common.sentences import gettext_noop
from learning.formats.rows import is_text
from learning.representations import (
    REPRESENTATIONS,
    Encoded,
    Representation,
    Words,
    default_representation,
    representation_create,
)

Fault = tuple[str, str]
"""Name of a choice (or "" for all choices) and its error."""


class ChoicesError(ValueError):
    """Error raised for choices that are not possible. ``faults`` contains their names and the reasons."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(" ".join(message for _name, message in faults))
        self.faults = faults


@dataclass(frozen=True)
class Choice:
    """Description of one choice of a method. Texts are in English, marked for translation.

    Attributes:
        type: bool, dict, float, int or str.
        default: Value used if a proposal leaves the choice out.
        help: Purpose of the choice; may be empty.
        values: Possible values, each with its label.
        kinds: Possible kinds by name, each with its own parameters.
        parameters: Name of the choice that holds the kind's parameters; if empty, they are stored with the kind's name.
        optional: Whether None is allowed; a public rule then makes the choice.
        unset: Description of this public rule.
        percent: Whether forms show a share in per cent.
        only_if: Values that other choices must have for this choice to apply, by name.
        rehearsed: Values that only rehearsals may use.
        needs_public_points: Whether the choice applies only if a run has public points.
        is_column: Whether the value is the name of a column of the private dataset (None or "" for no column).
        is_encoder: Whether the value is the digest of one of the study's encoders ("" for no encoder).
    """

    name: str
    type: type
    default: Any
    label: str
    help: str = ""
    minimum: float | None = None
    maximum: float | None = None
    values: Mapping[Any, str] | None = None
    kinds: Mapping[str, Any] | None = None
    parameters: str = ""
    optional: bool = False
    unset: str = ""
    percent: bool = False
    only_if: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    rehearsed: tuple[Any, ...] = ()
    needs_public_points: bool = False
    is_column: bool = False
    is_encoder: bool = False

    @property
    def named(self) -> list[str] | None:
        """Possible names; None if the values have no names."""
        names = self.kinds if self.kinds is not None else self.values
        return None if names is None or self.type is int else list(names)

    def applies(self, document: Mapping[str, Any]) -> bool:
        """Return whether this choice applies, given the other choices."""
        return all(document.get(other) in values for other, values in self.only_if.items())

    def faults(self, value: object) -> Iterator[Fault]:
        """Yield an error if a value has the wrong type, is out of range, or is not among the possible values."""
        if self.optional and value is None:
            return
        if self.type in (int, float):
            if not self._is_in_range(value):
                kind = f"{'whole ' * (self.type is int)}number from {self.minimum:g} to {self.maximum:g}"
                yield self.name, f"{self.name} is {value!r}; it must be a {kind}."
        elif self.type is str and self.named is not None and value not in self.named:
            yield self.name, f"{self.name} is {value!r}; choose one of {', '.join(filter(None, self.named))}."
        elif self.type in (bool, dict, str) and not isinstance(value, self.type):
            yield self.name, f"{self.name} is {value!r}; it must be {_TYPES[self.type]}."

    def _is_in_range(self, value: object) -> bool:
        accepted = int if self.type is int else int | float
        if isinstance(value, bool) or not isinstance(value, accepted):
            return False
        return math.isfinite(value) and cast(float, self.minimum) <= value <= cast(float, self.maximum)


ROUNDS = {1: gettext_noop("1 round"), 2: gettext_noop("2 rounds")}
"""Possible numbers of rounds of a run."""
_TYPES = {bool: "true or false", dict: "an object", str: "a text"}


def choice(default: Any, label: str, help: str = "", **described: Any) -> Any:
    """Return a dataclass field for :meth:`Choices.described`. The type of the choice is the field's annotation.

    A choice with the default None is optional unless ``optional`` is False.
    """
    metadata = {"label": label, "help": help, "optional": default is None, **described}
    if default == {}:
        return field(default_factory=lambda: dict(default), metadata=metadata | {"default": default})
    return field(default=default, metadata=metadata | {"default": default})


@cache
def _kinds(choices: type[Choices]) -> dict[str, type]:
    """Return the type of each field, without None and with dict for mappings."""
    found = {}
    for name, hint in get_type_hints(choices).items():
        kind = next(each for each in get_args(hint) if each is not NoneType) if isinstance(hint, UnionType) else hint
        found[name] = dict if get_origin(kind) is Mapping else kind
    return found


@dataclass(frozen=True)
class Choices:
    """Base class for the choices of a method. Subclasses add their own with :func:`choice`.

    Raises:
        ChoicesError: A value has the wrong type, is out of range, or conflicts with another value.
    """

    def __post_init__(self) -> None:
        # A combination can be checked only if each single choice is valid.
        alone = [fault for each in self.described() for fault in each.faults(getattr(self, each.name))]
        if faults := alone or list(self.faults()):
            raise ChoicesError(faults)

    def faults(self) -> Iterator[Fault]:
        """Yield the errors in a combination of individually valid choices."""
        return iter(())

    @classmethod
    def described(cls) -> tuple[Choice, ...]:
        kinds = _kinds(cls)  # type: ignore[arg-type]
        return tuple(Choice(spec.name, kinds[spec.name], **spec.metadata) for spec in fields(cls))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the choices in a run's document; missing choices get their defaults.

        Raises:
            ChoicesError: A name is unknown, or a value is not possible.
        """
        if not isinstance(document, Mapping):
            raise ChoicesError([("", "The choices must be an object of names and values.")])
        known = [spec.name for spec in fields(cls)]
        if unknown := sorted(set(document) - set(known)):
            message = f"There is no choice {', '.join(unknown)}; this method has: {', '.join(known)}."
            raise ChoicesError([("", message)])
        return cls(**document)

    def to_json(self) -> dict[str, Any]:
        """Return the values in the form that :meth:`from_json` reads."""
        return asdict(self)


def representation_choice(help: str = "") -> Any:
    """Return the field for the representation of the first round; ``help`` explains its role in the method."""
    return choice(
        "",
        gettext_noop("Representation"),
        help,
        values={
            "": gettext_noop("The method's default for images or tables"),
            **{name: kind.label for name, kind in REPRESENTATIONS.items() if name != "student"},
        },
        needs_public_points=True,
    )


@dataclass(frozen=True)
class HolderChoices(Choices):
    """Choices shared by all methods that use each holder's records in a public representation."""

    representation: str = representation_choice()
    representation_parameters: Mapping[str, Any] = choice(
        {},
        gettext_noop("Representation parameters"),
        gettext_noop("Parameters you leave out take their default values."),
    )
    encoder: str = choice(
        "",
        gettext_noop("Encoder"),
        gettext_noop("The run learns from vectors that a public network computes from the records."),
        is_encoder=True,
        needs_public_points=True,
    )
    stated: bool = choice(
        False,
        gettext_noop("The representation was made without the private data"),
        gettext_noop("You confirm that the representation's requirements are met."),
    )

    def faults(self) -> Iterator[Fault]:
        if not self.representation:
            if self.representation_parameters:
                yield "representation_parameters", "Parameters belong to a representation: choose one."
            return
        try:
            chosen = representation_create(self.representation, self.representation_parameters)
        except (TypeError, ValueError) as error:
            yield "representation_parameters", str(error)
            return
        if chosen.encoded != bool(self.encoder) and not (self.encoder and not (chosen.images or chosen.texts)):
            problem = gettext_noop(
                "If you use an encoder, choose a representation that uses its vectors or the columns."
            )
            yield "encoder", problem
        if chosen.statement and not self.stated:
            yield (
                "stated",
                f"{chosen.label} need a statement: “{chosen.statement}” Set “stated” to true if this is the case.",
            )

    def space(self, points: NDArray[Any]) -> Representation:
        """Return the first round's representation for points `(n, *shape)`, either records or an encoder's vectors."""
        if not self.representation:
            return self.own_space(points) or self.usual_space(points.shape[1:])
        return representation_create(self.representation, self.representation_parameters)

    def own_space(self, points: NDArray[Any]) -> Representation | None:
        """Return the only possible representation for an encoder's vectors or for texts; None for other points."""
        if self.encoder:
            return Encoded()
        return Words() if is_text(points) else None

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        """Return the default representation."""
        return default_representation(shape)
