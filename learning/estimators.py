"""Estimators for a researcher's own data, with an ε for each row, using the same questions and accounts as runs.

The estimators need neither a database nor a site. Their guarantee is stated in docs/estimators.md.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted

from accounting.privacy import available_delta, promise_caps
from common.noise import JOINT_NORMAL_DISTANCE, Noise, SimulationNoise, SystemNoise
from learning.formats import TabularSchema
from learning.formats.columns import CategoricalColumn, NumericColumn
from learning.learners import Model, learner_create
from learning.mechanisms.counts.table_plan import CLASSES, CountedColumn, Counts, feature_columns, plan_counts
from learning.mechanisms.counts.tables import CountsQuestion, CountTable
from learning.mechanisms.head_counts import HeadCountQuestion
from learning.mechanisms.neighbours.forecast import expected_voters
from learning.mechanisms.neighbours.released_counts import VotesQuestion
from learning.mechanisms.neighbours.rounds import plan_rounds
from learning.mechanisms.neighbours.votes import radii
from learning.mechanisms.pate import LEFT_OUT, NO_VOTE, NoisyCounts, Plan, PrivacyGroup, make_plan
from learning.mechanisms.pate.ballots import Ballot, TeachersQuestion, VoteBudget
from learning.mechanisms.pate.partition import assign_keyed, teacher_seed
from learning.mechanisms.pate.teachers import teacher_classes
from learning.mechanisms.protocol import Arrays, Draws, PartRelease, People, PlannedLevel, Question, Records
from learning.mechanisms.steps.descent import Descent, StepsQuestion
from learning.mechanisms.steps.steps_plan import Steps, plan_steps, strength_of
from learning.mechanisms.synthesis.rounds import ROUNDS, Marginals, plan_synthesis, rows_draw
from learning.outcomes import Classes
from learning.representations import default_representation
from learning.students import labelled, student_create, student_learn

__all__ = ["IndividualDPClassifier", "IndividualDPCounts", "IndividualDPSynthesis"]

Floats = NDArray[np.float64]

GRID = 2.0 ** (np.arange(-12, 13) / 2)
"""Grid of ε values used for planning, from 1/64 to 64. A row's ε is rounded down to the grid."""
COUNT_NOISE = 20.0
"""Standard deviation of the noise in each head count, if head counts are not public."""
_DRAWS = 10**18
_CLEAR = 2.0
_ROUNDING = 1e-9
_ROWS_OF_A_TEACHER = 13
_FEWEST_QUERIES = 20
_TEACHERS_PER_NOISE = 4
"""Number of teachers per unit of vote noise above which more than `_FEWEST_QUERIES` queries are asked."""


class _Asked:
    """Rows of the people who are asked, each with an account whose cap follows from the row's ε.

    Args:
        epsilons: (n,) ε of each row, or one for all.
        count: Number of rows n.
        delta: δ of all promises.
        seed: Seed of the noise, for experiments whose results stay secret; None for the operating system's generator.

    Raises:
        ValueError: An ε or δ cannot be promised, or the number of ε values is wrong.
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
        """Return the number of rows for each ε, for planning. Noisy counts are charged; public numbers cost nothing.

        Args:
            head_counts: Public numbers of rows by ε; if None, rows are counted with noise.
        """
        if head_counts is not None:
            known = sorted((float(epsilon), float(number)) for epsilon, number in head_counts.items() if number > 0)
            if not known:
                raise ValueError("The head counts contain no rows: give a number above 0 for at least one ε.")
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
        """Return the share of every cap that remains after the head counts, as determined by the smallest cap.

        A cap is ignored if the head counts use at least half of it. Rows with such a cap take part as far as their
        accounts allow.
        """
        able = [level.cap for level in levels if level.cap > 2 * self._counted]
        return 1.0 - self._counted / min(able) if able else 0.5

    def ask(self, question: Question, records: Any, *, most: int = 1_000_000) -> Iterator[PartRelease]:
        """Yield the release of each part of a question, after its cost has been charged.

        Args:
            question: Question of a mechanism.
            records: Records in the form that the question expects.
            most: Largest number of queries or steps of a part.
        """
        holders, released, start, batch = np.arange(len(self.caps)), None, 0, 0
        while start < question.size:
            people = People(holders, self.caps, self.caps, self.spent)
            part, state = question.part(batch, start, most), question.state(released)
            answer = question.answer(part, state, people, lambda: records, alone=True, draws=Draws(self._noise))
            release = question.release(part, state, [answer], self._noise)
            self._charge(release, answer, records)
            if isinstance(question, HeadCountQuestion):
                self._counted = question.charge
            yield release
            released, start, batch = release.arrays, start + release.size, batch + 1

    def planned_groups(self, levels: list[PlannedLevel], share: float) -> tuple[list[PlannedLevel], NDArray[np.int64]]:
        """Return the levels that can pay this share in addition to their head count, and the index of each row's level.

        A row belongs to the largest level that its account can pay for. The index is -1 if there is no such level.
        """
        able = [level for level in levels if level.cap * (1.0 - share) >= self._counted * (1.0 - _ROUNDING)]
        if not able:
            raise ValueError("No level can pay for votes after the head counts: use larger ε, or public head counts.")
        return able, np.searchsorted([level.cap for level in able], self.caps, side="right") - 1

    def _charge(self, release: PartRelease, answer: Arrays, records: Any) -> None:
        charge = np.zeros(len(self.caps))
        if "charge" in answer:
            charge += answer["charge"]
        else:  # the charge is public and the same for all rows of a group's teachers
            assert release.charges is not None, "charges belong to the answer or to the release"
            charge[records.members] = np.asarray(release.charges)[answer["group"]]
        if (self.spent + charge > self.caps)[charge > 0].any():
            raise RuntimeError("A row would be charged more than its account has left, so nothing was released.")
        self.spent = self.spent + charge

    _counted = 0.0

    def _left(self, epsilon: float) -> float:
        return available_delta(self.delta, epsilon, draws=_DRAWS, distance=JOINT_NORMAL_DISTANCE)


class IndividualDPCounts(BaseEstimator):
    """Differentially private counts of rows in public cells; no row spends more than its own ε.

    Args:
        epsilons: (n,) ε of each row, or one for all; can be replaced in `fit`.
        delta: δ of all promises.
        cells: All values that a row may have; rows with other values are not counted.
        head_counts: Numbers of rows by ε, if they are public; otherwise they are counted with noise, at a small cost.
        seed: Seed of the noise, for experiments whose results stay secret.

    Attributes:
        counts_: (cells,) estimated numbers of rows.
        intervals_: (cells, 2) 95 % intervals of the true numbers, valid however ε values are distributed among the
            cells.
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
            raise ValueError("Give one column of values, and the cells in which to count them.")
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


class IndividualDPSynthesis(BaseEstimator):
    """Differentially private synthetic rows, drawn from noisy counts; no row spends more than its own ε.

    Args:
        epsilons: (n,) ε of each row, or one for all; can be replaced in `fit`.
        delta: δ of all promises.
        columns: At least two columns by name, each with its smallest and largest number or its categories.
        classes: All classes.
        rows: Number of rows to draw; if None, about as many as in the data.
        bins: Number of bins for each numeric column.
        head_counts: Numbers of rows by ε, if they are public; otherwise they are counted with noise, at a small cost.
        seed: Seed of the noise, for experiments whose results stay secret.

    Attributes:
        rows_: Drawn values (rows,) of each column by name: numbers or categories.
        classes_of_rows_: (rows,) class of each drawn row.
        description_: Public description of the count tables behind the drawn rows, with their errors.
        caps_: (n,) cap of each row's account in μ², determined by its ε.
        spent_: (n,) μ² that each row has spent, never more than its cap; as secret as the rows.

    >>> rng = np.random.default_rng(0)
    >>> people = {"age": rng.uniform(0, 100, 4000), "smoker": rng.choice(["no", "yes"], 4000)}
    >>> ill = np.where(people["age"] > 50, "ill", "well")
    >>> columns = {"age": (0, 100), "smoker": ["no", "yes"]}
    >>> drawn = IndividualDPSynthesis(2.0, columns=columns, classes=["ill", "well"], bins=10, seed=1).fit(people, ill)
    >>> bool(drawn.rows_["age"][drawn.classes_of_rows_ == "ill"].mean() > 65)
    True
    """

    def __init__(
        self,
        epsilons: ArrayLike = 1.0,
        *,
        delta: float = 1e-5,
        columns: Mapping[str, Sequence[Any]] | None = None,
        classes: Sequence[str] = (),
        rows: int | None = None,
        bins: int = 100,
        head_counts: Mapping[float, float] | None = None,
        seed: int | None = None,
    ) -> None:
        self.epsilons, self.delta, self.columns, self.classes = epsilons, delta, columns, classes
        self.rows, self.bins, self.head_counts, self.seed = rows, bins, head_counts, seed

    def fit(self, X: Any, y: ArrayLike, epsilons: ArrayLike | None = None) -> Self:  # noqa: N803
        """Count the rows in three rounds, and draw rows from the counts.

        Args:
            X: A data frame, or the values (n,) of each column by name.
            y: (n,) classes of the rows.
            epsilons: (n,) ε of each row, replacing the ones set before.
        """
        features = tuple(_declared(name, values) for name, values in (self.columns or {}).items())
        schema = TabularSchema(features, tuple(self.classes))
        codes = schema.encode_labels(np.asarray(y).tolist())
        given = {each.name: np.asarray(X[each.name]).tolist() for each in features}
        records = Records(schema.encode_columns(given, len(codes)), codes, np.arange(len(codes)))
        asked = _Asked(self.epsilons if epsilons is None else epsilons, len(codes), self.delta, self.seed)
        levels, columns = asked.levels(self.head_counts), len(feature_columns(schema, self.bins))
        plan = plan_synthesis(levels, columns=columns, share=asked.share(levels), rows=self.rows, bins=self.bins)
        counts = Marginals(schema, plan, tuple(level.cap for level in levels))
        for index in range(ROUNDS):
            (released,) = asked.ask(counts.question(index), records)
            counts = counts.after(released.arrays["sums"])
        drawn = rows_draw(counts)
        self.rows_ = {
            each.name: np.array(values, np.float64 if isinstance(each, NumericColumn) else None)
            for each, values in zip(features, drawn.values(), strict=True)
        }
        self.classes_of_rows_ = np.array(schema.classes)[drawn.classes]
        self.description_ = drawn.to_json()
        self.caps_, self.spent_ = asked.caps, asked.spent
        return self


def _declared(name: str, values: Sequence[Any]) -> NumericColumn | CategoricalColumn:
    """Return a numeric column with these two limits, or a column with these categories."""
    if len(values) == 2 and not any(isinstance(value, str) for value in values):
        return NumericColumn(name, float(values[0]), float(values[1]))
    return CategoricalColumn(name, tuple(map(str, values)))


class IndividualDPClassifier(ClassifierMixin, BaseEstimator):
    """Differentially private classifier in which no row spends more than its own ε.

    Each row belongs to a different person. docs/estimators.md states the guarantee, including what is protected
    individually and what must be public.

    Args:
        epsilons: (n,) ε of each row, or one for all; can be replaced in `fit`.
        delta: δ of all promises.
        public: (P, d) points or (P, height, width) images that are not secret and are distributed like the rows.
        method: “steps” trains a linear model by private gradient steps. In the other methods, a student learns from
            noisy votes on public points. All rows near a point vote for their classes (“neighbours”), or teachers
            trained on a few rows each vote (“pate”).
        head_counts: Numbers of rows by ε, if they are public; otherwise they are counted with noise, at a small cost.
        classes: All classes; if None, the classes that occur in the data, which then become public.
        student: Student that learns from the votes.
        learner: Learner of each teacher: nearest_neighbour, logistic_regression or random_forest.
        teachers: Number of teachers; if None, one per 13 rows.
        seed: Seed of the noise, for experiments whose results stay secret.

    Attributes:
        classes_: Classes, in the order of `predict_proba`.
        caps_: (n,) cap of each row's account in μ², determined by its ε.
        spent_: (n,) μ² that each row has spent, never more than its cap; as secret as the rows.
        plan_: Public plan of the steps, the round of votes, or the teachers.

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
        learner: str = "nearest_neighbour",
        teachers: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.epsilons, self.delta, self.public, self.method = epsilons, delta, public, method
        self.head_counts, self.classes, self.student, self.seed = head_counts, classes, student, seed
        self.learner, self.teachers = learner, teachers

    def fit(self, X: ArrayLike, y: ArrayLike, epsilons: ArrayLike | None = None) -> Self:  # noqa: N803
        """Learn from rows, charging each row to its own account.

        Args:
            X: (n, d) rows, or (n, height, width) images.
            y: (n,) classes of the rows.
            epsilons: (n,) ε of each row, replacing the ones set before, as needed in cross-validation.
        """
        if self.public is None:
            raise ValueError("Give public points, because the model's space is fitted to them and never to the rows.")
        public, x = _points(self.public), _points(X)
        if x.shape[1:] != public.shape[1:]:
            raise ValueError(f"The rows have the shape {x.shape[1:]}, but the public points {public.shape[1:]}.")
        if self.method not in _WAYS:
            raise ValueError(f"method is {self.method!r}; choose one of {', '.join(_WAYS)}.")
        self.classes_ = np.unique(np.asarray(y if self.classes is None else self.classes))
        codes = np.searchsorted(self.classes_, np.asarray(y))
        if len(codes) != len(x) or (self.classes_[np.minimum(codes, len(self.classes_) - 1)] != np.asarray(y)).any():
            raise ValueError("y and X have different numbers of rows, or y has a class that is not in “classes”.")
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
        """Return the plan of private gradient steps, and the resulting model."""
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
        """Return the plan of the round of votes, and a student trained on its noisy counts."""
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
        return planned, self._student(asked.ask(question, records), public)

    def _pate(
        self, asked: _Asked, levels: list[PlannedLevel], public: Floats, x: Floats, codes: NDArray[np.int64]
    ) -> tuple[Any, Model]:
        """Return the plan of the teachers, and a student trained on their noisy votes."""
        share, number = asked.share(levels) * (1.0 - _ROUNDING), len(self.classes_)
        able, place = asked.planned_groups(levels, share)
        groups = [PrivacyGroup(each.name, float(each.name), max(1, round(each.holders))) for each in able]
        usual = round(sum(group.holders for group in groups) / _ROWS_OF_A_TEACHER)
        caps = {each.name: share * each.cap for each in able}
        about: dict[str, Any] = {
            "variant": "weighting",
            "teachers": self.teachers or max(2, usual),
            "weight_scheme": "gdp",
        }
        plan = make_plan(groups, aggregator=NoisyCounts(sigma=1.0), delta=self.delta, **about)
        dearest = max(plan.aggregator.charge(group.sensitivity).label / caps[group.name] for group in plan.groups)
        wanted = max(_FEWEST_QUERIES, int((plan.teachers / _TEACHERS_PER_NOISE) ** 2 / dearest))
        rows = np.unique(np.linspace(0, len(public) - 1, min(len(public), wanted)).astype(np.int64))
        counted = NoisyCounts(sigma=(len(rows) * dearest) ** 0.5 * (1.0 + _ROUNDING))
        plan = make_plan(groups, aggregator=counted, delta=self.delta, **about)
        budgets = tuple(
            VoteBudget(caps[each.name], caps[each.name], **asdict(counted.charge(each.sensitivity)))
            for each in plan.groups
        )
        digest = hashlib.sha256(public[rows].tobytes()).hexdigest()
        question = TeachersQuestion(plan, budgets, len(rows), number, digest)
        group_of = np.array([*(plan.index_of(group.name) for group in groups), LEFT_OUT])[place]
        ballot = self._ballot(plan, group_of, public[rows], x, codes)
        return plan, self._student(asked.ask(question, ballot), public, rows)

    def _ballot(
        self, plan: Plan, group_of: NDArray[np.int64], points: Floats, x: Floats, codes: NDArray[np.int64]
    ) -> Ballot:
        """Return the predictions of all teachers. A secret key determines which teacher learns from a row."""
        key = os.urandom(32) if self.seed is None else np.random.default_rng(self.seed).bytes(32)
        row, teacher = assign_keyed(plan, np.arange(len(x)), group_of, key)
        learner, least, most = learner_create(self.learner, {}), points.min(axis=0), points.max(axis=0)
        scaled, asked = ((each - least) / np.maximum(most - least, _ROUNDING) for each in (x, points))
        predictions = np.full((plan.teachers, len(points)), NO_VOTE, np.int64)
        for place in np.unique(teacher).tolist():
            own, seed = row[teacher == place], teacher_seed(key, place)
            try:
                predictions[place] = teacher_classes(
                    learner, scaled[own], codes[own], asked, None, classes=len(self.classes_), seed=seed
                )
            except Exception:  # noqa: S112 - whether a teacher can learn is private, so it casts no vote
                continue
        return Ballot(predictions, row, teacher, group_of[row])

    def _student(
        self, releases: Iterable[PartRelease], public: Floats, places: NDArray[np.int64] | None = None
    ) -> Model:
        """Return a student trained on released labels for the public points with these indices."""
        answers = [pair for release in releases for pair in zip(release.rows, release.labels, strict=True)]
        rows, labels = zip(*[(row, label) for row, label in answers if label is not None], strict=True)
        learned = labelled(rows if places is None else places[list(rows)], labels, classes=len(self.classes_))
        return student_learn(student_create(self.student), public, learned, seed=0)


_WAYS = {
    "steps": IndividualDPClassifier._steps,
    "neighbours": IndividualDPClassifier._neighbours,
    "pate": IndividualDPClassifier._pate,
}


def _points(rows: ArrayLike) -> Floats:
    """Return rows or images as float32. Raises ValueError for anything else."""
    return np.asarray(check_array(rows, dtype=np.float32, allow_nd=True))
