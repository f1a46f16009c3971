"""Choices of a table of counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.sentences import gettext_noop
from learning.mechanisms.choices import Choices, Fault, choice

MOST_BINS = 100


@dataclass(frozen=True)
class Counts(Choices):
    """See :class:`learning.mechanisms.choices.Choices`."""

    column: str = choice(
        str,
        None,
        gettext_noop("Column"),
        gettext_noop("Of the private dataset, or its classes. Its schema says which values there are."),
        optional=False,
        is_column=True,
    )
    across: str = choice(
        str,
        "",
        gettext_noop("Against"),
        gettext_noop("A second column: people are counted in each pair of values."),
        is_column=True,
    )
    bins: int = choice(
        int,
        10,
        gettext_noop("Bins of a column of numbers"),
        gettext_noop("Of equal width, over the range that the schema declares."),
        minimum=2,
        maximum=MOST_BINS,
    )
    weighing: str = choice(
        str,
        "promise",
        gettext_noop("How much people count"),
        gettext_noop(
            "By their promise there is the least noise, and numbers of people are estimated; alike, everybody is "
            "counted as one, with the noise that the smallest ε needs."
        ),
        values={"promise": gettext_noop("by their promise"), "alike": gettext_noop("all alike")},
    )

    def faults(self) -> Iterator[Fault]:
        if self.across == self.column:
            yield "across", "The second column is the first one: choose another, or none."
