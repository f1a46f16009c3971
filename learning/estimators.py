"""Estimators for a researcher's own data, with an ε for each row, using the same questions and accounts as runs.

They need no database and no site. docs/estimators.md states what they guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted

from accounting.privacy import available_delta, promise_caps
from common.noise import JOINT_NORMAL_DISTANCE, Noise, SimulationNoise, SystemNoise
from learning.learners import Model
from learning.mechanisms.counts.table_plan import CLASSES, CountedColumn, Counts, plan_counts
from learning.mechanisms.counts.tables import CountsQuestion, CountTable
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.neighbours.forecast import expected_voters
from learning.mechanisms.neighbours.released_counts import VotesQuestion
from learning.mechanisms.neighbours.rounds import plan_rounds
from learning.mechanisms.neighbours.votes import radii
from learning.mechanisms.protocol import Draws, PartRelease, People, PlannedLevel, Question, Records
from learning.mechanisms.steps.descent import Descent, StepsQuestion
from learning.mechanisms.steps.steps_plan import Steps, plan_steps, strength_of
from learning.outcomes import Classes
from learning.representations import default_representation
from learning.students import labelled, student_create, student_learn

__all__ = ["IndividualDPClassifier", "IndividualDPCounts"]

Floats = NDArray[np.float64]

GRID = 2.0 ** (np.arange(-12, 13) / 2)
"""Values of ε that plans distinguish, from 1/64 to 64. A row is planned with the largest value up to its own ε."""
COUNT_NOISE = 20.0
"""Standard deviation of the noise of each head count, if head counts are not public."""
_DRAWS = 10**18
_CLEAR = 2.0


class _Asked:
    """Rows of people who are asked, each with an account whose cap is determined by its ε.

    Args:
        epsilons: (n,) ε of each row, or one for all.
        count: Number of rows n.
        delta: δ of all promises.
        seed: Seed of the noise, for experiments whose results stay secret; None for the operating system's generator.

    Raises:
        ValueError: An ε or δ that cannot be promised, or a wrong number of ε values.
    """

    def __init__(self, epsilons: ArrayLike, count: int, delta: float, seed: int | None) -> None:
        given = np.asarray(epsilons, np.float64)
        if given.shape not in ((), (count,)):
            raise ValueError(f"epsilons has the shape {given.shape}; give one for each of the {count} rows.")
        self.epsilons, self.delta = np.broadcast_to(given, (count,)), delta
        if not ((self.epsilons >= GRID[0]) & np.isfinite(self.epsilons)).all():
            raise ValueError(f"An ε is below {GRID[0]:g} or not finite: leave out rows that may not be used.")
        self.caps = promise_caps(self.epsilons, self._left)
        self.spent = np.zeros(count)
        self._noise: Noise = SystemNoise() if seed is None else SimulationNoise(seed)

    def levels(self, head_counts: Mapping[float, float] | None) -> list[PlannedLevel]:
        """Return numbers of rows by ε for planning: public ones, or noisy ones that are charged.

        Args:
            head_counts: Public numbers by ε; None to count with noise.
        """
        if head_counts is not None:
            known = sorted((float(epsilon), float(number)) for epsilon, number in head_counts.items() if number > 0)
            if not known:
                raise ValueError("The head counts name no row: give a number above 0 for an ε.")
            caps = promise_caps([epsilon for epsilon, _number in known], self._left)
            return [PlannedLevel(f"{e:g}", float(cap), n) for (e, n), cap in zip(known, caps, strict=True)]
        question = HeadCountQuestion(len(GRID), 1, COUNT_NOISE)
        place = np.searchsorted(GRID, self.epsilons, side="right") - 1
        (released,) = self.ask(question, place == np.arange(len(GRID))[:, None])
        counts = released.arrays["counts"]
        kept = np.flatnonzero(counts > _CLEAR * COUNT_NOISE)
        kept = kept if len(kept) else np.array([counts.argmax()])
        caps = promise_caps(GRID[kept], self._left)
        numbers = np.maximum(counts[kept], 1).tolist()
        return [
            PlannedLevel(f"{epsilon:g}", float(cap), float(number))
            for epsilon, cap, number in zip(GRID[kept], caps, numbers, strict=True)
        ]

    def share(self, levels: list[PlannedLevel]) -> float:
        """Return the share of every cap that is left after the head counts, so that rows with small caps can pay, too.

        Levels whose caps would be used up by half for the head counts are ignored: they take part as far as they can.
        """
        able = [level.cap for level in levels if level.cap > 2 * self._counted]
        return 1.0 - self._counted / min(able) if able else 0.5

    def ask(self, question: Question, records: Any, *, most: int = 1_000_000) -> Iterator[PartRelease]:
        """Yield the release of each part of a question, after its cost has been charged.

        Args:
            question: Question of a mechanism.
            records: Records in the form that the question takes.
            most: Largest number of queries or steps of a part.
        """
        holders, released, start, batch = np.arange(len(self.caps)), None, 0, 0
        while start < question.size:
            people = People(holders, self.caps, self.caps, self.spent)
            part, state = question.part(batch, start, most), question.state(released)
            answer = question.answer(part, state, people, lambda: records, alone=True, draws=Draws(self._noise))
            release = question.release(part, state, [answer], self._noise)
            self.spent = self.spent + answer["charge"]
            if isinstance(question, HeadCountQuestion):
                self._counted = question.charge
            yield release
            released, start, batch = release.arrays, start + release.size, batch + 1

    _counted = 0.0

    def _left(self, epsilon: float) -> float:
        return available_delta(self.delta, epsilon, draws=_DRAWS, distance=JOINT_NORMAL_DISTANCE)


class IndividualDPCounts(BaseEstimator):
    """Counts of rows in some public cells, in which no row spends more than its own ε.

    Args:
        epsilons: (n,) ε of each row, or one for all; can be replaced in `fit`.
        delta: δ of all promises.
        cells: All values that a row may have; rows with other values are not counted.
        head_counts: Numbers of rows by ε, if they are public; otherwise they are counted with noise, at a small cost.
        seed: Seed of the noise, for experiments whose results stay secret.

    Attributes:
        counts_: (cells,) estimated numbers of rows.
        intervals_: (cells, 2) that contain the true numbers 95 times in 100, however the ε are spread over the cells.
        caps_: (n,) cap of each row's account in μ², determined by its ε.
        spent_: (n,) μ² that each row has spent, never more than its cap; as secret as the rows.

    >>> answers = np.repeat(["yes", "no"], [3000, 1000])
    >>> counted = IndividualDPCounts(np.tile([1.0, 2.0], 2000), cells=["yes", "no"], seed=1).fit(answers)
    >>> bool(abs(counted.counts_ - [3000, 1000]).max() < 100)
    True
    """

    def __init__(
        self,
        epsilons: ArrayLike = 1.0,
        *,
        delta: float = 1e-5,
        cells: ArrayLike = (),
        head_counts: Mapping[float, float] | None = None,
        seed: int | None = None,
    ) -> None:
        self.epsilons, self.delta, self.cells = epsilons, delta, cells
        self.head_counts, self.seed = head_counts, seed

    def fit(self, X: ArrayLike, y: Any = None, epsilons: ArrayLike | None = None) -> Self:  # noqa: N803
        """Count the rows.

        Args:
            X: (n,) or (n, 1) values of the rows.
            y: Ignored.
            epsilons: (n,) ε of each row, replacing the ones set before.
        """
        values, cells = np.asarray(X).reshape(len(np.asarray(X)), -1), np.asarray(self.cells)
        if values.shape[1] != 1 or not len(cells):
            raise ValueError("Give one column of values, and the cells that they are counted in.")
        matches = values == cells[None, :]
        codes = np.where(matches.any(axis=1), matches.argmax(axis=1), -1)
        asked = _Asked(self.epsilons if epsilons is None else epsilons, len(values), self.delta, self.seed)
        levels = asked.levels(self.head_counts)
        noise = COUNT_NOISE if self.head_counts is None else 0.0
        plan = plan_counts(
            levels, cells=len(cells), share=asked.share(levels), counts=Counts(column=CLASSES), head_count_sigma=noise
        )
        column = CountedColumn(CLASSES, tuple(map(str, cells)))
        question = CountsQuestion(plan, ((column,),), tuple(level.cap for level in levels))
        records = Records(np.zeros((len(values), 1), np.float32), codes, np.arange(len(values)))
        (released,) = asked.ask(question, records)
        table = CountTable.released(question, released.arrays["sums"], levels)
        self.counts_ = np.array([cell.count for cell in table])
        self.intervals_ = np.array([(cell.least, cell.most) for cell in table])
        self.caps_, self.spent_ = asked.caps, asked.spent
        return self


class IndividualDPClassifier(ClassifierMixin, BaseEstimator):
    """Classifier in which no row spends more than its own ε.

    Each row belongs to a different person. docs/estimators.md states the guarantee: what is individual, and what must
    be public.

    Args:
        epsilons: (n,) ε of each row, or one for all; can be replaced in `fit`.
        delta: δ of all promises.
        public: (P, d) points, or (P, height, width) images, that are not secret and are distributed like the rows.
        method: “steps” for a linear model trained by private gradient steps, or “neighbours”, where every row near a
            public point votes for its class, and a student learns from the noisy counts.
        head_counts: Numbers of rows by ε, if they are public; otherwise they are counted with noise, at a small cost.
        classes: All classes; if None, the classes that occur, which makes them public.
        student: Student that learns from the votes of neighbours.
        seed: Seed of the noise, for experiments whose results stay secret.

    Attributes:
        classes_: Classes, in the order of `predict_proba`.
        caps_: (n,) cap of each row's account in μ², determined by its ε.
        spent_: (n,) μ² that each row has spent, never more than its cap; as secret as the rows.
        plan_: Public plan of the steps, or of the round of votes.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.random((3000, 2)); y = np.where(x[:, 0] > 0.5, "old", "young")
    >>> epsilons = rng.choice([1.0, 2.0, 4.0], 3000)
    >>> model = IndividualDPClassifier(epsilons, delta=1e-5, public=rng.random((500, 2)), seed=1).fit(x, y)
    >>> bool((model.spent_ <= model.caps_).all()), model.score(x, y) > 0.9
    (True, True)
    """

    def __init__(
        self,
        epsilons: ArrayLike = 1.0,
        *,
        delta: float = 1e-5,
        public: ArrayLike | None = None,
        method: str = "steps",
        head_counts: Mapping[float, float] | None = None,
        classes: ArrayLike | None = None,
        student: str = "random_forest",
        seed: int | None = None,
    ) -> None:
        self.epsilons, self.delta, self.public, self.method = epsilons, delta, public, method
        self.head_counts, self.classes, self.student, self.seed = head_counts, classes, student, seed

    def fit(self, X: ArrayLike, y: ArrayLike, epsilons: ArrayLike | None = None) -> Self:  # noqa: N803
        """Learn from rows, charging each row to its own account.

        Args:
            X: (n, d) rows, or (n, height, width) images.
            y: (n,) classes of the rows.
            epsilons: (n,) ε of each row, replacing the ones set before, as needed in cross-validation.
        """
        if self.public is None:
            raise ValueError("Give public points: the model's space is fitted to them, and never to the rows.")
        public, x = _points(self.public), _points(X)
        if x.shape[1:] != public.shape[1:]:
            raise ValueError(f"The rows have the shape {x.shape[1:]}, and the public points {public.shape[1:]}.")
        if self.method not in _WAYS:
            raise ValueError(f"method is {self.method!r}; choose one of {', '.join(_WAYS)}.")
        self.classes_ = np.unique(np.asarray(y if self.classes is None else self.classes))
        codes = np.searchsorted(self.classes_, np.asarray(y))
        if len(codes) != len(x) or (self.classes_[np.minimum(codes, len(self.classes_) - 1)] != np.asarray(y)).any():
            raise ValueError("y has another number of rows than X, or a class that “classes” does not name.")
        asked = _Asked(self.epsilons if epsilons is None else epsilons, len(x), self.delta, self.seed)
        levels = asked.levels(self.head_counts)
        self.n_features_in_ = x.shape[1]
        self.plan_, self.model_ = _WAYS[self.method](self, asked, levels, public, x, codes)
        self.caps_, self.spent_ = asked.caps, asked.spent
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Return the probability of each class, (n, classes). Predictions cost nothing."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.predict_proba(_points(X)), np.float64)

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return the most likely class (n,) of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def _steps(
        self, asked: _Asked, levels: list[PlannedLevel], public: Floats, x: Floats, codes: NDArray[np.int64]
    ) -> tuple[Any, Model]:
        """Return plan and model of private gradient steps."""
        share, number = asked.share(levels), len(self.classes_)
        steps = Steps()
        steps = steps.placed(public, strength_of(levels, share=share, steps=steps))
        fitted = steps.space(public).fit(public)
        plan = plan_steps(levels, dimensions=fitted.dimensions, n_classes=number, share=share, steps=steps)
        begin = Descent.begin(plan, fitted.transform(public), number)
        question = StepsQuestion(plan, fitted, begin, 0, np.array([level.cap for level in levels]))
        records = Records(fitted.transform(x), codes, np.arange(len(x)))
        *_, last = asked.ask(question, records)
        return plan, question.state(last.arrays).model(fitted)

    def _neighbours(
        self, asked: _Asked, levels: list[PlannedLevel], public: Floats, x: Floats, codes: NDArray[np.int64]
    ) -> tuple[Any, Model]:
        """Return the planned round of votes, and a student of its noisy counts."""
        share, names = asked.share(levels), tuple(map(str, self.classes_))
        fitted = default_representation(public.shape[1:]).fit(public)
        points = fitted.transform(public)
        (planned,) = plan_rounds(points, levels, share=share, n_classes=len(names), rounds=1).rounds
        queries = points[planned.queries]
        question = VotesQuestion(
            rows=planned.queries,
            queries=queries,
            radii=radii(queries, points, planned.radius_share),
            voters=expected_voters(
                queries, points, levels, share=planned.share, radius_share=planned.radius_share, sigma=planned.sigma
            ),
            predicted=None,
            fitted=fitted,
            kernel="uniform",
            outcome=Classes(names),
            index=0,
            promises=len(levels),
            radius_share=planned.radius_share,
            sigma=planned.sigma,
        )
        records = Records(fitted.transform(x), codes, np.arange(len(x)))
        releases = list(asked.ask(question, records))
        answers = [pair for release in releases for pair in zip(release.rows, release.labels, strict=True)]
        rows, labels = zip(*[(row, label) for row, label in answers if label is not None], strict=True)
        learned = labelled(rows, labels, classes=len(names))
        return planned, student_learn(student_create(self.student), public, learned, seed=0)


_WAYS = {"steps": IndividualDPClassifier._steps, "neighbours": IndividualDPClassifier._neighbours}


def _points(rows: ArrayLike) -> Floats:
    """Return rows or images as float32; raise ValueError for anything else."""
    return np.asarray(check_array(rows, dtype=np.float32, allow_nd=True))
