"""Comparisons based on public values: runs with each other, and forecasts with outcomes.

Individualized PATE (Boenisch et al., 2023) discusses in sections 6.3 and 7.3 how the accuracy of a class changes if
the people in it choose different levels from others. People's levels are private here, and classes are never counted
by level. Results for classes and for levels are therefore shown next to each other, but no number combines them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from common.sentences import gettext_noop
from learning.forecasts import LABELS, TABLE, Forecast
from learning.learners import learner_parameters
from learning.mechanisms.pate import LEFT_OUT
from learning.published import released_itself
from learning.students import student_create
from training.measures import rounding_steps
from training.models import Run, RunResult, StudentModel
from training.selectors import GroupSpending, run_groups

MOST = 6
"""Largest number of runs in a comparison, so that the columns fit on a screen."""

_FIELDS = ("batch_size", "wanted_labels", "seed")
_DATASETS = ("private_dataset", "public_dataset", "test_dataset", "labelled_dataset")
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Parameter:
    """Parameter with its value in each run; None if a run does not have it.

    ``name`` is a dotted path, for example "choices.aggregator.sigma".
    """

    name: str
    values: list[Any]


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """Outcome of one run.

    Attributes:
        run: The run.
        accuracy: Accuracy of its published student on the test data, rounded; None if unknown.
        evaluation: Evaluation of the student on the test data (`training.methods.student_training`); empty if unknown.
        label_accuracy: Share of correct labels among the released ones, rounded; None if unknown.
        share: Part of every cap that the run may use; None before its approval and in rehearsals.
        groups: Charge of each group.
        minutes: Minutes from approval to end; None before the end.
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
        """Largest part of a cap that the run has used in any group; None if nothing is charged."""
        return max((group.spent_share for group in self.groups), default=None)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs to compare, with the parameters that differ between them."""

    runs: list[ComparedRun]
    parameters: list[Parameter]


def runs_compare(runs: Sequence[Run]) -> Comparison:
    """Return a comparison of runs. Makes no queries if their datasets and students were selected with them."""
    each = [run_parameters(run) for run in runs]
    names = list(dict.fromkeys(name for parameters in each for name in parameters))
    table = [Parameter(name, [parameters.get(name) for parameters in each]) for name in names]
    differing = [row for row in table if any(value != row.values[0] for value in row.values)]
    return Comparison([_compared(run) for run in runs], differing)


def run_parameters(run: Run) -> dict[str, Any]:
    """Return the parameters of a run by dotted name, with defaults for missing ones."""
    parameters: dict[str, Any] = {name: str(getattr(run, name) or "") or None for name in _DATASETS}
    parameters |= {"method": run.method, "variant": run.variant or None}
    parameters |= dotted("rehearsed", run.rehearsed)
    chosen = dict(run.choices)
    if learner := chosen.get("learner"):
        chosen["learner_parameters"] = _with_defaults(learner, chosen.get("learner_parameters", {}))
    parameters |= dotted("choices", chosen)
    parameters |= {name: getattr(run, name) for name in _FIELDS}
    if run.student_learner:
        settings = _with_defaults(run.student_learner, run.student_parameters)
        parameters |= {"student_learner": run.student_learner, **dotted("student_learner", settings)}
    return parameters


def _with_defaults(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return all parameters of a learner or student, or only ``settings`` if this version has none with that name."""
    try:
        return learner_parameters(student_create(name, settings))
    except ValueError:
        return settings


def dotted(name: str, value: Any) -> dict[str, Any]:
    """Return the values of nested objects by their dotted paths."""
    if not isinstance(value, dict):
        return {name: value}
    return {key: inner for each, within in value.items() for key, inner in dotted(f"{name}.{each}", within).items()}


def _compared(run: Run) -> ComparedRun:
    student = run.student
    evaluation = (student.card.get("evaluation") if student else None) or {}
    return ComparedRun(
        run=run,
        accuracy=student.accuracy if student else None,
        evaluation=evaluation,
        label_accuracy=student.label_accuracy if student else None,
        share=run.share if run.approved_at and not run.rehearsal else None,
        groups=run_groups(run),
        minutes=run_minutes(run),
    )


def run_minutes(run: Run) -> int | None:
    """Return the minutes from approval to end, computed from times rounded down to minutes, as displayed."""
    if run.approved_at is None or run.ended_at is None:
        return None
    first, last = (moment.replace(second=0, microsecond=0) for moment in (run.approved_at, run.ended_at))
    return (last - first) // _MINUTE


# --- Forecasts and outcomes -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForecastOutcome:
    """Forecast of a share, and the measurement that was published.

    ``came``: the measured value; None if it could not be measured.
    ``inside``: whether the value lies in the forecast's interval, up to rounding.
    """

    forecast: Forecast
    came: float | None
    inside: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return the forecast and its outcome as JSON, for cards and the API."""
        return self.forecast.to_json() | {"came": self.came, "inside": self.inside}


def measured_results(run: Run) -> Mapping[str, Any]:
    """Return the content of a run's table or the card of its first version, published or not; empty if it has none."""
    result = RunResult.objects.filter(run=run).first()
    if result is not None:
        return result.content
    first = run.students.order_by("version").first()
    return {} if first is None else first.card


def forecast_outcomes(run: Run) -> list[ForecastOutcome]:
    """Return an approved run's forecasts with the results in its table or its model's first version."""
    return outcomes_of(run, measured_results(run))


def outcomes_of(run: Run, card: Mapping[str, Any]) -> list[ForecastOutcome]:
    """Return a run's forecasts with the results in a card or table, or without results if it is empty."""
    return [_outcome(Forecast.from_json(each), card) for each in run.plan.get("forecasts", [])]


def _outcome(forecast: Forecast, card: Mapping[str, Any]) -> ForecastOutcome:
    if forecast.of == TABLE:
        # Only for synthetic rows, because the distance between a table of counts and the true table cannot be measured.
        noise = card.get("noise")
        return ForecastOutcome(forecast, noise, None if noise is None else forecast.low <= noise <= forecast.high)
    came, points = _labels(card) if forecast.of == LABELS else _model(card, forecast.measure)
    if came is None:
        return ForecastOutcome(forecast, None, None)
    half = 0.5 / rounding_steps(points)
    return ForecastOutcome(forecast, came, forecast.low - half <= came <= forecast.high + half)


def _labels(card: Mapping[str, Any]) -> tuple[float | None, int]:
    learned_from = card.get("learned_from", {})
    return learned_from.get("label_accuracy"), learned_from.get("labels", 0)


def _model(card: Mapping[str, Any], measure: str) -> tuple[float | None, int]:
    """Return the accuracy, area or first measure of the released model, if forecasts concern it, or of the student."""
    evaluation = card.get("evaluation") or {}
    released = [each for each in card.get("candidates", []) if released_itself(each["learner"])]
    points = evaluation.get("points", 0)
    if measure and card.get("classes"):
        return (released[0] if released else evaluation).get("area"), points
    if measure:
        first = released[0].get("measure") if released else next(iter(evaluation.get("measures", [])), None)
        return (None if first is None else first["value"]), points
    found = released[0] if released else evaluation
    # forecasts are about the most likely class, even if answers are balanced
    return found.get("likeliest", found).get("accuracy"), points


# --- Fairness ---------------------------------------------------------------------------------------------------------


READABLE = gettext_noop(
    "You can see which classes the student finds less often than others. Where intervals overlap, this may be due to "
    "chance. If the same student trained on true labels does just as badly, privacy is not the reason: the class is "
    "hard to learn or rare among the public points."
)
UNREADABLE = gettext_noop(
    "These results do not show whether a class is found less often because people with records of that class chose a "
    "stricter level. This is possible, because records count less at stricter levels. However, the classes of the "
    "people at each level are private and never counted. These results depend on them only through noisy releases."
)


@dataclass(frozen=True)
class ClassResult:
    """Result of one class on the test data: its ``recall`` with an interval, and ``reference`` from true labels."""

    name: str
    points: int
    recall: float | None
    interval: tuple[float, float] | None
    reference: float | None


@dataclass(frozen=True)
class LevelShare:
    """Public facts about one level: its ε, its head count (noisy or a public number), and its share of all head counts.

    ``used`` is the largest part of a member's cap that the run could have used; None in rehearsals.
    """

    level: str
    epsilon: float
    holders: int
    part: float
    used: float | None


@dataclass(frozen=True)
class Fairness:
    """Results by class, and facts about levels.

    Attributes:
        classes: Classes by recall, lowest first; classes without test points last.
        levels: Levels that the run included, strictest first.
        is_clear: Whether the intervals of the lowest and the highest recall do not overlap.
        readable: Valid conclusions, in English, marked for translation.
        unreadable: Conclusions that would be invalid.
    """

    classes: list[ClassResult]
    levels: list[LevelShare]
    is_clear: bool
    readable: str = READABLE
    unreadable: str = UNREADABLE

    @property
    def lowest(self) -> ClassResult:
        return self.classes[0]

    @property
    def highest(self) -> ClassResult:
        return [each for each in self.classes if each.recall is not None][-1]


def fairness_of(run: Run, student: StudentModel | None) -> Fairness | None:
    """Return results by class for a run's student, and facts about levels; None without two classes of test data."""
    if student is None:
        return None
    reference = {each["class"]: each["recall"] for each in (student.reference or {}).get("classes", [])}
    evaluation = student.card.get("evaluation") or {}
    classes = [_class_result(each, reference) for each in evaluation.get("classes", [])]
    known = sorted((each for each in classes if each.recall is not None), key=lambda each: (each.recall, each.name))
    if len(known) < 2:
        return None
    low, high = known[0].interval, known[-1].interval
    return Fairness(
        classes=[*known, *(each for each in classes if each.recall is None)],
        levels=_levels(run),
        is_clear=low is not None and high is not None and low[1] < high[0],
    )


def _class_result(row: Mapping[str, Any], reference: Mapping[str, float | None]) -> ClassResult:
    ends = row.get("interval")
    return ClassResult(
        row["class"], row["points"], row["recall"], (ends[0], ends[1]) if ends else None, reference.get(row["class"])
    )


def _levels(run: Run) -> list[LevelShare]:
    promises = [promise for promise in run.plan.get("promises", []) if promise["group"] != LEFT_OUT]
    together = sum(promise["holders"] for promise in promises)
    return [
        LevelShare(
            level=promise["level"],
            epsilon=promise["epsilon"],
            holders=promise["holders"],
            part=promise["holders"] / together if together else 0.0,
            used=_used(run, promise["group"]),
        )
        for promise in promises
    ]


def _used(run: Run, place: int) -> float | None:
    if run.rehearsal:
        return None
    return (run.spent[place] if run.spent else 0.0) / run.plan["budgets"][place]["cap"]
