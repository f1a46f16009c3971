"""Parameters of a run of private gradient steps. Each may be left open: then a public rule decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.sentences import gettext_noop
from learning.mechanisms.choices import AskingField, Choices, choice, fields_of
from learning.representations import Representation, Thresholds, Wavelets

MOST_ROUNDS = 2
MOST_STEPS = 10_000
LARGEST_SIGMA = 4096.0
"""The largest noise multiplier: a clipping norm has 2¹⁸ steps; :class:`common.noise.SystemNoise` draws up to 2³⁰."""


def clip_norm_choice() -> Any:
    return choice(
        float,
        None,
        "Largest norm of a holder's gradient, where points have norm 1; null to choose it by rule.",
        minimum=1e-4,
        maximum=1e4,
    )


def step_size_choice() -> Any:
    return choice(float, None, "Length of a step; null to choose it by rule.", minimum=1e-6, maximum=1e6)


def momentum_choice() -> Any:
    return choice(
        float,
        None,
        "Share of the last movement that is kept in the next; null to choose it by rule.",
        minimum=0.0,
        maximum=0.999,
    )


def publish_choice() -> Any:
    return choice(
        str,
        "",
        "What is published: the student, or the model that the steps led to and the student learned from; empty for "
        "the student of images, the model of tables.",
        choices=("", "student", "model"),
    )


@dataclass(frozen=True)
class Steps(Choices):
    """Choices about how the steps are made; :func:`steps_fields` says what each is.

    Raises:
        ValueError: A value is out of range; TypeError: of another type.
    """

    rounds: int = choice(
        int,
        1,
        "How often a model is learned; the second time on the inner layer of the student of the first, too.",
        minimum=1,
        maximum=MOST_ROUNDS,
    )
    steps: int | None = choice(
        int, None, "Number of gradient steps of a round; null to choose it by rule.", minimum=1, maximum=MOST_STEPS
    )
    clip_norm: float | None = clip_norm_choice()
    sigma: float | None = choice(
        float,
        None,
        "Noise multiplier: the noise of each number has this many times the clipping norm as its standard deviation; "
        "null for as little as the accounts allow.",
        minimum=0.1,
        maximum=LARGEST_SIGMA,
    )
    step_size: float | None = step_size_choice()
    momentum: float | None = momentum_choice()
    publish: str = publish_choice()

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        """As of all private gradient steps."""
        return steps_space(shape)


def steps_space(shape: tuple[int, ...]) -> Representation:
    """The representation in which gradient steps are usually taken, of records of this shape.

    More coordinates than votes need; directions of small spread, where noise outweighs them, stay small.
    """
    return Wavelets(components=200, floor=0.01) if len(shape) > 1 else Thresholds()


def steps_fields() -> tuple[AskingField, ...]:
    """Fields that can be chosen, in order.

    >>> [choice.name for choice in steps_fields()][-2:]
    ['momentum', 'publish']
    """
    return fields_of(Steps)


def steps_from_json(document: Mapping[str, Any]) -> Steps:
    """The parameters that a run was given; what is missing has its default.

    Raises:
        ValueError: A name is unknown, or a value out of range.

    >>> steps_from_json({"steps": 50}).steps
    50
    """
    return Steps.from_json(document)


PUBLISH_CHOICES = {
    "": gettext_noop("the usual one: of images the student, of tables the model that the steps led to"),
    "student": gettext_noop("the student"),
    "model": gettext_noop("the model that the steps led to"),
}
"""What can be published, by name."""
