"""Forecasts of a student's results after a planned vote, from public points only.

*Votes by every holder.* If few people vote, most single labels can be wrong even though the student is right, because
it learns from all counts together. The vote is therefore simulated: public points stand in for records, their noisy
counts are processed by `refine`, and the refined labels are compared with the true ones.

*Votes by teachers.* The forecast compares plans that release labels or counts, with few or many teachers. Half of some
labelled points stand in for people and train a few teachers, each on as many records as a real teacher has. The
teachers vote on public points, with the plan's noise. The releases are smoothed, and the other half of the labelled
points shows how often the smoothed class is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.noise import SimulationNoise
from common.sentences import Sentence, gettext_noop
from learning.forecasts import CLUSTERS, MODEL, Forecast, judged_forecast
from learning.learners.learner import Learner
from learning.mechanisms.neighbours.surrogates import Sample, evenly
from learning.mechanisms.neighbours.votes import radii
from learning.mechanisms.pate.plan import Plan
from learning.mechanisms.pate.teachers import PublicGraph, teacher_classes
from learning.representations import Representation
from learning.students.releases import Releases, counted
from learning.students.smoothing import Smoother, neighbourhoods, refine

LOOKED_AT = 2000
"""Number of points in a simulation; more would hardly improve it."""

_LEAST_NOISE = 1.0
"""Smallest noise in counts of people; with less noise, results are as without noise."""

_SIMULATED = gettext_noop(
    "A simulated vote in which public points stand in for records. Each point is given the class of the nearest of "
    "%(points)d labelled points of the test dataset. The result is the share of public points for which all noisy "
    "counts together give the correct class."
)

_FEW, _MANY, _RECORDS = 10, 60, 600
"""Minimum and maximum number of teachers trained, and the total number of records that determines it between these
limits.
"""
_DRAWS = 20
"""Number of draws of the noise. With fewer draws, the planned number of teachers would depend on chance."""
_POINTS, _EIGENVECTORS = 1000, 100
"""Number of public points in simulated votes, and of eigenvectors used to smooth them."""
_CERTAIN = 0.05
"""Assumed standard deviation of a released label, as a share of the voters that it represents."""
_TAUGHT = gettext_noop(
    "A trial with labelled points of the test dataset: %(teachers)d teachers, each trained on %(records)d records, "
    "vote on %(points)d public points. A further %(judged)d points measure what a student learns from the votes."
)


def student_forecast(
    queries: ArrayLike,
    public: NDArray[np.signedinteger],
    voters: ArrayLike,
    *,
    radius_share: float,
    sigma: float,
    n_classes: int,
    sample: Sample | None = None,
) -> Forecast:
    """Forecast the share of public points that `refine` labels correctly after one round of plain votes.

    More than 2,000 queries are represented by a sample. Its noise is reduced by √(sample / queries), because a student
    averages over all queries. Students that learn from refined labels are hardly ever less accurate than the labels, so
    a small share justifies a warning.

    Args:
        queries: `(Q,)` positions among the public points, in the order in which they are asked.
        public: `(P, d)` coordinates of the public points.
        voters: Expected numbers of voters at ``evenly(queries, LOOKED_AT)``.
        n_classes: Number of classes, at least 2.
        sample: Labelled public points; each public point is assumed to have the class of the nearest one. Without a
            sample, the points are put into clusters. Clusters are easier to distinguish than classes, so the forecast
            then shows only how much survives the noise.
    """
    every, rng = np.asarray(queries, np.int64), np.random.default_rng(0)
    probe = evenly(every, LOOKED_AT)
    rest = np.setdiff1d(np.arange(len(public)), every)
    looked_at = np.concatenate([probe, evenly(rest, LOOKED_AT - len(probe))])
    points, rows = public[looked_at], np.arange(len(probe))
    truth = _clusters(points, n_classes) if sample is None else _nearest(points, sample)
    reach = neighbourhoods(rows, points, radii(public[probe], public, radius_share))
    expected = np.asarray(voters, np.float64)[:, None] * (reach @ np.eye(n_classes)[truth])
    averaged = len(probe) / len(every)
    spread = rng.normal(0.0, 1.0, expected.shape)

    def right(noise: float) -> float:
        counts = expected + spread * np.sqrt((noise**2 + expected) * averaged)
        labels_of_student = refine(points, counted(rows, counts, noise * averaged**0.5, reach=reach), seed=0)
        return float((labels_of_student.labels == truth).mean())

    noisy, noiseless = right(sigma), right(_LEAST_NOISE)
    if sample is None:
        return Forecast(MODEL, None, min(noisy, 1.0 / n_classes), noisy, noiseless, 0, Sentence(CLUSTERS))
    known = len(sample.labels)
    basis = Sentence(_SIMULATED, points=known)
    return judged_forecast(MODEL, noisy, noiseless, judged=min(known, len(points)), surrogates=known, rests_on=basis)


class VotesRehearsal:
    """Teachers trained on labelled points, and the accuracy of their releases for the classes of other points."""

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
        """Split the labelled points.

        Args:
            learner: Learner of the teachers; a slow one is replaced by a faster one.
            space: Representation that defines which points are near each other.
            public: `(P, …)` public points; a sample is used.
            points: `(n, …)` labelled points.
            labels: `(n,)` classes of the labelled points.
            unlabelled: Whether teachers also learn from the public points.
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
        """Largest number of records that a teacher can have."""
        return len(self.known)

    def forecast(self, plan: Plan, answers: int) -> Forecast | None:
        """Return the expected share of correctly classified points after ``answers`` answers; None if there are none.

        Released counts are simulated for a sample of the points. Their noise is reduced by √(sample / answers), because
        a student averages over all answered points.
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
        return judged_forecast(MODEL, noisy, noiseless, judged=judged, surrogates=self.most_records, rests_on=basis)

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
        found = self.smoother.most_likely(drawn, voters)
        return float(np.mean([(mean[self.asked :].argmax(axis=1) == self.truth).mean() for mean, _ in found]))

    def _shares_of(self, records: int) -> NDArray[np.float64]:
        """Return the share of teachers that predict each class, `(n, C)`, if each learns from this many records."""
        if records not in self._shares:
            rng, votes = np.random.default_rng(0), np.zeros((len(self.points), self.n_classes))
            for seed in range(_teachers(records)):
                mine = rng.choice(len(self.known), records, replace=False)
                voted = teacher_classes(
                    self.learner,
                    self.known[mine],
                    self.known_labels[mine],
                    self.points,
                    self.graph,
                    classes=self.n_classes,
                    seed=seed,
                )
                votes[np.arange(len(voted)), voted] += 1
            self._shares[records] = votes / _teachers(records)
        return self._shares[records]


def records_of(plan: Plan) -> int:
    """Return the number of records that a teacher learns from if every holder has one."""
    return max(1, round(sum(group.holders * group.factor for group in plan.groups) / plan.teachers))


def _nearest(points: NDArray[np.signedinteger], sample: Sample) -> NDArray[np.int64]:
    """Return the class of the labelled point nearest to each point, `(n,)`."""
    from sklearn.neighbors import KNeighborsClassifier

    known = KNeighborsClassifier(1).fit(np.asarray(sample.points, np.float32), np.asarray(sample.labels))
    return known.predict(points.astype(np.float32)).astype(np.int64)


def _clusters(points: NDArray[np.signedinteger], count: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    clusters = KMeans(min(count, len(points)), n_init=1, random_state=0)
    return clusters.fit_predict(points.astype(np.float64)).astype(np.int64)


def _teachers(records: int) -> int:
    return min(max(_FEW, _RECORDS // records), _MANY)
