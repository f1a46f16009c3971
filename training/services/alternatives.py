"""What levels bring to a run: its plan beside two in which everybody who is asked has the same promise.

Everything in it is public: it rests on policies, head counts, shares and public points, as the plan does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from accounting.caps import caps_of
from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast, headline
from learning.mechanisms.base import PlanError
from learning.mechanisms.levels import Level, at_threshold, best_threshold, signal
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
    "By the forecast, levels gain less than half a point here over the same promise of ε = %(epsilon)g to everybody "
    "who allows so much, with nobody else asked."
)


@dataclass(frozen=True)
class Alternative:
    """A way to ask people.

    Attributes:
        kind: ``levels`` as everybody chose; ``threshold``, the best single promise to whoever allows it; ``smallest``,
            the strictest promise to everybody.
        epsilon: of the one promise; None of ``levels``.
        holders: who is asked, by the head counts.
        signal: see :func:`learning.mechanisms.levels.signal`, for all of everybody's cap.
        forecast: of the model, or of its labels; None of a method that forecasts none.
    """

    kind: str
    epsilon: float | None
    holders: int
    signal: float
    forecast: Forecast | None

    def to_json(self) -> dict[str, Any]:
        """JSON that the API tells."""
        return {**vars(self), "forecast": self.forecast and self.forecast.to_json()}


def alternatives(run: Run, plan: MethodPlan, share: float) -> tuple[Alternative, ...]:
    """A plan and what could be asked in place of it; empty where all have one promise, and in rehearsals."""
    promises = [promise for promise in plan.promises if promise.holders]
    if run.rehearsal or len({promise.epsilon for promise in promises}) < 2:
        return ()
    caps = caps_of([promise.epsilon for promise in promises], run.study.delta).tolist()
    levels = [Level(promise.name, cap, float(promise.holders)) for promise, cap in zip(promises, caps, strict=True)]
    epsilons = dict(zip(caps, (promise.epsilon for promise in promises), strict=True))
    listed = [Alternative("levels", None, _count(promises), signal(levels), headline(plan.forecasts))]
    for kind, cap in (("threshold", best_threshold(levels)), ("smallest", min(caps))):
        epsilon = epsilons[cap]
        same = [replace(promise, epsilon=epsilon) for promise in promises if promise.epsilon >= epsilon]
        listed.append(
            Alternative(
                kind,
                epsilon,
                _count(same),
                signal(at_threshold(levels, cap)),
                _forecast(run, share, same) if plan.forecasts else None,
            )
        )
    return tuple(listed)


def alternatives_notes(listed: tuple[Alternative, ...]) -> Iterator[Sentence]:
    """Whether personal levels pay."""
    if listed:
        levels, threshold, _smallest = listed
        if levels.signal < (1 + _LITTLE) * threshold.signal:
            part = round(100 * threshold.signal / levels.signal)
            yield Sentence(_BRINGS_LITTLE, epsilon=threshold.epsilon, part=part)
        elif _gain(levels.forecast, threshold.forecast) < _HALF_A_POINT:
            yield Sentence(_GAINS_LITTLE, epsilon=threshold.epsilon)


def _gain(forecast: Forecast | None, other: Forecast | None) -> float:
    """By how much more will be right; infinite where no share of right ones is forecast of both."""
    shares = [each.value for each in (forecast, other) if each and not each.measure and each.value is not None]
    return shares[0] - shares[1] if len(shares) == 2 else math.inf


def _count(promises: list[PlannedPromise]) -> int:
    return sum(promise.holders for promise in promises)


def _forecast(run: Run, share: float, promises: list[PlannedPromise]) -> Forecast | None:
    try:
        return headline(method_of(run).plan(run, share, promises).forecasts)
    except PlanError:  # the plan stands; with this promise it would not
        return None
