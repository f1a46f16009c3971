"""Choices of a run in which teachers vote: what they are, how they vote, and what becomes of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.sentences import gettext_noop
from learning.learners import LEARNERS, learner_create
from learning.mechanisms.choices import Choices, Fault, choice
from learning.mechanisms.pate.aggregators import AGGREGATORS, Aggregator, aggregator_from_parameters

STOP = "stop"
"""The vote ends when the share of one group is used up; otherwise that group's teachers are silent from then on."""

_WEIGHT_LABELS = {
    "gdp": gettext_noop("in proportion to μ: groups reach their shares together"),
    "calibrated": gettext_noop("calibrated for Rényi costs (rehearsals)"),
    "proportional": gettext_noop("proportional to ε, as in the paper"),
}
_UNLABELLED_LABELS = {
    "images": gettext_noop("where they are images"),
    "always": gettext_noop("always"),
    "never": gettext_noop("never"),
}
_SMALL_LABELS = {
    "merge": gettext_noop("merge into the next stricter group"),
    "leave_out": gettext_noop("leave out"),
    "copy": gettext_noop("copy into several teachers of a stricter group"),
}
_EXHAUSTED_LABELS = {
    STOP: gettext_noop("end the vote"),
    "retire": gettext_noop("retire that group's teachers and go on"),
}


@dataclass(frozen=True)
class Teachers(Choices):
    """Choices about the teachers and their vote. See :class:`learning.mechanisms.choices.Choices`."""

    teachers: int | None = choice(
        int,
        None,
        gettext_noop("number of teachers"),
        gettext_noop("Left empty, the plan compares several numbers and takes the best."),
        minimum=1,
        maximum=10**9,
    )
    learner: str = choice(
        str,
        None,
        gettext_noop("Teacher learner"),
        kinds=LEARNERS,
        parameters="learner_parameters",
        optional=False,
    )
    learner_parameters: Mapping[str, Any] = choice(
        dict, {}, gettext_noop("Parameters of the learner"), gettext_noop("What is missing has its default.")
    )
    unlabelled: str = choice(
        str,
        "images",
        gettext_noop("Teachers also learn from the public points"),
        gettext_noop(
            "Each teacher assumes that public points close together have the same class. Teachers share the public "
            "points without labels, and nothing else."
        ),
        values=_UNLABELLED_LABELS,
    )
    aggregator: Mapping[str, Any] | None = choice(
        dict,
        None,
        gettext_noop("Aggregator"),
        gettext_noop("Name and parameters, before any scaling."),
        kinds=AGGREGATORS,
        unset=gettext_noop("the plan chooses"),
    )
    weight_scheme: str = choice(
        str,
        "gdp",
        gettext_noop("weights"),
        values=_WEIGHT_LABELS,
        rehearsed=("calibrated",),
    )
    small_groups: str = choice(
        str,
        "merge",
        gettext_noop("Groups too small for a teacher"),
        values=_SMALL_LABELS,
    )
    on_exhausted: str = choice(
        str,
        "stop",
        gettext_noop("when a group's share is used up"),
        values=_EXHAUSTED_LABELS,
    )

    def faults(self) -> Iterator[Fault]:
        try:
            learner_create(self.learner, self.learner_parameters)
        except (TypeError, ValueError) as error:
            yield "learner_parameters", str(error)
        try:
            if self.aggregator is not None:
                self.vote()
        except (TypeError, ValueError) as error:
            yield "aggregator", str(error)

    def learns_unlabelled(self, kind: str) -> bool:
        """Return whether teachers learn from public points of this kind of schema as well."""
        return self.unlabelled == "always" or (self.unlabelled == "images" and kind == "image")

    @property
    def leaves_open(self) -> bool:
        """Whether the plan chooses the number of teachers, or how they vote."""
        return self.teachers is None or self.aggregator is None

    def vote(self) -> Aggregator:
        """Return the aggregator with its parameters, before any scaling."""
        assert self.aggregator is not None, "the plan has chosen it"
        return aggregator_from_parameters(self.aggregator)
