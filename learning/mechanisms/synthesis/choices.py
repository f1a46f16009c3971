"""Choices of synthetic rows."""

from __future__ import annotations

from dataclasses import dataclass

from common.sentences import gettext_noop
from learning.mechanisms.choices import Choices, choice

MOST_ROWS = 200_000


@dataclass(frozen=True)
class Synthesis(Choices):
    """See :class:`learning.mechanisms.choices.Choices`."""

    rows: int | None = choice(
        int,
        None,
        gettext_noop("Synthetic rows"),
        gettext_noop("However many are drawn costs nobody anything."),
        minimum=100,
        maximum=MOST_ROWS,
        unset=gettext_noop("as many as there are people by the head counts"),
    )
    bins: int = choice(
        int,
        100,
        gettext_noop("Bins of a column of numbers"),
        gettext_noop(
            "Of equal width, over the range that the schema declares; a number of a synthetic row is as fine as that."
        ),
        minimum=2,
        maximum=100,
    )
