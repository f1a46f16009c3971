"""Forecasts of a run, as its plan keeps them since the approval, beside what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from learning.forecasts import LABELS, TABLE, Forecast
from learning.published import released_itself
from training.accuracy import rounding_steps
from training.models import Run, RunResult


@dataclass(frozen=True)
class ForecastOutcome:
    """A forecast with the published share of right ones that was measured in the end; None where nobody could.

    ``inside``: whether it lies in the interval of the forecast, to within its rounding.
    """

    forecast: Forecast
    came: float | None
    inside: bool | None

    def to_json(self) -> dict[str, Any]:
        """Part of cards and of the API."""
        return self.forecast.to_json() | {"came": self.came, "inside": self.inside}


def came_of(run: Run) -> Mapping[str, Any]:
    """Content of a run's table, or the card of its first version, published or not; empty before there is either."""
    result = RunResult.objects.filter(run=run).first()
    if result is not None:
        return result.content
    first = run.students.order_by("version").first()
    return {} if first is None else first.card


def forecast_outcomes(run: Run) -> list[ForecastOutcome]:
    """Forecasts of a run that was approved, against its table or its first version: another was nobody's plan."""
    return outcomes_of(run, came_of(run))


def outcomes_of(run: Run, card: Mapping[str, Any]) -> list[ForecastOutcome]:
    """Forecasts of a run against what a card, or a table, says; without any nothing has come yet."""
    return [_outcome(Forecast.from_json(each), card) for each in run.plan.get("forecasts", [])]


def _outcome(forecast: Forecast, card: Mapping[str, Any]) -> ForecastOutcome:
    if forecast.of == TABLE:
        # Of synthetic rows; how far a table of counts is from the true one, nobody can look up.
        noise = card.get("noise")
        return ForecastOutcome(forecast, noise, None if noise is None else forecast.low <= noise <= forecast.high)
    came, points = _labels(card) if forecast.of == LABELS else _model(card, forecast.measure)
    if came is None:
        return ForecastOutcome(forecast, None, None)
    half = 0.5 / rounding_steps(points)
    return ForecastOutcome(forecast, came, forecast.low - half <= came <= forecast.high + half)


def _labels(card: Mapping[str, Any]) -> tuple[float | None, int]:
    lesson = card.get("learned_from", {})
    return lesson.get("label_accuracy"), lesson.get("labels", 0)


def _model(card: Mapping[str, Any], measure: str) -> tuple[float | None, int]:
    """Accuracy, area, or first measure of what the run released itself, if that is a model: forecasts are of this."""
    evaluation = card.get("evaluation") or {}
    released = [each for each in card.get("candidates", []) if released_itself(each["learner"])]
    points = evaluation.get("points", 0)
    if measure and card.get("classes"):
        return (released[0] if released else evaluation).get("area"), points
    if measure:
        first = released[0].get("measure") if released else next(iter(evaluation.get("measures", [])), None)
        return (None if first is None else first["value"]), points
    return (released[0]["accuracy"] if released else evaluation.get("accuracy")), points
