"""Forecast of a run: its plan for a share of every cap, checked as for an approval, and compared with alternatives.

Pages, the API and the command line all show this forecast. Everything in it is public, because it is based on policies,
head counts, shares and public points. The benefit of levels is estimated by comparing the plan with alternatives in
which everyone has the same promise, or in which people with the strictest promise are not asked.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from accounting.caps import caps_of
from accounting.group_budgets import head_counts
from accounting.models import HeadCount
from accounting.shares import ROUNDING, SUGGESTED, share_free, suggested_share
from common.declarations import MAY_BE_MISSING, stored
from common.sentences import Sentence, gettext_noop
from learning.forecasts import TABLE, Forecast, baseline_warning, headline
from learning.mechanisms.protocol import PlanError, PlannedLevel, best_threshold, signal
from learning.outcomes.labels import AREA
from training.engine.budgets import PlannedPromise
from training.methods import MethodPlan, method_of
from training.methods.planning import with_majority
from training.models import Run

#: Gain in signal below which levels are of little benefit.
_LITTLE = 0.1

_BRINGS_LITTLE = gettext_noop(
    "Individual levels add little to this plan: asking only people who allow ε = %(epsilon)g, all with this ε, would "
    "already give %(part)d %% of the plan's signal."
)
#: Gain in the forecast's share of correct answers below which levels are of little benefit.
_HALF_A_POINT = 0.005

_GAINS_LITTLE = gettext_noop(
    "The forecast shows that asking only the people who allow ε = %(epsilon)g would be almost as accurate as this "
    "plan (within half a percentage point)."
)


_LEAVING_OUT = gettext_noop(
    "The strictest promise costs %(more)d labels: without the %(holders)d holders who have it (%(names)s), budgets "
    "would allow %(labels)d labels instead of %(fewer)d. But these people would then contribute nothing."
)


@dataclass(frozen=True)
class Alternative:
    """Alternative way to ask people; ``signal`` is defined by :func:`learning.mechanisms.protocol.signal`."""

    kind: Annotated[
        str,
        Field(
            json_schema_extra={"enum": ["levels", "threshold", "smallest", "lenient"]},
            description="How people are asked. `levels`: everyone at the level they chose. `threshold`: only people "
            "who allow the best single ε, all at that ε. `smallest`: everyone at the smallest ε. `lenient`: "
            "everyone at the level they chose, but without the people with the strictest promise if their budgets "
            "would run out.",
        ),
    ]
    epsilon: Annotated[
        float | None,
        Field(
            description="The single ε promised to everyone who is asked; null if people are asked at the levels they "
            "chose."
        ),
    ]
    holders: Annotated[int, Field(description="Number of people who are asked, according to the head counts.")]
    signal: Annotated[float, Field(description="Sum of μ over all holders if every cap is used in full.")]
    forecast: Annotated[
        Forecast | None, Field(description="Forecast for the model, or for its labels; null if there is none.")
    ]
    labels: Annotated[
        int | None,
        MAY_BE_MISSING,
        Field(
            description="Minimum number of labels released before budgets run out and end the run; null if they "
            "cannot run out."
        ),
    ] = None
    left_out: Annotated[
        tuple[str, ...],
        MAY_BE_MISSING,
        Field(description="Promises whose holders are not asked under the lenient option."),
    ] = ()


def alternatives(run: Run, plan: MethodPlan, share: float) -> tuple[Alternative, ...]:
    """Return the plan itself and its alternatives; empty in rehearsals and if everyone has the same promise.

    If accounts end a vote, excluding the people with the strictest promise is an alternative, because they run out
    first.
    """
    promises = [promise for promise in plan.promises if promise.holders]
    if run.rehearsal or len({promise.epsilon for promise in promises}) < 2:
        return ()

    def alternative(
        kind: str, some: list[PlannedPromise], epsilon: float | None, planned: MethodPlan | None
    ) -> Alternative:
        of_all = {promise.name for promise in some}
        return Alternative(
            kind,
            epsilon,
            sum(promise.holders for promise in some),
            signal(_levels(some, run.study.delta)),
            None if planned is None else headline(planned.forecasts),
            None if planned is None else _labels(run, plan, planned),
            tuple(promise.name for promise in promises if epsilon is None and promise.name not in of_all),
        )

    levels = _levels(promises, run.study.delta)
    epsilons = {level.cap: promise.epsilon for level, promise in zip(levels, promises, strict=True)}
    strictest = min(epsilons.values())
    options = [alternative("levels", promises, None, plan)]
    for kind, epsilon in (("threshold", epsilons[best_threshold(levels)]), ("smallest", strictest)):
        same = [replace(promise, epsilon=epsilon) for promise in promises if promise.epsilon >= epsilon]
        compares = plan.forecasts or plan.labels is not None
        options.append(alternative(kind, same, epsilon, _planned(run, share, same) if compares else None))
    if plan.labels is not None:
        lenient = [promise for promise in promises if promise.epsilon > strictest]
        options.append(alternative("lenient", lenient, None, _planned(run, share, lenient)))
    return tuple(options)


def alternatives_notes(options: tuple[Alternative, ...]) -> Iterator[Sentence]:
    """Yield notes on the benefit of personal levels and, if accounts end a vote, of excluding the strictest promise."""
    if not options:
        return
    levels, threshold, _smallest, *lenient = options
    if levels.signal < (1 + _LITTLE) * threshold.signal:
        part = round(100 * threshold.signal / levels.signal)
        yield Sentence(_BRINGS_LITTLE, epsilon=threshold.epsilon, part=part)
    elif not lenient and _gain(levels.forecast, threshold.forecast) < _HALF_A_POINT:
        yield Sentence(_GAINS_LITTLE, epsilon=threshold.epsilon)
    for each in lenient:
        if each.labels is not None and levels.labels is not None and each.labels > levels.labels:
            yield Sentence(
                _LEAVING_OUT,
                names=", ".join(each.left_out),
                holders=levels.holders - each.holders,
                labels=each.labels,
                more=each.labels - levels.labels,
                fewer=levels.labels,
            )


def _labels(run: Run, plan: MethodPlan, other: MethodPlan) -> int | None:
    """Return the number of labels of an alternative plan (at most one per public point); None if unlimited."""
    if plan.labels is None or run.public_dataset is None:
        return None
    most = run.public_dataset.rows
    return most if other.labels is None else min(most, other.labels)


def _levels(promises: list[PlannedPromise], delta: float) -> list[PlannedLevel]:
    caps = caps_of([promise.epsilon for promise in promises], delta).tolist()
    return [
        PlannedLevel(promise.name, cap, float(promise.holders)) for promise, cap in zip(promises, caps, strict=True)
    ]


def _gain(forecast: Forecast | None, other: Forecast | None) -> float:
    """Return the gain in the expected share of correct answers over ``other``; infinity if unknown."""
    shares = [each.value for each in (forecast, other) if each and not each.measure and each.value is not None]
    return shares[0] - shares[1] if len(shares) == 2 else math.inf


def _planned(run: Run, share: float, promises: list[PlannedPromise]) -> MethodPlan | None:
    try:
        return method_of(run).plan(run, share, promises)
    except PlanError:  # the plan is possible even if this alternative is not
        return None


# --- The forecast of a run --------------------------------------------------------------------------------------------


#: Number of holders below which a promise has too few people to hide among or to learn from.
FEW = 10

_NO_PROVENANCE = gettext_noop(
    "The source of the public points is missing. Add it on the dataset's page, because the model card shows it."
)
_LABELLED = gettext_noop(
    "The student also learns from the labels of %(rows)d public rows of “%(dataset)s”. They are used unchanged, "
    "without noise and at no cost."
)
_FEW = gettext_noop(
    "Only %(holders)d holders have the promise %(group)s (ε = %(epsilon)g). The run will learn little from them, and "
    "each of them is hidden among only a few people. Wait for more consents, or leave the group out."
)
_UNCERTAIN = gettext_noop(
    "The head count of %(group)s (%(holders)d) was taken with noise of standard deviation %(sigma)g, so the true "
    "number, and therefore the plan, is very uncertain."
)
_LITTLE_LEFT = gettext_noop(
    "Only %(share).3g %% of every holder's cap is left for this run, so about %(right)d of 100 answers are expected "
    "to be right. With the whole cap, it would be about %(most)d. The rest is used or reserved by other runs: wait "
    "until one of them returns some, or ask people in a new study."
)
_LITTLE_GIVEN = gettext_noop(
    "With %(share).3g %% of every holder's cap, about %(right)d of 100 answers are expected to be right, and with "
    "the whole cap about %(most)d. Give the run a larger share: %(free).3g %% is free."
)
_NO_AREA = Sentence(
    gettext_noop(
        "For this run, the forecast covers only the number of correct answers, not the area under the curve. If one "
        "class is rare, the number of correct answers says little. Check the area once the model has been measured."
    )
)
#: Smallest gain in the share of correct answers for which a note recommends a larger share of the caps.
_WORSE = 0.05


@dataclass(frozen=True)
class RunForecast:
    """Plan of a run for a ``share`` of every cap.

    ``notes`` contains notes on all choices, and all warnings. ``alternatives`` shows the benefit of personal levels.
    """

    plan: MethodPlan
    share: float
    notes: tuple[Sentence, ...]
    alternatives: tuple[Alternative, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON, with the share and all notes."""
        return self.plan.to_json() | {
            "share": self.share,
            "notes": stored(self.notes),
            "alternatives": stored(self.alternatives),
        }


def forecast(run: Run, share: float | None = None) -> RunForecast:
    """Forecast ``run`` (saved or not), by default for the suggested share.

    Raises:
        PlanError: the run cannot be carried out; the message contains the remedy.
    """
    share = suggested_share(run.study) if share is None else share
    planned = with_majority(method_of(run).plan(run, share), run)
    others = () if run.alliance_id else alternatives(run, planned, share)
    notes = (
        *planned.notes,
        *baseline_warning(planned.forecasts),
        *_area_notes(run, planned),
        *_notes(run),
        *_share_notes(run, planned, share),
        *alternatives_notes(others),
    )
    return RunForecast(planned, share, notes, others)


def _area_notes(run: Run, planned: MethodPlan) -> Iterator[Sentence]:
    """Yield a note if a two-class model has no forecast of the area under the ROC curve, which is also measured."""
    of_answers = [each for each in planned.forecasts if each.of != TABLE]
    if len(run.classes) == 2 and of_answers and all(each.measure != AREA for each in of_answers):
        yield _NO_AREA


def _share_notes(run: Run, planned: MethodPlan, share: float) -> Iterator[Sentence]:
    """Yield a note if the forecast is poor because the run may use only a small part of every cap."""
    expected = headline(planned.forecasts)
    if run.rehearsal or run.alliance_id or share >= SUGGESTED or expected is None or expected.measure:
        return
    most = headline(method_of(run).plan(run, 1.0).forecasts)
    if most is None or most.noisy - expected.noisy < _WORSE:
        return
    free = share_free(run.study)
    numbers = {"share": 100 * share, "right": round(100 * expected.noisy), "most": round(100 * most.noisy)}
    if free > share + ROUNDING:
        yield Sentence(_LITTLE_GIVEN, **numbers, free=100 * free)
    else:
        yield Sentence(_LITTLE_LEFT, **numbers)


def _notes(run: Run) -> Iterator[Sentence]:
    if run.labelled_dataset is not None:
        yield Sentence(_LABELLED, rows=run.labelled_dataset.rows, dataset=run.labelled_dataset.name)
    if run.rehearsal:
        return
    if run.public_dataset is not None and not run.public_dataset.provenance:
        yield Sentence(_NO_PROVENANCE)
    for count in head_counts(run.study):
        if 0 < count.count < FEW:
            yield Sentence(_FEW, group=count.level, holders=count.count, epsilon=count.epsilon)
        if _is_uncertain(count):
            yield Sentence(_UNCERTAIN, group=count.level, holders=count.count, sigma=count.sigma)


def _is_uncertain(count: HeadCount) -> bool:
    """Return whether the standard deviation of the noise in a drawn count is more than half of the count."""
    return count.sigma is not None and 0 < count.count < 2 * count.sigma
