"""Teachers: choices about them, their answers for the public points, and a forecast of their vote.

Teachers share only public information: a representation of the public points, and the graph of these points' nearest
neighbours. They may also learn from the public points, without labels. Apart from this, a teacher's answers depend only
on its members' records.

*Forecast.* As many small teachers as time allows are trained on some of the labelled points. Each gets as many records
as a real teacher has, and slow learners are replaced by faster ones. Their answers for the other points represent the
votes of all teachers, to which the plan's noise is added. Without labelled points, an assumption is made about the
share of teachers that agree with the right class, in the same way as for votes by every holder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from common.noise import SimulationNoise
from common.sentences import Sentence, gettext_noop
from learning.forecasts import ASSUMED, LABELS, PURITY, Forecast, judged_forecast, thirds
from learning.learners import LEARNERS, learner_create
from learning.learners.learner import Learner
from learning.learners.scikit import NearestNeighbour
from learning.mechanisms.choices import Choices, Fault, choice
from learning.mechanisms.pate.aggregators import AGGREGATORS, Aggregator, LabelRelease, aggregator_from_parameters
from learning.mechanisms.pate.plan import Plan
from learning.representations.representation import FittedRepresentation, similarities, spread

STOP = "stop"
"""Choice that ends the vote when a group's share is used up, instead of continuing without the group's teachers."""

_WEIGHT_LABELS = {
    "gdp": gettext_noop("in proportion to μ: all groups use up their shares at the same time"),
    "calibrated": gettext_noop("calibrated for Rényi costs (rehearsals)"),
    "proportional": gettext_noop("proportional to ε, as in the paper"),
}
_UNLABELLED_LABELS = {
    "images": gettext_noop("if they are images"),
    "always": gettext_noop("always"),
    "never": gettext_noop("never"),
}
_SMALL_LABELS = {
    "merge": gettext_noop("merge into the next stricter group"),
    "leave_out": gettext_noop("leave out"),
    "copy": gettext_noop("copy into several teachers of a stricter group"),
}
_EXHAUSTED_LABELS = {
    STOP: gettext_noop("end the vote"),
    "retire": gettext_noop("stop using that group's teachers and continue"),
}

_NEAREST = 5
"""Number of nearest public points over which the class of a record is spread."""
_STEPS = 60
_FAR, _NEAR = 0.95, 0.8
"""How strongly two things spread to other points: the classes of single records, and a model's probabilities."""

TEACHERS = 10
"""Largest number of teachers trained for a forecast."""

_VOTES = 2000  # number of votes simulated if there are no labelled points
_SEED = 0
_TAUGHT = gettext_noop(
    "A trial with labelled points of the test dataset: %(teachers)d teachers, each trained on %(records)d records, "
    "vote on %(judged)d other points."
)
_TAUGHT_QUICKLY = gettext_noop(
    "A trial with labelled points of the test dataset: %(teachers)d teachers, each trained on %(records)d records, "
    "vote on %(judged)d other points. These teachers are faster models than the run's own, which would take too long "
    "for a forecast."
)


@dataclass(frozen=True)
class Teachers(Choices):
    """Choices about the teachers and their vote. See :class:`learning.mechanisms.choices.Choices`."""

    teachers: int | None = choice(
        None,
        gettext_noop("number of teachers"),
        gettext_noop("If you leave this empty, the plan compares several numbers and uses the best."),
        minimum=1,
        maximum=10**9,
    )
    learner: str = choice(
        None, gettext_noop("Learner for teachers"), kinds=LEARNERS, parameters="learner_parameters", optional=False
    )
    learner_parameters: Mapping[str, Any] = choice(
        {},
        gettext_noop("Learner parameters"),
        gettext_noop("Parameters you leave out take their default values."),
    )
    unlabelled: str = choice(
        "images",
        gettext_noop("Teachers also learn from the public points"),
        gettext_noop(
            "Each teacher assumes that public points close together have the same class. Teachers share only the "
            "public points, without their labels."
        ),
        values=_UNLABELLED_LABELS,
    )
    aggregator: Mapping[str, Any] | None = choice(
        None,
        gettext_noop("Aggregator"),
        gettext_noop("Name and parameters, before they are scaled to the number of votes."),
        kinds=AGGREGATORS,
        unset=gettext_noop("the plan chooses"),
    )
    weight_scheme: str = choice("gdp", gettext_noop("weights"), values=_WEIGHT_LABELS, rehearsed=("calibrated",))
    small_groups: str = choice(
        "merge", gettext_noop("How to treat groups that are too small for a teacher"), values=_SMALL_LABELS
    )
    on_exhausted: str = choice(
        "stop", gettext_noop("what happens when a group's share is used up"), values=_EXHAUSTED_LABELS
    )

    def faults(self) -> Iterator[Fault]:
        try:
            learner_create(self.learner, self.learner_parameters)
        except (TypeError, ValueError) as error:
            yield "learner_parameters", str(error)
        try:
            if self.aggregator is not None:
                self.vote()
        except (TypeError, ValueError) as error:
            yield "aggregator", str(error)

    def learns_unlabelled(self, kind: str) -> bool:
        """Return whether teachers also learn from public points with this kind of schema."""
        return self.unlabelled == "always" or (self.unlabelled == "images" and kind == "image")

    @property
    def leaves_open(self) -> bool:
        """Whether the plan has to choose the number of teachers or the kind of vote."""
        return self.teachers is None or self.aggregator is None

    def vote(self) -> Aggregator:
        """Return the aggregator with its parameters before any scaling."""
        assert self.aggregator is not None, "the plan has chosen it"
        return aggregator_from_parameters(self.aggregator)


@dataclass(frozen=True, eq=False)
class PublicGraph:
    """Public points as used by teachers: a representation, the points' coordinates (P, d) in it, and their graph."""

    fitted: FittedRepresentation
    coordinates: NDArray[np.float32]
    similar: csr_array

    @classmethod
    def of(cls, fitted: FittedRepresentation, coordinates: NDArray[np.number]) -> PublicGraph:
        """Return the graph of points with these coordinates."""
        return cls(fitted, np.asarray(coordinates, np.float32), similarities(coordinates))


def teacher_classes(
    learner: Learner,
    x: NDArray[np.floating],
    y: NDArray[np.integer],
    points: NDArray[np.floating],
    graph: PublicGraph | None,
    *,
    classes: int,
    seed: int,
) -> NDArray[np.int64]:
    """Return the class (P,) of each public point according to a teacher trained on these records.

    With a graph and the nearest-neighbour learner, the class of each record spreads from the public points nearest to
    it (Zhou et al. 2004), with the same total weight for each class and without rotated or shifted copies. For other
    learners, probabilities spread from every point to the points close to it.

    Args:
        learner: Learner of the teacher.
        x: `(n, …)` records.
        y: `(n,)` classes of the records.
        points: `(P, …)` public points.
        graph: Graph of the public points; None if teachers learn only from their records.
    """
    if graph is None:
        return learner.fit(x, y, classes=classes, seed=seed).predict(points)
    if not isinstance(learner, NearestNeighbour):
        probabilities = learner.fit(x, y, classes=classes, seed=seed).predict_proba(points)
        return spread(graph.similar, probabilities, _NEAR).argmax(axis=1)
    seeds = _seeds(graph, graph.fitted.transform(x), np.asarray(y, np.int64), classes)
    over = seeds
    for _ in range(_STEPS):
        over = _FAR * (graph.similar @ over) + (1 - _FAR) * seeds
    return (over / np.maximum(over.sum(axis=0), 1e-12)).argmax(axis=1)


def forecast_votes(
    plan: Plan,
    learner: Learner,
    n_classes: int,
    *,
    points: ArrayLike,
    labels: ArrayLike | None,
    answers: int | None = None,
) -> Forecast | None:
    """Forecast the share of correct labels among those released by a vote; None if this is not possible.

    Args:
        n_classes: Number of classes C.
        points: `(P, …)` labelled public points.
        labels: `(P,)` classes of the points; None if there are no labels.
        answers: Number of labels that accounts can pay for; None for all. With few labels, the share of correct labels
            varies by chance.
    """
    if plan.aggregator.asks_student or n_classes < 2:
        return None
    if labels is None:
        low, high = _assumed(plan, n_classes)
        return Forecast(LABELS, (low + high) / 2, low, high, (PURITY[0] + 1.0) / 2, 0, Sentence(ASSUMED))
    x, truth = np.asarray(points, np.float32), np.asarray(labels, np.int64)
    teachers, divided, quick = min(TEACHERS, plan.teachers), thirds(len(x)), learner.quick()
    records = min(_records(plan), len(divided[0][0]))
    shares = [_shares(quick, x, truth, *parts, teachers, records, n_classes) for parts in divided]
    expected, true = np.concatenate(shares), np.concatenate([truth[judged] for _, judged in divided])
    release = _released(plan, expected)
    answered = release.answered
    if not answered.any():
        return None
    noisy = float((release.labels == true)[answered].mean())
    noiseless = float((expected.argmax(axis=1) == true)[answered].mean())
    basis = Sentence(
        _TAUGHT if quick == learner else _TAUGHT_QUICKLY, teachers=teachers, records=records, judged=len(true)
    )
    surrogates, judged = len(divided[0][0]), int(answered.sum())
    return judged_forecast(
        LABELS, noisy, noiseless, judged=judged, surrogates=surrogates, rests_on=basis, measured=answers
    )


def _seeds(
    graph: PublicGraph, coordinates: NDArray[np.number], labels: NDArray[np.int64], classes: int
) -> NDArray[np.float64]:
    """Return the weights of classes at each public point, `(P, C)`: every record is spread over its nearest points."""
    near = min(_NEAREST, len(graph.coordinates))
    seeds = np.zeros((len(graph.coordinates), classes))
    squares = (graph.coordinates**2).sum(axis=1)
    for start in range(0, len(labels), 256):
        part = slice(start, start + 256)
        distances = squares - 2 * (np.asarray(coordinates[part], np.float32) @ graph.coordinates.T)
        nearest = np.argpartition(distances, near - 1, axis=1)[:, :near]
        np.add.at(seeds, (nearest.ravel(), np.repeat(labels[part], near)), 1 / near)
    return seeds


def _records(plan: Plan) -> int:
    """Return the number of records that a teacher learns from, if every holder has one."""
    return max(1, round(sum(group.holders * group.factor for group in plan.groups) / plan.teachers))


def _shares(
    learner: Learner,
    x: NDArray[np.float32],
    truth: NDArray[np.int64],
    learned: NDArray[np.int64],
    judged: NDArray[np.int64],
    teachers: int,
    records: int,
    n_classes: int,
) -> NDArray[np.float64]:
    """Return the shares `(judged, C)` of the teachers that predict each class."""
    rng, votes = np.random.default_rng(_SEED), np.zeros((len(judged), n_classes))
    for seed in range(teachers):
        mine = rng.choice(learned, records, replace=records > len(learned) // 2)
        model = learner.fit(x[mine], truth[mine], classes=n_classes, seed=seed)
        votes[np.arange(len(judged)), model.predict(x[judged])] += 1
    return votes / teachers


def _released(plan: Plan, shares: NDArray[np.float64]) -> LabelRelease:
    """Simulate a vote of all teachers, given the expected share of teachers that predicts each class."""
    votes = np.random.default_rng(_SEED).multinomial(round(plan.votes), shares)
    return plan.aggregator.release(votes.astype(np.float64), SimulationNoise(_SEED))


def _assumed(plan: Plan, n_classes: int) -> tuple[float, float]:
    """Return bounds on the share of correct labels, given assumed shares of teachers that agree with the truth."""
    bounds = []
    for share, right in zip(PURITY, (PURITY[0], 1.0), strict=True):
        shares = np.full((_VOTES, n_classes), (1 - share) / (n_classes - 1))
        shares[:, 0] = share
        release = _released(plan, shares)
        is_first = release.labels[release.answered] == 0
        bounds.append(right * float(is_first.mean()) if len(is_first) else 0.0)
    low, high = bounds
    return min(low, high), high
