"""Choices of rows by plausible deniability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.sentences import gettext_noop
from learning.mechanisms.choices import Choices, Fault, choice


@dataclass(frozen=True)
class Deniability(Choices):
    """See :class:`learning.mechanisms.choices.Choices`. Defaults are those of the paper, but for the number of rows."""

    released: int = choice(
        int,
        1000,
        gettext_noop("Rows to release"),
        gettext_noop("Each of them has a cost of its own; the plan says what all cost together."),
        minimum=1,
        maximum=100_000,
    )
    plausible: int = choice(
        int,
        50,
        gettext_noop("Plausible seeds (k)"),
        gettext_noop("A row is released only if about so many records could as well have been its seed."),
        minimum=2,
        maximum=100_000,
    )
    gamma: float = choice(
        float,
        4.0,
        gettext_noop("How alike plausible seeds are (γ)"),
        gettext_noop("They give the row with probabilities between the same two powers of γ."),
        minimum=1.01,
        maximum=1000.0,
    )
    epsilon0: float = choice(
        float,
        1.0,
        gettext_noop("ε₀ of the test"),
        gettext_noop("The number of plausible seeds is compared with k and Laplace noise of scale 1/ε₀."),
        minimum=0.01,
        maximum=100.0,
    )
    fewest: int | None = choice(
        int,
        None,
        gettext_noop("Columns drawn anew, at least (ω)"),
        gettext_noop("The others are copied from the seed. The classes count as a column."),
        minimum=0,
        maximum=1000,
        unset=gettext_noop("all but two"),
    )
    most: int | None = choice(
        int,
        None,
        gettext_noop("Columns drawn anew, at most (ω)"),
        gettext_noop("Of each row the number is drawn between the two."),
        minimum=0,
        maximum=1000,
        unset=gettext_noop("all of them"),
    )
    values: int = choice(
        int,
        20,
        gettext_noop("Values of a column of numbers"),
        gettext_noop("Bins of equal width, over the range that the schema declares."),
        minimum=2,
        maximum=100,
    )
    network: float = choice(
        float,
        1.0,
        gettext_noop("ε of the network"),
        gettext_noop("For the quarter of the records that its structure follows from, and for that of its parameters."),
        minimum=0.01,
        maximum=100.0,
    )

    def faults(self) -> Iterator[Fault]:
        if self.fewest is not None and self.most is not None and self.fewest > self.most:
            yield "fewest", "At least more columns than at most: exchange the two."
