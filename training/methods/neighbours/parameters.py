"""Parameters of a run in which every holder votes. Each may be left open: then a public rule decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, cast

from common.sentences import gettext_noop
from training.methods.neighbours.kernels import KERNELS
from training.representations import REPRESENTATIONS, Representation, default_representation, representation_create

MOST_ROUNDS = 2
LARGEST_SIGMA = 16_384.0
"""The largest standard deviation of a count that :class:`common.noise.SystemNoise` can draw."""


@dataclass(frozen=True)
class AskingField:
    """One choice of :class:`Asking`; ``type`` is bool, dict, float, int or str, the range is closed.

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


def _choice(kind: type, default: Any, help: str, **limits: Any) -> Any:
    return field(default=default, metadata={"type": kind, "help": help, "optional": default is None, **limits})


@dataclass(frozen=True)
class Asking:
    """How the holders are asked; :func:`asking_fields` says what each choice is.

    Raises:
        ValueError: A value is out of range; TypeError: of another type.
    """

    representation: str = _choice(
        str,
        "",
        "Name of the space in which neighbours are near; empty for the usual one of the data.",
        choices=("", *(name for name in REPRESENTATIONS if name != "student")),
    )
    representation_parameters: dict[str, Any] = field(
        default_factory=dict,
        metadata={"type": dict, "help": "Its parameters; what is missing has its default."},
    )
    stated: bool = _choice(
        bool,
        False,
        "That you state what the representation asks you to: of embeddings, that they were made without the private "
        "data.",
    )
    rounds: int | None = _choice(
        int,
        1,
        "How often holders are asked, each time about other public points; null to choose it by the forecast.",
        minimum=1,
        maximum=MOST_ROUNDS,
        optional=True,
    )
    first_queries: int | None = _choice(
        int,
        None,
        "Public points of the first of several rounds; null for a fifteenth of all, at most 600.",
        minimum=1,
        maximum=10**9,
    )
    embedded: bool = _choice(
        bool,
        False,
        "Whether the second round compares points by the inner layer of the student of the first, if that has one.",
    )
    sigma: float | None = _choice(
        float,
        None,
        "Standard deviation of the noise of each count; null to choose it by the forecast.",
        minimum=1e-3,
        maximum=LARGEST_SIGMA,
    )
    radius_share: float | None = _choice(
        float,
        None,
        "Share of the public points within the radius of a query; null to choose it by the forecast.",
        minimum=1e-9,
        maximum=1.0,
    )
    kernel: str = _choice(str, "uniform", "How much a record counts by its distance.", choices=KERNELS)
    records: float = _choice(
        float, 1.0, "Records per holder, a public figure, on which the forecast rests.", minimum=1.0, maximum=1e4
    )

    def __post_init__(self) -> None:
        if self.representation == "student":
            raise ValueError(
                "The inner layer of the student serves from the second round on, if you set embedded: choose another "
                "representation for the first round."
            )
        if self.representation:
            chosen = representation_create(self.representation, self.representation_parameters)
            if chosen.statement and self.stated is not True:
                raise ValueError(f"{chosen.label} need a statement: “{chosen.statement}” Set stated, if it is so.")
        elif self.representation_parameters:
            raise ValueError("Parameters belong to a representation: name it.")
        for choice in asking_fields():
            choice.check(getattr(self, choice.name))
        if self.first_queries is not None and self.rounds == 1:
            raise ValueError("first_queries is for several rounds: a single round asks about all points.")
        if self.embedded and self.rounds == 1:
            raise ValueError("embedded is for several rounds: in a single round there is no student yet.")

    def to_json(self) -> dict[str, Any]:
        """The values, as :func:`asking_from_json` reads them."""
        return asdict(self)

    def space(self, shape: tuple[int, ...]) -> Representation:
        """The representation of the first round, for points of this shape."""
        if not self.representation:
            return default_representation(shape)
        return representation_create(self.representation, self.representation_parameters)


def asking_fields() -> tuple[AskingField, ...]:
    """What can be chosen, in order.

    >>> [choice.name for choice in asking_fields()][-2:]
    ['kernel', 'records']
    """
    return tuple(
        AskingField(spec.name, default={} if spec.default is MISSING else spec.default, **spec.metadata)
        for spec in fields(Asking)
    )


def asking_from_json(document: Mapping[str, Any]) -> Asking:
    """The parameters that a run was given; what is missing has its default.

    Raises:
        ValueError: A name is unknown, or a value out of range.

    >>> asking_from_json({"rounds": 2}).rounds
    2
    """
    known = {spec.name for spec in fields(Asking)}
    if unknown := sorted(set(document) - known):
        raise ValueError(f"There is no {', '.join(unknown)}; how holders are asked has: {', '.join(sorted(known))}.")
    return Asking(**document)


REPRESENTATION_CHOICES = {
    "": gettext_noop("The usual one: wavelets for images, standardised columns for tables"),
    **{name: kind.label for name, kind in REPRESENTATIONS.items() if name != "student"},
}
"""What can be chosen for the first round, by name."""

KERNEL_CHOICES = {
    "uniform": gettext_noop("in full within the radius"),
    "epanechnikov": gettext_noop("less with the distance (Epanechnikov)"),
}
"""How much a record counts, by the name of the kernel."""
