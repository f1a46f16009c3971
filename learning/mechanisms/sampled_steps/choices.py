"""Choices of a run of steps over samples of the holders. Each may be left open: then a public rule decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.sentences import gettext_noop
from learning.mechanisms.choices import AskingField, Choices, choice, fields_of
from learning.mechanisms.steps.choices import (
    MOST_STEPS,
    clip_norm_choice,
    momentum_choice,
    publish_choice,
    step_size_choice,
    steps_space,
)
from learning.representations import Representation

VARIANTS = ("sample", "scale")
"""Variants over samples, which a run of any study may use."""
BASELINES = ("standard", "without_strictest", "group_after_group", "non_private")
"""What these are compared with, in rehearsal studies alone."""

NETWORK_CHOICES = {
    "linear": gettext_noop("linear model"),
    "mlp": gettext_noop("small network"),
    "cnn": gettext_noop("convolutional network for images"),
}
"""What is trained over samples, by name: `learning.mechanisms.sampled_steps.networks.NETWORKS`."""


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
    clip_norm: float | None = clip_norm_choice()
    step_size: float | None = step_size_choice()
    momentum: float | None = momentum_choice()
    publish: str = publish_choice()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network == "cnn" and self.representation:
            raise ValueError("The convolutional network takes images as they are: leave the representation out.")

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        """As of all private gradient steps."""
        return steps_space(shape)


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
