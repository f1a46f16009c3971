"""Forecast of a run in which every holder votes at given values of ε, from public values alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from accounting.caps import caps_of
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.base import PlanError
from learning.mechanisms.levels import Level
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.mechanisms.neighbours.forecast import RoundForecast
from training.methods.neighbours.planning import rounds_plan
from training.models import Dataset


@dataclass(frozen=True)
class Affordable:
    """Outcome to be expected of a single round with the whole of every cap, whatever runs have taken of it so far.

    ``left`` is the part of a holder's cap that is not used after it, on average, by level.
    """

    forecast: RoundForecast
    warnings: tuple[Sentence, ...]
    left: Mapping[str, float]


def affordable(
    public: Dataset,
    epsilons: Mapping[str, float],
    holders: Mapping[str, int],
    *,
    delta: float,
    wanted: int | None = None,
) -> Affordable:
    """Forecast what ``holders`` with ``epsilons``, both by level, could label of a public dataset.

    The newest evaluation data of the study whose points are alike say how often labels will be right; without any, that
    rests on an assumption.

    Args:
        public: Its points are asked about, in the usual representation, with one record per holder.
        epsilons: At ``delta``.
        holders: Head counts, or numbers that somebody expects; never counted from consents.
        delta: The study's δ.
        wanted: How many labels; None for all of the points.

    Raises:
        PlanError: Nobody takes part, or the noise would be too large; it says what to do.
    """
    levels = tuple(
        Level(level, float(caps_of(epsilon, delta)), float(holders[level]))
        for level, epsilon in epsilons.items()
        if holders[level]
    )
    if not levels:
        raise PlanError(gettext_noop("By these numbers nobody takes part, so that there is nobody to ask."))
    rounds, notes, _forecasts = rounds_plan(
        public, _test(public), NeighbourChoices(rounds=1), levels, share=1.0, wanted=wanted
    )
    forecast = rounds[0].forecast
    return Affordable(forecast, notes, {level.name: 1.0 - level.spent for level in forecast.levels})


def _test(public: Dataset) -> Dataset | None:
    candidates = public.study.datasets.filter(kind=Dataset.Kind.TEST, removed_at=None).order_by("-imported_at")
    return next((dataset for dataset in candidates if dataset.schema == public.schema), None)
