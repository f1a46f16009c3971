"""Parameters of a run in which every holder votes. Each may be left open: then a public rule decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.sentences import gettext_noop
from learning.mechanisms.choices import AskingField, Choices, choice, fields_of
from learning.mechanisms.neighbours.kernels import KERNELS
from learning.representations import REPRESENTATIONS

MOST_ROUNDS = 2
LARGEST_SIGMA = 16_384.0
"""The largest standard deviation of a count that :class:`common.noise.SystemNoise` can draw."""


@dataclass(frozen=True)
class Asking(Choices):
    """Choices about how holders are asked; :func:`asking_fields` says what each is.

    Raises:
        ValueError: A value is out of range; TypeError: of another type.
    """

    rounds: int | None = choice(
        int,
        1,
        "How often holders are asked, each time about other public points; null to choose it by the forecast.",
        minimum=1,
        maximum=MOST_ROUNDS,
        optional=True,
    )
    first_queries: int | None = choice(
        int,
        None,
        "Public points of the first of several rounds; null for a fifteenth of all, at most 600.",
        minimum=1,
        maximum=10**9,
    )
    embedded: bool = choice(
        bool,
        False,
        "Whether the second round compares points by the inner layer of the student of the first, if that has one.",
    )
    sigma: float | None = choice(
        float,
        None,
        "Standard deviation of the noise of each count; null to choose it by the forecast.",
        minimum=1e-3,
        maximum=LARGEST_SIGMA,
    )
    radius_share: float | None = choice(
        float,
        None,
        "Share of the public points within the radius of a query; null to choose it by the forecast.",
        minimum=1e-9,
        maximum=1.0,
    )
    kernel: str = choice(str, "uniform", "How much a record counts by its distance.", choices=KERNELS)
    records: float = choice(
        float, 1.0, "Records per holder, a public figure, on which the forecast rests.", minimum=1.0, maximum=1e4
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_queries is not None and self.rounds == 1:
            raise ValueError("first_queries is for several rounds: a single round asks about all points.")
        if self.embedded and self.rounds == 1:
            raise ValueError("embedded is for several rounds: in a single round there is no student yet.")


def asking_fields() -> tuple[AskingField, ...]:
    """Fields that can be chosen, in order.

    >>> [choice.name for choice in asking_fields()][-2:]
    ['kernel', 'records']
    """
    return fields_of(Asking)


def asking_from_json(document: Mapping[str, Any]) -> Asking:
    """The parameters that a run was given; what is missing has its default.

    Raises:
        ValueError: A name is unknown, or a value out of range.

    >>> asking_from_json({"rounds": 2}).rounds
    2
    """
    return Asking.from_json(document)


REPRESENTATION_CHOICES = {
    "": gettext_noop("The usual one of the method for images or tables"),
    **{name: kind.label for name, kind in REPRESENTATIONS.items() if name != "student"},
}
"""What can be chosen for the first round, by name."""

KERNEL_CHOICES = {
    "uniform": gettext_noop("in full within the radius"),
    "epanechnikov": gettext_noop("less with the distance (Epanechnikov)"),
}
"""How much a record counts, by the name of the kernel."""
