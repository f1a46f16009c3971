"""Parameters of a run of private gradient steps. Each may be left open: then a public rule decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.sentences import gettext_noop
from training.methods.fields import AskingField, Choices, choice, fields_of
from training.representations import Representation, Thresholds, Wavelets

VARIANTS = ("sample", "scale")
"""Variants over samples, which a run of any study may use."""
BASELINES = ("standard", "without_strictest", "group_after_group", "non_private")
"""What these are compared with, in rehearsal studies alone."""

NETWORK_CHOICES = {
    "linear": gettext_noop("linear model"),
    "mlp": gettext_noop("small network"),
    "cnn": gettext_noop("convolutional network for images"),
}
"""What is trained over samples, by name: `training.methods.sgd.networks.NETWORKS`."""

MOST_ROUNDS = 2
MOST_STEPS = 10_000
LARGEST_SIGMA = 4096.0
"""The largest noise multiplier: a clipping norm has 2¹⁸ steps; :class:`common.noise.SystemNoise` draws up to 2³⁰."""


def _clip_norm() -> Any:
    return choice(
        float,
        None,
        "Largest norm of a holder's gradient, where points have norm 1; null to choose it by rule.",
        minimum=1e-4,
        maximum=1e4,
    )


def _step_size() -> Any:
    return choice(float, None, "Length of a step; null to choose it by rule.", minimum=1e-6, maximum=1e6)


def _momentum() -> Any:
    return choice(
        float,
        None,
        "Share of the last movement that is kept in the next; null to choose it by rule.",
        minimum=0.0,
        maximum=0.999,
    )


def _publish() -> Any:
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
    clip_norm: float | None = _clip_norm()
    sigma: float | None = choice(
        float,
        None,
        "Noise multiplier: the noise of each number has this many times the clipping norm as its standard deviation; "
        "null for as little as the accounts allow.",
        minimum=0.1,
        maximum=LARGEST_SIGMA,
    )
    step_size: float | None = _step_size()
    momentum: float | None = _momentum()
    publish: str = _publish()

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        """As of all private gradient steps."""
        return steps_space(shape)


@dataclass(frozen=True)
class Samples(Choices):
    """Choices of steps over samples of the holders.

    Without public points, and of the convolutional network, what is trained takes the records as they are, and there is
    no representation.

    Raises:
        ValueError: A value is out of range; TypeError: of another type.
    """

    network: str = choice(
        str,
        "linear",
        "What is trained: a linear model, a small network, or for images a convolutional one.",
        choices=tuple(NETWORK_CHOICES),
    )
    expected: float | None = choice(
        float,
        None,
        "How many holders are drawn in a step, on average, by public or noisy head counts; null to choose it by rule.",
        minimum=1.0,
        maximum=1e9,
    )
    steps: int | None = choice(
        int, None, "Number of gradient steps; null to choose it by rule.", minimum=1, maximum=MOST_STEPS
    )
    clip_norm: float | None = _clip_norm()
    step_size: float | None = _step_size()
    momentum: float | None = _momentum()
    publish: str = _publish()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network == "cnn" and self.representation:
            raise ValueError("The convolutional network takes images as they are: leave the representation out.")

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


def samples_fields() -> tuple[AskingField, ...]:
    """Fields of the choices of steps over samples, in order.

    >>> [choice.name for choice in samples_fields()][3:6]
    ['network', 'expected', 'steps']
    """
    return fields_of(Samples)


def samples_from_json(document: Mapping[str, Any]) -> Samples:
    """The parameters that a run was given; what is missing has its default.

    Raises:
        ValueError: A name is unknown, or a value out of range.

    >>> samples_from_json({"network": "mlp"}).network
    'mlp'
    """
    return Samples.from_json(document)


PUBLISH_CHOICES = {
    "": gettext_noop("the usual one: of images the student, of tables the model that the steps led to"),
    "student": gettext_noop("the student"),
    "model": gettext_noop("the model that the steps led to"),
}
"""What can be published, by name."""
