"""Forecasts of how many labels, or points that a model classifies, will be right: one form for all methods.

Labelled public points judge a forecast where there are any; its interval is wide where they are few. Without any it
rests on an assumption, and says between what bounds the share lies if that holds. What each rests on is said in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.sentences import Sentence, gettext_noop
from learning.measures import wilson

LABELS, MODEL, TABLE = "labels", "model", "table"
"""What a forecast is of: labels that are released, or what the run publishes, a model or a table."""

PURITY = (0.5, 0.9)
"""Assumed without labels: the share of those who vote on a point very near to them that agrees with its true class."""

LABELS_FROM_SAMPLE = gettext_noop(
    "%(points)d labelled points of the test dataset, whose neighbourhoods of public points stand in for people."
)
ASSUMED = gettext_noop(
    "An assumption, since no public points are labelled: half to nine tenths of those who vote agree with the right "
    "class."
)
REHEARSED = gettext_noop(
    "A rehearsal on labelled points of the test dataset: %(learned)d stand in for all people, %(judged)d others judge."
)
CLUSTERS = gettext_noop(
    "Clusters of the public points, since none are labelled. They are easier to tell than classes, so this bounds what "
    "to expect from above, and says whether the noise is too large."
)

_ROOT = 0.5
"""That some public points stand in for all people moves a share by about this, over the root of their number."""
_LEAST_KEPT, _LEAST_LOST = 0.8, 0.02
_FEW_POINTS = 600
_FEW = gettext_noop(
    "Too few people for these promises: with the noise about %(right)d of 100 are expected to be right, and without "
    "it about %(noiseless)d. Invite more people, wait for more of them, or give the run a larger share."
)


@dataclass(frozen=True)
class Forecast:
    """Forecast of a share of right ones.

    Attributes:
        of: `LABELS`, `MODEL` or `TABLE`.
        value: Expected share; None where only bounds are known.
        low, high: 95 times in 100 the share that is measured later lies between these, or if an assumption holds.
        noiseless: What `value`, or else `high`, would be without any noise.
        judged: Labelled public points that judged it; 0 where it rests on an assumption.
        rests_on: In words.
        measure: Label of the measure that is forecast in place of a share of right ones: of a table, the area of a
            model of two classes, and of another outcome such as R²; English, marked for translation.
        majority: Share of right ones, or area, if the most frequent class were named for every point; None if nobody
            knows it.
    """

    of: str
    value: float | None
    low: float
    high: float
    noiseless: float
    judged: int
    rests_on: Sentence
    measure: str = ""
    majority: float | None = None

    @property
    def noisy(self) -> float:
        """What noise leaves of `noiseless`."""
        return self.high if self.value is None else self.value

    def to_json(self) -> dict[str, Any]:
        """JSON that `from_json` reads."""
        return {**asdict(replace(self, rests_on=Sentence(""))), "rests_on": self.rests_on.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Forecast:
        """Of `to_json`."""
        return cls(**{**document, "rests_on": Sentence.from_json(document["rests_on"])})


def judged_forecast(
    of: str,
    right: float,
    noiseless: float,
    *,
    judged: int,
    standing: int,
    rests_on: Sentence,
    measured: int | None = None,
) -> Forecast:
    """Forecast that labelled public points judged.

    Its interval is Wilson's of as many points, wider by what the choice of those that stand in for people may move it.
    Where the share is measured on few others, chance moves that, too: as of a difference of two shares, the interval is
    then of 1 / (1/judged + 1/measured) points.

    Args:
        of: `LABELS` or `MODEL`.
        right: Share of right ones.
        noiseless: The same without noise.
        judged: Points that judged it, at least 1.
        standing: Points that stood in for people, at least 1.
        rests_on: In words.
        measured: Other points that the share will be measured on; None for so many that chance moves it little.
    """
    low, high = wilson(right, judged if not measured else max(1, judged * measured // (judged + measured)))
    error = standing_error(standing)
    return Forecast(of, right, max(0.0, low - error), min(1.0, high + error), noiseless, judged, rests_on)


_USELESS = gettext_noop(
    "The forecast does not clear the baseline: from %(low)d to %(high)d of 100 are expected to be right, and naming "
    "the most frequent class for every point is right for %(majority)d. Give the run a larger share, or wait for more "
    "people. If the model is no better, a person has to decide whether it is published."
)


def useless(forecasts: Sequence[Forecast]) -> tuple[Sentence, ...]:
    """The warning that a model may be right no more often than the most frequent class is."""
    forecast = headline(forecasts)
    if forecast is None or forecast.majority is None or forecast.low > forecast.majority:
        return ()
    low, high, majority = (round(100 * each) for each in (forecast.low, forecast.high, forecast.majority))
    return (Sentence(_USELESS, low=low, high=high, majority=majority),)


def standing_error(standing: int) -> float:
    """By how much it moves a forecast which public points stand in for people."""
    return _ROOT / math.sqrt(standing)


def headline(forecasts: Sequence[Forecast]) -> Forecast | None:
    """The forecast that plans are compared by: the model's, or where there is none that of labels."""
    return max(forecasts, key=lambda each: each.of == MODEL, default=None)


def few_people(forecasts: Sequence[Forecast], n_classes: int) -> tuple[Sentence, ...]:
    """The warning that people are too few, by one rule for all methods: noise costs a fifth of what could be learned.

    What could be learned is by how much the share of right ones lies above chance without noise; and less than two
    points of a hundred are nothing to warn of.
    """
    forecast = headline(forecasts)
    if forecast is None or n_classes < 2:
        return ()
    chance = 1.0 / n_classes
    lost = forecast.noiseless - forecast.noisy
    if lost < max(_LEAST_LOST, (1 - _LEAST_KEPT) * (forecast.noiseless - chance)):
        return ()
    return (Sentence(_FEW, right=round(100 * forecast.noisy), noiseless=round(100 * forecast.noiseless)),)


def thirds(points: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Ways to divide points, in their order, into two thirds that stand in for people and a third that judges.

    Of few points each third judges in turn, so that all of them do.

    >>> [judged.tolist() for _, judged in thirds(4)]
    [[0, 1], [2], [3]]
    """
    parts = np.array_split(np.arange(points), 3)
    chosen = range(3) if points <= _FEW_POINTS else range(1)
    return [(np.concatenate([part for place, part in enumerate(parts) if place != k]), parts[k]) for k in chosen]
