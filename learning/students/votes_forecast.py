"""Forecast of what votes of teachers teach, for plans that are compared: labels or counts, few teachers or many.

Half of some labelled points stand in for people and teach a few teachers, each from as many records as a real one has.
They vote on public points, with the noise of the plan; what is released is smoothed, and the other half of the labelled
points says how often the smoothed class is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from common.noise import SimulationNoise
from common.sentences import Sentence, gettext_noop
from learning.forecasts import MODEL, Forecast, judged_forecast
from learning.learners.learner import Learner
from learning.mechanisms.pate.plan import Plan
from learning.mechanisms.pate.teachers import PublicGraph, teacher_classes
from learning.representations import Representation
from learning.students.releases import Releases, counted
from learning.students.smoothing import Smoother

_FEW, _MANY, _RECORDS = 10, 60, 600
"""Teachers that are trained for each number of records: as many as have so many records together."""
_DRAWS = 20
"""Of the noise: with few of them the number of teachers would be chosen by chance."""
_POINTS, _EIGENVECTORS = 1000, 100
"""Public points that votes are simulated on, and how finely they are smoothed."""
_CERTAIN = 0.05
"""Standard deviation of a released label, as a share of the voters that it counts as."""
_TAUGHT = gettext_noop(
    "A rehearsal on labelled points of the test dataset: %(teachers)d teachers of %(records)d records each vote about "
    "%(points)d public points, and %(judged)d others judge what the votes tell of them."
)


class VotesRehearsal:
    """Teachers of labelled points, and how often what they release tells others right."""

    def __init__(
        self,
        learner: Learner,
        space: Callable[[NDArray[np.floating]], Representation],
        public: NDArray[np.floating],
        points: NDArray[np.floating],
        labels: NDArray[np.int64],
        n_classes: int,
        *,
        unlabelled: bool,
    ) -> None:
        """Divide the labelled points.

        Args:
            learner: Of the teachers; one that takes long is stood in for.
            space: In which representation points are near each other.
            public: `(P, …)` public points, of which some are looked at.
            points: `(n, …)` labelled ones.
            labels: `(n,)` their classes.
            n_classes: How many there are.
            unlabelled: Whether teachers learn from the public points as well.
        """
        self.learner, self.n_classes = learner.quick(), n_classes
        self.known, self.known_labels, self.truth = points[::2], labels[::2], labels[1::2]
        some = public[np.linspace(0, len(public) - 1, min(len(public), _POINTS)).astype(np.int64)]
        self.asked, self.points = len(some), np.concatenate([some, points[1::2]])
        fitted = space(some).fit(some)
        coordinates = fitted.transform(self.points)
        self.graph = PublicGraph.of(fitted, coordinates) if unlabelled else None
        self.smoother = Smoother(coordinates, _EIGENVECTORS)
        self._shares: dict[int, NDArray[np.float64]] = {}

    @property
    def most_records(self) -> int:
        """The most records that a teacher can be given."""
        return len(self.known)

    def forecast(self, plan: Plan, answers: int) -> Forecast | None:
        """Return the expected share of points told right by ``answers`` answered queries; None if none is answered.

        Counts of all public points are simulated on some, with as much less noise as the others would average out.
        """
        records = min(records_of(plan), self.most_records)
        votes = np.random.default_rng(0).multinomial(round(plan.votes), self._shares_of(records)[: self.asked])
        drawn = [self._releases(plan, votes.astype(np.float64), answers, seed) for seed in range(_DRAWS)]
        if not all(map(len, drawn)):
            return None
        every = counted(np.arange(self.asked), votes, _CERTAIN * plan.votes)
        noisy, noiseless = self._right(drawn, plan.votes), self._right([every], plan.votes)
        judged = len(self.truth)
        basis = Sentence(_TAUGHT, teachers=_teachers(records), records=records, points=self.asked, judged=judged)
        return judged_forecast(MODEL, noisy, noiseless, judged=judged, standing=self.most_records, rests_on=basis)

    def _releases(self, plan: Plan, votes: NDArray[np.float64], answers: int, seed: int) -> Releases:
        aggregator, noise = plan.aggregator, SimulationNoise(seed)
        if aggregator.releases_counts:
            rows = np.arange(min(answers, self.asked))
            sigma = aggregator.deviation * (len(rows) / max(answers, 1)) ** 0.5
            return counted(rows, votes[rows] + noise.normal(sigma, votes[rows].shape), sigma)
        release = aggregator.release(votes, noise)
        rows = np.flatnonzero(release.answered)[:answers]
        return counted(rows, plan.votes * np.eye(self.n_classes)[release.labels[rows]], _CERTAIN * plan.votes)

    def _right(self, drawn: Sequence[Releases], voters: float) -> float:
        found = self.smoother.likeliest(drawn, voters)
        return float(np.mean([(mean[self.asked :].argmax(axis=1) == self.truth).mean() for mean, _ in found]))

    def _shares_of(self, records: int) -> NDArray[np.float64]:
        """Return `(n, C)` shares of the teachers of so many records that say each class."""
        if records not in self._shares:
            rng, votes = np.random.default_rng(0), np.zeros((len(self.points), self.n_classes))
            for seed in range(_teachers(records)):
                mine = rng.choice(len(self.known), records, replace=False)
                said = teacher_classes(
                    self.learner,
                    self.known[mine],
                    self.known_labels[mine],
                    self.points,
                    self.graph,
                    classes=self.n_classes,
                    seed=seed,
                )
                votes[np.arange(len(said)), said] += 1
            self._shares[records] = votes / _teachers(records)
        return self._shares[records]


def _teachers(records: int) -> int:
    return min(max(_FEW, _RECORDS // records), _MANY)


def records_of(plan: Plan) -> int:
    """Return how many records a teacher learns from if every holder has one."""
    return max(1, round(sum(group.holders * group.factor for group in plan.groups) / plan.teachers))
