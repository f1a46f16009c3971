"""Forecasts of accuracy (the share of correct labels or predictions), in one form for all methods.

If there are labelled public points, a forecast is tested on them; the fewer there are, the wider its interval. Without
labelled points, a forecast makes an assumption, and gives bounds on the share that are valid if the assumption is true.
Each forecast states its basis in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from common.declarations import MAY_BE_MISSING, Stored
from common.sentences import Sentence, gettext_noop
from learning.measures import wilson

LABELS, MODEL, TABLE = "labels", "model", "table"
"""Subject of a forecast: released labels, or the published model or table."""

PURITY = (0.5, 0.9)
"""Assumed range of the share of the nearest voters who agree with a point's true class, used if there are no labels."""

LABELS_FROM_SAMPLE = gettext_noop(
    "Based on %(points)d labelled points of the test dataset. The public points near them stand in for people."
)
ASSUMED = gettext_noop(
    "Assumes that half to nine tenths of the voters agree on the correct class, because no public points are labelled."
)
REHEARSED = gettext_noop(
    "A trial with labelled points of the test dataset: %(learned)d of them stand in for all people, and %(judged)d "
    "others measure the result."
)
CLUSTERS = gettext_noop(
    "Based on clusters of the public points, because none are labelled. Clusters are easier to tell apart than "
    "classes, so this is an upper bound. It shows whether the noise is too large."
)

_ROOT = 0.5
"""Error of a share if n public points represent all people, multiplied by √n."""
_LEAST_KEPT, _LEAST_LOST = 0.8, 0.02
_FEW_POINTS = 600
_FEW = gettext_noop(
    "There are too few people for these promises: about %(right)d of 100 answers are expected to be right with the "
    "noise, and about %(noiseless)d without it. Invite more people, wait for more consents, or give the run a larger "
    "share."
)


@dataclass(frozen=True)
class Forecast(Stored):
    """Forecast of the share of correct results.

    For a forecast based on an assumption, the share lies between ``low`` and ``high`` if the assumption is true.
    ``noiseless`` is `value` (or `high` if there is no `value`) as it would be without noise. ``measure`` is English
    text marked for translation.
    """

    of: Annotated[
        str,
        Field(
            json_schema_extra={"enum": [LABELS, MODEL, TABLE]},
            description="Subject of the forecast: the labels that are released, or the model or table that is "
            "published.",
        ),
    ]
    value: Annotated[float | None, Field(description="Expected share; null if only bounds are known.")]
    low: Annotated[
        float,
        Field(description="Lower end of the 95 % prediction interval for the measured share."),
    ]
    high: Annotated[float, Field(description="Upper end of the interval that begins at `low`.")]
    noiseless: Annotated[float, Field(description="The same forecast without noise.")]
    judged: Annotated[
        int,
        Field(
            description="Number of labelled points that the forecast is based on; 0 if it is based on an assumption."
        ),
    ]
    rests_on: Annotated[Sentence, Field(description="Sentence that explains what the forecast is based on.")]
    measure: Annotated[
        str,
        MAY_BE_MISSING,
        Field(
            description="Measure that is forecast instead of the share of correct results, such as R², or the area "
            "under the curve for a two-class model."
        ),
    ] = ""
    majority: Annotated[
        float | None,
        MAY_BE_MISSING,
        Field(
            description="Share that would be correct if the most frequent class of the test data were "
            "predicted for every point; 0.5 if the area under the curve is forecast."
        ),
    ] = None

    @property
    def noisy(self) -> float:
        """Share of correct results with noise: `value`, or `high` if there is no `value`."""
        return self.high if self.value is None else self.value


def judged_forecast(
    of: str,
    right: float,
    noiseless: float,
    *,
    judged: int,
    surrogates: int,
    rests_on: Sentence,
    measured: int | None = None,
) -> Forecast:
    """Return a forecast that was tested on labelled public points.

    The interval is Wilson's for ``judged`` points, widened because the points that represent people are chosen at
    random. If the share will later be measured on only a few other points, chance also affects that measurement. The
    interval is then computed for 1 / (1/judged + 1/measured) points, as for a difference of two shares.

    Args:
        of: `LABELS` or `MODEL`.
        right: Share of correct results.
        judged: Number of points on which it was tested, at least 1.
        surrogates: Number of points that represented people, at least 1.
        measured: Number of other points on which the share will be measured; None if there are so many that chance
            hardly matters.
    """
    low, high = wilson(right, judged if not measured else max(1, judged * measured // (judged + measured)))
    error = surrogate_error(surrogates)
    return Forecast(of, right, max(0.0, low - error), min(1.0, high + error), noiseless, judged, rests_on)


_USELESS = gettext_noop(
    "The answers may be no better than the baseline: %(low)d to %(high)d of 100 are expected to be right, compared "
    "with %(majority)d for always predicting the most frequent class. Give the run a larger share, or wait for more "
    "people. If the model is no better, a person has to decide whether it is published."
)


def baseline_warning(forecasts: Sequence[Forecast]) -> tuple[Sentence, ...]:
    """Return a warning if the model may be no more accurate than always predicting the most frequent class."""
    forecast = headline(forecasts)
    if forecast is None or forecast.majority is None or forecast.low > forecast.majority:
        return ()
    low, high, majority = (round(100 * each) for each in (forecast.low, forecast.high, forecast.majority))
    return (Sentence(_USELESS, low=low, high=high, majority=majority),)


def surrogate_error(surrogates: int) -> float:
    """Return the error added to a forecast by choosing ``surrogates`` public points to represent people."""
    return _ROOT / math.sqrt(surrogates)


def headline(forecasts: Sequence[Forecast]) -> Forecast | None:
    """Return the forecast used to compare plans: the model's forecast or, if there is none, that of the labels."""
    return max(forecasts, key=lambda each: each.of == MODEL, default=None)


def few_people(forecasts: Sequence[Forecast], n_classes: int) -> tuple[Sentence, ...]:
    """Return a warning if there are so few people that noise costs at least a fifth of the possible gain.

    The rule is the same for all methods. The possible gain is the share of correct results without noise minus the
    share expected by chance. A loss of less than two percentage points does not justify a warning.
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
    """Return index splits of ordered points, in which two thirds represent people and one third is for testing.

    With few points, each third is used for testing in turn, so that all points are used.

    >>> [judged.tolist() for _, judged in thirds(4)]
    [[0, 1], [2], [3]]
    """
    parts = np.array_split(np.arange(points), 3)
    chosen = range(3) if points <= _FEW_POINTS else range(1)
    return [(np.concatenate([part for place, part in enumerate(parts) if place != k]), parts[k]) for k in chosen]
