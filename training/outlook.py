"""Outlook of a run: its expected and actual results and costs, as shown on pages, in the API and by the client.

Everything in an outlook is public, because it depends only on the run's plan, earlier runs, and releases.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any

from django.conf import settings
from pydantic import Field

from accounting.caps import epsilon_of
from common.declarations import Stored
from common.sentences import Sentence, gettext_noop
from learning.forecasts import MODEL, Forecast, baseline_warning, few_people, headline
from learning.mechanisms.pate import LEFT_OUT
from training.comparison import forecast_outcomes, run_minutes
from training.methods import MethodOutcome, method_of
from training.methods.base import UNITS
from training.models import Run
from training.queue import expected_durations
from training.selectors import run_groups, run_reason

_NOT_MEASURED = gettext_noop(
    "The test data has %(points)d rows, but at least %(least)d are needed to judge a model. With fewer rows, a "
    "person has to decide whether the model is published."
)


@dataclass(frozen=True)
class GroupCost(Stored):
    """Cost of a run for each member of a privacy group, as an ε at the study's δ."""

    name: str
    people: Annotated[int, Field(description="Number of people in the group, public or noisy.")]
    promised: Annotated[float, Field(description="Total ε promised to each person in the group.")]
    most: Annotated[float, Field(description="Largest ε that this run may use for each person in the group.")]
    used: Annotated[
        float | None, Field(description="Upper bound on the ε that the run has used; null before it uses any.")
    ] = None


@dataclass(frozen=True)
class Result(Stored):
    """Result of a run that has ended."""

    amount: Annotated[int, Field(description="Number of labels, steps, cells or rows that the run released.")]
    value: Annotated[
        float | None, Field(description="Measured value of the quantity in `forecast`; null if none was measured.")
    ]
    inside: Annotated[
        bool | None,
        Field(description="Whether the measured value lies in the interval, allowing for rounding; null if unknown."),
    ]
    minutes: Annotated[int | None, Field(description="Minutes from the run's approval to its end.")]
    reason: Annotated[str, Field(description="Reason why the run ended or has no model; may be empty.")] = ""


@dataclass(frozen=True)
class Outlook(Stored):
    """Expected results and costs of a run and, once it has ended, its result.

    ``forecast`` is the forecast used to compare plans; its ``majority`` is the baseline.
    """

    share: Annotated[float | None, Field(description="Share of every cap that the run may use; null if unknown.")]
    people: Annotated[int, Field(description="Number of people who are asked, according to the head counts.")]
    amount: Annotated[int, Field(description="Maximum number of items that the run releases, of the kind in `unit`.")]
    affordable: Annotated[
        int | None,
        Field(description="Minimum number of labels that the budgets cover; null if budgets cannot run out."),
    ]
    unit: Annotated[
        str, Field(json_schema_extra={"enum": list(UNITS)}, description="Kind of items that `amount` counts.")
    ]
    forecast: Annotated[
        Forecast | None,
        Field(
            description="Expected quality of the model or, if there is none, of the labels or table; null if there is "
            "no forecast. Its interval is a 95 % prediction interval, and `majority` is the baseline."
        ),
    ]
    costs: Annotated[
        tuple[GroupCost, ...], Field(description="Cost for each privacy group, strictest first; empty for rehearsals.")
    ]
    minutes: Annotated[
        int | None,
        Field(
            description="Median duration, in minutes, of the study's earlier runs with this method; null if there are "
            "none."
        ),
    ]
    doubts: Annotated[tuple[Sentence, ...], Field(description="Reasons why the run may not produce anything useful.")]
    result: Annotated[Result | None, Field(description="Actual results; null until the run has ended.")] = None


def outlook(run: Run, plan: Mapping[str, Any] | None = None) -> Outlook | None:
    """Return the outlook of a run according to its stored plan or the given one; None for a run without a plan.

    Args:
        run: A run, saved or not.
        plan: JSON of a plan, including its ``share``.
    """
    if plan is not None:
        run = copy(run)
        run.plan, run.share = dict(plan), plan["share"]
    if not run.plan:
        return None
    amount = method_of(run).amount(run)
    forecasts = [Forecast.from_json(each) for each in run.plan["forecasts"]]
    takes = expected_durations([run]).get((run.study_id, run.method))
    return Outlook(
        share=run.share,
        people=sum(each["holders"] for each in run.plan["promises"] if each["group"] != LEFT_OUT),
        amount=amount.most,
        affordable=amount.affordable,
        unit=amount.unit,
        forecast=headline(forecasts),
        costs=tuple(_costs(run)),
        minutes=None if takes is None else max(1, round(takes.total_seconds() / 60)),
        doubts=tuple(_doubts(run, forecasts)),
        result=_result(run, amount.so_far) if run.has_ended else None,
    )


def _costs(run: Run) -> Iterator[GroupCost]:
    delta = run.study.delta
    for group in run_groups(run):
        used = epsilon_of(group.spent, delta) if run.spent else None
        yield GroupCost(group.name, group.holders, group.epsilon, epsilon_of(group.allowed, delta), used)


def _doubts(run: Run, forecasts: list[Forecast]) -> Iterator[Sentence]:
    yield from baseline_warning(forecasts)
    yield from few_people(forecasts, len(run.classes))
    if method_of(run).outcome != MethodOutcome.MODEL:
        return
    least, points = settings.LEAST_TEST_POINTS, run.test_dataset.rows if run.test_dataset else 0
    if least is not None and points < least:
        yield Sentence(_NOT_MEASURED, points=points, least=least)


def _result(run: Run, amount: int) -> Result:
    outcomes = forecast_outcomes(run)
    came = max(outcomes, key=lambda each: each.forecast.of == MODEL, default=None)  # chosen as in `headline`
    value, inside = (None, None) if came is None else (came.came, came.inside)
    return Result(amount, value, inside, run_minutes(run), run_reason(run))
