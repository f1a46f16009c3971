"""Choices of a run in which every holder votes. Each may be left open: then a public rule decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.sentences import gettext_noop
from learning.mechanisms.choices import ROUNDS, Fault, HolderChoices, choice, representation_choice
from learning.mechanisms.neighbours.kernels import KERNELS

LARGEST_SIGMA = 16_384.0
"""The largest standard deviation of a count: 2³⁰ of the units in which votes are counted."""

_BY_FORECAST = gettext_noop("Empty: chosen by the forecast.")
_UNSET = gettext_noop("chosen by the forecast")
_SEVERAL = {"rounds": (None, *(rounds for rounds in ROUNDS if rounds > 1))}
_KERNEL_LABELS = {
    "uniform": gettext_noop("in full within the radius"),
    "epanechnikov": gettext_noop("less with the distance (Epanechnikov)"),
}


@dataclass(frozen=True)
class NeighbourChoices(HolderChoices):
    """Choices about how holders are asked. See :class:`learning.mechanisms.choices.Choices`."""

    representation: str = representation_choice(
        gettext_noop("The space in which neighbours are near; fitted on the public points alone.")
    )
    rounds: int | None = choice(
        int,
        1,
        gettext_noop("Rounds"),
        gettext_noop("From the second on votes correct what the student learned so far predicts."),
        minimum=1,
        maximum=len(ROUNDS),
        values=ROUNDS,
        optional=True,
        unset=_UNSET,
    )
    first_queries: int | None = choice(
        int,
        None,
        gettext_noop("Points of the first round"),
        gettext_noop("Empty: a fifteenth of all that are asked, at most 600."),
        minimum=1,
        maximum=10**9,
        unset=gettext_noop("a fifteenth of all that are asked, at most 600"),
        only_if=_SEVERAL,
    )
    embedded: bool = choice(
        bool,
        False,
        gettext_noop("The second round compares points by the student's inner layer"),
        gettext_noop("If the student of the first round has one, as networks do."),
        only_if=_SEVERAL,
    )
    sigma: float | None = choice(
        float,
        None,
        gettext_noop("σ, noise of each count"),
        _BY_FORECAST,
        minimum=1e-3,
        maximum=LARGEST_SIGMA,
        unset=_UNSET,
    )
    radius_share: float | None = choice(
        float,
        None,
        gettext_noop("Radius, in per cent of the public points"),
        _BY_FORECAST,
        minimum=1e-9,
        maximum=1.0,
        unset=_UNSET,
        percent=True,
    )
    kernel: str = choice(
        str, "uniform", gettext_noop("A record counts"), values={name: _KERNEL_LABELS[name] for name in KERNELS}
    )
    records: float = choice(
        float,
        1.0,
        gettext_noop("Records per holder"),
        gettext_noop("A public figure, on which the forecast rests; not counted from the data."),
        minimum=1.0,
        maximum=1e4,
    )

    def faults(self) -> Iterator[Fault]:
        yield from super().faults()
        if self.first_queries is not None and self.rounds == 1:
            yield "first_queries", "first_queries is for several rounds: a single round asks about all points."
        if self.embedded and self.rounds == 1:
            yield "embedded", "embedded is for several rounds: in a single round there is no student yet."
