"""Classifier that learns from rows with an ε each, by private gradient steps or by votes of neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted

from learning.estimators.asking import Asked, Floats
from learning.learners import Model
from learning.mechanisms.neighbours.forecast import expected_voters
from learning.mechanisms.neighbours.released_counts import VotesQuestion
from learning.mechanisms.neighbours.rounds import plan_rounds
from learning.mechanisms.neighbours.votes import radii
from learning.mechanisms.protocol import PlannedLevel, Records
from learning.mechanisms.steps.descent import Descent, StepsQuestion
from learning.mechanisms.steps.steps_plan import Steps, plan_steps, strength_of
from learning.outcomes import Classes
from learning.representations import default_representation
from learning.students import labelled, student_create, student_learn


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
        asked = Asked(self.epsilons if epsilons is None else epsilons, len(x), self.delta, self.seed)
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
        self, asked: Asked, levels: list[PlannedLevel], public: Floats, x: Floats, codes: NDArray[np.int64]
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
        self, asked: Asked, levels: list[PlannedLevel], public: Floats, x: Floats, codes: NDArray[np.int64]
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
