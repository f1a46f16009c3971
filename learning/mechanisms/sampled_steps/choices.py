"""Choices of a run of steps over samples of the holders. Each may be left open: then a public rule decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.sentences import gettext_noop
from learning.mechanisms.choices import Fault, choice
from learning.mechanisms.steps.choices import BY_RULE, UNSET, StepChoices

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
class Samples(StepChoices):
    """Choices of steps over samples of the holders.

    Without public points, and of the convolutional network, what is trained takes the records as they are, and there is
    no representation.
    """

    network: str = choice(str, "linear", gettext_noop("Model"), values=NETWORK_CHOICES)
    expected: float | None = choice(
        float,
        None,
        gettext_noop("Holders drawn in a step, on average"),
        BY_RULE,
        minimum=1.0,
        maximum=1e9,
        unset=UNSET,
    )

    momentum: float | None = choice(
        float,
        None,
        gettext_noop("Momentum"),
        gettext_noop("Share of the last movement that is kept in the next. Empty: chosen by rule."),
        minimum=0.0,
        maximum=0.999,
        unset=UNSET,
    )

    def faults(self) -> Iterator[Fault]:
        yield from super().faults()
        if self.network == "cnn" and self.representation:
            message = gettext_noop("The convolutional network takes images as they are: leave it at the usual one.")
            yield "representation", message
