"""Comparisons from public values: of runs with one another, and of what a plan forecast with what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from learning.forecasts import LABELS, TABLE, Forecast
from learning.learners import learner_parameters
from learning.published import released_itself
from learning.students import student_create
from training.measures import rounding_steps
from training.models import Run, RunResult
from training.selectors import GroupSpending, run_groups

MOST = 6
"""Runs that are compared at once: as many columns as a screen holds."""

_FIELDS = ("batch_size", "wanted_labels", "seed")
_DATASETS = ("private_dataset", "public_dataset", "test_dataset", "labelled_dataset")
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Parameter:
    """A parameter with its value in each of the runs; None where a run has none.

    ``name`` is dotted where it is of something that was chosen: "choices.aggregator.sigma".
    """

    name: str
    values: list[Any]


@dataclass(frozen=True, eq=False)
class Compared:
    """Outcome of one run.

    Attributes:
        run: The run.
        accuracy: Of its published student on the test data, rounded; None where nobody knows.
        evaluation: Of it on the test data, see `training.services.assessment`; empty where nobody knows.
        label_accuracy: Share of the released labels that are right, rounded; None where nobody knows.
        share: Part of every cap that it may use; None before its approval and in rehearsals.
        groups: What it charged each group.
        minutes: From its approval to its end; None before.
    """

    run: Run
    accuracy: float | None
    evaluation: dict[str, Any]
    label_accuracy: float | None
    share: float | None
    groups: list[GroupSpending]
    minutes: int | None

    @property
    def interval(self) -> list[float] | None:
        """95 % confidence interval of the accuracy."""
        return self.evaluation.get("interval")

    @property
    def used(self) -> float | None:
        """The part of its members' caps that was used by the group that used most; None where nothing is charged."""
        return max((group.spent_share for group in self.groups), default=None)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs side by side, with those of their parameters that are not the same in all of them."""

    runs: list[Compared]
    parameters: list[Parameter]


def runs_compare(runs: Sequence[Run]) -> Comparison:
    """Compare runs; their datasets and students are read with them where they were selected."""
    each = [run_parameters(run) for run in runs]
    names = list(dict.fromkeys(name for parameters in each for name in parameters))
    table = [Parameter(name, [parameters.get(name) for parameters in each]) for name in names]
    differing = [row for row in table if any(value != row.values[0] for value in row.values)]
    return Comparison([_compared(run) for run in runs], differing)


def run_parameters(run: Run) -> dict[str, Any]:
    """Parameters that a run was given, by dotted name, with the defaults of what was left out."""
    parameters: dict[str, Any] = {name: str(getattr(run, name) or "") or None for name in _DATASETS}
    parameters |= {"method": run.method, "variant": run.variant or None}
    parameters |= _dotted("rehearsed", run.rehearsed)
    chosen = dict(run.choices)
    if learner := chosen.get("learner"):
        chosen["learner_parameters"] = _with_defaults(learner, chosen.get("learner_parameters", {}))
    parameters |= _dotted("choices", chosen)
    parameters |= {name: getattr(run, name) for name in _FIELDS}
    if run.student_learner:
        settings = _with_defaults(run.student_learner, run.student_parameters)
        parameters |= {"student_learner": run.student_learner, **_dotted("student_learner", settings)}
    return parameters


def _with_defaults(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """All parameters of a learner or student; those given alone where this version of it does not know them."""
    try:
        return learner_parameters(student_create(name, settings))
    except ValueError:
        return settings


def _dotted(name: str, value: Any) -> dict[str, Any]:
    """The values of nested objects, by the names that lead to them."""
    if not isinstance(value, dict):
        return {name: value}
    return {key: inner for each, within in value.items() for key, inner in _dotted(f"{name}.{each}", within).items()}


def _compared(run: Run) -> Compared:
    student = run.student
    evaluation = (student.card.get("evaluation") if student else None) or {}
    return Compared(
        run=run,
        accuracy=student.accuracy if student else None,
        evaluation=evaluation,
        label_accuracy=student.label_accuracy if student else None,
        share=run.share if run.approved_at and not run.rehearsal else None,
        groups=run_groups(run),
        minutes=_minutes(run),
    )


def _minutes(run: Run) -> int | None:
    """Minutes between two moments as they are told, cut to the minute: no more precise than these."""
    if run.approved_at is None or run.ended_at is None:
        return None
    first, last = (moment.replace(second=0, microsecond=0) for moment in (run.approved_at, run.ended_at))
    return (last - first) // _MINUTE


# --- Forecasts and outcomes -------------------------------------------------------------------------------------------


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
