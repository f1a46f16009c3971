"""What levels bring to a run: its plan beside others of one promise for everybody, or without the strictest people.

Everything in it is public: it rests on policies, head counts, shares and public points, as the plan does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from accounting.caps import caps_of
from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast, headline
from learning.mechanisms.levels import PlannedLevel, best_threshold, signal
from learning.mechanisms.protocol import PlanError
from training.engine.budgets import PlannedPromise
from training.methods import MethodPlan, method_of
from training.models import Run

#: A gain in signal below which levels bring little.
_LITTLE = 0.1

_BRINGS_LITTLE = gettext_noop(
    "Levels bring little here: the same promise of ε = %(epsilon)g to everybody who allows so much, with nobody "
    "else asked, would have %(part)d %% of this plan's signal."
)
#: A gain in the forecast share of right ones below which levels bring little.
_HALF_A_POINT = 0.005

_GAINS_LITTLE = gettext_noop(
    "The forecast shows that asking only the people who allow ε = %(epsilon)g would be almost as accurate (within "
    "half a point)."
)


_LEAVING_OUT = gettext_noop(
    "The strictest promise costs %(more)d labels: without the %(holders)d holders of %(names)s, accounts would afford "
    "%(labels)d in place of %(fewer)d. But nothing would be learned from these people."
)


@dataclass(frozen=True)
class Alternative:
    """A way to ask people.

    Attributes:
        kind: ``levels`` as everybody chose; ``threshold``, the best single promise to whoever allows it; ``smallest``,
            the strictest promise to everybody; ``lenient``, everybody as they chose, but for those who allow least.
        epsilon: of the one promise; None where everybody has their own.
        holders: who is asked, by the head counts.
        signal: see :func:`learning.mechanisms.levels.signal`, for all of everybody's cap.
        forecast: of the model, or of its labels; None of a method that forecasts none.
        labels: that are released at least before accounts end the run; None where they do not end it.
        left_out: the promises of whom the lenient way does not ask.
    """

    kind: str
    epsilon: float | None
    holders: int
    signal: float
    forecast: Forecast | None
    labels: int | None = None
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON that the API tells."""
        return {**vars(self), "forecast": self.forecast and self.forecast.to_json(), "left_out": list(self.left_out)}


def alternatives(run: Run, plan: MethodPlan, share: float) -> tuple[Alternative, ...]:
    """A plan and what could be asked in place of it; empty where all have one promise, and in rehearsals.

    Leaving out whoever allows least is one of them where accounts end a vote: they are the first to end it.
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
    """Whether personal levels pay; where accounts end a vote, by its labels."""
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
    """Of another plan, as many as there are public points where accounts do not end it."""
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
    """By how much more will be right; infinite where no share of right ones is forecast of both."""
    shares = [each.value for each in (forecast, other) if each and not each.measure and each.value is not None]
    return shares[0] - shares[1] if len(shares) == 2 else math.inf


def _planned(run: Run, share: float, promises: list[PlannedPromise]) -> MethodPlan | None:
    try:
        return method_of(run).plan(run, share, promises)
    except PlanError:  # the plan stands; with these promises it would not
        return None
