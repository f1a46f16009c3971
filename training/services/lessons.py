"""Lessons: what the student of a run learns from, all of it released."""

from dataclasses import dataclass

import numpy as np

from training.learners import Model, learner_create
from training.models import Run
from training.services.holders.space import points_of


@dataclass(frozen=True, eq=False)
class Lesson:
    """``rows`` (n,) of the public dataset and their ``labels`` (n,).

    ``model`` is what a run has released itself, None where it releases labels alone; then ``publish`` says which of the
    two is published: "student", "model", or, empty, whichever is right more often on the test data.
    """

    rows: np.ndarray
    labels: np.ndarray
    model: Model | None = None
    publish: str = ""


def queries_lesson(run: Run) -> Lesson:
    """The labels of the answered queries of a run."""
    answered = dict(run.queries.filter(label__isnull=False).values_list("row", "label"))
    return Lesson(np.array(list(answered), dtype=np.int64), np.array(list(answered.values()), dtype=np.int64))


def student_fit(run: Run, lesson: Lesson) -> Model:
    """A student of the run's learner that has learned the lesson."""
    learner = learner_create(run.student_learner, run.student_parameters)
    points = points_of(run.public_dataset)[lesson.rows]
    return learner.fit(points, lesson.labels, classes=len(run.public_dataset.classes), seed=run.seed or 0)
