"""Times to an event, learned as hazards in the intervals of a declared timeline.

Training and test data may include people who were followed only for a while (censored).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import expit

from common.declarations import Number
from common.sentences import gettext_noop
from learning.exact_arithmetic import RESIDUAL_STEPS, Floats, logistic
from learning.measures import NORMAL_95, Estimate, mean_estimate
from learning.outcomes.outcome import Codes, Evaluation, Measure, Target, Unit, digits

if TYPE_CHECKING:
    from learning.exports.graph import Graph

MOST_INTERVALS = 100
_SHAPE_STEPS = 2.0**10
_LEAST = 0.02  # smallest curvature of a score, which bounds every step
_USUAL = 0.1  # assumed share of people at risk who have the event in an average interval, before anything is learned
Bools = NDArray[np.bool_]

_AT_A_TIME = 2**22


@dataclass(frozen=True)
class HazardLoss:
    """Cross entropy over the intervals in which a person was at risk; see :class:`learning.outcomes.outcome.Loss`.

    The hazard h_j of interval j (the probability of the event for people who reach this interval) has the logit o_j +
    Σ_k B_jk·s_k with the scores s_k. A record's residual for score k is Σ_j a_j (h_j - d_j) B_jk over the intervals j,
    where a_j is 1 if the person was at risk in j, and d_j is 1 if j contains the event. All residuals form one vector.

    Attributes:
        ends: Ends of the intervals, as shares of the last end.
        offsets: Offsets o_j of the logits.
        shapes: Matrix B `(intervals, outputs)`.
    """

    ends: tuple[float, ...]
    offsets: tuple[float, ...]
    shapes: tuple[tuple[float, ...], ...]
    centred: bool = False
    clip_norm: float = 0.7
    quadratic: bool = False

    def logits(self, scores: Floats) -> Floats:
        """Return logits `(n, intervals)`, computed by operations on single numbers in a fixed order."""
        logits = np.zeros((len(scores), 1)) + np.array(self.offsets)
        for output, shape in enumerate(np.array(self.shapes).T):
            logits = logits + scores[:, output, None] * shape
        return np.asarray(logits, np.float64)

    def residuals(self, scores: Floats, targets: Codes) -> Floats:
        known = (targets >= 0) & (targets <= 2 * RESIDUAL_STEPS + 1)
        at_risk, happened = self.intervals(np.where(known, targets, 0))
        off = np.where(at_risk, logistic(self.logits(scores)) - happened * RESIDUAL_STEPS, 0.0)
        sums = np.stack([(off * shape).sum(axis=1) for shape in np.array(self.shapes).T], axis=1)
        within = np.rint(sums).clip(-RESIDUAL_STEPS, RESIDUAL_STEPS)
        return np.where(known[:, None], within, 0.0)

    def intervals(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return two masks `(n, intervals)`: intervals in which each person was at risk, and intervals with the event.

        A censored person was at risk in the interval of their last follow-up if they lived through half of it.
        """
        time, event = (codes // 2 / RESIDUAL_STEPS)[:, None], (codes % 2 == 1)[:, None]
        ends = np.array(self.ends)
        starts = np.append(0.0, ends[:-1])
        happened = event & (time <= ends) & ((time > starts) | (starts == 0))
        survived = np.where(event, time > ends, time >= (starts + ends) / 2)
        return (happened | survived).astype(np.float64), happened.astype(np.float64)

    def curvature(self, scores: Floats) -> Floats:
        """Return Σ_j S_j h_j (1 - h_j)·|B_jk|·Σ_l |B_jl|, where S_j is the share that scores predict for interval j.

        As for classes, each row of the Hessian is bounded by the sum of its absolute values.
        """
        hazards = expit(self.logits(scores))
        reach = np.cumprod(np.hstack([np.ones((len(hazards), 1)), 1 - hazards[:, :-1]]), axis=1)
        shapes = np.abs(np.array(self.shapes))
        bound = (reach * hazards * (1 - hazards)) @ (shapes * shapes.sum(axis=1, keepdims=True))
        return np.asarray(np.maximum(bound, _LEAST), np.float64)


@dataclass(frozen=True)
class Times(Target):
    """Time from 0 to an event, or until the end of a person's follow-up.

    ``ends`` are the ends of the hazard intervals. The last one is the end of the timeline, where people who have not
    had the event are censored. A code is twice the position on the timeline (an integer from 0 to 2²⁰), plus one if the
    event happened.

    >>> times = Times((30, 90, 365), "days")
    >>> [times.written(code) for code in times.coded([np.array([182.5, 400.0]), np.array([1.0, 1.0])]).tolist()]
    ['182.5 days', 'more than 365 days']
    """

    kind: Literal["times"] = field(default="times", kw_only=True, repr=False)
    ends: Annotated[
        tuple[Number, ...],
        Field(description="Ends of the intervals whose hazards are learned; the last one ends the timeline."),
    ]
    unit: Unit = ""

    def __post_init__(self) -> None:
        rises = all(low < high for low, high in zip((0.0, *self.ends), self.ends, strict=False))
        if not (2 <= len(self.ends) <= MOST_INTERVALS and rises and math.isfinite(self.ends[-1])):
            raise ValueError(gettext_noop("Enter the ends of 2 to 100 intervals, above 0 and in increasing order."))

    @cached_property
    def loss(self) -> HazardLoss:
        ends = self._places / RESIDUAL_STEPS
        widths = np.diff(ends, prepend=0.0)
        middles = np.log(ends - widths / 2)
        place = 2 * (middles - middles[0]) / (middles[-1] - middles[0]) - 1
        shapes = np.stack([np.ones(len(ends)), place], axis=1)
        offsets = np.log(widths / widths.mean()) + math.log(_USUAL / (1 - _USUAL))
        return HazardLoss(
            tuple(ends.tolist()),
            tuple((np.rint(offsets * _SHAPE_STEPS) / _SHAPE_STEPS).tolist()),
            tuple(map(tuple, (np.rint(shapes * _SHAPE_STEPS) / _SHAPE_STEPS).tolist())),
        )

    @property
    def _places(self) -> Floats:
        """Ends of the intervals, in the steps used for codes; an event at an end belongs to the earlier interval."""
        return np.rint(np.array(self.ends) / self.ends[-1] * RESIDUAL_STEPS)

    @property
    def outputs(self) -> int:
        return len(self.loss.shapes[0])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the probabilities that the event has not happened by the end of each interval."""
        return tuple(f"after {end:g}" for end in self.ends)

    @property
    def parts(self) -> tuple[str, ...]:
        return "time", "event"

    def allowed(self, part: str, values: Floats) -> NDArray[np.bool_]:
        return np.isfinite(values) & (values >= 0) if part == "time" else super().allowed(part, values)

    def remedy(self, part: str) -> str:
        return gettext_noop("Enter 0 or a positive number.") if part == "time" else super().remedy(part)

    def coded(self, values: Sequence[Floats]) -> Codes:
        times, events = values
        places = np.rint(times.clip(0, self.ends[-1]) / self.ends[-1] * RESIDUAL_STEPS).astype(np.int64)
        return 2 * places + ((events != 0) & (times <= self.ends[-1]))

    def times(self, codes: Codes) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the times, and whether the event happened at each of them."""
        return np.asarray(codes // 2 / RESIDUAL_STEPS * self.ends[-1], np.float64), codes % 2 == 1

    def written(self, code: int) -> str:
        time, event = self.times(np.array([code]))
        return f"{'' if event[0] else 'more than '}{digits(float(time[0]))} {self.unit}".rstrip()

    def predictions(self, scores: Floats) -> Floats:
        hazards = expit(self.loss.logits(scores))
        return np.asarray(np.cumprod(1 - hazards, axis=1), np.float64)

    def to_graph(self, graph: Graph, scores: str) -> str:
        logits = graph.node("MatMul", scores, graph.constant(np.array(self.loss.shapes).T))
        logits = graph.node("Add", logits, graph.constant(np.array(self.loss.offsets)))
        left = graph.node("Log", graph.node("Sigmoid", graph.node("Neg", logits)))
        sums = graph.node("CumSum", left, graph.constant(np.array(1)))
        return graph.node("Exp", sums)

    def answers(self, predictions: Floats) -> list[Any]:
        """Return the median time to the event for each prediction; None if it is beyond the timeline."""
        known = np.hstack([np.ones((len(predictions), 1)), predictions])
        ends = np.append(0.0, self.ends)
        answers: list[float | None] = []
        for left in known:
            after = int(np.searchsorted(-left, -0.5))
            if after >= len(left):
                answers.append(None)
                continue
            share = (left[after - 1] - 0.5) / max(left[after - 1] - left[after], 1e-12)
            answers.append(float(ends[after - 1] + share * (ends[after] - ends[after - 1])))
        return answers

    @property
    def categories(self) -> tuple[str, ...]:
        """Intervals in which the event may happen; the last one represents all later times."""
        starts = (0.0, *self.ends[:-1])
        within = (
            f"{digits(low)}–{digits(high)} {self.unit}".rstrip() for low, high in zip(starts, self.ends, strict=True)
        )
        return (*within, f"> {digits(self.ends[-1])} {self.unit}".rstrip())

    def categories_of(self, codes: Codes) -> Codes:
        """Return the intervals of the events; -1 for people who were censored before the end of the timeline."""
        known = (codes >= 0) & (codes <= 2 * RESIDUAL_STEPS + 1)
        places, events = np.where(known, codes, 0) // 2, codes % 2 == 1
        interval = np.searchsorted(self._places, places, side="left")
        later = np.where(places == RESIDUAL_STEPS, len(self.ends), -1)
        return np.where(known, np.where(events, interval, later), -1).astype(np.int64)

    def shares(self, predictions: Floats) -> Floats:
        count = len(predictions)
        left = np.hstack([np.ones((count, 1)), predictions, np.zeros((count, 1))])
        return np.asarray(-np.diff(left, axis=1), np.float64)

    def from_shares(self, shares: Floats) -> Floats:
        return np.asarray((1 - np.cumsum(shares[:, :-1], axis=1)).clip(0.0, 1.0), np.float64)

    def shares_to_graph(self, graph: Graph, shares: str) -> str:
        lost = graph.node("MatMul", shares, graph.constant(np.triu(np.ones((len(self.ends) + 1, len(self.ends))))))
        left = graph.node("Sub", graph.constant(1.0), lost)
        return graph.node("Min", graph.node("Max", left, graph.constant(0.0)), graph.constant(1.0))

    def risks(self, predictions: Floats) -> Floats:
        """Return scores that rank people: the expected part of the timeline that remains after the event."""
        widths = np.diff(np.append(0.0, self.ends))
        known = np.hstack([np.ones((len(predictions), 1)), predictions])
        return np.asarray(self.ends[-1] - (known[:, 1:] + known[:, :-1]) / 2 @ widths, np.float64)

    def evaluated(self, predictions: Floats, targets: Codes) -> Evaluation:
        """Evaluate Harrell's concordance and the Brier scores, in comparison with the Kaplan-Meier estimate."""
        times, events = self.times(targets)
        ends = self._places / RESIDUAL_STEPS * self.ends[-1]
        scores = brier_scores(predictions, times, events, ends)
        shares, errors = kaplan_meier(times, events, ends)
        flat = np.broadcast_to(shares, scores.shape)
        knows_nothing = brier_scores(flat, times, events, ends)
        curve = [
            {
                "time": end,
                "predicted": float(predictions[:, place].mean()) if len(predictions) else None,
                "observed": float(shares[place]),
                "interval": [max(0.0, shares[place] - half), min(1.0, shares[place] + half)],
                "brier": float(scores[:, place].mean()) if len(scores) else None,
            }
            for place, (end, half) in enumerate(zip(self.ends, NORMAL_95 * errors, strict=True))
        ]
        ranked = concordance(self.risks(predictions), times, events)
        brier = mean_estimate(scores.mean(axis=1))
        nothing = float(knows_nothing.mean()) if len(scores) else None
        return Evaluation(
            (
                Measure("concordance", gettext_noop("Concordance (Harrell's C)"), ranked, nothing=0.5),
                Measure("brier", gettext_noop("Brier score, averaged over time"), brier, nothing=nothing),
            ),
            tuple(curve),
        )

    def drawn(self, scores: Floats, draws: np.random.Generator) -> Codes:
        """Draw events; within an interval, all times are equally likely."""
        left = self.predictions(scores)
        interval = (draws.random((len(scores), 1)) > 1 - left).sum(axis=1)
        ends = np.append(0.0, self.ends)
        later = interval == len(self.ends)
        start, end = ends[interval], ends[np.minimum(interval + 1, len(self.ends))]
        times = np.where(later, self.ends[-1], end - draws.random(len(scores)) * (end - start))
        return self.coded([times, (~later).astype(np.float64)])


def concordance(risks: Floats, times: Floats, events: Bools) -> Estimate:
    """Return Harrell's C: the share of pairs of known order in which the earlier event has the higher risk.

    Equal risks count as half. The interval assumes a normal distribution, with the variance of a ratio of U-statistics
    computed from each person's pairs (Hoeffding 1948).
    """
    people = len(times)
    right, compared = np.zeros(people), np.zeros(people)
    first = np.flatnonzero(events)
    block = max(1, _AT_A_TIME // max(people, 1))
    for start in range(0, len(first), block):
        mine = first[start : start + block]
        # people censored at the time of an event count as having lived longer
        later = (times[mine, None] < times) | ((times[mine, None] == times) & ~events)
        agrees = later * ((risks[mine, None] > risks) + 0.5 * (risks[mine, None] == risks))
        right[mine] += agrees.sum(axis=1)
        compared[mine] += later.sum(axis=1)
        right += agrees.sum(axis=0)
        compared += later.sum(axis=0)
    pairs = compared.sum()
    if not pairs:
        return Estimate()
    value = float(right.sum() / pairs)
    half = NORMAL_95 * 2 * float(np.sqrt(((right - value * compared) ** 2).sum())) / float(pairs)
    return Estimate(value, (max(0.0, value - half), min(1.0, value + half)))


def kaplan_meier(times: Floats, events: Bools, moments: Floats, *, before: bool = False) -> tuple[Floats, Floats]:
    """Return the share of people without the event at each of these times, and its standard error (Greenwood 1926).

    Args:
        times: `(n,)` times of the event, or of the end of the follow-up.
        events: `(n,)` True if the time is the time of the event.
        moments: `(m,)` times at which the share is estimated.
        before: Whether events exactly at a moment count as later.
    """
    distinct = np.unique(times[events])
    ordered = np.sort(times)
    at_risk = len(times) - np.searchsorted(ordered, distinct, side="left")
    happened = np.searchsorted(np.sort(times[events]), distinct, side="right") - np.searchsorted(
        np.sort(times[events]), distinct, side="left"
    )
    left = np.append(1.0, np.cumprod(1 - happened / at_risk))
    spread = np.append(0.0, np.cumsum(happened / (at_risk * np.maximum(at_risk - happened, 1e-9))))
    place = np.searchsorted(distinct, moments, side="left" if before else "right")
    return left[place], left[place] * np.sqrt(spread[place])


def brier_scores(survival: Floats, times: Floats, events: Bools, moments: Floats) -> Floats:
    """Return squared errors `(n, m)` of predicted survival at these times, weighted for censoring (Graf et al. 1999).

    People who were censored before a time have weight 0 at that time and are represented by the others. The weight of
    each of these is 1 divided by the Kaplan-Meier estimate of the share of people who were followed for so long. The
    mean of a column is the Brier score.

    Args:
        survival: `(n, m)` predicted share without the event after each moment.
        times: `(n,)`, see `kaplan_meier`.
        events: `(n,)`, see `kaplan_meier`.
        moments: `(m,)`, see `kaplan_meier`.
    """
    followed, _ = kaplan_meier(times, ~events, times, before=True)
    until, _ = kaplan_meier(times, ~events, moments)
    died = (times[:, None] <= moments) & events[:, None]
    lives = times[:, None] > moments
    weights = died / np.maximum(followed, 1e-9)[:, None] + lives / np.maximum(until, 1e-9)
    return np.asarray(weights * (lives - survival) ** 2, np.float64)
